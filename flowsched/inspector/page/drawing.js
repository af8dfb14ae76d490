// A scene as SVG: boxes that take the focus, lines that answer to the pointer, pan and zoom.

const SHADES = 5;
/** Below this scale words in boxes are too small. */
const READABLE = 0.55;

/** Shade of lines and boxes by what the switch says, and the legend's words for it. */
function shading(scene, mode) {
  const links = [...scene.links.values()].filter((link) => link.drawn);
  const priced = (link) => link.stand || /^(class|domain|task)/.test(scene.boxes.get(link.source).kind);
  const quantiles = (values) => {
    const distinct = [...new Set(values)].sort(d3.ascending);
    return distinct.length > 1
      ? d3.scaleQuantile(distinct, d3.range(SHADES))
      : () => (distinct.length ? SHADES - 1 : 0);
  };
  const ends = (values) => (values.length ? d3.extent(values) : [0, 0]);
  if (mode === "cost") {
    const values = links.filter(priced).map((link) => link.cost);
    const shade = quantiles(values);
    return { link: (link) => (priced(link) ? `cost${shade(link.cost)}` : "plain"), box: () => "", ends: ends(values) };
  }
  if (mode === "price") {
    const values = links.filter((link) => link.price > TINY).map((link) => link.price);
    const shade = quantiles(values);
    const heights = [...scene.boxes.values()].map((box) => box.price).filter((price) => price > 0);
    const boxShade = quantiles(heights);
    return {
      link: (link) => (link.price > TINY ? `price${shade(link.price)}` : "plain"),
      box: (box) => (box.price > 0 ? `high${boxShade(box.price)}` : ""),
      ends: ends(values),
      heights: ends(heights),
    };
  }
  const values = links.filter((link) => !link.flow && link.reduced > TINY).map((link) => link.reduced);
  const shade = quantiles(values);
  return {
    link: (link) =>
      link.full ? "full" : link.flow ? "base" : link.reduced > TINY ? `far${shade(link.reduced)}` : "even",
    box: () => "",
    ends: ends(values),
  };
}

class Drawing {
  /** act: choose(choice, again), expand(box), hover(thing, x, y, side), leave(), moved() after panning and zooming. */
  constructor(host, name, act) {
    this.host = host;
    this.act = act;
    this.name = name;
    this.svg = d3.select(host).append("svg").attr("class", "network").attr("role", "group");
    this.world = this.svg.append("g").attr("class", "world");
    this.zoom = d3
      .zoom()
      .scaleExtent([0.15, 4])
      .filter((event) => !event.button && event.type !== "dblclick")
      .on("zoom", (event) => {
        this.world.attr("transform", event.transform);
        if (event.sourceEvent) this.whole = false;
        if (!this.whole) this.act.moved();
      });
    this.svg.call(this.zoom).on("dblclick.zoom", null);
    this.svg.on("click", (event) => event.target === this.svg.node() && this.act.choose(null));
    this.elements = new Map();
    this.current = null;
    /** Whether the drawing is where fitting put it. */
    this.whole = true;
  }

  get size() {
    const box = this.host.getBoundingClientRect();
    return [Math.max(200, box.width), Math.max(150, box.height)];
  }

  show(scene, shade, fit) {
    this.scene = scene;
    const hadFocus = this.host.contains(document.activeElement);
    this.elements.clear();
    this.world.selectAll("*").remove();
    this.svg.attr(
      "aria-label",
      `${this.name}: ${scene.boxes.size} boxes; arrow keys go from box to box, Enter chooses one`,
    );
    this.back();
    this.boxes(shade, "frames", (box) => box.framed);
    this.lines(shade);
    this.knobs();
    this.boxes(shade, "boxes", (box) => !box.framed);
    this.labels();
    // Until the reader moves it, all of it stays in sight.
    if (fit || this.whole) this.fit();
    const current = this.elements.get(this.current) || this.elements.get(this.first());
    if (current) {
      current.setAttribute("tabindex", "0");
      this.current = current.dataset.id;
      // Back to where the focus was, without an announcement.
      this.quiet = true;
      if (hadFocus) current.focus({ preventScroll: true });
      this.quiet = false;
    }
  }

