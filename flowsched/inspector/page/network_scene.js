// What is drawn of a network: boxes for its nodes, with groups folded and the idle gathered, and lines for its arcs.
//
// A box is {id, kind, column, label, note, w, h, nodes, choice}; boxes of a frame have parent, dx and dy. A line is
// {id, source, target, arcs, flow, ...}: arcs from one box to another. A column of -1 is the lane of those who wait.

/** Boxes of a kind that are drawn before the others are gathered; fewer where two networks share the room. */
const KEPT_GROUPS = 18;
const KEPT_CLASSES = 26;
const KEPT_WAITS = 4;
const FEW = 16;
const CHIPS = 48;
const STEP = 48;
const FONT_SIZE = 12.5;
const NOTE_SIZE = 11;
const COLUMN_OF = { class: 0, domain: 1, tier: 2, group: 2, machine: 2, unscheduled: -1, sink: 3 };

/** options: expanded (ids of boxes), more (how many of a box's members), shown (ids that must not be gathered). */
function networkScene(part, graph, options) {
  return new NetworkScene(part, graph, options).build();
}

class NetworkScene {
  constructor(part, graph, options) {
    this.part = part;
    this.graph = graph;
    this.options = options;
    this.boxes = new Map();
    this.links = new Map();
    this.boxOf = new Array(graph.nodeCount);
  }

  build() {
    this.place();
    this.connect();
    const { part, graph } = this;
    const classes = part.classes.length;
    const heads = [
      "Classes of tasks",
      "Domains",
      part.oneNetwork ? "Groups of machines" : "Machines, one arrival each",
      "Sink",
    ];
    const sent = d3.sum(graph.supplies, (supply) => Math.max(0, supply));
    const counts = [
      part.oneNetwork
        ? `${whole(classes)} · ${counted(part.tasks.length, "task")}`
        : `${whole(graph.kind.filter((k) => graph.kinds[k] === "class").length)} · ${counted(sent, "task")}`,
      whole(graph.kind.filter((k) => graph.kinds[k] === "domain").length),
      part.oneNetwork
        ? `${whole(part.groups.length)} · ${counted(part.machines.length, "machine")}`
        : whole(part.machines.length),
      "",
    ];
    const used = new Set([...this.boxes.values()].map((box) => box.column));
    return {
      boxes: this.boxes,
      links: this.links,
      columns: heads.map((text, i) => ({ text, count: counts[i], used: used.has(i) })),
      lane: ["Unscheduled: left waiting, at a price", "Unscheduled", "Waits"],
      what: "network",
    };
  }

  /** Give every node a box. */
  place() {
    const { graph, options } = this;
    const byGroup = new Map();
    const single = { class: [], domain: [], unscheduled: [], machine: [] };
    for (let node = 0; node < graph.nodeCount; node += 1) {
      const kind = graph.kindOf(node);
      if ((kind === "tier" || kind === "group") && graph.group[node] >= 0) listed(byGroup, graph.group[node], node);
      else if (single[kind]) single[kind].push(node);
      else this.other(node, kind);
    }
    this.some("class", single.class, KEPT_CLASSES, "classes", (node) => this.classBox(node));
    this.some("domain", single.domain, KEPT_CLASSES, "domains", (node) => this.domainBox(node));
    this.some("machine", single.machine, KEPT_GROUPS, "machines", (node) => this.machineBox(node));
    const idle = 1;
    this.some("unscheduled", single.unscheduled, KEPT_WAITS, "unscheduled nodes", (node) => this.waitBox(node), idle);
    const groups = [...byGroup.entries()].map(([group, nodes]) => ({ group, nodes, flow: this.groupFlow(nodes) }));
    this.gather(
      "group",
      groups,
      KEPT_GROUPS,
      "groups",
      FEW,
      (entry) => `group:${this.part.groups[entry.group].name}`,
      (entry) =>
        options.expanded.has(`group:${this.part.groups[entry.group].name}`)
          ? this.groupFrame(entry)
          : this.groupBox(entry),
    );
  }

  groupFlow(nodes) {
    const inside = new Set(nodes);
    return d3.sum(nodes, (node) =>
      d3.sum(this.graph.leaving[node], (arc) => (inside.has(this.graph.heads[arc]) ? 0 : this.graph.flow[arc])),
    );
  }

