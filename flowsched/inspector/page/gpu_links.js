// How the GPUs of a machine are linked: drawn as the record's topology was laid out, with what a task needs of it lit.

const LINK_STYLES = 4;
let drawnLinks = 0;

const isLeaving = (does) => does === "is preempted" || does === "moves away";

/** Class of the style of a class of link: slow ones beyond the last style share it. */
function linkStyle(number) {
  return `link${Math.min(number, LINK_STYLES - 1)}`;
}

/** Lines between some devices: all on the paths of their pairs. */
function linesBetween(layout, devices) {
  const found = new Set();
  for (const one of devices)
    for (const other of devices) if (one < other) layout.paths[`${one}-${other}`].forEach((line) => found.add(line));
  return found;
}

class LinkDrawing {
  /** name: of the machine; gpus: its devices in the round; titleOf: what people call a task. */
  constructor(name, layout, gpus, titleOf) {
    Object.assign(this, { layout, gpus, titleOf });
    this.usual = null;
    drawnLinks += 1;
    const [title, desc] = [`links-title-${drawnLinks}`, `links-about-${drawnLinks}`];
    this.svg = d3
      .create("svg")
      .attr("viewBox", `0 0 ${layout.width} ${layout.height}`)
      .attr("role", "img")
      .attr("aria-labelledby", title)
      .attr("aria-describedby", desc);
    this.svg.append("title").attr("id", title).text(`Links between the GPUs of ${name}`);
    this.svg.append("desc").attr("id", desc).text(this.about());
    this.frames();
    this.halos();
    this.lines();
    this.boxes();
    this.told = element("p", { class: "linked" });
    this.node = element("figure", { class: "links" }, this.svg.node(), this.key(), this.told);
  }

  /** The drawing in words. */
  about() {
    const { layout, gpus } = this;
    const sockets = layout.sockets.map((devices, n) => `Socket ${n} has ${gpuNames(devices)}.`);
    const classes = layout.classes.map((name, number) => {
      const lines = layout.lines.filter((line) => line[2] === number).map(([one, other]) => `${one} to ${other}`);
      return `${name}: ${lines.join(", ")}.`;
    });
    const holds = gpus.holds.map(([task, does, , devices]) => `${this.titleOf(task)} ${does} on ${gpuNames(devices)}.`);
    const free = gpus.after.flatMap((left, device) => (left === 1000 ? [device] : []));
    return [
      ...sockets,
      "Links by class, the fastest first.",
      ...classes,
      ...holds,
      free.length ? `Free after the round: ${gpuNames(free)}.` : "No GPU is free after the round.",
    ].join(" ");
  }

  frames() {
    const frame = this.svg.selectAll(".frame").data(this.layout.frames).join("g").attr("class", "frame");
    frame
      .append("rect")
      .attr("x", (d) => d[1])
      .attr("y", (d) => d[2])
      .attr("width", (d) => d[3])
      .attr("height", (d) => d[4]);
  }

  /** Below the lines: a short one between two devices would be covered. */
  halos() {
    this.rims = this.svg
      .append("g")
      .selectAll("rect")
      .data(this.layout.boxes)
      .join("rect")
      .attr("class", "halo")
      .attr("x", (d) => d[1])
      .attr("y", (d) => d[2])
      .attr("width", (d) => d[3])
      .attr("height", (d) => d[4]);
  }

  lines() {
    const line = this.svg.append("g").selectAll("g").data(this.layout.lines).join("g").attr("class", "wire");
    line.append("path").attr("class", "halo").attr("d", (d) => d[3]);
    line.append("path").attr("class", (d) => `link ${linkStyle(d[2])}`).attr("d", (d) => d[3]);
    this.wires = line;
  }

