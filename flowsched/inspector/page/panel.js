// What is said about the thing that is chosen: numbers, terms, members, sentences; and the short form for the pointer.

const LISTED = 50;
/** Arcs of a task that are listed at once. */
const ARCS = 8;
/** Names that are told of those who wait for the same reason. */
const NAMED = 12;

function section(title, ...content) {
  const inside = content.flat().filter(Boolean);
  return inside.length ? element("section", null, title ? element("h3", null, title) : null, inside) : null;
}

/** Pairs of a name and a value; what is not known is left out. */
function facts(pairs) {
  const known = pairs.filter((pair) => pair && pair[1] !== null && pair[1] !== undefined && pair[1] !== "");
  return known.length
    ? element(
        "dl",
        { class: "facts" },
        known.map(([name, value, title]) => [element("dt", { title }, name), element("dd", null, value)]),
      )
    : null;
}

/** Amounts as bars from a common zero; what lowers the sum is hatched. */
function bars(rows, show = number, total = true) {
  const shown = rows.filter(([, value]) => value !== 0 && value !== null);
  if (!shown.length) return null;
  const most = d3.max(shown, ([, value]) => Math.abs(value)) || 1;
  const lines = shown.map(([name, value]) => {
    const bar = element("span", { class: value < 0 ? "bar less" : "bar" });
    bar.style.width = `${Math.max(1, (100 * Math.abs(value)) / most)}%`;
    return element(
      "tr",
      null,
      element("th", { scope: "row" }, name),
      element("td", { class: "bar-cell" }, bar),
      element("td", { class: "number" }, show(value)),
    );
  });
  if (total && shown.length > 1) {
    lines.push(
      element(
        "tr",
        { class: "total" },
        element("th", { scope: "row" }, "in all"),
        element("td"),
        element("td", { class: "number" }, show(d3.sum(shown, ([, value]) => value))),
      ),
    );
  }
  return element("table", { class: "bars" }, element("tbody", null, lines));
}

/** A list that begins with some and shows more when asked. */
function longList(items, make) {
  const list = element("ul", { class: "list" });
  let shown = 0;
  const more = button("", () => grow());
  const rest = element("li", { class: "rest" }, more);
  function grow() {
    rest.remove();
    list.append(...items.slice(shown, shown + LISTED).map((item) => element("li", null, make(item))));
    shown = Math.min(items.length, shown + LISTED);
    if (shown < items.length) {
      more.textContent = `${whole(Math.min(LISTED, items.length - shown))} of ${whole(items.length - shown)} more`;
      list.append(rest);
    }
  }
  grow();
  return list;
}

class Panel {
  constructor(host, app) {
    Object.assign(this, { host, app });
  }

  show(...content) {
    const had = this.host.contains(document.activeElement);
    this.host.replaceChildren(...content.flat().filter(Boolean));
    this.host.scrollTop = 0;
    // What had the focus is gone: the next Tab goes on from here.
    if (had) this.host.focus({ preventScroll: true });
  }

  head(kind, name, ...buttons) {
    return element(
      "header",
      null,
      element("p", { class: "kind" }, kind),
      element("h2", null, name),
      buttons.length ? element("p", { class: "buttons" }, buttons.filter(Boolean)) : null,
    );
  }

  task(part, number, text) {
    return button(text || part.taskTitle(number), () => this.app.choose({ type: "task", name: part.tasks[number] }), {
      class: "link",
    });
  }

  machine(part, number) {
    return button(part.machines[number], () => this.app.choose({ type: "machine", name: part.machines[number] }), {
      class: "link",
    });
  }

  terms(terms) {
    return bars(terms.map(([term, value]) => [this.app.term(term), value]));
  }

  /** A task: where it is, what that costs, why, and its path. */
  ofTask(side, name) {
    const { app } = this;
    const part = side.part;
    const task = part.taskNumber.get(name);
    if (task === undefined) return this.notPending(side, name);
    const stand = standOf(part, task);
    const cls = part.classOf[task];
    const told = side.round.told.get(name);
    const decision = {
      placed: () => [
        "Starts on ",
        this.machine(part, stand.machine),
        stand.width ? ` with ${cores(stand.width)}` : "",
        stand.threads ? `, ${counted(stand.threads, "thread")} on cores ${coreList(stand.cores)}` : "",
      ],
      planned: () => [
        "Waits for ",
        this.machine(part, stand.machine),
        `, ${slotText(stand.slot)}, with ${cores(stand.width)}`,
      ],
      waits: () => ["Waits"],
    }[stand.state]();
    const lines = part.explanations[task] || this.like(part, task, stand);
    return [
      this.head(
        "task",
        part.taskTitle(task),
        button("Follow its path", () => app.follow(), { title: "f" }),
      ),
      element("p", { class: `verdict ${stand.state}` }, decision),
      stand.reason && !lines && element("p", { class: "reason" }, spoken(stand.reason, side.round.now_s)),
      told && element("p", { class: "reason" }, told.message),
      this.moves(side, task),
      lines &&
        section(
          "Why",
          element(
            "div",
            { class: "sentences" },
            lines.map((line) =>
              element("p", { class: line.startsWith("  ") ? "inner" : null }, spoken(line.trim(), side.round.now_s)),
            ),
          ),
        ),
      section(
        stand.cost === null ? "Cost" : `Cost ${number(stand.cost)}`,
        this.terms(stand.terms) ||
          (stand.cost === 0
            ? element("p", { class: "soft" }, "Nothing: no neighbour minds, and it minds none.")
            : null),
      ),
      stand.runnerUp >= 0 &&
        section(
          "Next machine when it was placed",
          element(
            "p",
            null,
            this.machine(part, stand.runnerUp),
            ` for ${number(stand.runnerUpCost)}, ${signed(stand.runnerUpCost - stand.cost)}`,
          ),
        ),
      stand.state === "placed" && this.linksOf(side, name, part.machines[stand.machine]),
      this.path(side, task),
      section(
        "Class",
        facts([
          [
            "Class",
            cls >= 0
              ? button(part.className(cls), () => app.choose({ type: "class", name: part.classes[cls].name }), {
                  class: "link",
                })
              : null,
          ],
          ["Tasks like it", cls >= 0 ? whole(part.classes[cls].members.length - 1) : null],
          ["Has waited", stand.waited ? duration(stand.waited) : null],
          ["Name in the record", part.taskTitle(task) === name ? null : name],
        ]),
        cls >= 0 && this.asks(part, cls),
      ),
    ];
  }

