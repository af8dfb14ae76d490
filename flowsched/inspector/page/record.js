// A round as the file has it, opened: names for numbers, rows for columns.

/** A network with its flow. Arcs and nodes are numbers. */
class Graph {
  constructor(plain, name) {
    Object.assign(this, plain);
    this.id = name;
    this.nodeCount = this.kind.length;
    this.arcCount = this.tails.length;
    this.isRound = name === "round" && "own" in this.columns;
    this.pass = name.startsWith("pass:") ? Number(name.slice(5)) : null;
    this.numbers = new Map(this.name.map((text, node) => [`${this.kinds[this.kind[node]]}:${text}`, node]));
    for (const [node, names] of Object.entries(this.members))
      for (const text of names) this.numbers.set(`${this.kindOf(node)}:${text}`, Number(node));
    this.leaving = Array.from({ length: this.nodeCount }, () => []);
    this.entering = Array.from({ length: this.nodeCount }, () => []);
    this.through = new Array(this.nodeCount).fill(0);
    const left = new Array(this.nodeCount).fill(0);
    for (let arc = 0; arc < this.arcCount; arc += 1) {
      this.leaving[this.tails[arc]].push(arc);
      this.entering[this.heads[arc]].push(arc);
      this.through[this.heads[arc]] += this.flow[arc];
      left[this.tails[arc]] += this.flow[arc];
    }
    for (let node = 0; node < this.nodeCount; node += 1) this.through[node] = Math.max(this.through[node], left[node]);
    // What can come into a node: an arc that takes all of it limits nothing.
    this.most = this.supplies.map((supply) => Math.max(0, supply));
    for (let arc = 0; arc < this.arcCount; arc += 1) this.most[this.heads[arc]] += this.capacities[arc];
    this.termValues = new Map();
    for (const [term, [steps, values]] of Object.entries(this.terms)) this.termValues.set(term, sparse(steps, values));
  }

  /** Domains have no name in the record, only an order. */
  domainTitle(node) {
    if (!this.domains) {
      this.domains = new Map();
      for (let other = 0; other < this.nodeCount; other += 1)
        if (this.kindOf(other) === "domain") listed(this.domains, this.class[other], other);
    }
    const siblings = this.domains.get(this.class[node]);
    return `domain ${siblings.indexOf(node) + 1} of ${siblings.length}`;
  }

  kindOf(node) {
    return this.kinds[this.kind[node]];
  }

  node(kind, name) {
    return this.numbers.get(`${kind}:${name || ""}`);
  }

  /** A node by its label. */
  labelled(label) {
    return this.numbers.get(label.includes(":") ? label : `${label}:`);
  }

  label(node) {
    return this.name[node] ? `${this.kindOf(node)}:${this.name[node]}` : this.kindOf(node);
  }

  /** Cost of one task on an arc, as the solver saw it. */
  cost(arc) {
    return (this.unit_costs[arc] * this.units[arc]) / this.cost_scale;
  }

  /** By how much one unit more would miss, in solver units; null where the record has no optimal flow. */
  reducedUnits(arc) {
    if (!this.potentials) return null;
    return this.unit_costs[arc] + this.potentials[this.tails[arc]] - this.potentials[this.heads[arc]];
  }

  /** The same for one task, in units of cost. */
  reduced(arc) {
    const units = this.reducedUnits(arc);
    return units === null ? null : (units * this.units[arc]) / this.cost_scale;
  }

  /** What one task's worth of capacity more would save: above 0 only on arcs that are full. */
  price(arc) {
    const reduced = this.reduced(arc);
    if (reduced === null) return null;
    return this.capacities[arc] < this.most[this.tails[arc]] ? Math.max(0, -reduced) : 0;
  }

  /** Potential of a node above the sink's, for one unit of flow, in units of cost. */
  potential(node) {
    if (!this.potentials) return null;
    const sink = this.node("sink");
    return (this.potentials[sink] - this.potentials[node]) / this.cost_scale;
  }