  boxes() {
    const { layout, gpus } = this;
    const share = (device, coming) =>
      d3.sum(gpus.holds, ([, does, milli, devices]) =>
        !isLeaving(does) && devices.includes(device) && (does !== "runs") === coming ? milli : 0,
      ) / 1000;
    const box = this.svg
      .append("g")
      .selectAll("g")
      .data(layout.boxes)
      .join("g")
      .attr("class", ([end]) => (Number.isInteger(end) ? "gpu" : "place"))
      .attr("transform", (d) => `translate(${d[1]},${d[2]})`);
    const whole = (made) => made.attr("width", (d) => d[3]).attr("height", (d) => d[4]);
    box.append("rect").attr("class", "ground").call(whole);
    const gpu = box.filter(".gpu").each(function state(d) {
      const [runs, comes] = [share(d[0], false), share(d[0], true)];
      const bar = (kind, from, part) =>
        d3
          .select(this)
          .append("rect")
          .attr("class", kind)
          .attr("width", d[3])
          .attr("y", d[4] * (1 - from - part))
          .attr("height", d[4] * part);
      if (runs) bar("runs", 0, runs);
      if (comes) bar("comes", runs, comes);
      d3.select(this).classed("taken", comes > 0);
    });
    gpu.append("rect").attr("class", "edge").call(whole);
    box
      .append("text")
      .attr("x", (d) => d[3] / 2)
      .attr("y", (d) => d[4] / 2)
      .attr("dy", "0.35em")
      .text(([end, , , width]) => (Number.isInteger(end) ? end : fitted(end, width - 4, 10.5)));
    box.append("title").text(([end]) => (Number.isInteger(end) ? `GPU ${end}` : end));
    // Names of sockets stand over the lines that pass them.
    this.svg
      .append("g")
      .attr("class", "names")
      .selectAll("text")
      .data(layout.frames.filter(([label]) => label))
      .join("text")
      .attr("x", (d) => d[1] + 5)
      .attr("y", (d) => d[2] + 12)
      .text(([label]) => label);
  }

  /** Classes of links, the fastest first, and states of devices. */
  key() {
    const { layout, gpus } = this;
    const item = (sample, words) => element("li", null, sample, words);
    const wire = (number) => {
      const svg = d3.create("svg").attr("width", 26).attr("height", 10).attr("aria-hidden", "true");
      svg.append("path").attr("class", `link ${linkStyle(number)}`).attr("d", "M1 5H25");
      return svg.node();
    };
    const swatch = (kind) => element("span", { class: `device-sample ${kind}`, "aria-hidden": "true" });
    const states = [
      ["free", "free", gpus.after.some((left) => left > 0)],
      ["runs", "in use", gpus.holds.some(([, does]) => does === "runs")],
      ["taken", "taken by this round", gpus.holds.some(([, does]) => !isLeaving(does) && does !== "runs")],
    ];
    return element(
      "ul",
      { class: "key", "aria-label": "Links by class, the fastest first, and states of GPUs" },
      layout.classes.map((name, number) =>
        item(wire(number), number || layout.classes.length === 1 ? name : `${name}, the fastest`),
      ),
      states.filter(([, , there]) => there).map(([kind, words]) => item(swatch(kind), words)),
    );
  }

  /** The first task of several devices that the round brings, or whichever is given, is lit while no other one is. */
  begin(task) {
    const first = this.gpus.holds.find(
      ([name, does, , devices]) => !isLeaving(does) && (task ? name === task : does !== "runs" && devices.length > 1),
    );
    this.usual = first ? first[0] : null;
    this.light(this.usual);
    return this;
  }

  /** Let a task's devices and the links between them stand out, and say how it is linked. */
  light(task) {
    const { layout, gpus } = this;
    const hold = gpus.holds.find(([name]) => name === task);
    const devices = hold ? hold[3] : [];
    const lines = linesBetween(layout, devices);
    this.svg.classed("some", lines.size > 0);
    this.wires.classed("lit", (_, line) => lines.has(line));
    this.rims.classed("lit", ([end]) => devices.includes(end));
    if (!hold) {
      this.told.textContent = "";
      return;
    }
    const slowest = d3.max([...lines], (line) => layout.lines[line][2]);
    const linked = slowest === undefined ? "" : `; slowest link: ${layout.classes[slowest]}`;
    this.told.textContent = `${this.titleOf(task)} ${hold[1]} on ${gpuNames(devices)}${linked}`;
  }

  /** Light a task while the pointer or the focus is on an element. */
  follow(node, task) {
    for (const event of ["pointerenter", "focus"]) node.addEventListener(event, () => this.light(task));
    for (const event of ["pointerleave", "blur"]) node.addEventListener(event, () => this.light(this.usual));
  }
}

function gpuNames(devices) {
  return `GPU${devices.length === 1 ? "" : "s"} ${devices.join(", ")}`;
}
