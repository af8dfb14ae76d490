// The round as one network: tasks on the left, machines with their cores and later starts, the sink; what was decided flows.
// Rounds without such a network (baselines) are drawn the same, without the other places.

const CARD = 340;
const SMALL_CARD = 270;
const NARROW_CARD = 205;
const NARROW = 500;
const ROW = 23;
const HEAD = 30;
/** More machines than these are a line each, and those where nothing starts are gathered. */
const CARDS = 9;
/** On more machines than these all later starts are one row, where one is planned, and services have none. */
const ROOMY = 4;
const LINES = 18;
/** More tasks than these are drawn by class. */
const TASKS = 26;

function roundScene(part, options) {
  return new RoundScene(part, options).build();
}

class RoundScene {
  constructor(part, options) {
    Object.assign(this, { part, options, graph: part.graphs.round || null });
    this.boxes = new Map();
    this.links = new Map();
    this.narrow = options.room < NARROW;
    this.wide = this.narrow ? NARROW_CARD : options.room < 760 ? SMALL_CARD : CARD;
    /** Box of every task, machine and place. */
    this.boxOfTask = new Map();
    this.boxOfMachine = new Map();
  }

  build() {
    const { part, graph } = this;
    this.tasks();
    this.machines();
    const waiting = part.tasks.filter((_, task) => standOf(part, task).state === "waits").length;
    if (waiting || graph)
      this.boxes.set("waits", {
        id: "waits",
        kind: "unscheduled",
        column: -1,
        label: "unscheduled",
        note: waiting ? counted(waiting, "task") : "no task waits without a place",
        nodes: graph ? [graph.node("unscheduled")] : [],
        flow: waiting,
      });
    const runs = d3.sum([...part.runningOn.values()], (list) => list.length);
    if (graph)
      this.boxes.set("sink", {
        id: "sink",
        kind: "sink",
        column: 3,
        label: "sink",
        note: this.narrow ? "" : `${counted(part.tasks.length, "task")}${runs ? ` and ${runs} that run` : ""}`,
        nodes: [graph.node("sink")],
        flow: 1,
      });
    part.tasks.forEach((_, task) => this.taskLinks(task));
    if (graph) this.toSink();
    for (const link of this.links.values()) this.finish(link);
    return {
      boxes: this.boxes,
      links: this.links,
      columns: [
        { text: part.classes.length < part.tasks.length && part.tasks.length > TASKS ? "Classes of tasks" : "Tasks", count: whole(part.tasks.length), used: true },
        { text: "", count: "", used: false },
        { text: this.narrow ? "Machines" : "Machines: cores now, starts later", count: whole(part.machines.length), used: true },
        { text: graph ? "Sink" : "", count: "", used: Boolean(graph) },
      ],
      lane: ["Unscheduled: waits without a place", "Unscheduled", "Waits"],
      what: "round",
      narrow: this.narrow,
    };
  }

  // --- tasks ---

  tasks() {
    const { part, options } = this;
    const single = (task) => this.task(task);
    if (part.tasks.length <= TASKS) part.tasks.forEach((_, task) => single(task));
    else {
      const ranked = part.classes.map((_, cls) => cls).sort((a, b) => part.classes[b].members.length - part.classes[a].members.length || a - b);
      const kept = TASKS + (options.more.get("rest:class") || 0);
      const rest = [];
      ranked.forEach((cls, i) => {
        const { name, members } = part.classes[cls];
        const id = `class:${name}`;
        const chosen = members.filter((task) => part.tasks[task] === options.chosenTask);
        if (options.expanded.has(id) || (members.length === 1 && i < kept)) members.forEach(single);
        else if (i < kept || options.shown.has(id)) {
          chosen.forEach(single);
          this.classBox(cls, members.filter((task) => !chosen.includes(task)));
        } else {
          chosen.forEach(single);
          rest.push(cls);
        }
      });
      if (rest.length) {
        const members = rest.flatMap((cls) => part.classes[cls].members).filter((task) => !this.boxOfTask.has(task));
        this.add({
          id: "rest:class",
          kind: "bundle",
          column: 0,
          label: rest.length < members.length ? `${whole(rest.length)} more classes` : `${whole(members.length)} more tasks`,
          note: rest.length < members.length ? counted(members.length, "task") : "",
          members: rest.map((cls) => `class:${part.classes[cls].name}`),
          expandable: true,
        });
        for (const task of members) this.boxOfTask.set(task, "rest:class");
      }
    }
    if (!this.graph || part.machines.length > CARDS) return;
    for (const [machine, list] of part.runningOn) {
      this.add({
        id: `running:${machine}`,
        kind: "task running",
        column: 0,
        label: list.map((run) => part.round.title(run.task)).join(", "),
        note: this.narrow ? "runs" : `${list.length > 1 ? "run" : "runs"} there, ${list.length > 1 ? "stay" : "stays"}`,
        choice: { type: "machine", name: machine },
      });
    }
  }

