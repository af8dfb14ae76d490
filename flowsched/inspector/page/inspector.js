// The page itself: which rounds are shown, how, and what is chosen. Everything else is told from here.

const MODES = { reduced: "reduced cost", price: "price", cost: "cost of a task" };
const VIEWS = { round: "Round", passes: "Passes", tables: "Tables" };
/** What else than a network may have given a task its place. */
const STAGES = {
  greedy: "the greedy rule",
  list_scheduling: "list scheduling",
  carried: "the plan of the round before",
  move: "a move in the improvement after the passes",
  swap: "a swap in the improvement after the passes",
  gang: "its task group before the first pass",
  repair: "the last check of relations",
  never_idle: "the rule that something starts where nothing runs",
  preemption: "a preemption",
};

/** Arcs without flow that show for what is chosen, the closest first. */
const CLOSE = 12;
const KEPT_ROUNDS = 8;
/** Pixels that a network takes beside another one. */
const WIDE_ENOUGH = 800;

const at = (id) => document.getElementById(id);

/** Nodes and arcs that a task takes, or that its class took, through the network of a pass, or the one of all. */
function taskPath(part, graph, task) {
  const cls = part.classOf[task];
  if (graph.isRound) return roundPath(part, graph, task);
  const start = graph.node("class", cls >= 0 ? part.classes[cls].name : "");
  if (start === undefined) return { nodes: [], arcs: [], note: "" };
  const arcs = [];
  let node = start;
  let note = "";
  const stand = standOf(part, task);
  const most = (list) => d3.least(list, (a, b) => graph.flow[b] - graph.flow[a] || a - b);
  if (part.oneNetwork && stand.state === "placed") {
    const group = part.groupOf[stand.machine];
    const direct = graph.leaving[start].filter((arc) => graph.group[graph.heads[arc]] === group);
    const around = graph.leaving[start]
      .filter((arc) => graph.kindOf(graph.heads[arc]) === "domain")
      .flatMap((arc) =>
        graph.leaving[graph.heads[arc]]
          .filter((second) => graph.group[graph.heads[second]] === group)
          .map((second) => [arc, second]),
      );
    const routes = [...direct.map((arc) => [arc]), ...around];
    const least = (route) => d3.min(route, (arc) => graph.flow[arc]);
    const best = d3.least(routes, (a, b) => least(b) - least(a));
    if (!best)
      return { nodes: [start], arcs: [], note: "The first network had no arc to its machine; it was placed after it." };
    arcs.push(...best);
    node = graph.heads[best[best.length - 1]];
    if (!least(best))
      note =
        "The first network's flow went elsewhere: it was placed here by a later stage: " +
        "packing, further networks or improvement.";
  } else if (part.oneNetwork && stand.state !== "placed") {
    const waits = graph.leaving[start].find((arc) => graph.kindOf(graph.heads[arc]) === "unscheduled");
    if (waits !== undefined) {
      arcs.push(waits);
      node = graph.heads[waits];
      if (!graph.flow[waits]) note = "The first network had a place for its class; packing whole tasks found none.";
    }
  }
  if (!part.oneNetwork) {
    const [stage, pass] = part.decided_by[task] || [];
    const drawn = part.passes.find((one) => one.number === graph.pass);
    const undone = drawn && drawn.undone.find(([number]) => number === task);
    if (undone) {
      const by = undone[1] ? ` by ${undone[1]}` : "";
      return { nodes: [start], arcs: [], note: `Pass ${drawn.number} placed it elsewhere, which was undone${by}.` };
    }
    if (stage === "network" && drawn && pass !== drawn.number)
      return { nodes: [], arcs: [], note: `Pass ${pass} decided on it; the network drawn here is pass ${drawn.number}.` };
    if (stage && stage !== "network")
      return { nodes: [], arcs: [], note: `No network decided on it, but ${STAGES[stage]}.` };
    const kind = stage ? "machine" : "unscheduled";
    const name = stage ? part.machines[stand.machine] : "";
    const taken = graph.leaving[start].find(
      (arc) => graph.kindOf(graph.heads[arc]) === kind && graph.name[graph.heads[arc]] === name && graph.flow[arc],
    );
    if (taken === undefined) return { nodes: [], arcs: [], note: "It was not in the pass that is drawn here." };
    arcs.push(taken);
    node = graph.heads[taken];
  }
  const seen = new Set([start]);
  while (!seen.has(node) || node === start) {
    seen.add(node);
    const arc = most(graph.leaving[node]);
    if (arc === undefined || seen.has(graph.heads[arc])) break;
    arcs.push(arc);
    node = graph.heads[arc];
  }
  return { nodes: [start, ...arcs.map((arc) => graph.heads[arc])], arcs, note };
}

/** The same through the network of the round. */
function roundPath(part, graph, task) {
  const decided = part.optionsOf(task).find((option) => option.decided);
  if (!decided) return { nodes: [], arcs: [], note: "" };
  const arcs = [decided.arc];
  let node = graph.heads[decided.arc];
  while (graph.leaving[node].length) {
    const [onward] = graph.leaving[node];
    arcs.push(onward);
    node = graph.heads[onward];
  }
  return { nodes: [graph.tails[decided.arc], ...arcs.map((arc) => graph.heads[arc])], arcs, note: "" };
}

class Inspector {
  constructor(index) {
    this.index = index;
    this.opened = new Map();
    this.main = index.rounds.map((_, i) => i).filter((i) => index.rounds[i].side === "main");
    this.others = index.rounds.map((_, i) => i).filter((i) => index.rounds[i].side === "against");
    this.state = {
      position: 0,
      compare: "",
      /** Null for the first one in which something waits. */
      part: null,
      view: null,
      /** Number of the pass that is shown. */
      pass: 1,
      table: "Placements",
      mode: "reduced",
      zero: false,
      choice: null,
    };
    this.expanded = new Set();
    this.more = new Map();
    this.panel = new Panel(at("panel"), this);
    this.sides = [];
    this.search = new Search(
      at("search"),
      at("hits"),
      () => this.found(),
      (entry) => this.chooseIn(entry.part, { type: entry.type, name: entry.name }),
    );
    this.controls();
    if (this.others.length) this.state.compare = "same";
    this.address = new Address(this);
  }