  /** Sentences on another task of the class that was placed, too, or that waits for the same reason. */
  like(part, task, stand) {
    const found = Object.keys(part.explanations).find((other) => {
      if (part.classOf[other] !== part.classOf[task]) return false;
      const theirs = standOf(part, Number(other));
      return theirs.state === stand.state && (theirs.reason || "") === (stand.reason || "");
    });
    if (found === undefined) return null;
    return [`For ${part.taskTitle(Number(found))}, of the same class:`, ...part.explanations[found]];
  }

  notPending(side, name) {
    for (const [machine, runs] of side.part.runningOn)
      if (runs.some((run) => run.task === name))
        return [
          this.head("task", side.round.title(name)),
          element(
            "p",
            { class: "verdict placed" },
            "Runs on ",
            this.machine(side.part, side.part.machineNumber.get(machine)),
            "; it was placed by an earlier round.",
          ),
          this.linksOf(side, name, machine),
        ];
    const told = side.round.told.get(name);
    const elsewhere = side.round.parts.find((part) => part.taskNumber.has(name));
    return [
      this.head("task", side.round.title(name)),
      elsewhere
        ? element(
            "p",
            { class: "verdict" },
            "It is in ",
            button(
              `part ${elsewhere.index + 1}`,
              () => this.app.chooseIn(elsewhere.index, { type: "task", name }),
              { class: "link" },
            ),
            " of this round.",
          )
        : element("p", { class: told ? "verdict waits" : "verdict" }, told ? "Waits" : "Not pending in this round."),
      told && element("p", { class: "reason" }, told.message),
    ];
  }

  /** The steps of a task through the network that is drawn. */
  path(side, task) {
    const { graph } = side;
    if (!graph) return null;
    const { nodes, note } = taskPath(side.part, graph, task);
    if (!nodes.length) return null;
    const steps = nodes.map((node) =>
      element(
        "li",
        null,
        button(this.app.nodeTitle(graph, node), () => this.app.chooseNode(graph, node), { class: "link" }),
      ),
    );
    return section(
      graph.isRound || side.part.oneNetwork ? "Path" : "Path in the pass",
      element("ol", { class: "path" }, steps),
      note && element("p", { class: "soft" }, note),
    );
  }

  /** The arcs of a task in the network of the round: what each costs, by terms, and by how much it is dearer. */
  moves(side, task) {
    const options = side.part.optionsOf(task);
    if (!options.length) return null;
    const { app } = this;
    const body = element("tbody");
    let shown = 0;
    const row = (option) =>
      element(
        "tr",
        { class: option.decided ? "decided" : null },
        element(
          "th",
          { scope: "row" },
          button(
            optionText(option),
            () => app.choose({ type: "move", task: side.part.tasks[task], arc: option.arc, side: side.name }),
            { class: "link" },
          ),
          element("span", { class: "terms" }, this.termWords(side.part.graphs.round.termsOf(option.arc))),
        ),
        element("td", { class: "number" }, number(option.cost)),
        element("td", { class: "number" }, option.decided ? "decided" : signed(option.more)),
      );
    const more = button("", () => grow());
    const rest = element("p", { class: "rest" }, more);
    const grow = () => {
      body.append(...options.slice(shown, shown + ARCS).map(row));
      shown = Math.min(options.length, shown + ARCS);
      more.textContent = `${whole(Math.min(ARCS, options.length - shown))} of ${whole(options.length - shown)} more`;
      rest.hidden = shown >= options.length;
    };
    grow();
    const head = ["Place", "Cost", "Dearer by"].map((text, i) =>
      element("th", { scope: "col", class: i ? "number" : null }, text),
    );
    return section(
      `Its arcs: ${whole(options.length)}`,
      element("table", { class: "arcs" }, element("thead", null, element("tr", null, head)), body),
      rest,
    );
  }

  /** Terms of an arc in a line. */
  termWords(terms) {
    return terms
      .filter(([, value]) => Math.abs(value) >= 5e-4)
      .map(([term, value]) => `${this.app.term(term)} ${number(value)}`)
      .join(", ");
  }

  ofMove(side, choice) {
    const task = side.part.taskNumber.get(choice.task);
    const option = task === undefined ? undefined : side.part.optionsOf(task).find(({ arc }) => arc === choice.arc);
    if (!option) return this.ofRound(side);
    const graph = side.part.graphs.round;
    return [
      this.head(
        "arc",
        `${side.round.title(choice.task)} to ${option.machine === null ? "unscheduled" : namesOf(option.machines)}`,
        button("Back to the task", () => this.app.choose({ type: "task", name: choice.task })),
      ),
      facts([
        ["When", option.slot === null ? null : slotTag(option.slot)],
        ["Width", option.width === null ? null : cores(option.width)],
        ["Dearer by", option.decided ? "nothing: it was decided" : signed(option.more)],
        ["Reduced cost", number(graph.reduced(option.arc))],
        ["Flow", `${whole(graph.flow[option.arc])} of ${whole(graph.capacities[option.arc])}`],
      ]),
      section(`Cost ${number(option.cost)}`, this.terms(graph.termsOf(option.arc))),
      option.decided
        ? null
        : element(
            "p",
            { class: "soft" },
            "If it were cheaper by more than its reduced cost, an optimal flow would take it.",
          ),
    ];
  }

  /** A pass: what it saw, what it chose, and what became of that. */
  ofPass(side) {
    const { part, pass } = side;
    const undone = new Map(pass.undone);
    const graph = part.graphs[`pass:${pass.number}`];
    const chosen = new Set(pass.booked);
    const rows = [...pass.booked, ...pass.batch.filter((task) => !chosen.has(task))].filter((task) => task >= 0);
    const make = (task) => {
      const stand = standOf(part, task);
      const took = graph ? takenBy(part, graph, task) : null;
      const fate = !chosen.has(task)
        ? `left for later: now ${standText(stand)}`
        : undone.has(task)
          ? `undone${undone.get(task) ? ` by ${undone.get(task)}` : ""}: now ${standText(stand)}`
          : "stays";
      return [
        this.task(part, task),
        element(
          "span",
          { class: "soft" },
          chosen.has(task) && took ? ` → ${took.machine} at ${number(took.cost)}; ${fate}` : `; ${fate}`,
        ),
      ];
    };
    return [
      this.head("pass", `Pass ${pass.number} of ${part.passes.length}`),
      element(
        "p",
        { class: "soft" },
        "A pass prices a batch of tasks on the machines as planned so far; its flow places at most one on each machine.",
      ),
      facts([
        ["Saw", counted(pass.batch.length, "task")],
        ["Placed", whole(pass.booked.length)],
        ["Undone later", whole(pass.undone.length)],
        ["Arcs", whole(pass.arcs)],
      ]),
      section("What it chose, and what became of it", longList(rows, make)),
      this.arcKinds(side),
    ];
  }