  /** Machines that an option is on, each at the same price; `own`: the one that its task is on, or planned for. */
  machinesOf(arc, own) {
    const head = this.heads[arc];
    const machines = this.members[head] || [this.name[head]];
    if (!this.columns.own || own === undefined) return machines;
    return this.columns.own[arc] ? [own] : machines.filter((machine) => machine !== own);
  }

  /** Whether tasks could start now on a machine, and after how many completions later. */
  placesOf(machine) {
    if (!this.places) {
      this.places = new Map();
      for (let node = 0; node < this.nodeCount; node += 1) {
        const kind = this.kindOf(node);
        if (kind !== "cores" && kind !== "later") continue;
        for (const name of this.members[node]) {
          if (!this.places.has(name)) this.places.set(name, { now: false, later: [] });
          const found = this.places.get(name);
          if (kind === "cores") found.now = true;
          else found.later.push(Number(this.name[node].slice(this.name[node].lastIndexOf("/") + 1)));
        }
      }
    }
    return this.places.get(machine) || { now: false, later: [] };
  }

  termsOf(arc) {
    const found = [];
    for (const [term, values] of this.termValues) if (values.has(arc)) found.push([term, values.get(arc)]);
    return found;
  }

  /** Slot and width of the move that an arc is; null where it is none. */
  column(arc) {
    const { slot, width_milli: width } = this.columns;
    return slot && slot[arc] >= 0 ? { slot: slot[arc], width: width[arc] } : null;
  }

  /** Whole tasks on an arc; a fraction where the flow splits one. */
  tasks(arc) {
    return this.flow[arc] / this.units[arc];
  }

  /** Thousandths of cores of an amount of flow; null where a unit is a task. */
  milli(flow) {
    return this.unit_milli === null ? null : flow * this.unit_milli;
  }
}

function sparse(steps, values) {
  const found = new Map();
  let at = 0;
  steps.forEach((step, i) => {
    at += step;
    found.set(at, values[i]);
  });
  return found;
}

function unfolded(pairs) {
  const numbers = [];
  for (let i = 0; i < pairs.length; i += 2) for (let k = 0; k < pairs[i + 1]; k += 1) numbers.push(pairs[i] + k);
  return numbers;
}

/** One problem that the round solved. Tasks, machines, classes and groups are numbers. */
class Part {
  constructor(plain, round, index) {
    Object.assign(this, plain);
    this.round = round;
    this.index = index;
    this.oneNetwork = this.prices === "linear"; // decided by one network
    this.classes = plain.classes.map(([name, members]) => ({ name, members: unfolded(members) }));
    this.groups = plain.groups.map(([name, members]) => ({ name, members: unfolded(members) }));
    this.taskNumber = new Map(this.tasks.map((name, i) => [name, i]));
    this.machineNumber = new Map(this.machines.map((name, i) => [name, i]));
    this.classNumber = new Map(this.classes.map((cls, i) => [cls.name, i]));
    this.groupNumber = new Map(this.groups.map((group, i) => [group.name, i]));
    this.classOf = owners(this.classes, this.tasks.length);
    this.groupOf = owners(this.groups, this.machines.length);
    this.graphs = {};
    for (const [name, graph] of Object.entries(plain.graphs)) this.graphs[name] = new Graph(graph, name);
    this.placementOf = new Map(this.placements.task.map((task, row) => [task, row]));
    this.waitingOf = new Map(this.waiting.task.map((task, row) => [task, row]));
    this.placedOn = new Map();
    this.placements.machine.forEach((machine, row) => listed(this.placedOn, machine, row));
    this.placementTerms = termRows(this.placements.terms);
    this.waitingTerms = termRows(this.waiting.terms);
    this.runningOn = new Map();
    for (const run of this.machine_facts.running || []) listed(this.runningOn, run.machine, run);
    this.servicesOn = new Map();
    for (const service of this.machine_facts.services || []) listed(this.servicesOn, service.machine, service);
    this.plannedOn = new Map();
    (this.plan || []).forEach(([machine], task) => {
      if (machine >= 0 && !this.placementOf.has(task)) listed(this.plannedOn, machine, task);
    });
    for (const tasks of this.plannedOn.values()) tasks.sort((a, b) => this.plan[a][1] - this.plan[b][1] || a - b);
    this.reservedOn = new Map();
    for (const reservation of this.reservations) listed(this.reservedOn, reservation[1], reservation);
  }