  // --- rounds ---

  async open(index) {
    const known = this.opened.get(index);
    if (known) {
      this.opened.delete(index);
      this.opened.set(index, known);
      return known;
    }
    const round = new Round(await unpack(at(`round-${index}`).textContent), this.index.rounds[index], index);
    this.opened.set(index, round);
    if (this.opened.size > KEPT_ROUNDS) this.opened.delete(this.opened.keys().next().value);
    return round;
  }

  /** The round that is put beside the one shown; null for none. */
  partner() {
    const { compare, position } = this.state;
    const here = this.main[position];
    if (compare === "") return null;
    const { rounds } = this.index;
    if (compare === "before") {
      const before = this.main[position - 1];
      return position > 0 && rounds[before].track === rounds[here].track ? before : null;
    }
    if (compare.startsWith("track ")) {
      const track = Number(compare.slice(6));
      const those = this.main.filter((i) => rounds[i].track === track && i !== here);
      const same = (key) => those.find((i) => rounds[i][key] !== null && rounds[i][key] === rounds[here][key]);
      return track === rounds[here].track ? null : (same("now_s") ?? same("round") ?? null);
    }
    if (compare === "same") {
      const number = this.index.rounds[here].round;
      return (
        this.others.find((i) => this.index.rounds[i].round === number) ??
        this.others[Math.min(position, this.others.length - 1)] ??
        null
      );
    }
    return Number(compare);
  }

  roundTitle(headline) {
    return `Round ${headline.round}`;
  }

  /** The policy of a run, with its objective or its file where another run has the same one. */
  trackName(i) {
    const own = this.index.rounds[i];
    const rivals = this.main.map((k) => this.index.rounds[k]).filter((one) => one.track !== own.track);
    if (!rivals.some((one) => one.policy === own.policy)) return own.policy;
    return `${own.policy}, ${own.objective || ""} (${own.source})`;
  }

  /** Of two rounds of the same name, the file tells which is which. */
  sideName(side) {
    const own = this.roundName(side.round.index);
    const same = this.rounds.filter((round) => this.roundName(round.index) === own).length > 1;
    return same && side.round.source ? `${own} · ${side.round.source}` : own;
  }

  roundName(i) {
    const head = this.index.rounds[i];
    const how = [head.policy, head.objective].filter(Boolean).join(", ");
    return `round ${head.round} · ${moment(head.now_s)} · ${how}`;
  }

  async show(fit = true) {
    const turn = (this.turn = (this.turn || 0) + 1);
    const here = this.main[this.state.position];
    const other = this.partner();
    // With "the round before", A is what was and B is what is.
    const order = other === null ? [here] : this.state.compare === "before" ? [other, here] : [here, other];
    const rounds = await Promise.all(order.map((i) => this.open(i)));
    if (turn !== this.turn) return;
    this.rounds = rounds;
    this.focusRound = rounds[order.indexOf(here)];
    const parts = this.focusRound.parts;
    this.shownPart =
      this.state.part === null ? this.focusRound.opening() : Math.min(this.state.part, Math.max(0, parts.length - 1));
    const part = parts[this.shownPart];
    this.fillControls();
    if (!part) {
      this.nothing();
      return;
    }
    const views = this.views(part);
    if (!views.includes(this.state.view)) this.state.view = views[0];
    this.stage(rounds, part);
    this.draw(fit);
    document.documentElement.dataset.ready = String(turn);
  }

  views(part) {
    return ["round", ...(this.passesOf(part).length ? ["passes"] : []), "tables"];
  }

  /** Passes whose network the page has. */
  passesOf(part) {
    return part.passes.filter((one) => part.graphs[`pass:${one.number}`]);
  }

  /** The pass that is shown of a part. */
  passOf(part) {
    const those = this.passesOf(part);
    return d3.least(those, (one) => Math.abs(one.number - this.state.pass));
  }

  nothing() {
    at("stages").replaceChildren(element("p", { class: "empty" }, "This round had nothing to solve."));
    this.sides = [];
    this.panel.show(this.panel.head("round", this.roundTitle(this.focusRound.headline)));
    document.documentElement.dataset.ready = String(this.turn);
  }

  /** One drawing per round. */
  stage(rounds, part) {
    const count = rounds.length;
    if (this.sides.length !== count || !at("stages").querySelector(".stage")) {
      at("stages").replaceChildren();
      this.sides = rounds.map((_, i) => {
        const name = count > 1 ? "AB"[i] : "network";
        const title = element("h2", { class: "stage-title" });
        const host = element("div", { class: "stage-host" });
        at("stages").append(
          element(
            "div",
            { class: "stage", role: "region", "aria-label": count > 1 ? `round ${name}` : "drawing" },
            title,
            host,
          ),
        );
        const side = { name, title, host, other: count > 1 };
        side.drawing = new Drawing(host, name, this.acts(side));
        return side;
      });
    }
    this.sides.forEach((side, i) => {
      side.round = rounds[i];
      side.part =
        (rounds[i] === part.round && part) ||
        rounds[i].parts.find((p) => p.prices === part.prices && p.priority === part.priority) ||
        rounds[i].parts[Math.min(part.index, rounds[i].parts.length - 1)];
      side.title.replaceChildren();
      if (count > 1)
        side.title.append(element("span", { class: "letter" }, side.name), ` ${this.sideName(side)}`);
      side.title.hidden = count < 2;
    });
    this.changes = count > 1 ? differences(rounds[0], rounds[1]) : null;
  }