  asks(part, cls) {
    const found = part.class_facts[cls];
    const needs = found.needs
      ? Object.entries(found.needs).map(([name, value]) => [name === "cpu" ? "CPU" : name, resource(name, value)])
      : [];
    const bound = [...new Set([...(found.holds || []), ...(found.joins || [])])];
    return facts([
      ...needs,
      ["Profile", found.profile],
      ["Request", Number.isFinite(found.request_milli) ? cores(found.request_milli) : null],
      ["Widths", found.widths_milli && found.widths_milli.length ? found.widths_milli.map(cores).join(", ") : null],
      ["Memory", found.memory],
      ["Goal", found.goal_s ? duration(found.goal_s) : null],
      ["Priority", found.priority ? String(found.priority) : null],
      ["Task group", found.group],
      ["Relations", bound.join(", ")],
    ]);
  }

  ofClass(side, name) {
    const { app } = this;
    const part = side.part;
    const cls = part.classNumber.get(name);
    if (cls === undefined)
      return [this.head("class", side.round.title(name)), element("p", { class: "verdict" }, "Not in this round.")];
    const { members } = part.classes[cls];
    const placed = members.filter((task) => part.placementOf.has(task));
    const waiting = members.filter((task) => !part.placementOf.has(task));
    const sums = new Map();
    for (const task of placed)
      for (const [term, value] of standOf(part, task).terms) sums.set(term, (sums.get(term) || 0) + value);
    const explained = waiting.find((task) => part.explanations[task]);
    const node = side.graph && !side.graph.isRound ? side.graph.node("class", name) : undefined;
    return [
      this.head("class of tasks", part.className(cls), app.expandButton(`class:${name}`, "its tasks")),
      facts([
        ["Tasks", whole(members.length)],
        ["Placed", whole(placed.length)],
        ["Waiting", whole(waiting.length)],
      ]),
      this.asks(part, cls),
      explained !== undefined &&
        section(
          "Why they wait",
          element(
            "div",
            { class: "sentences" },
            part.explanations[explained].map((line) => element("p", null, spoken(line.trim(), side.round.now_s))),
          ),
        ),
      sums.size > 0 && section("Cost of those placed", this.terms([...sums])),
      node !== undefined && this.arcsOf(side, side.graph, node),
      section(
        `Members`,
        longList([...waiting, ...placed], (task) => [
          this.task(part, task),
          element("span", { class: "soft" }, ` ${standText(standOf(part, task))}`),
        ]),
      ),
    ];
  }

  ofGroup(side, name) {
    const { app } = this;
    const part = side.part;
    const group = part.groupNumber.get(name);
    if (group === undefined)
      return [this.head("group of machines", name), element("p", { class: "verdict" }, "Not in this round.")];
    const { members } = part.groups[group];
    const count = (machine) => (part.placedOn.get(machine) || []).length;
    const sorted = [...members].sort((a, b) => count(b) - count(a) || a - b);
    const { graph } = side;
    const tiers = graph
      ? d3.range(graph.nodeCount).filter((node) => graph.group[node] === group && graph.leaving[node].length)
      : [];
    const busy = members.filter(count).length;
    const inflow = graph
      ? d3.sum(tiers, (node) =>
          d3.sum(graph.entering[node], (arc) => (graph.group[graph.tails[arc]] === group ? 0 : graph.flow[arc])),
        )
      : 0;
    const sent = graph && part.oneNetwork && graph.unit_milli ? graph.milli(inflow) : null;
    return [
      this.head("group of machines", name, app.expandButton(`group:${name}`, "its tiers and machines")),
      element(
        "p",
        { class: "soft" },
        "Machines that the network cannot tell apart: same price for every class, same constraints.",
      ),
      facts([
        ["Machines", whole(members.length)],
        ["With newcomers", whole(busy)],
        ["Tasks placed", whole(part.placedAt(members))],
        ["The first network sent", sent === null ? null : cores(sent)],
        [
          "Cores",
          members.length && part.size(members[0]) !== null
            ? cores(d3.sum(members, (machine) => part.size(machine)))
            : null,
        ],
        ["Free before", part.freeBefore(members) === null ? null : cores(part.freeBefore(members))],
        ["Given away", cores(d3.sum(members, (machine) => part.given(machine)))],
      ]),
      tiers.length > 0 && section("Tiers", this.tierTable(side, tiers)),
      section(
        "Machines",
        longList(sorted, (machine) => [
          this.machine(part, machine),
          element("span", { class: "soft" }, ` ${this.load(part, machine)}`),
        ]),
      ),
    ];
  }

  load(part, machine) {
    const placed = (part.placedOn.get(machine) || []).length;
    const free = part.oneNetwork ? part.fleet("free", "cpu", machine) : null;
    return [placed ? `${counted(placed, "task")} placed` : "", free === null ? "" : `${cores(free)} free before`]
      .filter(Boolean)
      .join(", ");
  }

  /** A chain of limits: what comes out of every tier, with its price. */
  tierTable(side, nodes) {
    const { graph } = side;
    const rows = nodes.flatMap((node) => {
      const out = graph.leaving[node];
      const capacity = d3.sum(out, (arc) => graph.capacities[arc]);
      const flow = d3.sum(out, (arc) => graph.flow[arc]);
      const amountOf = (units) => (graph.unit_milli ? amount(graph.milli(units) / 1000) : whole(units));
      const endless = out.length > 1;
      return element(
        "tr",
        null,
        element(
          "th",
          { scope: "row" },
          button(
            this.app.nodeTitle(graph, node, true),
            () => this.app.choose({ type: "node", name: graph.label(node) }),
            { class: "link" },
          ),
        ),
        element("td", { class: "number" }, amountOf(flow)),
        element("td", { class: "number" }, endless ? "steps" : amountOf(capacity)),
        element("td", { class: "number" }, number(graph.potential(node))),
      );
    });
    const head = ["Tier", graph.unit_milli ? "Flow, cores" : "Flow", "Limit", "Price"].map((text, i) =>
      element("th", { scope: "col", class: i ? "number" : null }, text),
    );
    return element(
      "table",
      { class: "small" },
      element("thead", null, element("tr", null, head)),
      element("tbody", null, rows),
    );
  }

