// What a round decided: tasks on the left, machines on the right with what runs, what starts now and what comes later.

const CARD = 340;
const SMALL_CARD = 270;
const ROW = 23;
const HEAD = 30;
/** More machines than these are shown only where something happens. */
const CARDS = 24;

function planScene(part, options) {
  const boxes = new Map();
  const links = new Map();
  const wide = options.room < 760 ? SMALL_CARD : CARD;
  const last = part.graphs.last || null;
  const machines = part.machines.map((_, machine) => machine);
  const comes = (machine) => part.placedOn.has(machine) || part.plannedOn.has(machine) || part.reservedOn.has(machine);
  const wanted = (machine) => options.chosenMachines.has(machine);
  const extra = options.more.get("idle:card") || 0;
  const idle = machines.filter((machine) => !comes(machine) && !wanted(machine));
  const shownIdle = new Set(machines.length <= CARDS ? idle : idle.slice(0, extra));
  const drawn = machines.filter((machine) => comes(machine) || wanted(machine) || shownIdle.has(machine));
  const hidden = idle.filter((machine) => !shownIdle.has(machine));

  for (let task = 0; task < part.tasks.length; task += 1) {
    const stand = standOf(part, task);
    boxes.set(`task:${part.tasks[task]}`, {
      id: `task:${part.tasks[task]}`,
      kind: stand.state === "placed" ? "task" : "task waiting",
      column: 0,
      label: part.taskTitle(task),
      note: stand.cost === null ? "" : `cost ${number(stand.cost)}`,
      aria: `${part.taskTitle(task)}: ${standText(stand)}`,
      choice: { type: "task", name: part.tasks[task] },
      nodes: last && last.node("task", part.tasks[task]) !== undefined ? [last.node("task", part.tasks[task])] : [],
      flow: 1,
    });
  }
  for (const machine of drawn) card(part, machine, boxes, wide);
  if (hidden.length) {
    boxes.set("idle:card", {
      id: "idle:card",
      kind: "bundle",
      column: 2,
      label: `${whole(hidden.length)} machines without newcomers`,
      note: "",
      nodes: [],
      members: hidden.map((machine) => `machine:${part.machines[machine]}`),
      expandable: true,
      flow: 0,
    });
  }
  const nowhere = part.tasks.some((_, task) => standOf(part, task).state === "waits");
  if (nowhere || last) {
    boxes.set("waits", {
      id: "waits",
      kind: "unscheduled",
      column: -1,
      label: "waits",
      note: nowhere ? "not planned for any machine" : "no task is left without a plan",
      nodes: [],
      flow: 0,
    });
  }
  for (let task = 0; task < part.tasks.length; task += 1) taskLinks(part, task, last, boxes, links);
  return {
    boxes,
    links,
    columns: [
      { text: "Pending tasks", count: whole(part.tasks.length), used: true },
      { text: "", count: "", used: false },
      { text: "Machines", count: whole(part.machines.length), used: true },
      { text: "", count: "", used: false },
    ],
    lane: ["Unscheduled", "Waits"],
    what: "plan",
  };
}