  acts(side) {
    return {
      choose: (choice, box) => this.choose(choice, box),
      expand: (box) => this.expand(box),
      more: (id) => this.grow(id),
      hover: (thing, x, y) => this.hover(side, thing, x, y),
      leave: () => this.leave(),
      moved: () => this.address.writeSoon(),
    };
  }

  // --- drawing ---

  draw(fit) {
    const tables = this.state.view === "tables";
    at("stages").hidden = tables;
    at("tables").hidden = !tables;
    at("legend").hidden = tables;
    for (const side of this.sides) {
      const pass = this.state.view === "passes" ? this.passOf(side.part) : undefined;
      side.pass = pass;
      side.graph = (pass && side.part.graphs[`pass:${pass.number}`]) || side.part.graphs.round || null;
      side.view = pass ? "passes" : "round";
    }
    this.fillSteps();
    this.fillTabs();
    if (tables) this.drawTables();
    else this.drawScenes(fit);
    this.tell();
    this.address.write();
  }

  drawScenes(fit) {
    // Two networks need more width than half of a screen; two decisions do not.
    const network = this.sides.every((side) => side.view === "passes" || side.part.oneNetwork);
    const narrow = at("stages").clientWidth / 2 < WIDE_ENOUGH;
    at("stages").classList.toggle("stacked", this.sides.length > 1 && network && narrow);
    const scenes = this.sides.map((side) => {
      const options = { ...this.options(side), room: side.drawing.size[0], share: this.sides.length };
      return side.view === "round" && !side.part.oneNetwork
        ? roundScene(side.part, options)
        : networkScene(side.part, side.graph, options);
    });
    const { zero } = this.state;
    this.sides.forEach((side, i) => {
      side.scene = scenes[i];
      this.mark(side, zero);
    });
    if (this.changes) this.markChanges();
    for (const scene of scenes) scene.zero = zero;
    for (const side of this.sides) side.shade = shading(side.scene, this.state.mode);
    this.drawLegend();
    this.sides.forEach((side) => {
      layOut(side.scene, ...side.drawing.size);
      side.drawing.show(side.scene, side.shade, fit);
    });
  }

  /** What must not be gathered, because it is chosen. */
  options(side) {
    const { choice } = this.state;
    const shown = new Set();
    const chosenMachines = new Set();
    let chosenTask = null;
    const { part } = side;
    const machine = (number) => {
      if (number === undefined || number < 0) return;
      chosenMachines.add(number);
      shown.add(`machine:${part.machines[number]}`);
      if (part.groupOf[number] >= 0) shown.add(`group:${part.groups[part.groupOf[number]].name}`);
    };
    if (choice && choice.name !== undefined) {
      shown.add(`${choice.type}:${choice.name}`);
      if (choice.type === "task" && part.taskNumber.has(choice.name)) {
        const task = part.taskNumber.get(choice.name);
        chosenTask = choice.name;
        const cls = part.classOf[task];
        if (cls >= 0) shown.add(`class:${part.classes[cls].name}`).add(`unscheduled:${part.classes[cls].name}`);
        machine(standOf(part, task).machine);
        if (side.graph) for (const node of taskPath(part, side.graph, task).nodes) shown.add(side.graph.label(node));
      }
      if (choice.type === "machine") machine(part.machineNumber.get(choice.name));
    }
    if (choice && choice.type === "node") shown.add(choice.name);
    return { expanded: this.expanded, more: this.more, shown, chosenTask, chosenMachines };
  }

  /** Which lines are drawn, which are lit, what is chosen. */
  mark(side, zero) {
    const { scene, part, graph } = side;
    const { choice } = this.state;
    const chosen = this.chosenBoxes(side);
    const root = (id) => scene.boxes.get(id).parent || id;
    // Of a task its own arcs, not those of others to the place that it has.
    const own = scene.what === "round" && choice && choice.type === "task" ? `task:${choice.name}` : "";
    const touches = (link) =>
      scene.boxes.has(own)
        ? link.source === own
        : chosen.has(link.source) ||
          chosen.has(link.target) ||
          chosen.has(root(link.source)) ||
          chosen.has(root(link.target));
    const path = new Set();
    if (choice && choice.type === "task" && graph && scene.what !== "round" && part.taskNumber.has(choice.name))
      taskPath(part, graph, part.taskNumber.get(choice.name)).arcs.forEach((arc) => path.add(arc));
    const pathBoxes = new Set();
    const near = new Set();
    if (!zero && chosen.size) {
      const close = [...scene.links.values()]
        .filter((link) => !link.flow && touches(link))
        .sort((a, b) => (a.reduced ?? a.cost) - (b.reduced ?? b.cost));
      close.slice(0, CLOSE).forEach((link) => near.add(link.id));
    }
    const linkChosen = choice && choice.type === "link" ? choice.id : null;
    const arcChosen = choice && choice.type === "arc" && graph && choice.graph === graph.id ? choice.arc : null;
    for (const link of scene.links.values()) {
      link.onPath = link.arcs.some((arc) => path.has(arc)) && scene.what !== "round";
      if (
        scene.what === "round" &&
        choice &&
        choice.type === "task" &&
        link.source === `task:${choice.name}` &&
        link.chosen
      )
        link.onPath = true;
      const single =
        link.id === linkChosen || (arcChosen !== null && link.arcs.includes(arcChosen) && scene.what !== "round");
      link.drawn = link.flow > 0 || zero || near.has(link.id) || link.onPath || single;
      link.lit = single || (chosen.size > 0 && touches(link)) || link.onPath;
      link.dim = false;
      if (link.onPath) pathBoxes.add(link.source).add(link.target);
      if (!link.flow && scene.what !== "round")
        link.label = link.lit && link.reduced !== null ? `${signed(link.reduced)}` : "";
      if (scene.what === "round" && link.alternative) link.label = link.lit ? signed(link.reduced) : "";
    }
    const picked = chosen.size > 0 || linkChosen !== null || arcChosen !== null;
    const strong = [...scene.links.values()].some((link) => link.lit);
    for (const link of scene.links.values()) link.dim = picked && strong && !link.lit;
    const used = new Set();
    for (const link of scene.links.values())
      if (link.drawn) used.add(link.source).add(link.target).add(root(link.source)).add(root(link.target));
    for (const box of scene.boxes.values()) {
      box.chosen = chosen.has(box.id);
      box.onPath = pathBoxes.has(box.id);
      box.idle = !box.flow && !box.placed && !box.parent && !used.has(box.id) && box.kind !== "card";
    }
  }