  ofMachine(side, name) {
    const part = side.part;
    const machine = part.machineNumber.get(name);
    if (machine === undefined)
      return [this.head("machine", name), element("p", { class: "verdict" }, "Not in this round.")];
    const group = part.groupOf[machine];
    const rows = (part.placedOn.get(machine) || []).map((row) => part.placement(row));
    const resources = (part.machine_facts.resources || []).map((resourceName) => {
      const all = part.fleet("allocatable", resourceName, machine);
      const free = part.fleet("free", resourceName, machine);
      return [
        resourceName === "cpu" ? "CPU" : resourceName,
        `${resource(resourceName, all)}, free before: ${resource(resourceName, free)}`,
      ];
    });
    const planned = part.plannedOn.get(machine) || [];
    const running = part.runningOn.get(name) || [];
    const services = part.servicesOn.get(name) || [];
    return [
      this.head("machine", name),
      facts([
        ["Type", part.oneNetwork ? null : part.machine_facts.type[machine]],
        ["Cores", part.oneNetwork ? null : cores(part.size(machine))],
        ...resources,
        ["Given away", cores(part.given(machine))],
        ["Cost under the plan", part.machine_costs ? number(part.machine_costs[machine]) : null],
        [
          "Group",
          group >= 0
            ? button(part.groups[group].name, () => this.app.choose({ type: "group", name: part.groups[group].name }), {
                class: "link",
              })
            : null,
        ],
        ["Machines like it", group >= 0 ? whole(part.groups[group].members.length - 1) : null],
      ]),
      this.gpus(side, name),
      services.length > 0 &&
        section(
          "Services",
          longList(
            services,
            (service) => `${service.name} on core ${service.cores}, p95 within ${latency(service.slo_p95)}`,
          ),
        ),
      running.length > 0 &&
        section(
          "Runs there",
          longList(
            running,
            (run) => `${side.round.title(run.task)}, ${cores(run.width_milli)}, ${percent(run.progress)} of its forecast`,
          ),
        ),
      section(
        `Starts there: ${whole(rows.length)}`,
        rows.length > 0 &&
          longList(rows, (p) => [
            this.task(part, p.task),
            element("span", { class: "soft" }, ` ${cores(p.width)}, cost ${number(p.cost)}`),
          ]),
      ),
      planned.length > 0 &&
        section(
          "Planned for later",
          longList(planned, (task) => [
            this.task(part, task),
            element("span", { class: "soft" }, ` ${slotTag(part.plan[task][1])}`),
          ]),
        ),
    ];
  }

  /** A lane for each GPU of a machine: what runs on it, what comes with the round, and what is left then. */
  gpus(side, name) {
    const found = (side.part.machine_facts.gpus || {})[name];
    if (!found) return null;
    const { model, before, after, holds } = found;
    const links = this.links(side, name);
    const lane = (device) => {
      const those = holds.filter(([, does, , devices]) => !isLeaving(does) && devices.includes(device));
      const track = element(
        "span",
        { class: "track" },
        those.map(([task, does, share]) => this.held(side, task, does, share, links)),
      );
      const left = after[device] === 1000 ? "free" : after[device] ? `${after[device]}m free` : "full";
      return element(
        "li",
        { "aria-label": `GPU ${device}: ${left}` },
        element("span", { class: "soft" }, String(device)),
        track,
        element("span", { class: "soft" }, left),
      );
    };
    const leaving = holds.filter(([, does]) => isLeaving(does));
    const comes = holds.some(([, does]) => does === "starts" || does === "moves here");
    const linked = holds.filter(([, does, , , words]) => words && !isLeaving(does) && does !== "runs");
    return section(
      `GPUs: ${counted(after.length, "device")} of model ${model}`,
      links && links.begin().node,
      element("ol", { class: "gpus" }, after.map((_, device) => lane(device))),
      element(
        "p",
        { class: "soft" },
        `Free: ${gpuAmount(d3.sum(before))} before the round, ${gpuAmount(d3.sum(after))} after it.` +
          (comes ? " What comes with this round has a thick frame." : ""),
      ),
      linked.length > 0 &&
        longList(linked, ([task, does, , devices, words]) => {
          const made = button(side.round.title(task), () => this.app.choose({ type: "task", name: task }), {
            class: "link",
          });
          if (links) links.follow(made, task);
          return [made, ` ${does} on ${gpuNames(devices)}${words}`];
        }),
      leaving.length > 0 &&
        longList(leaving, ([task, does, share, devices]) => [
          side.round.title(task),
          element("span", { class: "soft" }, ` ${does}, had ${share < 1000 ? `${share}m of ` : ""}${gpuNames(devices)}`),
        ]),
    );
  }

  /** How the GPUs of a machine are linked, to be drawn; null where that is not known. */
  links(side, name) {
    const gpus = (side.part.machine_facts.gpus || {})[name];
    if (!gpus || !gpus.topology) return null;
    return new LinkDrawing(name, side.part.machine_facts.topologies[gpus.topology], gpus, (task) =>
      side.round.title(task),
    );
  }

  /** The links of the machine where a task has several GPUs, with its own lit. */
  linksOf(side, task, machine) {
    const links = this.links(side, machine);
    const linked = links && links.gpus.holds.some(([name, does, , , words]) => name === task && words && !isLeaving(does));
    return linked ? section(`Its GPUs on ${machine}`, links.begin(task).node) : null;
  }