  some(kind, nodes, kept, words, make, idle = FEW) {
    const entries = nodes.map((node) => ({ nodes: [node], node, flow: this.graph.through[node] }));
    this.gather(
      kind,
      entries,
      kept,
      words,
      idle,
      (entry) => this.graph.label(entry.node),
      (entry) => make(entry.node),
    );
  }

  /** Boxes for those with most flow; the others are gathered in one box with flow and one without. */
  gather(kind, entries, most, words, idleKept, idOf, make) {
    const { options } = this;
    const least = Math.ceil(most / options.share);
    const extra = (id) => options.more.get(id) || 0;
    const busyId = `rest:${kind}`;
    const idleId = `idle:${kind}`;
    const named = entries.map((entry) => ({ ...entry, id: idOf(entry) }));
    const ranked = named.filter((entry) => entry.flow > 0).sort((a, b) => b.flow - a.flow);
    const idle = named.filter((entry) => entry.flow === 0);
    const must = (entry) => options.shown.has(entry.id) || options.expanded.has(entry.id);
    const kept = new Set();
    ranked.forEach((entry, i) => (i < least + extra(busyId) || must(entry)) && kept.add(entry.id));
    const idleMost = idle.length <= idleKept ? idle.length : 0;
    idle.forEach((entry, i) => (i < idleMost + extra(idleId) || must(entry)) && kept.add(entry.id));
    const rest = (list) => list.filter((entry) => !kept.has(entry.id));
    const gathered = [
      [busyId, rest(ranked), `more ${words}`],
      [idleId, rest(idle), `${words} without flow`],
    ];
    for (const entry of named) if (kept.has(entry.id)) make(entry);
    for (const [id, left, text] of gathered) {
      if (left.length === 1) make(left[0]);
      else if (left.length) this.bundle(id, kind, left, text);
    }
  }

  bundle(id, kind, entries, text) {
    const flow = d3.sum(entries, (entry) => entry.flow);
    const members = kind === "group" ? entries.flatMap((entry) => this.part.groups[entry.group].members) : [];
    const placed = this.part.placedAt(members);
    const later = flow || !placed ? "" : `${counted(placed, "task")} placed there later`;
    this.add({
      id,
      kind: "bundle",
      column: COLUMN_OF[kind],
      label: `${whole(entries.length)} ${text}`,
      note: later || (members.length ? counted(members.length, "machine") : ""),
      aria: [`${whole(entries.length)} ${text}`, members.length ? counted(members.length, "machine") : "", later]
        .filter(Boolean)
        .join(", "),
      placed,
      nodes: entries.flatMap((entry) => entry.nodes),
      members: entries.map((entry) => entry.id),
      expandable: true,
      flow,
    });
  }

  classBox(node) {
    const { graph, part, options } = this;
    const id = graph.label(node);
    const cls = graph.class[node];
    const members = cls >= 0 ? part.classes[cls].members : [];
    const width = cls >= 0 ? part.classWidth(cls) : null;
    // A pass may have a part of a class only.
    const sent = part.oneNetwork ? members.length : graph.supplies[node];
    const tasks =
      sent < members.length ? `${whole(sent)} of ${counted(members.length, "task")}` : counted(members.length, "task");
    const base = {
      id,
      kind: "class",
      column: 0,
      label: part.round.title(graph.name[node]),
      note: [width === null ? tasks : `${tasks} of ${cores(width)}`, this.undoneText(members)].filter(Boolean).join(" · "),
      nodes: [node],
      cls,
      choice: { type: "class", name: graph.name[node] },
      expandable: members.length > 1,
      price: this.priceOf(node),
      flow: graph.through[node],
    };
    if (!options.expanded.has(id) || members.length < 2) {
      this.add(base);
      return;
    }
    const chips = this.ordered(members, (task) => options.chosenTask === part.tasks[task]).map((task) => {
      const stand = standOf(part, task);
      const where = standText(stand);
      return {
        id: `task:${part.tasks[task]}`,
        label: part.taskTitle(task),
        note: stand.state === "placed" ? "" : "waits",
        aria: `${part.taskTitle(task)}, ${stand.state === "placed" ? `on ${where}` : where}`,
        choice: { type: "task", name: part.tasks[task] },
        kind: stand.state === "placed" ? "chip" : "chip waiting",
      };
    });
    this.frame(base, [], chips, 2, 108);
  }