  /** Ids of the boxes that stand for what is chosen. */
  chosenBoxes(side) {
    const { choice } = this.state;
    const { scene, part } = side;
    const ids = new Set();
    if (!choice) return ids;
    const has = (id) => scene.boxes.has(id) && ids.add(id);
    if (choice.type === "box") has(choice.id);
    if (choice.type === "move") has(`task:${choice.task}`);
    if (choice.name === undefined) return ids;
    if (choice.type === "node" && scene.what !== "round") {
      const node = side.graph.labelled(choice.name);
      for (const box of scene.boxes.values())
        if (box.nodes.length && box.nodes.includes(node) && !(box.framed && scene.boxes.has(`node:${choice.name}`)))
          ids.add(box.id);
      return ids;
    }
    has(`${choice.type}:${choice.name}`);
    if (choice.type === "machine" && !ids.size && part.machineNumber.has(choice.name)) {
      const group = part.groupOf[part.machineNumber.get(choice.name)];
      if (group >= 0) has(`group:${part.groups[group].name}`);
    }
    if (choice.type === "task" && part.taskNumber.has(choice.name)) {
      const task = part.taskNumber.get(choice.name);
      if (scene.what === "round")
        for (const box of scene.boxes.values()) if (box.tasks && box.tasks.includes(task)) ids.add(box.id);
      const cls = part.classOf[task];
      if (!ids.size && cls >= 0) has(`class:${part.classes[cls].name}`);
      // The machine's chip, where its group is unfolded.
      const { machine } = standOf(part, task);
      if (machine >= 0 && scene.what !== "round" && scene.boxes.get(`machine:${part.machines[machine]}`)?.parent)
        has(`machine:${part.machines[machine]}`);
    }
    if (choice.type === "class" && scene.what !== "network" && part.classNumber.has(choice.name))
      for (const task of part.classes[part.classNumber.get(choice.name)].members) has(`task:${part.tasks[task]}`);
    if (choice.type === "group" && !ids.size && part.groupNumber.has(choice.name))
      for (const machine of part.groups[part.groupNumber.get(choice.name)].members)
        has(`machine:${part.machines[machine]}`);
    return ids;
  }

  /** Side by side: what differs is in relief, the rest steps back. */
  markChanges() {
    const changed = new Map(this.changes.filter((row) => isMove(row.kind)).map((row) => [row.title, row]));
    const others = new Map(
      this.changes.filter((row) => row.kind === "gone" || row.kind === "runs now").map((row) => [row.title, row]),
    );
    const flows = this.sides.map((side) => new Map([...side.scene.links.values()].map((link) => [link.id, link.flow])));
    for (const side of this.sides) {
      const { scene, part } = side;
      for (const box of scene.boxes.values()) {
        if (
          box.choice &&
          box.choice.type === "task" &&
          (box.kind.startsWith("task") || box.kind.startsWith("chip") || box.kind.startsWith("row"))
        ) {
          const row = changed.get(side.round.title(box.choice.name));
          box.changed = Boolean(row);
          const told = row || others.get(side.round.title(box.choice.name));
          if (told && box.kind.startsWith("task")) box.badge = told.kind;
        } else if (box.kind === "class") {
          const count = part.classes[box.cls].members.filter((task) => changed.has(part.taskTitle(task))).length;
          box.changed = count > 0;
          if (count) box.badge = `${whole(count)} changed`;
        }
      }
      for (const link of scene.links.values()) {
        if (scene.what === "round")
          link.changed = link.chosen && changed.has(side.round.title(scene.boxes.get(link.source).choice.name));
        else {
          const differs = (flows[0].get(link.id) || 0) !== (flows[1].get(link.id) || 0);
          link.changed = differs && link.flow > 0 && scene.boxes.get(link.target).kind !== "sink" && !link.upright;
        }
      }
    }
    const relief =
      !this.state.choice && this.sides.some((side) => [...side.scene.links.values()].some((link) => link.changed));
    if (relief) for (const side of this.sides) for (const link of side.scene.links.values()) link.dim = !link.changed;
  }

