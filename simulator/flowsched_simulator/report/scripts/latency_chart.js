// The p95 latency of a service in one run, a bar for each window.

const LATENCY_HEAD = 24;
const LATENCY_PLOT = 96;
/** Bars are cut at this many times the SLO, so that one bad window does not flatten all others. */
const CUT = 4;

class LatencyChart {
  constructor(page, run, windows) {
    Object.assign(this, { page, run, windows, service: page.data.services[windows.service] });
    const title = `p95 latency of ${this.service.name} under ${run.name}`;
    this.host = element("div", { class: "figure latency", tabindex: "0", role: "group", "aria-label": title });
    this.picture = new Picture(this.host, page.view, page.left);
    this.picture.canvas.setAttribute("aria-label", `${title}: ${this.summary()}`);
    this.gestures = new Gestures(this.host, this.picture.canvas, page.view, () => [this.picture.left, this.picture.right], {
      click: () => {},
      hover: (x, y, event) => this.hover(x, event),
      leave: () => page.tip.hide(),
      key: () => false,
    });
  }

  isOver(window) {
    return this.service.slo !== null && this.windows.p95[window] > this.service.slo;
  }

  summary() {
    const { slo } = this.service;
    const most = this.windows.p95.reduce((high, value) => Math.max(high, value), 0);
    const over = this.windows.p95.filter((_, window) => this.isOver(window)).length;
    const limit = slo === null ? "" : `; ${over} of ${counted(this.windows.p95.length, "bar")} over the SLO of ${compact(slo)} ms`;
    return `highest ${fixed(most, 2)} ms${limit}`;
  }

  draw(palette) {
    const { picture, windows, service, page } = this;
    picture.left = page.left;
    const context = picture.begin(this.host.clientWidth, LATENCY_HEAD + LATENCY_PLOT + FOOT, palette);
    const base = LATENCY_HEAD + LATENCY_PLOT;
    const high = page.latencyTop(windows.service);
    const write = (value) => compact(value, 3);
    const y = picture.plot(service.name, "p95 latency, ms", LATENCY_HEAD, base, high, write);
    context.save();
    context.beginPath();
    context.rect(picture.left, 0, picture.right - picture.left, base);
    context.clip();
    for (let window = 0; window < windows.p95.length; window++) this.bar(window, y, base, high);
    context.restore();
    picture.marker(this.run.run.finish, 0, base);
    if (service.slo !== null) this.limit(y(service.slo));
  }

  bar(window, y, base, high) {
    const { picture, windows } = this;
    const { context, palette, view } = picture;
    if (windows.end[window] < view.from || windows.start[window] > view.to) return;
    const [left, right] = [picture.x(windows.start[window]), picture.x(windows.end[window])];
    const [width, top] = [Math.max(right - left - (right - left > 3 ? 1 : 0), 0.6), y(windows.p95[window])];
    const over = this.isOver(window);
    context.fillStyle = over ? palette.over : palette.bar;
    context.fillRect(left, top, width, base - top);
    if (over && width > 3) {
      context.fillStyle = picture.hatch("over-hatch", 6, true);
      context.fillRect(left, top, width, base - top);
    }
    if (windows.p95[window] <= high || width < 3) return;
    context.strokeStyle = palette.page;
    context.lineWidth = 3;
    context.beginPath();
    context.moveTo(left, LATENCY_HEAD + 11);
    context.lineTo(left + width, LATENCY_HEAD + 5);
    context.stroke();
    const words = compact(windows.p95[window], 1);
    if (width > 7 * words.length)
      picture.text(words, left + width / 2, LATENCY_HEAD - 4, { colour: "soft", size: 11, align: "center" });
  }

  limit(y) {
    const { picture } = this;
    const { context, palette } = picture;
    context.strokeStyle = palette.slo;
    context.lineWidth = 1.4;
    context.setLineDash([6, 4]);
    context.beginPath();
    context.moveTo(picture.left, y);
    context.lineTo(picture.right, y);
    context.stroke();
    context.setLineDash([]);
    const words = `SLO ${compact(this.service.slo)} ms`;
    context.font = `600 12px ${FONT}`;
    const width = context.measureText(words).width;
    context.globalAlpha = 0.8;
    context.fillStyle = palette.page;
    context.fillRect(picture.right - width - 8, y - 17, width + 8, 15);
    context.globalAlpha = 1;
    picture.text(words, picture.right - 4, y - 5, { colour: "slo", weight: 600, align: "right" });
  }

  hover(x, event) {
    const { picture, windows, page } = this;
    const time = picture.time(x);
    const window = windows.start.findIndex((start, i) => start <= time && time < windows.end[i]);
    if (x < picture.left || x > picture.right || window < 0) {
      page.tip.hide();
      return;
    }
    const lines = [
      `${this.service.name}, ${compact(windows.start[window], 1)}–${compact(windows.end[window], 1)} s`,
      `p95 ${fixed(windows.p95[window], 2)} ms${this.isOver(window) ? ", over the SLO" : ""}`,
    ];
    if (windows.qps[window] !== null) lines.push(`${compact(windows.qps[window], 0)} requests per second`);
    page.tip.show(lines.join("\n"), event.clientX, event.clientY);
  }
}