  first() {
    return d3.least(this.scene.boxes.values(), (a, b) => a.x - b.x || a.y - b.y)?.id;
  }

  back() {
    const { scene } = this;
    const back = this.world.append("g").attr("class", "back").attr("aria-hidden", "true");
    const drawn = scene.columns.filter((column) => column.used && column.x !== undefined);
    drawn.forEach((column, i) => {
      const room = i + 1 < drawn.length ? drawn[i + 1].x - column.x - 14 : Infinity;
      const text = back.append("text").attr("class", "heading").attr("x", column.x).attr("y", 16);
      const wide = textWidth(column.text, 13, 600);
      text.append("tspan").text(fitted(column.text, room, 13, 600));
      if (column.count && wide + 6 + textWidth(column.count, 12) < room)
        text.append("tspan").attr("class", "count").attr("dx", 6).text(column.count);
    });
    if (scene.laneTop !== null) {
      back
        .append("rect")
        .attr("class", "lane")
        .attr("x", 4)
        .attr("y", scene.laneTop)
        .attr("width", scene.width - 8)
        .attr("height", scene.height - scene.laneTop - 4)
        .attr("rx", 6);
      back
        .append("text")
        .attr("class", "heading")
        .attr("x", 14)
        .attr("y", scene.laneTop + 18)
        .text(scene.lane.find((text) => textWidth(text, 13, 600) < scene.laneRoom - 24) || "");
    }
  }

  lines(shade) {
    const { scene, act } = this;
    const rank = (link) => (link.path2 ? 2 : 0) + (link.lit ? 1 : 0) + (link.flow ? 0.5 : 0);
    const links = [...scene.links.values()].filter((link) => link.drawn).sort((a, b) => rank(a) - rank(b));
    const layer = this.world.append("g").attr("class", "lines");
    for (const link of links) {
      const line = layer
        .append("g")
        .attr("class", `line ${linkClass(link)} ${shade.link(link)}`)
        .attr("data-id", link.id);
      if (link.changed || link.onPath)
        line
          .append("path")
          .attr("class", "halo")
          .attr("d", link.path)
          .attr("stroke-width", link.thick + 5);
      line.append("path").attr("class", "stroke").attr("d", link.path).attr("stroke-width", link.thick);
      if (link.full && link.thick >= 3)
        line
          .append("path")
          .attr("class", "core")
          .attr("d", link.path)
          .attr("stroke-width", Math.max(1, link.thick / 4));
      line.append("path").attr("class", "catch").attr("d", link.path).attr("stroke-width", Math.max(10, link.thick));
      line
        .on("pointermove", (event) => act.hover({ link }, event.clientX, event.clientY, this))
        .on("pointerleave", () => act.leave())
        .on("click", (event) => {
          event.stopPropagation();
          act.choose({ type: "link", id: link.id, side: this.name });
        });
      this.elements.set(`line ${link.id}`, line.node());
    }
  }

  boxes(shade, name, which) {
    const layer = this.world.append("g").attr("class", name);
    for (const box of this.scene.boxes.values()) if (which(box)) this.box(layer, box, shade);
  }

  /** Frames lie under the lines; what is to be clicked on them lies above. */
  knobs() {
    const layer = this.world.append("g").attr("class", "knobs");
    for (const box of this.scene.boxes.values())
      if (box.framed && box.expandable)
        this.knob(layer.append("g").attr("transform", `translate(${round1(box.x)},${round1(box.y)})`), box);
  }