  /** A task in the lane of a GPU, as wide as its share. */
  held(side, task, does, share, links) {
    const title = side.round.title(task);
    const words = `${title}: ${does}, ${share < 1000 ? `${share}m` : "the whole GPU"}`;
    // Of a few pixels there would be one letter: the words are in the title.
    const made = button(share < 120 ? "" : title, () => this.app.choose({ type: "task", name: task }), { title: words, "aria-label": words });
    made.classList.add("held");
    made.classList.toggle("comes", does !== "runs");
    made.style.width = `${share / 10}%`;
    if (links) links.follow(made, task);
    return made;
  }

  /** A node that is neither of these: a domain, a tier, the sink, an unscheduled node. */
  ofNode(side, graph, node) {
    return [
      this.head(graph.kindOf(node), this.app.nodeTitle(graph, node)),
      facts([
        ["Label", graph.label(node)],
        ["Supply", graph.supplies[node] ? whole(graph.supplies[node]) : null],
        ["Flow through", whole(graph.through[node])],
        ["Price to the sink", number(graph.potential(node)), "of one unit of flow, in units of cost"],
        [
          "Potential",
          graph.potentials ? whole(graph.potentials[node]) : "unknown: the flow is not optimal",
          "in solver units",
        ],
      ]),
      this.arcsOf(side, graph, node),
    ];
  }

  /** Arcs of a node, those with flow first, then those that came closest. */
  arcsOf(side, graph, node) {
    const rank = (a, b) =>
      graph.flow[b] - graph.flow[a] ||
      (graph.reduced(a) ?? graph.cost(a)) - (graph.reduced(b) ?? graph.cost(b)) ||
      a - b;
    const list = (arcs, far) =>
      longList([...arcs].sort(rank), (arc) => [
        element("span", { class: "amount" }, graph.flow[arc] ? whole(graph.flow[arc]) : "0"),
        button(
          this.app.nodeTitle(graph, far(arc)),
          () => this.app.choose({ type: "arc", arc, graph: graph.id, side: side.name }),
          { class: "link" },
        ),
        element("span", { class: "soft" }, ` cost ${number(graph.cost(arc))}, reduced ${number(graph.reduced(arc))}`),
      ]);
    return [
      graph.leaving[node].length > 0 &&
        section(
          `Arcs out: ${whole(graph.leaving[node].length)}`,
          list(graph.leaving[node], (arc) => graph.heads[arc]),
        ),
      graph.entering[node].length > 0 &&
        section(
          `Arcs in: ${whole(graph.entering[node].length)}`,
          list(graph.entering[node], (arc) => graph.tails[arc]),
        ),
    ];
  }

  ofArc(side, graph, arc) {
    const end = (node) =>
      button(this.app.nodeTitle(graph, node), () => this.app.chooseNode(graph, node), { class: "link" });
    return [
      this.head(
        "arc",
        `${this.app.nodeTitle(graph, graph.tails[arc])} → ${this.app.nodeTitle(graph, graph.heads[arc])}`,
      ),
      element("p", null, end(graph.tails[arc]), " → ", end(graph.heads[arc])),
      arcFacts(graph, arc),
      section(`Cost of a task: ${number(graph.cost(arc))}`, this.terms(graph.termsOf(arc))),
      section(
        "Exact, in solver units",
        facts([
          ["Unit cost", whole(graph.unit_costs[arc])],
          ["Reduced cost", whole(graph.reducedUnits(arc))],
          ["Units of one task", whole(graph.units[arc])],
          ["Units of one cost", number(graph.cost_scale)],
        ]),
      ),
    ];
  }

  /** All arcs behind one line of the drawing. */
  ofLink(side, scene, link) {
    const { app } = this;
    const ends = [link.source, link.target].map((id) => scene.boxes.get(id));
    const title = `${ends[0].label} → ${ends[1].label}`;
    if (scene.what === "round") {
      if (link.fixed) return app.about(side, link.fixed);
      const [from] = ends;
      if (!from.choice) return this.ofBundle(side, from);
      if (link.chosen || from.choice.type !== "task") return app.about(side, from.choice);
      return this.ofMove(side, { task: from.choice.name, arc: link.best });
    }
    const { graph } = side;
    if (link.arcs.length === 1) return this.ofArc(side, graph, link.arcs[0]);
    const list = [...link.arcs].sort((a, b) => graph.flow[b] - graph.flow[a] || graph.cost(a) - graph.cost(b) || a - b);
    const name = (arc) => {
      const column = graph.column(arc);
      if (column) return `${slotTag(column.slot)}, ${cores(column.width)}`;
      return `${app.nodeTitle(graph, graph.tails[arc])} → ${app.nodeTitle(graph, graph.heads[arc])}`;
    };
    return [
      this.head(counted(link.arcs.length, "arc"), title),
      facts([
        ["Flow", `${whole(link.flow)} of ${whole(link.capacity)}`],
        ["That is", link.amount],
        [
          "Cost of a task",
          d3
            .extent(link.arcs, (arc) => graph.cost(arc))
            .map(number)
            .join(" to "),
        ],
        ["Least reduced cost", number(d3.min(link.arcs, (arc) => graph.reduced(arc)))],
        ["Price of room", link.price > 0 ? number(link.price) : null],
      ]),
      section(
        "Arcs",
        longList(list, (arc) => [
          element("span", { class: "amount" }, whole(graph.flow[arc])),
          button(name(arc), () => app.choose({ type: "arc", arc, graph: graph.id, side: side.name }), {
            class: "link",
          }),
          element(
            "span",
            { class: "soft" },
            ` of ${whole(graph.capacities[arc])}, cost ${number(graph.cost(arc))}, `,
            `reduced ${number(graph.reduced(arc))}`,
          ),
        ]),
      ),
    ];
  }

  ofBundle(side, box) {
    const { app } = this;
    const open = (id) => {
      const [kind, ...rest] = id.split(":");
      const name = rest.join(":");
      if (["class", "group", "machine", "task"].includes(kind)) app.choose({ type: kind, name });
      else app.choose({ type: "node", name: id });
    };
    return [
      this.head(
        "gathered",
        box.label,
        button("Draw more of them", () => app.expand(box)),
      ),
      box.note && element("p", { class: "soft" }, box.note),
      section(
        "Members",
        longList(box.members, (id) => button(app.idTitle(id), () => open(id), { class: "link" })),
      ),
    ];
  }