  task(task) {
    const { part, graph } = this;
    const name = part.tasks[task];
    const stand = standOf(part, task);
    const node = graph ? graph.node("task", name) : undefined;
    this.boxOfTask.set(task, `task:${name}`);
    this.add({
      id: `task:${name}`,
      kind: stand.state === "placed" ? "task" : "task waiting",
      label: part.taskTitle(task),
      note: stand.cost === null ? "" : `cost ${number(stand.cost)}`,
      column: 0,
      aria: `${part.taskTitle(task)}: ${standText(stand)}`,
      choice: { type: "task", name },
      nodes: node === undefined ? [] : [node],
    });
  }

  classBox(cls, members) {
    const { part } = this;
    const { name } = part.classes[cls];
    const waits = members.filter((task) => !part.placementOf.has(task)).length;
    if (!members.length) return;
    for (const task of members) this.boxOfTask.set(task, `class:${name}`);
    this.add({
      id: `class:${name}`,
      kind: "class",
      column: 0,
      cls,
      label: part.className(cls),
      note: `${counted(members.length, "task")}${waits ? `, ${whole(waits)} wait${waits === 1 ? "s" : ""}` : ""}`,
      choice: { type: "class", name },
      expandable: true,
    });
  }

  add(box) {
    this.boxes.set(box.id, { nodes: [], flow: 1, ...box });
  }

  // --- machines ---

  machines() {
    const { part, options } = this;
    const all = part.machines.map((_, machine) => machine);
    const comes = (machine) => (part.placedOn.get(machine) || []).length + (part.plannedOn.get(machine) || []).length;
    const wanted = (machine) =>
      options.chosenMachines.has(machine) || options.expanded.has(`machine:${part.machines[machine]}`);
    if (all.length <= CARDS) {
      for (const machine of all) this.card(machine);
      return;
    }
    const busy = all
      .filter((machine) => comes(machine) || part.reservedOn.has(machine))
      .sort((a, b) => comes(b) - comes(a) || a - b);
    const idle = all.filter((machine) => !busy.includes(machine));
    const kept = new Set([
      ...busy.slice(0, Math.ceil(LINES / options.share) + (options.more.get("rest:machine") || 0)),
      ...idle.slice(0, options.more.get("idle:machine") || 0),
      ...all.filter(wanted),
    ]);
    for (const machine of all)
      if (wanted(machine)) this.card(machine);
      else if (kept.has(machine)) this.line(machine);
    for (const [id, list, text] of [
      ["rest:machine", busy, "more machines"],
      ["idle:machine", idle, "machines where none arrives"],
    ]) {
      const left = list.filter((machine) => !kept.has(machine));
      if (!left.length) continue;
      for (const machine of left) this.boxOfMachine.set(machine, id);
      const arrivals = d3.sum(left, comes);
      this.add({
        id,
        kind: "bundle",
        column: 2,
        label: `${whole(left.length)} ${text}`,
        note: arrivals ? counted(arrivals, "task") : "",
        members: left.map((machine) => `machine:${part.machines[machine]}`),
        expandable: true,
        flow: arrivals,
      });
    }
  }

  /** A machine as one line: what is taken of its cores. */
  line(machine) {
    const { part } = this;
    const name = part.machines[machine];
    const placed = (part.placedOn.get(machine) || []).length;
    const planned = (part.plannedOn.get(machine) || []).length;
    const size = part.size(machine);
    const free = part.freeNow(machine);
    const told = [placed ? `+${placed} now` : "", planned ? `${planned} later` : ""].filter(Boolean).join(", ");
    this.boxOfMachine.set(machine, `machine:${name}`);
    this.add({
      id: `machine:${name}`,
      kind: "machine",
      column: 2,
      label: name,
      note: [size === null || this.narrow ? "" : cores(size), told].filter(Boolean).join(" · "),
      aria: `${name}: ${told || "none arrives"}`,
      choice: { type: "machine", name },
      expandable: true,
      fill: size && free !== null ? (size - free) / size : null,
      fillNew: size ? part.given(machine) / size : null,
      flow: placed + planned,
    });
  }