  box(layer, box, shade) {
    const { act } = this;
    const kinds = box.kind.split(" ");
    const state = ["chosen", "dim", "onPath", "idle", "changed"].filter((name) => box[name]);
    const group = layer
      .append("g")
      .attr("class", ["box", ...kinds, ...state, box.framed ? "framed" : "", shade.box(box)].join(" "))
      .attr("transform", `translate(${round1(box.x)},${round1(box.y)})`)
      .attr("data-id", box.id)
      .attr("tabindex", "-1")
      .attr("role", "button")
      .attr("aria-label", boxName(box))
      .attr("aria-pressed", box.chosen ? "true" : "false");
    if (box.expandable) group.attr("aria-expanded", box.expanded ? "true" : "false");
    group
      .append("rect")
      .attr("class", "ground")
      .attr("width", box.w)
      .attr("height", box.h)
      .attr("rx", box.parent ? 3 : 5);
    if (box.fill !== null && box.fill !== undefined) this.gauge(group, box);
    this.words(group, box);
    if (box.expandable && !box.framed) this.knob(group, box);
    if (box.badge && !this.scene.dense) this.badge(group, box);
    const reply = { box };
    group
      .on("pointermove", (event) => act.hover(reply, event.clientX, event.clientY, this))
      .on("pointerleave", () => act.leave())
      .on("focus", () => this.focused(box, group.node()))
      .on("blur", () => act.leave())
      .on("click", (event) => {
        event.stopPropagation();
        this.current = box.id;
        this.press(box);
      });
    this.elements.set(box.id, group.node());
  }

  /** How much is in use: before the round in grey, by the round on top of it. */
  gauge(group, box) {
    const high = 3;
    const y = box.framed ? 24 : box.h - high - 1;
    const room = box.w - 8;
    const bar = (kind, from, to) =>
      group
        .append("rect")
        .attr("class", `gauge ${kind}`)
        .attr("x", 4 + room * from)
        .attr("y", y)
        .attr("width", Math.max(0, room * (to - from)))
        .attr("height", high);
    bar("whole", 0, 1);
    bar("used", 0, Math.min(1, box.fill));
    if (box.fillNew) bar("new", Math.min(1, box.fill), Math.min(1, box.fill + box.fillNew));
  }

  words(group, box) {
    const { scene } = this;
    const small = Boolean(box.parent);
    const size = small ? NOTE_SIZE : FONT_SIZE;
    const knob = box.expandable ? 18 : 0;
    const text = (value, x, y, kind, anchor) =>
      group
        .append("text")
        .attr("class", kind)
        .attr("x", x)
        .attr("y", y)
        .attr("text-anchor", anchor || "start")
        .text(value);
    if (box.tag !== undefined) {
      text(box.tag, 7, box.h / 2 + 4, "tag");
      const noteRoom = textWidth(box.note, NOTE_SIZE);
      text(box.note, box.w - 7, box.h / 2 + 4, "note", "end");
      text(fitted(box.label, box.w - noteRoom - 84, NOTE_SIZE + 0.5, 600), 64, box.h / 2 + 4, "label");
      return;
    }
    if (box.framed) {
      const noteRoom = textWidth(box.note || "", NOTE_SIZE);
      text(fitted(box.label, box.w - noteRoom - 34 - knob, FONT_SIZE, 600), 9, 18, "label");
      text(box.note || "", box.w - 9 - knob, 18, "note", "end");
      if (box.empty) text("nothing runs or is planned here", 14, HEAD + 15, "note");
      return;
    }
    const lift = box.fill !== null && box.fill !== undefined ? -1.5 : 0;
    const told = !small && scene.dense ? box.badge : "";
    const note = told || box.note || "";
    if (small || scene.dense) {
      const noteRoom = note ? textWidth(note, NOTE_SIZE) + 8 : 0;
      text(fitted(box.label, box.w - 14 - knob - noteRoom, size, small ? 400 : 600), 7, box.h / 2 + 4 + lift, "label");
      if (note) text(note, box.w - 7 - knob, box.h / 2 + 4 + lift, told ? "note told" : "note", "end");
      return;
    }
    const two = note ? 7 : 0;
    text(fitted(box.label, box.w - 18 - knob, size, 600), 9, box.h / 2 + 4.5 - two + lift, "label");
    if (note) text(fitted(note, box.w - 18, NOTE_SIZE), 9, box.h / 2 + 4 + 9 + lift, "note");
  }