  taskTitle(task) {
    return this.round.title(this.tasks[task]);
  }

  className(cls) {
    return this.round.title(this.classes[cls].name);
  }

  placement(row) {
    const p = this.placements;
    return {
      task: p.task[row],
      machine: p.machine[row],
      cost: p.cost[row],
      terms: this.placementTerms(row),
      width: p.width_milli[row],
      threads: p.threads && p.threads[row],
      cores: p.cores && p.cores[row],
      runnerUp: p.runner_up ? p.runner_up[row] : -1,
      runnerUpCost: p.runner_up_cost ? p.runner_up_cost[row] : null,
    };
  }

  waits(row) {
    const w = this.waiting;
    const [cause, reason] = w.reasons[w.reason[row]];
    return {
      task: w.task[row],
      cause,
      reason,
      waited: w.waited_s[row],
      cost: w.cost[row],
      terms: this.waitingTerms(row),
      planned: w.planned[row],
    };
  }

  /** Every arc of a task in the network of the round, the cheapest first, with what it is dearer than the decided one. */
  optionsOf(task) {
    this.options ||= new Map();
    if (this.options.has(task)) return this.options.get(task);
    const graph = this.graphs.round;
    const node = graph && graph.isRound ? graph.node("task", this.tasks[task]) : undefined;
    const found = [];
    if (node !== undefined) {
      const arcs = graph.leaving[node];
      const decided = arcs.find((arc) => graph.flow[arc]);
      const { machine } = standOf(this, task);
      const own = machine >= 0 ? this.machines[machine] : undefined;
      for (const arc of arcs) {
        const column = graph.column(arc);
        const more = graph.cost(arc) - graph.cost(decided);
        const base = { arc, decided: arc === decided, cost: graph.cost(arc), more };
        if (!column) found.push({ ...base, machine: null, machines: [], number: -1, slot: null, width: null });
        else {
          // The machine that is chosen stands for others that are equal to it.
          const machines = arc === decided ? [own] : graph.machinesOf(arc, own);
          found.push({ ...base, ...column, machine: machines[0], machines, number: this.machineNumber.get(machines[0]) });
        }
      }
      found.sort((a, b) => a.cost - b.cost || b.decided - a.decided || a.arc - b.arc);
    }
    this.options.set(task, found);
    return found;
  }

  /** Milli-CPU that a task has where it starts or is planned, or the least that it asks for. */
  coresOf(task) {
    const { width } = standOf(this, task);
    if (width > 0) return width;
    const asked = this.class_facts[this.classOf[task]];
    return (asked && asked.widths_milli && asked.widths_milli[0]) || 1000;
  }

  /** Milli-CPU that is free on a machine before the round; null where it is not known. */
  freeNow(machine) {
    const { free_milli: free } = this.machine_facts;
    return free ? free[machine] : null;
  }

  /** Milli-CPU of one task of a class; null where it may have several widths. */
  classWidth(cls) {
    return this.class_facts[cls].width_milli ?? null;
  }

  /** Amount of a resource of a machine: allocatable, or free before the round; null where it is not known. */
  fleet(column, name, machine) {
    const facts = this.machine_facts;
    const place = (facts.resources || []).indexOf(name);
    return place < 0 ? null : facts[column][place][machine];
  }

  /** Cores of a machine, in milli-CPU. */
  size(machine) {
    if (this.oneNetwork) return this.fleet("allocatable", "cpu", machine);
    return this.machine_facts.cpu_milli[machine];
  }

  /** Number of tasks that the round placed on machines. */
  placedAt(machines) {
    return d3.sum(machines, (machine) => (this.placedOn.get(machine) || []).length);
  }