  /** A machine with a row for each place: what runs, its cores now, and each later start. */
  card(machine) {
    const { part, graph } = this;
    const name = part.machines[machine];
    const id = `machine:${name}`;
    this.boxOfMachine.set(machine, id);
    const full = !this.narrow && this.wide === CARD;
    const rows = [];
    const together = part.machines.length > ROOMY;
    const services = part.servicesOn.get(name) || [];
    for (const service of together ? [] : services)
      rows.push({
        tag: "service",
        text: service.name,
        note: `${full ? `core ${service.cores}, ` : ""}p95 within ${latency(service.slo_p95)}`,
        state: "service",
      });
    const title = (task) => part.taskTitle(task);
    const names = (tasks) => tasks.map(title).join(", ");
    for (const run of part.runningOn.get(name) || [])
      rows.push({
        tag: "runs",
        text: part.round.title(run.task),
        note: full ? `${cores(run.width_milli)}, ${percent(run.progress)} of its forecast` : cores(run.width_milli),
        state: "runs",
      });
    const placed = (part.placedOn.get(machine) || []).map((row) => part.placements.task[row]);
    const given = part.given(machine);
    const free = part.freeNow(machine);
    const open = graph ? graph.placesOf(name) : { now: false, later: [] };
    if (placed.length || graph)
      rows.push({
        place: "now",
        tag: "now",
        text: placed.length ? names(placed) : "",
        note:
          free === null
            ? cores(given)
            : this.narrow
              ? `${amount(given / 1000)}/${amount(free / 1000)}`
              : `${amount(given / 1000)} of ${cores(free)}`,
        state: placed.length ? "now" : open.now ? "place" : "place shut",
        tasks: placed,
      });
    const planned = part.plannedOn.get(machine) || [];
    const slots = [...new Set([...open.later, ...planned.map((task) => part.plan[task][1])])].sort((a, b) => a - b);
    for (const slot of together ? slots.slice(0, planned.length ? 1 : 0) : slots) {
      const here = together ? planned : planned.filter((task) => part.plan[task][1] === slot);
      rows.push({
        place: together ? "later" : String(slot),
        tag: together ? "later" : slotTag(slot),
        text: together ? here.map((task) => `${title(task)} (${slotTag(part.plan[task][1])})`).join(", ") : names(here),
        note: here.length ? cores(d3.sum(here, (task) => part.plan[task][2])) : "",
        state: here.length ? "later" : "place",
        tasks: here,
      });
    }
    for (const [task, , width, start] of part.reservedOn.get(machine) || [])
      rows.push({
        tag: "reserved",
        text: task >= 0 ? title(task) : "",
        note: `${cores(width)} ${until(start, part.round.now_s, true)}`,
        state: "reserved",
        tasks: task >= 0 ? [task] : [],
      });
    const size = part.size(machine);
    const type = part.machine_facts.type[machine];
    this.add({
      id,
      kind: "card",
      column: 2,
      label: name,
      note: [
        together && services.length ? services.map((service) => service.name).join(", ") : null,
        full && type && type !== name ? type : null,
        size === null ? null : cores(size),
      ]
        .filter(Boolean)
        .join(" · "),
      aria: `${name}: ${rows.map((row) => `${row.text} ${row.tag}`).join(", ") || "none"}`,
      choice: { type: "machine", name },
      framed: true,
      expandable: part.machines.length > CARDS,
      expanded: true,
      w: this.wide,
      h: HEAD + Math.max(1, rows.length) * ROW + 8,
      flow: placed.length + planned.length,
      empty: rows.length === 0,
    });
    rows.forEach((row, i) => {
      const [task] = row.tasks || [];
      const one = row.tasks && row.tasks.length === 1;
      this.add({
        id: `${id} ${row.place === undefined ? `row ${i}` : row.place}`,
        kind: `row ${row.state}`,
        column: 2,
        parent: id,
        label: row.text,
        tag: row.tag,
        note: row.note,
        aria: `${row.text || "room"}, ${row.tag}, ${row.note}`,
        choice: one ? { type: "task", name: part.tasks[task] } : { type: "machine", name },
        tasks: row.tasks,
        dx: 8,
        dy: HEAD + i * ROW,
        w: this.wide - 16,
        h: ROW - 3,
        flow: 0,
      });
    });
  }

  /** Id of the box of a place: a row of a card, or the machine. */
  placeId(machine, slot) {
    const id = this.boxOfMachine.get(machine);
    const row = [`${id} ${slot || "now"}`, `${id} later`].find((one) => this.boxes.has(one) && (slot || !one.endsWith(" later")));
    return row || id;
  }

