// The address names the view: round, parts of the page, what is chosen and where the drawing is, so that a link opens it again.

/** A change of one of these is a place to come back to; the others change the address in place. */
const PLACES = ["round", "run", "beside", "part", "view", "pass", "choose"];

class Address {
  constructor(app) {
    this.app = app;
    this.wait = null;
    addEventListener("hashchange", () => this.follow());
  }

  /** What the page shows now, as it stands in the address. */
  words() {
    const { app } = this;
    const { state } = app;
    const head = app.index.rounds[app.main[state.position]];
    const words = new URLSearchParams();
    words.set("round", String(head.round));
    if (head.track) words.set("run", String(head.track));
    if (state.compare) words.set("beside", state.compare);
    if (state.part !== null) words.set("part", String(state.part + 1));
    if (state.view) words.set("view", state.view);
    if (state.view === "tables") words.set("table", state.table);
    if (state.view === "passes") words.set("pass", String(state.pass));
    if (state.mode !== "reduced") words.set("colour", state.mode);
    if (state.zero) words.set("zero", "1");
    if (state.choice) words.set("choose", this.choiceWords(state.choice));
    for (const id of app.expanded) words.append("open", id);
    for (const [id, count] of app.more) words.append("more", `${count} ${id}`);
    if (state.view !== "tables")
      for (const side of app.sides) if (!side.drawing.whole) words.append("zoom", `${side.name} ${side.drawing.place()}`);
    return words;
  }

  choiceWords(choice) {
    const plain = Object.keys(choice).length === 2 && choice.type && choice.name !== undefined;
    return plain ? `${choice.type}:${choice.name}` : JSON.stringify(choice);
  }

  /** Keep what is shown in the address: as a new entry of the history where it is another place. */
  write() {
    const words = this.words();
    const before = new URLSearchParams(location.hash.slice(1));
    if (words.toString() === before.toString()) return;
    const moved = PLACES.some((key) => words.get(key) !== before.get(key));
    // What the page opens with is no place to come back to.
    const first = before.get("round") === null;
    const text = `#${words.toString().replace(/%3A/g, ":").replace(/%2F/g, "/").replace(/%2C/g, ",")}`;
    if (moved && !first && !this.following) history.pushState(null, "", text);
    else history.replaceState(null, "", text);
  }

  /** The same, once the drawing stands still. */
  writeSoon() {
    clearTimeout(this.wait);
    this.wait = setTimeout(() => this.write(), 200);
  }

  /** Set the page's state to what the address names; what it does not know stays as it opens. */
  read() {
    const { app } = this;
    const words = new URLSearchParams(location.hash.slice(1));
    const { rounds } = app.index;
    const run = Number(words.get("run") || 0);
    const fits = app.main.findIndex((i) => String(rounds[i].round) === words.get("round") && rounds[i].track === run);
    const known = [...at("compare").options].some((option) => option.value === words.get("beside"));
    const part = Number(words.get("part"));
    Object.assign(app.state, {
      position: Math.max(0, fits),
      compare: known ? words.get("beside") : words.has("round") ? "" : app.state.compare,
      part: Number.isInteger(part) && part > 0 ? part - 1 : null,
      view: words.get("view"),
      pass: Math.max(1, Number(words.get("pass")) || 1),
      table: words.get("table") || "Placements",
      mode: MODES[words.get("colour")] ? words.get("colour") : "reduced",
      zero: words.get("zero") === "1",
      choice: this.choice(words.get("choose")),
    });
    at("mode").value = app.state.mode;
    at("zero").checked = app.state.zero;
    app.expanded = new Set(words.getAll("open"));
    app.more = new Map(words.getAll("more").map((one) => [one.slice(one.indexOf(" ") + 1), parseInt(one, 10) || 0]));
    this.zooms = words.getAll("zoom");
  }

  choice(text) {
    if (!text) return null;
    if (!text.startsWith("{")) {
      const cut = text.indexOf(":");
      return cut > 0 ? { type: text.slice(0, cut), name: text.slice(cut + 1) } : null;
    }
    try {
      return JSON.parse(text);
    } catch {
      return null;
    }
  }

  /** Show what the address names: on opening, and after back, forward or another address. */
  async follow() {
    clearTimeout(this.wait);
    this.following = true;
    this.read();
    await this.app.show();
    for (const zoom of this.zooms) {
      const [name, place] = zoom.split(" ");
      this.app.sides.find((side) => side.name === name)?.drawing.goTo(place);
    }
    this.write();
    this.following = false;
  }
}