  /** Milli-CPU of machines that was free before the round; null where it is not known. */
  freeBefore(machines) {
    const known = this.oneNetwork && machines.length && this.fleet("free", "cpu", machines[0]) !== null;
    return known ? d3.sum(machines, (machine) => Math.max(0, this.fleet("free", "cpu", machine))) : null;
  }

  /** Milli-CPU that the round gave away on a machine. */
  given(machine) {
    return d3.sum(this.placedOn.get(machine) || [], (row) => this.placements.width_milli[row] || 0);
  }
}

function listed(map, key, value) {
  const list = map.get(key);
  if (list) list.push(value);
  else map.set(key, [value]);
}

function owners(sets, count) {
  const of = new Int32Array(count).fill(-1);
  sets.forEach((one, number) => one.members.forEach((member) => (of[member] = number)));
  return of;
}

function termRows(columns) {
  const values = Object.entries(columns).map(([term, [steps, list]]) => [term, sparse(steps, list)]);
  return (row) => values.filter(([, found]) => found.has(row)).map(([term, found]) => [term, found.get(row)]);
}

/** What one file holds. */
class Round {
  constructor(plain, headline, index) {
    Object.assign(this, plain);
    this.headline = headline;
    this.index = index;
    this.parts = plain.parts.map((part, i) => new Part(part, this, i));
    this.told = new Map();
    for (const entry of this.held) for (const task of entry.tasks) this.told.set(task, entry);
  }

  title(name) {
    return this.titles[name] || name;
  }

  /** Who waits in the end: {name, part, task, reason}; part is null where no part was asked. */
  get waiting() {
    if (this.waits) return this.waits;
    const found = new Map();
    for (const part of this.parts)
      part.waiting.task.forEach((task, row) =>
        found.set(part.tasks[task], { name: part.tasks[task], part, reason: part.waits(row).reason }),
      );
    for (const [name, entry] of this.told)
      found.set(name, { part: null, ...found.get(name), name, reason: entry.message || entry.fate });
    for (const part of this.parts) for (const task of part.placements.task) found.delete(part.tasks[task]);
    this.waits = [...found.values()];
    return this.waits;
  }

  /** Number of the part to begin with: the first in which something waits. */
  opening() {
    const waits = new Set(this.waiting.map((one) => one.part));
    return Math.max(
      0,
      this.parts.findIndex((part) => waits.has(part)),
    );
  }
}

/** What was decided on a task of a part. */
function standOf(part, task) {
  const row = part.placementOf.get(task);
  if (row !== undefined) return { state: "placed", part, slot: 0, ...part.placement(row) };
  const waiting = part.waitingOf.get(task);
  const plan = part.plan ? part.plan[task] : [-1, -1, -1];
  const planned = { machine: plan[0], slot: plan[1], width: plan[2] };
  const base = { part, state: plan[0] >= 0 ? "planned" : "waits", cost: null, terms: [], reason: "", cause: "" };
  return { ...base, ...(waiting === undefined ? {} : part.waits(waiting)), ...planned, task };
}

/** Name of the machine that a task starts on, or is planned for; undefined where there is none. */
function plannedMachine(part, task) {
  return part.plan && part.plan[task] ? part.machines[part.plan[task][0]] : undefined;
}

/** The first of things that are equal, and how many more there are. */
function namesOf(names) {
  return names.length > 1 ? `${names[0]} and ${whole(names.length - 1)} alike` : names[0];
}

/** By title, what was decided on every task of a round: a later part counts where an earlier one left a task. */
function stands(round) {
  const found = new Map();
  for (const part of round.parts) {
    for (let task = 0; task < part.tasks.length; task += 1) {
      const title = part.taskTitle(task);
      const before = found.get(title);
      if (!before || before.state !== "placed") found.set(title, standOf(part, task));
    }
  }
  return found;
}

/** A base64 text of compressed JSON, read. */
async function unpack(text) {
  const packed = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}