  drawLegend() {
    const [side] = this.sides;
    const { mode } = this.state;
    const plan = side.scene.what === "round";
    const line = (kind, thick, core) => {
      const svg = d3
        .create("svg")
        .attr("class", "sample")
        .attr("width", 34)
        .attr("height", 14)
        .attr("aria-hidden", "true");
      const group = svg.append("g").attr("class", `line ${kind}`);
      group.append("path").attr("class", "stroke").attr("d", "M2,7H32").attr("stroke-width", thick);
      if (core) group.append("path").attr("class", "core").attr("d", "M2,7H32").attr("stroke-width", 1.5);
      return svg.node();
    };
    const ramp = (prefix, kind) =>
      element(
        "span",
        { class: "ramp", "aria-hidden": "true" },
        d3.range(SHADES).map((i) => element("span", { class: `swatch ${prefix}${i} ${kind || ""}` })),
      );
    const entry = (...content) =>
      element(
        "li",
        null,
        content.map((one) => (typeof one === "string" ? element("span", null, one) : one)),
      );
    const [low, high] = side.shade.ends;
    const items = [];
    items.push(entry(line("flow base", 2), line("flow base", 8), plan ? "width: cores it gets" : "width: flow"));
    if (mode === "reduced") {
      items.push(entry(line("flow base", 5), plan ? "chosen" : "in use, reduced cost 0"));
      if (plan) items.push(entry(line("flow later base", 5), "planned for later"));
      else items.push(entry(line("flow full", 7, true), "full: room there has a price"));
      if (high > 0)
        items.push(
          entry(
            line("zero far0", 1.5),
            plan ? "another place, by how much dearer:" : "no flow; by how much it missed:",
            number(low),
            ramp("far"),
            number(high),
          ),
        );
    } else if (mode === "price") {
      items.push(
        entry("price of room:", number(low), ramp("price"), number(high)),
        entry(line("flow plain", 4), "room to spare"),
      );
      if (!plan) items.push(entry("box: price of a unit up to the sink", ramp("high", "box")));
    } else
      items.push(entry(plan ? "cost of the placement:" : "cost of a task:", number(low), ramp("cost"), number(high)));
    if (mode !== "reduced")
      items.push(entry(line(`zero ${mode === "cost" ? "cost2" : "plain"}`, 1.5), plan ? "another place" : "no flow"));
    if (side.scene.what === "network") {
      const bar = (kind) => element("span", { class: `gauge-sample ${kind}`, "aria-hidden": "true" });
      const boxes = [...side.scene.boxes.values()];
      const any = (kind) => boxes.some((box) => box.kind === kind && box.fill !== null && box.fill !== undefined);
      if (any("group"))
        items.push(
          entry(bar("new"), `bar of a group: ${side.part.oneNetwork ? "free cores given away" : "flow of its limit"}`),
        );
      if (any("tier")) items.push(entry(bar("new"), "bar of a tier: flow of its limit"));
      if (any("chip")) items.push(entry(bar("before"), "bar of a machine: in use before, given away now"));
    }
    if (this.changes) items.push(entry(line("flow base changed-sample", 5), "changed between A and B"));
    at("legend").replaceChildren(...items);
  }

  // --- tables ---

  drawTables() {
    const side = this.sides[this.rounds.indexOf(this.focusRound)];
    const { graphs } = side.part;
    const all = {};
    if (this.changes) all.Differences = () => differenceTable(this.changes, this);
    Object.assign(all, tablesOf(side.part, graphs.round || null, this));
    for (const one of this.passesOf(side.part)) {
      const own = tablesOf(side.part, graphs[`pass:${one.number}`], this);
      all[`Arcs, pass ${one.number}`] = own.Arcs;
    }
    if (!all[this.state.table]) this.state.table = this.changes ? "Differences" : "Placements";
    const tabs = Object.keys(all).map((name) =>
      button(name, () => this.openTable(name), {
        role: "tab",
        "aria-selected": name === this.state.table ? "true" : "false",
        "data-table": name,
      }),
    );
    const body = element("div", { class: "table-body", role: "tabpanel", "aria-label": this.state.table });
    at("tables").replaceChildren(
      element("div", { class: "tabs small-tabs", role: "tablist", "aria-label": "Tables" }, tabs),
      body,
    );
    const [columns, rows] = all[this.state.table]();
    this.table = new Table(body, this.state.table, columns, rows);
  }

  openTable(name) {
    this.state.table = name;
    this.drawTables();
    this.address.write();
    [...at("tables").querySelectorAll("[data-table]")].find((tab) => tab.dataset.table === name).focus();
  }

  // --- the panel ---

  tell() {
    const { choice } = this.state;
    const content = [];
    const many = this.sides.length > 1;
    if (!choice) {
      if (many) content.push(this.panel.ofDifference(this.sides[0], this.sides[1], this.changes));
      const tell = (side) => (side.pass ? this.panel.ofPass(side) : this.panel.ofRound(side));
      for (const side of this.sides)
        content.push(
          many
            ? element(
                "details",
                null,
                element("summary", null, `Round ${side.name}: ${this.sideName(side)}`),
                tell(side).flat().filter(Boolean),
              )
            : tell(side),
        );
    } else {
      const those = choice.side && many ? this.sides.filter((side) => side.name === choice.side) : this.sides;
      for (const side of those) {
        if (many)
          content.push(
            element(
              "p",
              { class: "side" },
              element("span", { class: "letter" }, side.name),
              ` ${this.sideName(side)}`,
            ),
          );
        content.push(this.about(side, choice));
      }
      content.unshift(
        element(
          "p",
          { class: "crumb" },
          button("← the round", () => this.choose(null), { class: "link" }),
        ),
      );
    }
    this.panel.show(content.flat(3));
  }

  about(side, choice) {
    const { panel } = this;
    const scene = side.scene;
    if (choice.type === "task") return panel.ofTask(side, choice.name);
    if (choice.type === "class") return panel.ofClass(side, choice.name);
    if (choice.type === "group") return panel.ofGroup(side, choice.name);
    if (choice.type === "machine") return panel.ofMachine(side, choice.name);
    if (choice.type === "move") return panel.ofMove(side, choice);
    if (choice.type === "arc")
      return side.part.graphs[choice.graph] && choice.arc < side.part.graphs[choice.graph].arcCount
        ? panel.ofArc(side, side.part.graphs[choice.graph], choice.arc)
        : panel.ofRound(side);
    if (choice.type === "link")
      return scene && scene.links.has(choice.id)
        ? panel.ofLink(side, scene, scene.links.get(choice.id))
        : panel.ofRound(side);
    if (choice.type === "node") {
      const graph = [side.graph, ...Object.values(side.part.graphs)].find(
        (one) => one && one.labelled(choice.name) !== undefined,
      );
      return graph
        ? panel.ofNode(side, graph, graph.labelled(choice.name))
        : [panel.head("node", choice.name), element("p", { class: "verdict" }, "Not in this round.")];
    }
    const box = scene && scene.boxes.get(choice.id);
    return box && box.members ? panel.ofBundle(side, box) : panel.ofRound(side);
  }

