// The search field: tasks, machines, classes and groups by a part of their names.

const HITS = 30;

class Search {
  /** index(): a list of {type, name, title, note}; choose(entry). */
  constructor(field, list, index, choose) {
    Object.assign(this, { field, list, index, choose });
    this.at = -1;
    this.hits = [];
    field.addEventListener("input", () => this.find());
    field.addEventListener("keydown", (event) => this.key(event));
    field.addEventListener("blur", () => setTimeout(() => this.close(), 150));
    field.addEventListener("focus", (event) => {
      this.before = event.relatedTarget;
      if (field.value) this.find();
    });
  }

  find() {
    const words = this.field.value.trim().toLowerCase();
    if (!words) {
      this.close();
      return;
    }
    const rank = (entry) => {
      const title = entry.title.toLowerCase();
      if (title === words || entry.name.toLowerCase() === words) return 0;
      return title.startsWith(words) ? 1 : title.includes(words) ? 2 : 9;
    };
    const found = [];
    let more = 0;
    for (const entry of this.index()) {
      const order = rank(entry);
      if (order < 9) found.push({ entry, order });
    }
    found.sort((a, b) => a.order - b.order);
    more = Math.max(0, found.length - HITS);
    this.hits = found.slice(0, HITS).map(({ entry }) => entry);
    this.at = this.hits.length ? 0 : -1;
    this.show(more);
  }

  show(more) {
    const options = this.hits.map((entry, i) =>
      element(
        "li",
        {
          role: "option",
          id: `hit-${i}`,
          "aria-selected": i === this.at ? "true" : "false",
          onpointerdown: (event) => (event.preventDefault(), this.take(i)),
        },
        element("span", { class: "type" }, entry.type),
        element("span", { class: "name" }, entry.title),
        element("span", { class: "note" }, entry.note),
      ),
    );
    if (more) options.push(element("li", { class: "more", role: "presentation" }, `and ${whole(more)} more`));
    if (!options.length) options.push(element("li", { class: "more", role: "presentation" }, "nothing has that name"));
    this.list.replaceChildren(...options);
    this.list.hidden = false;
    this.field.setAttribute("aria-expanded", "true");
    this.mark();
  }

  mark() {
    [...this.list.children].forEach(
      (item, i) =>
        item.getAttribute("role") === "option" && item.setAttribute("aria-selected", i === this.at ? "true" : "false"),
    );
    if (this.at >= 0) {
      this.field.setAttribute("aria-activedescendant", `hit-${this.at}`);
      this.list.children[this.at].scrollIntoView({ block: "nearest" });
    } else this.field.removeAttribute("aria-activedescendant");
  }

  key(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (!this.hits.length) return;
      const step = event.key === "ArrowDown" ? 1 : -1;
      this.at = (this.at + step + this.hits.length) % this.hits.length;
      this.mark();
      event.preventDefault();
    } else if (event.key === "Enter" && this.at >= 0) this.take(this.at);
    else if (event.key === "Escape") {
      this.field.value = "";
      this.close();
      this.field.blur();
      if (this.before && this.before.isConnected) this.before.focus({ preventScroll: true });
    } else return;
    event.stopPropagation();
  }

  take(i) {
    const entry = this.hits[i];
    this.field.value = "";
    this.close();
    this.field.blur();
    this.choose(entry);
  }

  close() {
    this.list.hidden = true;
    this.hits = [];
    this.at = -1;
    this.field.setAttribute("aria-expanded", "false");
    this.field.removeAttribute("aria-activedescendant");
  }
}

/** All that can be searched for in a round, what is in the part shown first. Machines are in many: once is enough. */
function roundIndex(round, shown) {
  const entries = [];
  const seen = new Set();
  for (const part of [shown, ...round.parts.filter((one) => one !== shown)]) {
    for (const entry of searchIndex(part)) {
      const key = `${entry.type} ${entry.name} ${entry.title}`;
      if (seen.has(key)) continue;
      seen.add(key);
      const where = part === shown ? "" : `part ${part.index + 1}`;
      entries.push({ ...entry, part: part.index, note: [entry.note, where].filter(Boolean).join(", ") });
    }
  }
  for (const [name, entry] of round.told) {
    if (seen.has(`task ${name} ${taskName(round, name)}`)) continue;
    entries.push({ type: "task", name, title: taskName(round, name), note: entry.fate || "waits", part: shown.index });
  }
  return entries;
}

/** A title with the name in the record behind it. */
function taskName(round, name) {
  const title = round.title(name);
  return title === name ? name : `${title} (${name})`;
}

/** All that can be searched for in a part. */
function searchIndex(part) {
  const entries = [];
  part.tasks.forEach((name, task) => {
    const stand = standOf(part, task);
    entries.push({
      type: "task",
      name,
      title: taskName(part.round, name),
      note: stand.state === "placed" ? `on ${standText(stand)}` : standText(stand),
    });
  });
  part.machines.forEach((name, machine) => {
    const placed = (part.placedOn.get(machine) || []).length;
    entries.push({ type: "machine", name, title: name, note: placed ? `${counted(placed, "task")} placed` : "" });
  });
  part.classes.forEach((cls) =>
    entries.push({
      type: "class",
      name: cls.name,
      title: part.round.title(cls.name),
      note: counted(cls.members.length, "task"),
    }),
  );
  part.groups.forEach((group) =>
    entries.push({
      type: "group",
      name: group.name,
      title: group.name,
      note: counted(group.members.length, "machine"),
    }),
  );
  // What a part started runs in the next ones.
  const pending = (name) => part.round.parts.some((one) => one.taskNumber.has(name));
  for (const [machine, runs] of part.runningOn)
    for (const run of runs.filter(({ task }) => !pending(task)))
      entries.push({ type: "machine", name: machine, title: part.round.title(run.task), note: `runs on ${machine}` });
  return entries;
}