  /** What undid the placements of the drawn pass among some tasks. */
  undoneText(members) {
    const drawn = this.part.passes.find((one) => one.number === this.graph.pass);
    const found = drawn ? drawn.undone.filter(([task]) => members.includes(task)) : [];
    if (!found.length) return "";
    const by = [...new Set(found.map(([, stage]) => stage).filter(Boolean))].join(", ");
    return `${found.length < members.length ? `${whole(found.length)} ` : ""}undone${by ? ` by ${by}` : ""}`;
  }

  /** The chosen ones first, so that they are among those shown. */
  ordered(members, isChosen) {
    return [...members.filter(isChosen), ...members.filter((member) => !isChosen(member))];
  }

  domainBox(node) {
    const { graph, part } = this;
    const cls = graph.class[node];
    this.add({
      id: graph.label(node),
      kind: "domain",
      column: 1,
      label: graph.domainTitle(node),
      note: cls >= 0 ? part.className(cls) : "",
      nodes: [node],
      choice: { type: "node", name: graph.label(node) },
      price: this.priceOf(node),
      flow: graph.through[node],
    });
  }

  machineBox(node) {
    const { graph, part } = this;
    const name = graph.name[node];
    const machine = part.machineNumber.get(name);
    const placed = (part.placedOn.get(machine) || []).length;
    const planned = (part.plannedOn.get(machine) || []).length;
    this.add({
      id: `machine:${name}`,
      kind: "machine",
      column: 2,
      label: name,
      note: planned ? `${placed} start, ${planned} later` : placed ? `${placed} start` : "",
      nodes: [node],
      choice: { type: "machine", name },
      price: this.priceOf(node),
      flow: graph.through[node],
    });
  }

  waitBox(node) {
    const { graph, part } = this;
    this.add({
      id: graph.label(node),
      kind: "unscheduled",
      column: -1,
      label: part.round.title(graph.name[node]) || "unscheduled",
      note: graph.through[node]
        ? counted(
            d3.sum(graph.entering[node], (arc) => graph.tasks(arc)),
            "task",
          )
        : "none",
      nodes: [node],
      choice: { type: "node", name: graph.label(node) },
      price: this.priceOf(node),
      flow: graph.through[node],
    });
  }

  other(node, kind) {
    const { graph } = this;
    this.add({
      id: graph.label(node),
      kind,
      column: COLUMN_OF[kind] ?? 2,
      label: kind,
      note: kind === "sink" ? this.flowText(graph.through[node]) : "",
      nodes: [node],
      choice: { type: "node", name: graph.label(node) },
      price: this.priceOf(node),
      flow: graph.through[node],
    });
  }

  groupBase(entry) {
    const { part, graph } = this;
    const group = part.groups[entry.group];
    const size = group.members.length;
    const placed = part.placedAt(group.members);
    const use = part.oneNetwork ? this.givenAway(group.members) : this.flowOf(entry);
    return {
      id: `group:${group.name}`,
      kind: "group",
      column: 2,
      label: group.name,
      note: [size > 1 ? `× ${whole(size)}` : "", use.text].filter(Boolean).join(" · "),
      aria: [`${group.name}: group of ${counted(size, "machine")}`, use.aria, `${counted(placed, "task")} placed`]
        .filter(Boolean)
        .join(", "),
      nodes: entry.nodes,
      group: entry.group,
      choice: { type: "group", name: group.name },
      expandable: true,
      price: d3.max(entry.nodes, (node) => this.priceOf(node) ?? 0),
      flow: entry.flow,
      placed,
      fill: use.fill,
    };
  }

  /** What the placements took of the cores that were free. The first network's flow may have gone elsewhere. */
  givenAway(members) {
    const free = this.part.freeBefore(members);
    const placed = this.part.placedAt(members);
    if (free === null) return { text: placed ? `${counted(placed, "task")} placed` : "", fill: null };
    const given = d3.sum(members, (machine) => this.part.given(machine));
    const text = `${amount(given / 1000)} of ${amount(free / 1000)} free ${free === 1000 ? "core" : "cores"}`;
    return { text, aria: `${text} given away`, fill: free ? Math.min(1, given / free) : 0 };
  }

  /** What a network sends to a group. */
  flowOf(entry) {
    const { graph } = this;
    const capacity = this.groupCapacity(entry.nodes);
    if (!graph.unit_milli || !capacity) return { text: "", fill: null };
    const text = `${amount(graph.milli(entry.flow) / 1000)} of ${counted(graph.milli(capacity) / 1000, "core")}`;
    return { text, aria: `flow of ${text}`, fill: Math.min(1, entry.flow / capacity) };
  }