  expandButton(id, what) {
    if (!this.sides.some((side) => side.scene && side.scene.boxes.get(id)?.expandable)) return null;
    const open = this.expanded.has(id);
    return button(`${open ? "Fold" : "Unfold"} ${what}`, () => this.toggle(id));
  }

  hover(side, thing, x, y) {
    const { title, rows } = brief(this, side, side.scene, thing);
    const tip = at("tip");
    tip.replaceChildren(
      element("p", { class: "tip-title" }, title),
      element(
        "table",
        null,
        element(
          "tbody",
          null,
          rows.map(([name, value]) =>
            name
              ? element(
                  "tr",
                  null,
                  element("th", { class: name.startsWith("  ") ? "inner" : null }, name.trim()),
                  element("td", null, value),
                )
              : element("tr", null, element("td", { colspan: "2" }, value)),
          ),
        ),
      ),
    );
    tip.hidden = false;
    const room = 14;
    const left = x + room + tip.offsetWidth < innerWidth ? x + room : Math.max(4, x - room - tip.offsetWidth);
    const top = y + room + tip.offsetHeight < innerHeight ? y + room : Math.max(4, y - room - tip.offsetHeight);
    tip.style.left = `${left}px`;
    tip.style.top = `${top}px`;
  }

  leave() {
    at("tip").hidden = true;
  }

  // --- what people do ---

  /** Choose a thing; choosing a box again unfolds it. */
  choose(choice, box = null, show = false) {
    this.leave();
    const same = box && this.state.choice && choice && JSON.stringify(this.state.choice) === JSON.stringify(choice);
    if (same && box.expandable) {
      this.expand(box);
      return;
    }
    this.state.choice = choice;
    if (choice && this.state.view === "tables") {
      this.tell();
      this.address.write();
      return;
    }
    this.draw(false);
    if (show && choice) this.bring();
  }

  /** Move what is chosen into sight. */
  bring() {
    for (const side of this.sides) {
      const [id] = this.chosenBoxes(side);
      const node = id && side.drawing.elements.get(id);
      if (!node) continue;
      side.drawing.current = id;
      side.drawing.reveal(node);
    }
  }

  chooseNode(graph, node) {
    const kind = graph.kindOf(node);
    const name = graph.name[node];
    if (kind === "class" || kind === "task") this.choose({ type: kind, name });
    else if (kind === "machine" || kind === "cores" || kind === "later")
      this.choose({ type: "machine", name: graph.members[node] ? graph.members[node][0] : name });
    else this.choose({ type: "node", name: graph.label(node) });
  }

  /** Choose a thing of a part: one that is not shown is shown first. */
  async chooseIn(index, choice) {
    if (index !== this.shownPart && this.focusRound.parts[index]) {
      this.leave();
      this.state.part = index;
      this.state.choice = choice;
      await this.show();
      this.bring();
    } else this.choose(choice, null, true);
    if (document.activeElement === document.body) at("panel").focus({ preventScroll: true });
  }

  chooseTitle(title) {
    for (const round of this.rounds)
      for (const part of round.parts)
        for (const name of part.tasks)
          if (round.title(name) === title) {
            this.chooseIn(round === this.focusRound ? part.index : this.shownPart, { type: "task", name });
            return;
          }
  }

  expand(box) {
    if (box.kind === "bundle") this.grow(box.id);
    else this.toggle(box.id);
  }

  toggle(id) {
    if (this.expanded.has(id)) this.expanded.delete(id);
    else this.expanded.add(id);
    this.draw(false);
    for (const side of this.sides) {
      const { scene, drawing } = side;
      if (!scene || !scene.boxes.has(id)) continue;
      if (!this.expanded.has(id)) drawing.fit();
      else {
        // All of it stays in sight as long as its words can be read.
        if (drawing.whole && !drawing.fit()) drawing.fitTo(this.around(side, id));
        drawing.reveal(drawing.elements.get(id));
      }
    }
  }

  /** An unfolded box with those that send to it. */
  around(side, id) {
    if (!this.expanded.has(id)) return [...side.scene.boxes.keys()];
    const root = (one) => side.scene.boxes.get(one).parent || one;
    const ids = new Set([id]);
    for (const link of side.scene.links.values())
      if (link.drawn && link.flow && root(link.target) === id) ids.add(root(link.source));
    return [...ids];
  }

  grow(id) {
    this.more.set(id, (this.more.get(id) || 0) + STEP);
    this.draw(false);
  }

  /** Unfold the class and the group of the chosen task and show its path large. */
  follow() {
    const { choice } = this.state;
    if (!choice || choice.type !== "task") return;
    if (this.state.view === "tables") this.setView("round");
    for (const side of this.sides) {
      const { part } = side;
      const task = part.taskNumber.get(choice.name);
      if (task === undefined || !part.oneNetwork) continue;
      const cls = part.classOf[task];
      if (cls >= 0 && part.classes[cls].members.length > 1) this.expanded.add(`class:${part.classes[cls].name}`);
      const { machine } = standOf(part, task);
      if (machine >= 0 && part.groupOf[machine] >= 0)
        this.expanded.add(`group:${part.groups[part.groupOf[machine]].name}`);
    }
    this.draw(false);
    for (const side of this.sides) {
      const ids = [...side.scene.boxes.values()].filter((box) => box.onPath || box.chosen).map((box) => box.id);
      side.drawing.fitTo(
        ids,
        [...side.scene.links.values()].filter((link) => link.onPath && link.drawn),
      );
    }
  }

  found() {
    const side = this.sides[this.rounds.indexOf(this.focusRound)];
    if (!side) return [];
    if (this.indexed !== side.part) {
      this.indexed = side.part;
      this.entries = roundIndex(side.round, side.part);
    }
    return this.entries;
  }

  // --- words ---

  term(name) {
    const words = this.index.terms[name];
    return words || name.replaceAll("_", " ");
  }