  // --- lines ---

  link(source, target) {
    if (!this.boxes.has(source) || !this.boxes.has(target)) return null;
    const id = `${source} → ${target}`;
    if (!this.links.has(id))
      this.links.set(id, { id, source, target, arcs: [], flow: 0, tasks: 0, cost: Infinity, reduced: Infinity, price: null, options: [] });
    return this.links.get(id);
  }

  /** Where a task goes, and by how much every other place, or waiting, would be dearer. */
  taskLinks(task) {
    const { part, graph } = this;
    const source = this.boxOfTask.get(task);
    const stand = standOf(part, task);
    const machine = stand.state === "waits" ? -1 : stand.machine;
    const target = machine >= 0 ? this.placeId(machine, stand.slot) : "waits";
    const chosen = this.link(source, target);
    if (chosen) {
      chosen.flow += part.coresOf(task) / 1000;
      chosen.tasks += 1;
      chosen.chosen = true;
      chosen.stand = stand;
      chosen.later = stand.state === "planned";
      chosen.total = (chosen.total || 0) + (stand.cost ?? 0);
    }
    if (!graph) return;
    for (const option of part.optionsOf(task)) {
      if (option.decided) {
        if (chosen) chosen.arcs.push(option.arc);
        continue;
      }
      const to = option.machine === null ? "waits" : this.placeId(option.number, option.slot);
      const link = to === target ? null : this.link(source, to);
      if (!link) continue;
      link.arcs.push(option.arc);
      link.options.push(option);
      if (option.more < link.reduced) {
        link.reduced = option.more;
        link.cost = option.cost;
        link.best = option.arc;
      }
    }
  }

  /** What runs stays; the flow of each machine and of the unscheduled node ends in the sink. */
  toSink() {
    const { part, graph } = this;
    for (const [name, list] of part.runningOn) {
      const machine = part.machineNumber.get(name);
      const flow = d3.sum(list, (run) => run.width_milli) / 1000;
      const runs = [...this.boxes.values()].find((box) => box.parent === `machine:${name}` && box.kind === "row runs");
      const stays = this.link(`running:${name}`, runs ? runs.id : `machine:${name}`);
      if (stays) Object.assign(stays, { flow, fixed: { type: "machine", name }, words: "stays", reduced: 0, cost: 0 });
      this.sinkLink(this.boxOfMachine.get(machine), flow, 0, { type: "machine", name });
    }
    part.tasks.forEach((_, task) => {
      const stand = standOf(part, task);
      const waits = stand.state === "waits";
      const choice = waits ? { type: "node", name: "unscheduled" } : { type: "machine", name: part.machines[stand.machine] };
      this.sinkLink(waits ? "waits" : this.boxOfMachine.get(stand.machine), part.coresOf(task) / 1000, 1, choice);
    });
    for (const [machine, id] of this.boxOfMachine)
      this.sinkLink(id, 0, 0, { type: "machine", name: part.machines[machine] });
    if (graph) this.sinkLink("waits", 0, 0, { type: "node", name: "unscheduled" });
  }

  sinkLink(source, flow, tasks, choice) {
    const link = this.link(source, "sink");
    if (!link) return;
    link.flow += flow;
    link.tasks += tasks;
    Object.assign(link, { fixed: choice, reduced: 0, cost: 0, words: "" });
  }

  finish(link) {
    if (link.fixed) {
      link.amount = link.words || cores(link.flow * 1000);
      link.label = "";
      return;
    }
    if (link.chosen) {
      const { stand } = link;
      const one = link.tasks === 1;
      link.reduced = 0;
      link.cost = link.total / link.tasks;
      link.alternative = false;
      link.amount = !one
        ? `${counted(link.tasks, "task")}, ${cores(link.flow * 1000)}`
        : stand.state === "placed"
          ? `starts with ${cores(stand.width)}`
          : stand.state === "planned"
            ? `planned, ${slotTag(stand.slot)}`
            : "waits";
      link.label = one ? (stand.width > 0 ? cores(stand.width) : "") : counted(link.tasks, "task");
      return;
    }
    link.alternative = true;
    link.amount = `${signed(link.reduced)} cost`;
    link.label = signed(link.reduced);
  }
}

function slotText(slot) {
  return slot <= 0 ? "at once" : slot === 1 ? "after the next completion there" : `after ${slot} completions there`;
}

function slotTag(slot) {
  return slot <= 0 ? "at once" : slot === 1 ? "next" : `after ${slot}`;
}