  /** What the widest limit of the group lets through. */
  groupCapacity(nodes) {
    const { graph } = this;
    return d3.max(nodes, (node) =>
      graph.kindOf(node) === "tier" ? d3.max(graph.leaving[node], (arc) => graph.capacities[arc]) : 0,
    );
  }

  groupBox(entry) {
    this.add(this.groupBase(entry));
  }

  /** A group unfolded: its tiers on top of each other, and its machines with how many tasks each was given. */
  groupFrame(entry) {
    const { graph, part, options } = this;
    const inner = entry.nodes.map((node) => {
      const kind = graph.kindOf(node);
      const width = /\/(\d+)m$/.exec(graph.name[node]);
      const gate = part.groupNumber.has(graph.name[node]);
      return {
        id: `node:${graph.label(node)}`,
        kind: "tier",
        choice: { type: "node", name: graph.label(node) },
        label:
          kind === "tier" && width ? `tasks of ${cores(Number(width[1]))}` : gate ? "all cores" : "tasks without cpu",
        note: "",
        aria: graph.label(node),
        nodes: [node],
        price: this.priceOf(node),
        flow: graph.through[node],
        fill: this.fillOf(node),
      };
    });
    const onPath = (box) => options.shown.has(graph.label(box.nodes[0]));
    const busy = inner.filter((box) => box.flow > 0 || graph.kindOf(box.nodes[0]) === "tier" || onPath(box));
    // What carries nothing and leads nowhere else stays hidden, with its arcs.
    const members = part.groups[entry.group].members;
    const count = (machine) => (part.placedOn.get(machine) || []).length;
    const later = (machine) => (part.plannedOn.get(machine) || []).length;
    const sorted = members.slice().sort((a, b) => count(b) - count(a) || later(b) - later(a) || a - b);
    const chosen = (machine) => options.chosenMachines.has(machine);
    const chips = this.ordered(sorted, chosen).map((machine) => {
      const size = part.size(machine);
      const free = part.oneNetwork ? part.fleet("free", "cpu", machine) : null;
      const given = part.given(machine);
      const planned = later(machine);
      return {
        id: `machine:${part.machines[machine]}`,
        kind: "chip",
        label: part.machines[machine],
        note: count(machine) ? `+${count(machine)}` : planned ? `${planned} later` : "",
        aria: `${part.machines[machine]}: ${counted(count(machine), "task")} placed`,
        choice: { type: "machine", name: part.machines[machine] },
        fill: size && free !== null ? (size - free) / size : null,
        fillNew: size ? given / size : null,
      };
    });
    this.frame(this.groupBase(entry), inner.length === busy.length ? inner : busy, chips, 3, 132, inner);
  }

  fillOf(node) {
    const { graph } = this;
    const out = graph.leaving[node];
    const capacity = d3.sum(out, (arc) => graph.capacities[arc]);
    return out.length === 1 && capacity ? graph.flow[out[0]] / capacity : null;
  }

  /** A box that shows what is in it: boxes on the left from top to bottom, chips on the right in columns. */
  frame(base, inner, chips, across, chipWidth, all = inner) {
    const { options } = this;
    const chipHeight = 20;
    const gap = 4;
    const head = 28;
    const pad = 9;
    const most = CHIPS + (options.more.get(base.id) || 0);
    const shown = chips.slice(0, most);
    if (chips.length > most) {
      const left = chips.length - most;
      shown.push({
        id: `more:${base.id}`,
        kind: "chip more",
        label: `${whole(left)} more`,
        note: "",
        more: base.id,
        aria: `show ${Math.min(STEP, left)} of ${left} more`,
      });
    }
    const columns = Math.max(1, Math.min(across, shown.length));
    const rows = Math.ceil(shown.length / columns);
    const tierWidth = inner.length ? d3.max(inner, (box) => textWidth(box.label, NOTE_SIZE)) + 22 : 0;
    const tierHeight = 24;
    const tierGap = 17;
    const left = inner.length ? tierWidth + 26 : 0;
    const gridHeight = rows * (chipHeight + gap) - gap;
    const stackHeight = inner.length * (tierHeight + tierGap) - tierGap;
    // The last of the stack lets its line out below the chips.
    const body = inner.length ? Math.max(stackHeight, gridHeight + tierHeight + gap) : gridHeight;
    const width = Math.max(
      left + columns * (chipWidth + gap) - gap + 2 * pad,
      textWidth(`${base.label} ${base.note}`, FONT_SIZE, 600) + 60,
    );
    const w = Math.ceil(width);
    const frame = { ...base, framed: true, expanded: true, w, h: head + body + pad };
    this.add(frame);
    const step = inner.length > 1 ? (body - tierHeight) / (inner.length - 1) : 0;
    inner.forEach((box, i) =>
      this.add({
        ...box,
        column: base.column,
        parent: base.id,
        dx: pad,
        dy: head + i * Math.min(step, 64) + (i === inner.length - 1 ? body - tierHeight - i * Math.min(step, 64) : 0),
        w: tierWidth,
        h: tierHeight,
      }),
    );
    shown.forEach((chip, i) =>
      this.add({
        ...chip,
        column: base.column,
        parent: base.id,
        nodes: [],
        dx: pad + left + (i % columns) * (chipWidth + gap),
        dy: head + Math.floor(i / columns) * (chipHeight + gap),
        w: chipWidth,
        h: chipHeight,
      }),
    );
    const drawn = new Set(inner.flatMap((box) => box.nodes));
    for (const box of all) for (const node of box.nodes) if (!drawn.has(node)) this.boxOf[node] = null;
  }