  nodeTitle(graph, node, short = false) {
    const kind = graph.kindOf(node);
    const name = graph.name[node];
    const round = this.focusRound;
    if (kind === "cores" || kind === "later") {
      const at = name.slice(name.lastIndexOf("/") + 1);
      const where = namesOf(graph.members[node]);
      if (kind === "later") return `${where}, ${slotTag(Number(at))}`;
      return `${where}, cores for ${cores(Number(at.slice(0, -1)))} or more`;
    }
    if (graph.members[node]) return namesOf(graph.members[node].map((one) => round.title(one)));
    if (kind === "class" || kind === "task") return round.title(name);
    if (kind === "unscheduled") return `${round.title(name)} unscheduled`;
    if (kind === "machine") return name;
    if (kind === "running") return `runs: ${round.title(name)}`;
    if (kind === "group") return short ? "all cores" : `${name}, all cores`;
    if (kind === "tier") {
      const width = /^(.*)\/(\d+)m$/s.exec(name);
      if (!width) return name;
      return short ? `tasks of ${cores(Number(width[2]))}` : `${width[1]}, tier of ${cores(Number(width[2]))}`;
    }
    if (kind === "domain") return `${round.title(name.slice(0, name.lastIndexOf("/")))}, ${graph.domainTitle(node)}`;
    return name || kind;
  }

  idTitle(id) {
    const cut = id.indexOf(":");
    return cut < 0 ? id : this.focusRound.title(id.slice(cut + 1));
  }

  // --- controls ---