/** A machine: its cores, and rows for those who are there or will be. */
function card(part, machine, boxes, wide) {
  const name = part.machines[machine];
  const id = `machine:${name}`;
  const rows = [];
  for (const service of part.servicesOn.get(name) || []) {
    rows.push({
      tag: "service",
      text: service.name,
      note: `${wide === CARD ? `core ${service.cores}, ` : ""}p95 within ${latency(service.slo_p95)}`,
      state: "service",
    });
  }
  for (const run of part.runningOn.get(name) || []) {
    rows.push({
      tag: "runs",
      text: part.round.title(run.task),
      note: wide === CARD ? `${cores(run.width_milli)}, ${percent(run.progress)} of its forecast` : cores(run.width_milli),
      state: "runs",
    });
  }
  for (const placed of part.placedOn.get(machine) || []) {
    const p = part.placement(placed);
    const threads = p.threads && wide === CARD ? `, ${counted(p.threads, "thread")}` : "";
    rows.push({
      tag: "now",
      text: part.taskTitle(p.task),
      note: `${cores(p.width)}${threads}`,
      state: "now",
      task: p.task,
    });
  }
  for (const task of part.plannedOn.get(machine) || []) {
    const [, slot, width] = part.plan[task];
    rows.push({ tag: slotTag(slot), text: part.taskTitle(task), note: cores(width), state: "later", task });
  }
  for (const [task, , width, start] of part.reservedOn.get(machine) || []) {
    rows.push({
      tag: "reserved",
      text: task >= 0 ? part.taskTitle(task) : "",
      note: `${cores(width)} ${until(start, part.round.now_s, true)}`,
      state: "reserved",
    });
  }
  const size = part.size(machine);
  const type = part.machine_facts.type[machine];
  boxes.set(id, {
    id,
    kind: "card",
    column: 2,
    label: name,
    note: [type && type !== name ? type : null, size === null ? null : cores(size)]
      .filter(Boolean)
      .join(" · "),
    aria: `${name}: ${rows.map((row) => `${row.text} ${row.tag}`).join(", ") || "none"}`,
    choice: { type: "machine", name },
    nodes: [],
    framed: true,
    w: wide,
    h: HEAD + Math.max(1, rows.length) * ROW + 8,
    flow: rows.some((row) => row.task !== undefined) ? 1 : 0,
    empty: rows.length === 0,
  });
  rows.forEach((row, i) => {
    const choice = row.task === undefined ? { type: "machine", name } : { type: "task", name: part.tasks[row.task] };
    boxes.set(`${id} row ${i}`, {
      id: `${id} row ${i}`,
      kind: `row ${row.state}`,
      column: 2,
      parent: id,
      label: row.text,
      tag: row.tag,
      note: row.note,
      aria: `${row.text}, ${row.tag}, ${row.note}`,
      choice,
      nodes: [],
      task: row.task,
      dx: 8,
      dy: HEAD + i * ROW,
      w: wide - 16,
      h: ROW - 3,
      flow: 0,
    });
  });
}

function slotText(slot) {
  return slot <= 0 ? "at once" : slot === 1 ? "after the next completion there" : `after ${slot} completions there`;
}

function slotTag(slot) {
  return slot <= 0 ? "at once" : slot === 1 ? "next" : `after ${slot}`;
}

/** Where a task goes, and by how much every other machine, or waiting, would cost more. */
function taskLinks(part, task, last, boxes, links) {
  const name = part.tasks[task];
  const source = `task:${name}`;
  const stand = standOf(part, task);
  const here = machineName(stand);
  const row = [...boxes.values()].find((box) => box.task === task && box.parent === `machine:${here}`);
  const target = row ? row.id : here ? `machine:${here}` : "waits";
  const add = (to, link) => {
    if (boxes.has(to) && !links.has(`${source} → ${to}`))
      links.set(`${source} → ${to}`, { id: `${source} → ${to}`, source, target: to, ...link });
  };
  add(target, {
    arcs: [],
    flow: (stand.width > 0 ? stand.width : 1000) / 1000,
    chosen: true,
    stand,
    cost: stand.cost ?? 0,
    reduced: 0,
    price: null,
    amount:
      stand.state === "placed"
        ? `starts with ${cores(stand.width)}`
        : stand.state === "planned"
          ? `planned, ${slotTag(stand.slot)}`
          : "waits",
    label: stand.width > 0 ? cores(stand.width) : "",
    later: stand.state === "planned",
  });
  const node = last ? last.node("task", name) : undefined;
  if (node === undefined) return;
  const byHead = new Map();
  const own = plannedMachine(part, task);
  for (const arc of last.leaving[node]) {
    const waits = last.kindOf(last.heads[arc]) === "stay";
    if (waits && last.termsOf(arc).length === 0) continue;
    listed(byHead, waits ? "waits" : `machine:${last.machinesOf(arc, own)[0]}`, arc);
  }
  for (const [to, arcs] of byHead) {
    if (to === target) continue;
    const best = d3.least(arcs, (a, b) => last.cost(a) - last.cost(b));
    const more = last.cost(best);
    add(to, {
      arcs,
      best,
      flow: 0,
      capacity: arcs.length,
      cost: (stand.cost ?? 0) + more,
      reduced: more,
      price: null,
      amount: `${signed(more)} cost`,
      label: signed(more),
      alternative: true,
    });
  }
}