  knob(group, box) {
    const y = box.framed ? 13 : this.scene.dense || !box.note ? box.h / 2 : box.h / 2 - 7;
    const knob = group
      .append("g")
      .attr("class", "knob")
      .attr("data-of", box.id)
      .attr("aria-hidden", "true")
      .attr("transform", `translate(${box.w - 13},${y})`);
    knob.append("circle").attr("r", 7);
    knob.append("path").attr("d", box.expanded ? "M-3.5,0H3.5" : "M-3.5,0H3.5M0,-3.5V3.5");
    knob.on("click", (event) => {
      event.stopPropagation();
      this.current = box.id;
      this.act.expand(box);
    });
  }

  badge(group, box) {
    const width = textWidth(box.badge, 10, 600) + 10;
    const badge = group
      .append("g")
      .attr("class", box.changed ? "badge" : "badge quiet")
      .attr("transform", `translate(${box.w - width - 4},-8)`);
    badge.append("rect").attr("width", width).attr("height", 15).attr("rx", 7.5);
    badge.append("text").attr("x", 5).attr("y", 11).text(box.badge);
  }

  labels() {
    const layer = this.world.append("g").attr("class", "labels").attr("aria-hidden", "true");
    for (const link of this.scene.links.values()) {
      if (!link.drawn || !link.at || link.dim) continue;
      layer
        .append("text")
        .attr("x", link.at[0])
        .attr("y", link.at[1] + 4)
        .attr("class", link.flow ? "" : "zero")
        .text(link.label);
    }
  }

  focused(box, node) {
    const before = this.elements.get(this.current);
    if (before) before.setAttribute("tabindex", "-1");
    this.current = box.id;
    node.setAttribute("tabindex", "0");
    if (this.quiet) return;
    this.reveal(node);
    const at = node.getBoundingClientRect();
    if (node.matches(":focus-visible")) this.act.hover({ box }, at.right + 2, at.top + at.height / 2, this);
  }

  press(box) {
    if (box.more) this.act.more(box.more);
    else if (box.kind === "bundle") this.act.expand(box);
    else this.act.choose(box.choice || { type: "box", id: box.id }, box);
  }

  /** Keys while a box has the focus; true where one was used. */
  key(event) {
    const box = this.scene && this.scene.boxes.get(this.current);
    if (!box) return false;
    if (event.key === "Enter") this.press(box);
    else if (event.key === " ") {
      if (box.expandable) this.act.expand(box);
      else this.press(box);
    } else {
      const next = this.neighbour(box, event.key);
      if (!next) return event.key.startsWith("Arrow");
      this.elements.get(next.id).focus({ preventScroll: true });
    }
    return true;
  }

  /** The nearest box in the direction of an arrow key; straight ones first. */
  neighbour(box, key) {
    const boxes = [...this.scene.boxes.values()].filter((other) => other !== box);
    if (key === "Home" || key === "End") {
      const all = [...this.scene.boxes.values()].sort((a, b) => a.x - b.x || a.y - b.y);
      return key === "Home" ? all[0] : all[all.length - 1];
    }
    const along = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[key];
    if (!along) return null;
    const centre = (one) => [one.x + one.w / 2, one.y + (one.framed ? 14 : one.h / 2)];
    const [x, y] = centre(box);
    const score = (other) => {
      const [ox, oy] = centre(other);
      const ahead = (ox - x) * along[0] + (oy - y) * along[1];
      const aside = Math.abs((ox - x) * along[1]) + Math.abs((oy - y) * along[0]);
      return ahead > 2 ? ahead + 3 * aside : Infinity;
    };
    const best = d3.least(boxes, (a, b) => score(a) - score(b));
    return best && score(best) < Infinity ? best : null;
  }