  add(box) {
    this.boxes.set(box.id, box);
    for (const node of box.nodes) this.boxOf[node] = box.id;
  }

  priceOf(node) {
    return this.graph.potential(node);
  }

  flowText(flow) {
    const { graph } = this;
    return graph.unit_milli ? cores(graph.milli(flow)) : counted(flow, "task");
  }

  /** One line for all arcs between two boxes. */
  connect() {
    const { graph } = this;
    for (let arc = 0; arc < graph.arcCount; arc += 1) {
      const source = this.boxOf[graph.tails[arc]];
      const target = this.boxOf[graph.heads[arc]];
      if (!source || !target || source === target) continue;
      const id = `${source} → ${target}`;
      const link = this.links.get(id);
      if (link) link.arcs.push(arc);
      else this.links.set(id, { id, source, target, arcs: [arc] });
    }
    for (const link of this.links.values()) measure(link, graph);
    for (const link of this.links.values()) {
      const parent = this.boxes.get(link.source).parent;
      link.upright = parent !== undefined && parent === this.boxes.get(link.target).parent;
      link.amount = this.amountOf(link);
      link.label = this.labelOf(link);
    }
  }

  labelOf(link) {
    const source = this.boxes.get(link.source);
    const { kind } = this.boxes.get(link.target);
    if (!link.flow || link.upright || kind === "sink") return "";
    const one = source.kind === "class" && source.cls >= 0 && this.part.classes[source.cls].members.length === 1;
    return one ? `cost ${number(link.cost)}` : link.amount;
  }

  amountOf(link) {
    const { graph } = this;
    const kind = graph.kindOf(graph.tails[link.arcs[0]]);
    if (kind === "class" || kind === "domain")
      return counted(
        d3.sum(link.arcs, (arc) => graph.tasks(arc)),
        "task",
      );
    return this.flowText(link.flow);
  }
}

/** Sums and least values of the arcs of a line. */
function measure(link, graph) {
  link.flow = d3.sum(link.arcs, (arc) => graph.flow[arc]);
  link.capacity = d3.sum(link.arcs, (arc) => graph.capacities[arc]);
  const counting = link.flow ? link.arcs.filter((arc) => graph.flow[arc]) : link.arcs;
  link.best = d3.least(counting, (a, b) => graph.cost(a) - graph.cost(b));
  link.cost = link.flow
    ? d3.sum(counting, (arc) => graph.cost(arc) * graph.tasks(arc)) / d3.sum(counting, (arc) => graph.tasks(arc))
    : graph.cost(link.best);
  if (graph.potentials) {
    link.reduced = d3.min(counting, (arc) => graph.reduced(arc));
    // Into the sink arcs are steps of rising cost: while the last one has room there is room.
    const ends = graph.kindOf(graph.heads[link.arcs[0]]) === "sink" ? link.arcs : counting;
    const pairs = d3.rollup(
      ends,
      (arcs) => d3.min(arcs, (arc) => graph.price(arc)),
      (arc) => `${graph.tails[arc]} ${graph.heads[arc]}`,
    );
    link.price = d3.max(pairs.values());
  } else {
    link.reduced = null;
    link.price = null;
  }
  link.full = link.price > TINY;
}
