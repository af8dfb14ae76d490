// Tables of what the drawing shows: sorted by any column, filtered by any word, a few hundred rows at a time.

const PAGE = 200;
/** Rows on paper at most. */
const PAPER = 1000;

/** columns: {key, text, value(row), show(row), number, go(row)}. */
class Table {
  constructor(host, name, columns, rows) {
    Object.assign(this, { host, name, columns, rows });
    this.sorted = null;
    this.descending = false;
    this.shown = PAGE;
    this.words = "";
    this.build();
  }

  build() {
    this.count = element("span", { class: "count", role: "status" });
    this.filter = element("input", {
      type: "search",
      class: "filter",
      placeholder: "Filter",
      "aria-label": `Filter ${this.name}`,
      oninput: () => this.narrow(),
    });
    this.head = element("tr");
    for (const column of this.columns) {
      const sort = button(column.text, () => this.sort(column));
      this.head.append(
        element(
          "th",
          { scope: "col", class: column.number ? "number" : null, "data-key": column.key, title: column.title },
          sort,
        ),
      );
    }
    this.body = element("tbody");
    this.rest = button(
      "",
      () => {
        this.shown += PAGE * 5;
        this.fill();
      },
      { class: "rest" },
    );
    this.note = element("p", { class: "paper-note" });
    const table = element("table", { "aria-label": this.name }, element("thead", null, this.head), this.body);
    this.host.replaceChildren(
      element("div", { class: "table-head" }, this.filter, this.count),
      element("div", { class: "scroll", tabindex: "0" }, table, this.rest, this.note),
    );
    this.fill();
  }

  /** Printed pages have no button for more rows. */
  paper() {
    this.shown = Math.max(this.shown, PAPER);
    this.fill();
  }

  narrow() {
    this.words = this.filter.value.trim().toLowerCase();
    this.shown = PAGE;
    this.fill();
  }

  sort(column) {
    this.descending = this.sorted === column ? !this.descending : Boolean(column.number);
    this.sorted = column;
    for (const th of this.head.children) {
      if (th.dataset.key === column.key) th.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    }
    this.fill();
  }

  chosen() {
    let rows = this.rows;
    if (this.words) {
      const words = this.words.split(/\s+/);
      rows = rows.filter((row) => {
        const text = this.columns
          .map((column) => this.text(column, row))
          .join(" ")
          .toLowerCase();
        return words.every((word) => text.includes(word));
      });
    }
    if (this.sorted) {
      const { value } = this.sorted;
      const turn = this.descending ? -1 : 1;
      const last = (x) => x === null || x === undefined || x === "";
      rows = [...rows].sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if (last(x) || last(y)) return last(x) - last(y);
        return turn * (typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y);
      });
    }
    return rows;
  }

  text(column, row) {
    const shown = column.show ? column.show(row) : column.value(row);
    return shown === null || shown === undefined ? "–" : String(shown);
  }

  fill() {
    const rows = this.chosen();
    this.count.textContent =
      rows.length === this.rows.length ? whole(rows.length) : `${whole(rows.length)} of ${whole(this.rows.length)}`;
    this.body.replaceChildren(
      ...rows.slice(0, this.shown).map((row) =>
        element(
          "tr",
          { class: row.mark },
          this.columns.map((column) => {
            const text = this.text(column, row);
            const inside = column.go && column.go(row) ? button(text, () => column.go(row)()) : text;
            return element(
              "td",
              { class: column.number ? "number" : column.long ? "long" : null, title: text.length > 40 ? text : null },
              inside,
            );
          }),
        ),
      ),
    );
    const left = rows.length - this.shown;
    this.note.textContent = left > 0 ? `The first ${whole(this.shown)} of ${whole(rows.length)} rows.` : "";
    this.rest.hidden = left <= 0;
    this.rest.textContent = `Show ${whole(Math.min(PAGE * 5, left))} of ${whole(left)} more`;
  }
}

/** All tables of a part by name: columns and rows, made when one is opened. */
function tablesOf(part, graph, app) {
  const task = (name) => () => app.choose({ type: "task", name });
  const machine = (name) => () => app.choose({ type: "machine", name });
  const tables = {
    Placements: () => [
      placementColumns(part, app, task, machine),
      part.placements.task.map((_, row) => part.placement(row)),
    ],
    Waiting: () => [waitingColumns(part, app, task, machine), part.waiting.task.map((_, row) => part.waits(row))],
    Machines: () => [machineColumns(part, machine), part.machines.map((_, number) => ({ machine: number }))],
  };
  if (graph) {
    tables.Nodes = () => [nodeColumns(graph, app), d3.range(graph.nodeCount).map((node) => ({ node }))];
    tables.Arcs = () => [arcColumns(graph, app), d3.range(graph.arcCount).map((arc) => ({ arc }))];
  }
  return tables;
}