  /** Move the drawing until an element can be seen. */
  reveal(node) {
    const stage = this.host.getBoundingClientRect();
    const at = node.getBoundingClientRect();
    const off = (low, high, from, to) =>
      high - low > to - from ? from + 10 - low : low < from ? from + 10 - low : high > to ? to - 10 - high : 0;
    const dx = off(at.left, at.right, stage.left, stage.right);
    const dy = off(at.top, at.bottom, stage.top, stage.bottom);
    if (!dx && !dy) return;
    this.whole = false;
    const scale = d3.zoomTransform(this.svg.node()).k;
    this.svg.call(this.zoom.translateBy, dx / scale, dy / scale);
  }

  /** All of it, or as much as can be read; says whether the words in boxes can be. */
  fit() {
    const [w, h] = this.size;
    const { width, height } = this.scene;
    const scale = Math.max(Math.min((w - 8) / width, (h - 8) / height, LARGEST), Math.min(SMALLEST, (w - 8) / width));
    const x = Math.max(4, (w - width * scale) / 2);
    this.svg.attr("viewBox", null);
    this.whole = true;
    this.svg.call(this.zoom.transform, d3.zoomIdentity.translate(x, 8).scale(scale));
    this.act.moved();
    return scale >= READABLE;
  }

  /** On paper all of it, as large as the sheet lets it be. */
  paper(on) {
    if (!this.scene) return;
    this.svg.attr("viewBox", on ? `0 0 ${Math.ceil(this.scene.width)} ${Math.ceil(this.scene.height)}` : null);
    this.world.attr("transform", on ? null : d3.zoomTransform(this.svg.node()));
  }

  /** Show only some boxes and lines, large. Of an unfolded box its head is enough: what matters in it is among them. */
  fitTo(ids, links = []) {
    const boxes = ids.map((id) => this.scene.boxes.get(id)).filter(Boolean);
    if (!boxes.length) return;
    this.whole = false;
    const [w, h] = this.size;
    const x0 = d3.min(boxes, (box) => box.x) - 20;
    const x1 = d3.max(boxes, (box) => box.x + box.w) + 20;
    const ends = links.flatMap((link) => link.points.map(([, y]) => y));
    const low = (box) => box.y + (links.length && box.framed ? Math.min(box.h, HEAD) : Math.min(box.h, 500));
    const y0 = d3.min([...boxes.map((box) => box.y), ...ends]) - 24;
    const y1 = d3.max([...boxes.map(low), ...ends]) + 20;
    const scale = Math.min(w / (x1 - x0), h / (y1 - y0), 1.4);
    this.svg.call(
      this.zoom.transform,
      d3.zoomIdentity
        .translate((w - (x1 - x0) * scale) / 2 - x0 * scale, Math.max(4, (h - (y1 - y0) * scale) / 2) - y0 * scale)
        .scale(scale),
    );
  }

  /** Scale, and the point in the middle, in the scene's own units: the same on a screen of another size. */
  place() {
    const { k, x, y } = d3.zoomTransform(this.svg.node());
    const [w, h] = this.size;
    return [k.toPrecision(4), ...[(w / 2 - x) / k, (h / 2 - y) / k].map((one) => one.toFixed(1))].map(Number).join(",");
  }

  /** Go to such a place; what is none is nothing to do. */
  goTo(place) {
    const [k, x, y] = (place || "").split(",").map(Number);
    if (![k, x, y].every(Number.isFinite) || k <= 0) return;
    const [w, h] = this.size;
    this.whole = false;
    this.svg.call(this.zoom.transform, d3.zoomIdentity.translate(w / 2 - x * k, h / 2 - y * k).scale(k));
  }

  zoomBy(factor) {
    this.whole = false;
    this.svg.call(this.zoom.scaleBy, factor);
  }
}

function linkClass(link) {
  const states = [
    ["flow", link.flow > 0],
    ["zero", !link.flow],
    ["later", link.later],
    ["lit", link.lit],
    ["dim", link.dim],
    ["on-path", link.onPath],
    ["changed", link.changed],
    ["upright", link.upright],
  ];
  return states
    .filter(([, on]) => on)
    .map(([name]) => name)
    .join(" ");
}

function boxName(box) {
  const words = [box.aria || box.label, box.aria ? "" : box.note, box.badge || ""];
  return words.filter(Boolean).join(", ");
}