  controls() {
    const heads = this.main.map((i) => this.index.rounds[i]);
    this.timeline = new Timeline(at("slider"), at("axis"), heads, {
      go: (position) => this.goTo(position),
      step: (by) => this.step(by),
    });
    at("previous").addEventListener("click", () => this.step(-1));
    at("next").addEventListener("click", () => this.step(1));
    at("rounds").hidden = this.main.length < 2;
    const compare = at("compare");
    const option = (value, text) => element("option", { value }, text);
    compare.append(option("", "nothing"));
    if (this.others.length) compare.append(option("same", "the other record"));
    if (this.main.length > 1) compare.append(option("before", "the round before"));
    const tracks = d3.groups(this.main, (i) => this.index.rounds[i].track);
    if (tracks.length > 1)
      for (const [track, [first]] of tracks)
        compare.append(option(`track ${track}`, `same time, ${this.trackName(first)}`));
    for (const i of [...this.others, ...this.main])
      compare.append(
        option(String(i), `${this.index.rounds[i].side === "against" ? "other: " : ""}${this.roundName(i)}`),
      );
    compare.addEventListener("change", () => ((this.state.compare = compare.value), this.show()));
    at("compare-field").hidden = this.index.rounds.length < 2;
    at("part").addEventListener(
      "change",
      () => ((this.state.part = Number(at("part").value)), this.show()),
    );
    const mode = at("mode");
    for (const [value, text] of Object.entries(MODES)) mode.append(option(value, text));
    mode.addEventListener("change", () => ((this.state.mode = mode.value), this.draw(false)));
    at("zero").addEventListener("change", () => ((this.state.zero = at("zero").checked), this.draw(false)));
    at("step").addEventListener("input", () => this.goToPass(() => Number(at("step").value)));
    at("step-before").addEventListener("click", () => this.goToPass((place) => place - 1));
    at("step-after").addEventListener("click", () => this.goToPass((place) => place + 1));
    at("fit").addEventListener("click", () => this.sides.forEach((side) => side.drawing.fit()));
    at("larger").addEventListener("click", () => this.sides.forEach((side) => side.drawing.zoomBy(1.3)));
    at("smaller").addEventListener("click", () => this.sides.forEach((side) => side.drawing.zoomBy(1 / 1.3)));
    at("help-button").addEventListener("click", () => this.help(true));
    at("help-close").addEventListener("click", () => this.help(false));
    document.addEventListener("keydown", (event) => this.key(event));
    matchMedia("print").addEventListener("change", (event) => {
      this.sides.forEach((side) => side.drawing.paper(event.matches));
      if (event.matches && this.table) this.table.paper();
    });
    let timer = null;
    addEventListener("resize", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.sides.length && this.state.view !== "tables" && this.drawScenes(true), 150);
    });
  }

  fillControls() {
    const { position } = this.state;
    const head = this.index.rounds[this.main[position]];
    this.timeline.show(position, this.roundName(this.main[position]));
    const run = this.main.filter((i) => this.index.rounds[i].track === head.track);
    const which = `${run.indexOf(this.main[position]) + 1} of ${run.length}`;
    at("position").textContent = run.length < this.main.length ? `${head.policy} ${which}` : which;
    at("previous").disabled = position === 0;
    at("next").disabled = position === this.main.length - 1;
    at("compare").value = this.state.compare;
    at("title").textContent = this.roundTitle(head);
    const how = [head.policy, head.objective].filter(Boolean).join(", ");
    at("subtitle").textContent = `${moment(head.now_s)} · ${how}${head.source ? ` · ${head.source}` : ""}`;
    const { parts } = this.focusRound;
    at("part-field").hidden = parts.length < 2;
    at("part").replaceChildren(
      ...parts.map((part, i) =>
        element("option", { value: String(i) }, `${i + 1}: ${partTitle(part)}, ${counted(part.tasks.length, "task")}`),
      ),
    );
    at("part").value = String(this.shownPart);
    this.fillFigures();
  }

  /** The round in five numbers. */
  fillFigures() {
    const { parts } = this.focusRound;
    const sum = (count) => d3.sum(parts, count);
    const head = this.focusRound.headline;
    const part = parts[this.shownPart];
    const several = parts.length > 1 ? `part ${this.shownPart + 1}: ` : "";
    const figures = [
      [whole(sum((p) => p.tasks.length)), "tasks pending"],
      [whole(head.placed), "start now"],
      [whole(head.waiting), "wait"],
      [whole(d3.max(parts, (p) => p.machines.length) || 0), "machines"],
    ];
    if (part && part.certificate) {
      const gap =
        part.certificate.gap_absolute < 1e-4 * Math.max(1, part.certificate.primal)
          ? "0"
          : number(part.certificate.gap_absolute);
      const to = part.certificate.method === "exact" ? "above the optimum" : "at most above the bound";
      figures.push(
        [number(part.certificate.primal), `${several}cost`],
        part.certificate.gap_relative >= NO_BOUND ? ["no bound", `${several}of the gap`] : [gap, `${several}${to}`],
      );
    }
    const decide = (one) =>
      one.timings.decide_ms ??
      d3.sum(
        Object.entries(one.timings).filter(([name]) => !/certify|explain|report/.test(name)),
        ([, ms]) => ms,
      );
    const time = sum(decide);
    if (time) figures.push([milliseconds(time), several ? "to decide, all parts" : "to decide"]);
    at("figures").replaceChildren(
      ...figures.map(([value, text]) => element("li", null, element("strong", null, value), ` ${text}`)),
    );
  }

  fillTabs() {
    const part = this.focusRound.parts[this.shownPart];
    const name = (view) => (view === "round" && part.oneNetwork ? "Network" : VIEWS[view]);
    at("views").replaceChildren(
      ...this.views(part).map((view) =>
        button(name(view), () => this.setView(view), {
          role: "tab",
          "data-view": view,
          "aria-selected": view === this.state.view ? "true" : "false",
        }),
      ),
    );
    const tables = this.state.view === "tables";
    for (const id of ["zero-field", "mode-field", "zoom"]) at(id).hidden = tables;
  }

  /** The slider over the passes: what each saw, chose, and what became of it. */
  fillSteps() {
    const side = this.sides[this.rounds.indexOf(this.focusRound)];
    const pass = side && side.pass;
    at("steps").hidden = !pass;
    if (!pass) return;
    const those = this.passesOf(side.part);
    const place = those.indexOf(pass);
    const slider = at("step");
    slider.max = String(those.length - 1);
    slider.value = String(place);
    const stay = pass.booked.length - pass.undone.length;
    const chose = `saw ${counted(pass.batch.length, "task")}, placed ${whole(pass.booked.length)}`;
    const fate = pass.undone.length ? `${whole(stay)} of them stay` : pass.booked.length ? "all stay" : "";
    const words = `Pass ${pass.number} of ${side.part.passes.length}: ${[chose, fate].filter(Boolean).join(", ")}`;
    slider.setAttribute("aria-valuetext", words);
    at("step-words").textContent = words;
    at("step-before").disabled = place === 0;
    at("step-after").disabled = place === those.length - 1;
  }

  /** Show another pass. */
  goToPass(by) {
    const side = this.sides[this.rounds.indexOf(this.focusRound)];
    if (!side || !side.pass) return;
    const those = this.passesOf(side.part);
    const place = by(those.indexOf(side.pass));
    this.state.pass = those[Math.max(0, Math.min(those.length - 1, place))].number;
    this.draw(true);
  }

  setView(view) {
    const before = document.activeElement;
    this.state.view = view;
    if (view !== "tables") {
      at("stages").hidden = false;
      at("tables").hidden = true;
    }
    this.draw(true);
    const lost = document.activeElement === document.body || !document.activeElement.getClientRects().length;
    if (before !== document.body && lost) at("views").querySelector(`[data-view="${view}"]`).focus();
  }

  goTo(position) {
    this.state.position = Math.max(0, Math.min(this.main.length - 1, position));
    return this.show();
  }

  step(by) {
    return this.goTo(this.state.position + by);
  }

  help(open) {
    const help = at("help");
    if (open) {
      this.before = document.activeElement;
      help.hidden = false;
      at("help-close").focus();
    } else if (!help.hidden) {
      help.hidden = true;
      if (this.before) this.before.focus();
    }
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { target } = event;
    if (event.key === "Escape") {
      if (!at("help").hidden) this.help(false);
      else if (target.matches("input.filter") && target.value) {
        target.value = "";
        target.dispatchEvent(new Event("input"));
      } else this.choose(null);
      this.leave();
      return;
    }
    if (!at("help").hidden) return;
    if (target.matches("input, select, textarea") && !(target.type === "checkbox")) return;
    const side = this.sides.find((one) => one.host.contains(target) && target.closest(".box"));
    if (side && side.drawing.key(event)) {
      event.preventDefault();
      return;
    }
    const views =
      this.focusRound && this.focusRound.parts[this.shownPart]
        ? this.views(this.focusRound.parts[this.shownPart])
        : [];
    const free = !target.closest("button, a, summary, .scroll");
    const acts = {
      "/": () => at("search").focus(),
      "?": () => this.help(true),
      n: () => this.step(1),
      p: () => this.step(-1),
      "]": () => this.step(1),
      "[": () => this.step(-1),
      ArrowRight: free && (() => this.step(1)),
      ArrowLeft: free && (() => this.step(-1)),
      ",": () => this.goToPass((place) => place - 1),
      ".": () => this.goToPass((place) => place + 1),
      z: () => at("zero").click(),
      c: () => {
        const names = Object.keys(MODES);
        this.state.mode = names[(names.indexOf(this.state.mode) + 1) % names.length];
        at("mode").value = this.state.mode;
        this.draw(false);
      },
      f: () => this.follow(),
      0: () => at("fit").click(),
      "+": () => at("larger").click(),
      "-": () => at("smaller").click(),
      ...Object.fromEntries(views.map((view, i) => [String(i + 1), () => this.setView(view)])),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}

function start() {
  if (typeof DecompressionStream === "undefined") {
    at("stages").append(
      element("p", { class: "empty" }, "This browser cannot open packed data. Any browser from 2023 on can."),
    );
    return;
  }
  const app = new Inspector(JSON.parse(at("index").textContent));
  app.address.follow();
}

start();