function termColumns(rows, app) {
  const names = [...new Set(rows.flatMap((row) => row.terms.map(([term]) => term)))];
  return names.map((name) => {
    const value = (row) => (row.terms.find(([term]) => term === name) || [name, 0])[1];
    return { key: name, text: app.term(name), value, show: (row) => number(value(row)), number: true };
  });
}

function placementColumns(part, app, task, machine) {
  const rows = part.placements.task.map((_, row) => part.placement(row));
  const title = (row) => part.taskTitle(row.task);
  const columns = [
    { key: "task", text: "Task", value: title, go: (row) => task(part.tasks[row.task]) },
    {
      key: "class",
      text: "Class",
      value: (row) => (part.classOf[row.task] < 0 ? "" : part.className(part.classOf[row.task])),
    },
    {
      key: "machine",
      text: "Machine",
      value: (row) => part.machines[row.machine],
      go: (row) => machine(part.machines[row.machine]),
    },
    { key: "width", text: "Width", value: (row) => row.width, show: (row) => cores(row.width), number: true },
    { key: "cost", text: "Cost", value: (row) => row.cost, show: (row) => number(row.cost), number: true },
    ...termColumns(rows, app),
  ];
  if (part.oneNetwork) {
    columns.push(
      {
        key: "runner",
        text: "Next machine then",
        value: (row) => (row.runnerUp < 0 ? "" : part.machines[row.runnerUp]),
        go: (row) => (row.runnerUp < 0 ? null : machine(part.machines[row.runnerUp])),
      },
      {
        key: "more",
        text: "Its cost, more",
        value: (row) => (row.runnerUpCost === null ? null : row.runnerUpCost - row.cost),
        show: (row) => (row.runnerUpCost === null ? "–" : signed(row.runnerUpCost - row.cost)),
        number: true,
      },
    );
  } else {
    columns.splice(
      4,
      0,
      { key: "threads", text: "Threads", value: (row) => row.threads, number: true },
      { key: "cores", text: "On cores", value: (row) => (row.cores ? coreList(row.cores) : "") },
    );
  }
  return columns;
}

function waitingColumns(part, app, task, machine) {
  const rows = part.waiting.task.map((_, row) => part.waits(row));
  const told = (row) => part.round.told.get(part.tasks[row.task]);
  return [
    { key: "task", text: "Task", value: (row) => part.taskTitle(row.task), go: (row) => task(part.tasks[row.task]) },
    {
      key: "class",
      text: "Class",
      value: (row) => (part.classOf[row.task] < 0 ? "" : part.className(part.classOf[row.task])),
    },
    { key: "cause", text: "Cause", value: (row) => row.cause },
    {
      key: "reason",
      text: "Reason",
      long: true,
      value: (row) => spoken(told(row) ? told(row).message : row.reason, part.round.now_s),
    },
    {
      key: "waited",
      text: "Has waited",
      value: (row) => row.waited,
      show: (row) => duration(row.waited),
      number: true,
    },
    { key: "cost", text: "Cost", value: (row) => row.cost, show: (row) => number(row.cost), number: true },
    {
      key: "planned",
      text: "Planned for",
      value: (row) => (row.planned && row.planned[0] >= 0 ? part.machines[row.planned[0]] : ""),
      go: (row) => (row.planned && row.planned[0] >= 0 ? machine(part.machines[row.planned[0]]) : null),
    },
    ...termColumns(rows, app),
  ];
}

function machineColumns(part, machine) {
  const count = (map, key) => (map.get(key) || []).length;
  const columns = [
    {
      key: "machine",
      text: "Machine",
      value: (row) => part.machines[row.machine],
      go: (row) => machine(part.machines[row.machine]),
    },
    {
      key: "group",
      text: "Group",
      value: (row) => (part.groupOf[row.machine] < 0 ? "" : part.groups[part.groupOf[row.machine]].name),
    },
    {
      key: "size",
      text: "Cores",
      value: (row) => part.size(row.machine),
      show: (row) => cores(part.size(row.machine)),
      number: true,
    },
  ];
  if (part.oneNetwork)
    columns.push({
      key: "free",
      text: "Free before",
      value: (row) => part.fleet("free", "cpu", row.machine),
      show: (row) => cores(part.fleet("free", "cpu", row.machine)),
      number: true,
    });
  else
    columns.push({
      key: "runs",
      text: "Running",
      value: (row) => count(part.runningOn, part.machines[row.machine]),
      number: true,
    });
  columns.push(
    {
      key: "given",
      text: "Given away",
      value: (row) => part.given(row.machine),
      show: (row) => cores(part.given(row.machine)),
      number: true,
    },
    { key: "placed", text: "Placed", value: (row) => count(part.placedOn, row.machine), number: true },
  );
  if (!part.oneNetwork) {
    columns.push(
      { key: "later", text: "Later", value: (row) => count(part.plannedOn, row.machine), number: true },
      {
        key: "cost",
        text: "Cost",
        value: (row) => part.machine_costs && part.machine_costs[row.machine],
        show: (row) => number(part.machine_costs && part.machine_costs[row.machine]),
        number: true,
      },
    );
  }
  return columns;
}