  /** What passes placed and later stages changed. */
  undone(part) {
    const rows = part.passes.flatMap((one) => one.undone.map(([task, by]) => [one.number, task, by]));
    return (
      rows.length > 0 &&
      section(
        "Undone after its pass",
        longList(rows, ([number, task, by]) => [
          task >= 0 ? this.task(part, task) : "a task",
          ` of pass ${number}${by ? `, by ${by}` : ""}`,
        ]),
      )
    );
  }

  /** The round itself: what was pending, decided, proved, and how long it took. */
  ofRound(side) {
    const { round, part } = side;
    const { headline } = round;
    return [
      this.head(side.other ? `round ${side.name}` : "round", this.app.roundTitle(headline)),
      facts([
        ["Time", moment(round.now_s)],
        ["Policy", [round.policy, round.settings.objective].filter(Boolean).join(", ")],
        ["Solver", round.solver],
        ["File", round.source],
        ["Written by", round.writer === "unknown" ? null : round.writer],
      ]),
      this.asNetwork(side),
      round.parts.length > 1 &&
        element("p", { class: "soft" }, `Part ${part.index + 1} of ${round.parts.length}: ${partTitle(part)}`),
      section(
        "Sizes",
        facts([
          ["Tasks", `${whole(part.tasks.length)} in ${counted(part.classes.length, "class", "classes")}`],
          ["Machines", `${whole(part.machines.length)} in ${counted(part.groups.length, "group")}`],
          ["Placed", whole(part.placements.task.length)],
          ["Waiting", whole(part.waiting.task.length)],
          [
            "Network",
            part.graphs.round &&
              `${counted(part.graphs.round.nodeCount, "node")}, ${counted(part.graphs.round.arcCount, "arc")}`,
          ],
          ["Passes", part.passes.length ? whole(part.passes.length) : null],
        ]),
      ),
      this.certificate(part),
      section("Cost by term", this.terms(costByTerm(part)), overlap(part)),
      this.reasons(side),
      this.undone(part),
      part.reservations.length > 0 &&
        section(
          "Reserved",
          longList(part.reservations, ([task, machine, width, start]) => [
            task >= 0 ? this.task(part, task) : "a task",
            " on ",
            machine >= 0 ? this.machine(part, machine) : "?",
            `, ${cores(width)} ${until(start, round.now_s)}`,
          ]),
        ),
      part.task_groups.length > 0 &&
        section(
          "Task groups",
          longList(part.task_groups, (group) => {
            const least = `at least ${group.minimum}`;
            if (group.starts === undefined) return `${group.name}: ${least}`;
            const members = `${counted(group.members.length, "member")} pending, ${group.running} running, ${least}`;
            return `${group.name}: ${group.starts ? "starts" : "waits as a whole"}; ${members}`;
          }),
        ),
      part.repairs.length > 0 &&
        section(
          "Moved by relations",
          longList(
            part.repairs,
            ({ task, relation, moved_to: to }) =>
              `${round.title(task)}: ${relation || "its group waits"}; ${to ? `now ${to}` : "waits"}`,
          ),
        ),
      this.timings(round, part),
      this.arcKinds(side),
      element(
        "details",
        null,
        element("summary", null, "Settings"),
        facts(Object.entries(round.settings).map(([name, value]) => [name, String(value)])),
      ),
    ];
  }

  /** How far what was decided is from an optimal flow of the network of the round. */
  asNetwork(side) {
    const { part } = side;
    const [first, ...more] = part.round_notes;
    if (!first) return null;
    return section(
      "The round as one network",
      element("p", { class: "verdict" }, sentence(first)),
      more.map((words) => element("p", { class: "soft" }, sentence(words))),
      part.gaining.length > 0 &&
        longList(part.gaining, (task) => {
          const best = part.optionsOf(task)[0];
          return [
            this.task(part, task),
            element("span", { class: "soft" }, best ? ` to ${optionText(best)}: ${signed(best.more)}` : ""),
          ];
        }),
    );
  }

  certificate(part) {
    const c = part.certificate;
    if (!c)
      return element(
        "p",
        { class: "soft" },
        Object.keys(part.graphs).length
          ? "No certificate in this record."
          : `No certificate: ${part.round.policy} is no flow.`,
      );
    const near = c.gap_absolute < 1e-4 * Math.max(1, Math.abs(c.primal));
    const sentence = near
      ? "No plan is cheaper, as far as four digits tell."
      : c.gap_relative >= NO_BOUND
        ? "No bound says how far the plan is from the cheapest one."
        : `At most ${number(c.gap_absolute)} above the cheapest plan there could be.`;
    return section(
      "Certificate",
      element("p", { class: "verdict" }, sentence),
      facts([
        ["Cost of the plan", number(c.primal)],
        ["No plan below", number(c.bound)],
        ["Gap", c.gap_relative >= NO_BOUND
          ? "no bound beyond what the tasks cost alone"
          : `${number(c.gap_absolute)}, ${percent(c.gap_relative)} of what scheduling could win or lose`],
        ["Alone in the cluster", number(c.unconstrained), "what it would cost if every task had the cluster to itself"],
        ["Proved by", c.method],
        ["Prices used", part.price_count ? whole(part.price_count) : null],
      ]),
    );
  }

  /** Who waits in the whole round, by reason. */
  reasons(side) {
    const { round } = side;
    const rows = round.waiting;
    if (!rows.length) return null;
    const groups = d3.groups(rows, (row) => row.reason).sort((a, b) => b[1].length - a[1].length);
    const link = (row) => [
      button(
        round.title(row.name),
        () => this.app.chooseIn(row.part ? row.part.index : side.part.index, { type: "task", name: row.name }),
        { class: "link" },
      ),
      round.parts.length > 1 && row.part ? ` (part ${row.part.index + 1})` : "",
    ];
    return section(
      round.parts.length > 1 ? `Waiting in all parts: ${whole(rows.length)}` : `Waiting: ${whole(rows.length)}`,
      longList(groups, ([reason, those]) => [
        element("span", { class: "amount" }, whole(those.length)),
        element("span", null, spoken(reason, round.now_s), " "),
        element(
          "span",
          { class: "soft" },
          those
            .slice(0, NAMED)
            .map((row, i) => [i ? ", " : "", ...link(row)])
            .flat(),
          those.length > NAMED ? " …" : "",
        ),
      ]),
    );
  }