function nodeColumns(graph, app) {
  return [
    { key: "kind", text: "Kind", value: (row) => graph.kindOf(row.node) },
    {
      key: "name",
      text: "Node",
      value: (row) => app.nodeTitle(graph, row.node),
      go: (row) => () => app.chooseNode(graph, row.node),
    },
    {
      key: "supply",
      text: "Supply",
      value: (row) => graph.supplies[row.node],
      show: (row) => whole(graph.supplies[row.node]),
      number: true,
    },
    {
      key: "flow",
      text: "Flow through",
      value: (row) => graph.through[row.node],
      show: (row) => whole(graph.through[row.node]),
      number: true,
    },
    {
      key: "potential",
      text: "Potential",
      title: "dual price, in solver units",
      value: (row) => graph.potentials && graph.potentials[row.node],
      show: (row) => whole(graph.potentials && graph.potentials[row.node]),
      number: true,
    },
    {
      key: "price",
      text: "Price to the sink",
      title: "of one unit of flow, in units of cost",
      value: (row) => graph.potential(row.node),
      show: (row) => number(graph.potential(row.node)),
      number: true,
    },
    { key: "in", text: "Arcs in", value: (row) => graph.entering[row.node].length, number: true },
    { key: "out", text: "Arcs out", value: (row) => graph.leaving[row.node].length, number: true },
  ];
}

function arcColumns(graph, app) {
  const columns = [
    {
      key: "from",
      text: "From",
      value: (row) => app.nodeTitle(graph, graph.tails[row.arc]),
      go: (row) => () => app.chooseNode(graph, graph.tails[row.arc]),
    },
    {
      key: "to",
      text: "To",
      value: (row) => app.nodeTitle(graph, graph.heads[row.arc]),
      go: (row) => () => app.chooseNode(graph, graph.heads[row.arc]),
    },
    {
      key: "flow",
      text: "Flow",
      value: (row) => graph.flow[row.arc],
      show: (row) => whole(graph.flow[row.arc]),
      number: true,
    },
    {
      key: "capacity",
      text: "Capacity",
      value: (row) => graph.capacities[row.arc],
      show: (row) => whole(graph.capacities[row.arc]),
      number: true,
    },
    { key: "units", text: "Units a task", value: (row) => graph.units[row.arc], number: true },
    {
      key: "cost",
      text: "Cost of a task",
      value: (row) => graph.cost(row.arc),
      show: (row) => number(graph.cost(row.arc)),
      number: true,
    },
    {
      key: "reduced",
      text: "Reduced cost",
      title: "of a task",
      value: (row) => graph.reduced(row.arc),
      show: (row) => number(graph.reduced(row.arc)),
      number: true,
    },
    {
      key: "unit",
      text: "Unit cost",
      title: "in solver units",
      value: (row) => graph.unit_costs[row.arc],
      show: (row) => whole(graph.unit_costs[row.arc]),
      number: true,
    },
    {
      key: "exact",
      text: "Reduced, exact",
      title: "of a unit, in solver units",
      value: (row) => graph.reducedUnits(row.arc),
      show: (row) => whole(graph.reducedUnits(row.arc)),
      number: true,
    },
  ];
  if (graph.columns.slot) {
    columns.splice(
      2,
      0,
      {
        key: "slot",
        text: "Slot",
        value: (row) => graph.column(row.arc)?.slot,
        number: true,
      },
      {
        key: "width",
        text: "Width",
        value: (row) => graph.column(row.arc)?.width,
        show: (row) => cores(graph.column(row.arc)?.width),
        number: true,
      },
    );
  }
  for (const [term, values] of graph.termValues) {
    if (!values.size) continue;
    columns.push({
      key: term,
      text: app.term(term),
      value: (row) => values.get(row.arc) || 0,
      show: (row) => number(values.get(row.arc) || 0),
      number: true,
    });
  }
  return columns;
}

function differenceTable(rows, app) {
  const cost = (stand) => (stand ? stand.cost : null);
  return [
    [
      { key: "task", text: "Task", value: (row) => row.title, go: (row) => () => app.chooseTitle(row.title) },
      { key: "change", text: "Change", value: (row) => row.kind },
      { key: "before", text: "A", value: (row) => standText(row.was) },
      { key: "after", text: "B", value: (row) => standText(row.is) },
      {
        key: "costA",
        text: "Cost A",
        value: (row) => cost(row.was),
        show: (row) => number(cost(row.was)),
        number: true,
      },
      { key: "costB", text: "Cost B", value: (row) => cost(row.is), show: (row) => number(cost(row.is)), number: true },
      { key: "delta", text: "B − A", value: (row) => row.delta, show: (row) => signed(row.delta), number: true },
    ],
    rows.map((row) => ({ ...row, mark: isMove(row.kind) ? "changed" : null })),
  ];
}