  timings(round, part) {
    const rows = (timings) =>
      Object.entries(timings)
        .filter(([name]) => name !== "decide_ms")
        .map(([name, ms]) => [name.replace(/_ms$/, "").replaceAll("_", " "), ms]);
    const own = rows(part.timings);
    const all = rows(round.timings);
    const decide = part.timings.decide_ms;
    return [
      own.length > 0 &&
        section(
          decide === undefined ? "Time by stage" : `Time: decided in ${milliseconds(decide)}`,
          bars(own, milliseconds, false),
        ),
      all.length > 0 && section("Time of the whole round", bars(all, milliseconds, false)),
    ];
  }

  arcKinds(side) {
    const { graph } = side;
    if (!graph) return null;
    const kinds = new Map();
    for (let arc = 0; arc < graph.arcCount; arc += 1) {
      const key = `${graph.kindOf(graph.tails[arc])} → ${graph.kindOf(graph.heads[arc])}`;
      const entry = kinds.get(key) || [0, 0];
      entry[0] += 1;
      entry[1] += graph.flow[arc] ? 1 : 0;
      kinds.set(key, entry);
    }
    const rows = [...kinds].map(([name, [all, busy]]) =>
      element(
        "tr",
        null,
        element("th", { scope: "row" }, name),
        element("td", { class: "number" }, whole(all)),
        element("td", { class: "number" }, whole(busy)),
      ),
    );
    const head = ["Arcs", "All", "With flow"].map((text, i) =>
      element("th", { scope: "col", class: i ? "number" : null }, text),
    );
    return section(
      graph.isRound ? "Arcs of the network" : "Arcs of the network that decided",
      element(
        "table",
        { class: "small" },
        element("thead", null, element("tr", null, head)),
        element("tbody", null, rows),
      ),
    );
  }

  /** Two rounds beside each other. */
  ofDifference(a, b, rows) {
    const { app } = this;
    const counts = d3.rollups(
      rows,
      (list) => list.length,
      (row) => row.kind,
    );
    const primal = (side) => side.part.certificate && side.part.certificate.primal;
    const cells = [
      ["Policy", (side) => [side.round.policy, side.round.settings.objective].filter(Boolean).join(", ")],
      ["Time", (side) => moment(side.round.now_s)],
      ["Placed", (side) => whole(side.round.headline.placed)],
      ["Waiting", (side) => whole(side.round.headline.waiting)],
      ["Cost", (side) => number(primal(side))],
      ["No plan below", (side) => number(side.part.certificate && side.part.certificate.bound)],
      ["Solver", (side) => side.round.solver],
    ];
    const table = element(
      "table",
      { class: "small" },
      element(
        "thead",
        null,
        element("tr", null, element("th"), element("th", { scope: "col" }, "A"), element("th", { scope: "col" }, "B")),
      ),
      element(
        "tbody",
        null,
        cells.map(([name, show]) =>
          element(
            "tr",
            null,
            element("th", { scope: "row" }, name),
            element("td", null, show(a)),
            element("td", null, show(b)),
          ),
        ),
      ),
    );
    const shared =
      a.round.settings.objective !== b.round.settings.objective
        ? element("p", { class: "soft" }, "The two have different objectives, so their costs are on different scales.")
        : null;
    const moved = rows.filter((row) => isMove(row.kind));
    const others = rows.filter((row) => row.kind === "runs now" || row.kind === "gone");
    const repriced = rows.filter((row) => row.kind === "cost");
    const places = (was, is) => (was === is ? was : `${was} → ${is}`);
    const make = (row) => [
      element("span", { class: "change" }, row.kind),
      " ",
      button(row.title, () => app.chooseTitle(row.title), { class: "link" }),
      element(
        "span",
        { class: "soft" },
        ` ${places(standText(row.was), standText(row.is))}`,
        row.delta === null ? "" : `, cost ${signed(row.delta)}`,
      ),
    ];
    const terms = new Map();
    for (const [term, value] of costByTerm(b.part)) terms.set(term, value);
    for (const [term, value] of costByTerm(a.part)) terms.set(term, (terms.get(term) || 0) - value);
    return [
      this.head("A beside B", "What changed"),
      table,
      shared,
      section(
        "Tasks",
        facts(counts.map(([kind, count]) => [kind === "cost" ? "same place, other cost" : kind, whole(count)])),
      ),
      moved.length > 0 && section("Decided differently", longList(moved, make)),
      repriced.length > 0 && section("Same place, other cost", longList(repriced, make)),
      others.length > 0 && section("No longer pending in B", longList(others, make)),
      moved.length + repriced.length + others.length === 0 &&
        element("p", { class: "verdict" }, "Nothing: same decisions at the same cost."),
      section(
        "Cost by term, B − A",
        bars(
          [...terms].filter(([, value]) => Math.abs(value) > 1e-9).map(([term, value]) => [app.term(term), value]),
          signed,
        ),
      ),
    ];
  }
}

/** What the placements of a part cost, and the waiting, by term. */
function costByTerm(part) {
  const sums = new Map();
  const add = ([term, value]) => sums.set(term, (sums.get(term) || 0) + value);
  part.placements.task.forEach((_, row) => part.placementTerms(row).forEach(add));
  part.waiting.task.forEach((_, row) => part.waitingTerms(row).forEach(add));
  return [...sums];
}

/** Why the costs of a round's tasks do not add up to what its plan costs, where they do not. */
function overlap(part) {
  if (part.oneNetwork || !part.certificate) return null;
  const tasks = costByTerm(part).reduce((sum, [, value]) => sum + value, 0);
  const plan = part.certificate.primal;
  if (Math.abs(plan - tasks) < 5e-4) return null;
  const why = "it has what runs already too, and what two tasks do to each other once";
  return element("p", { class: "soft" }, `Tasks add up to ${number(tasks)}, the plan costs ${number(plan)}: ${why}.`);
}

function partTitle(part) {
  const priority = part.priority === null || part.priority === undefined ? "" : `, priority ${part.priority}`;
  return `${part.prices} prices${priority}`;
}

function arcFacts(graph, arc) {
  const milli = graph.milli(graph.flow[arc]);
  return facts([
    ["Flow", `${whole(graph.flow[arc])} of ${whole(graph.capacities[arc])}`],
    [
      "That is",
      milli === null
        ? null
        : graph.units[arc] > 1 || /class|domain/.test(graph.kindOf(graph.tails[arc]))
          ? counted(graph.tasks(arc), "task")
          : cores(milli),
    ],
    ["Slot", graph.column(arc) && slotTag(graph.column(arc).slot)],
    ["Width", graph.column(arc) && cores(graph.column(arc).width)],
    [
      "Reduced cost",
      graph.reduced(arc) === null ? "unknown" : number(graph.reduced(arc)),
      "by how much a task more on this arc would miss",
    ],
    ["Price of room", graph.price(arc) > 0 ? number(graph.price(arc)) : null, "what room for one task more would save"],
  ]);
}

/** A place of a task in words. */
function optionText(option) {
  if (option.machine === null) return "unscheduled";
  return `${namesOf(option.machines)}, ${slotTag(option.slot)}, ${cores(option.width)}`;
}

/** Where a line ends: a machine, with when a task starts there. */
function placeText(scene, id) {
  const box = scene.boxes.get(id);
  return box.parent ? `${scene.boxes.get(box.parent).label}, ${box.tag}` : box.label;
}

/** The machine that a pass gave a task, at which cost; null where its flow does not tell one task of a class from another. */
function takenBy(part, graph, task) {
  const node = graph.node("class", part.classes[part.classOf[task]].name);
  if (node === undefined) return null;
  const arcs = graph.leaving[node].filter((arc) => graph.flow[arc] && graph.kindOf(graph.heads[arc]) === "machine");
  return arcs.length === 1 ? { machine: graph.name[graph.heads[arcs[0]]], cost: graph.cost(arcs[0]) } : null;
}

function sentence(words) {
  return `${words[0].toUpperCase()}${words.slice(1)}.`;
}

/** The short form for the pointer: a title and rows of text. */
function brief(app, side, scene, thing) {
  const rows = [];
  if (thing.link) {
    const { link } = thing;
    const ends = [link.source, link.target].map((id) => scene.boxes.get(id));
    const title = `${ends[0].label} → ${scene.boxes.get(ends[1].parent || ends[1].id).label}`;
    if (scene.what === "round") {
      const { part } = side;
      if (link.fixed) rows.push(["flow", cores(link.flow * 1000)], ["that is", link.words || counted(link.tasks, "task")]);
      else if (link.chosen) {
        rows.push(["", link.amount], [link.tasks > 1 ? "cost of a task" : "cost", number(link.cost)]);
        if (link.tasks === 1) rows.push(...link.stand.terms.filter(([, v]) => v).map(([t, v]) => [`  ${app.term(t)}`, number(v)]));
        const others = [...scene.links.values()].filter((other) => other.alternative && other.source === link.source);
        const second = d3.least(others, (a, b) => a.reduced - b.reduced);
        if (second) rows.push(["next best", `${placeText(scene, second.target)} ${signed(second.reduced)}`]);
      } else {
        rows.push(["dearer by", signed(link.reduced)], ["cost", number(link.cost)]);
        rows.push(...part.graphs.round.termsOf(link.best).map(([t, v]) => [`  ${app.term(t)}`, number(v)]));
      }
      return { title: `${ends[0].label} → ${placeText(scene, link.target)}`, rows };
    }
    const { graph } = side;
    const several = link.arcs.length > 1;
    rows.push(["flow", `${whole(link.flow)} of ${whole(link.capacity)}`], ["that is", link.amount]);
    if (several) rows.push(["arcs", whole(link.arcs.length)]);
    rows.push([several ? "cheapest, a task" : "cost of a task", number(graph.cost(link.best))]);
    rows.push(...graph.termsOf(link.best).map(([t, v]) => [`  ${app.term(t)}`, number(v)]));
    rows.push(["reduced cost", number(link.reduced)]);
    if (link.full) rows.push(["price of room", number(link.price)]);
    return { title, rows };
  }
  const { box } = thing;
  if (box.note && !(box.choice && box.choice.type === "task")) rows.push(["", box.note]);
  const { part, graph } = side;
  if (box.choice && box.choice.type === "task") {
    const task = part.taskNumber.get(box.choice.name);
    if (task !== undefined) {
      const stand = standOf(part, task);
      rows.push(["", standText(stand)]);
      if (stand.cost !== null)
        rows.push(
          ["cost", number(stand.cost)],
          ...stand.terms.filter(([, v]) => v).map(([t, v]) => [app.term(t), number(v)]),
        );
      if (stand.reason) rows.push(["", stand.reason]);
    }
  } else if (box.choice && box.choice.type === "machine") {
    const machine = part.machineNumber.get(box.choice.name);
    rows.push(["starts here", whole((part.placedOn.get(machine) || []).length)]);
    if (part.oneNetwork)
      rows.push(["free before", cores(part.fleet("free", "cpu", machine))], ["given away", cores(part.given(machine))]);
  } else if (box.choice && box.choice.type === "class") {
    const { members } = part.classes[box.cls];
    rows.push(
      ["placed", whole(members.filter((task) => part.placementOf.has(task)).length)],
      ["waiting", whole(members.filter((task) => !part.placementOf.has(task)).length)],
    );
    rows.push([
      "members",
      `${members
        .slice(0, 4)
        .map((task) => part.taskTitle(task))
        .join(", ")}${members.length > 4 ? ", …" : ""}`,
    ]);
  } else if (box.choice && box.choice.type === "group") {
    const { members } = part.groups[box.group];
    rows.push(
      ["machines", whole(members.length)],
      [
        "members",
        `${members
          .slice(0, 4)
          .map((machine) => part.machines[machine])
          .join(", ")}${members.length > 4 ? ", …" : ""}`,
      ],
    );
    rows.push(["tasks placed", whole(d3.sum(members, (machine) => (part.placedOn.get(machine) || []).length))]);
  } else if (box.members)
    rows.push([
      "members",
      `${box.members
        .slice(0, 4)
        .map((id) => app.idTitle(id))
        .join(", ")}${box.members.length > 4 ? ", …" : ""}`,
    ]);
  if (graph && scene.what !== "round" && box.nodes.length === 1) {
    rows.push(["flow through", whole(graph.through[box.nodes[0]])]);
    if (graph.potentials)
      rows.push(
        ["price to the sink", number(graph.potential(box.nodes[0]))],
        ["potential", whole(graph.potentials[box.nodes[0]])],
      );
  }
  return { title: box.label, rows };
}
