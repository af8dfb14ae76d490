// A canvas with the time axis that all figures share. What is drawn is in pixels of the page.

const FOOT = 20;
const RIGHT = 14;
const FONT = '-apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif';
const COLOURS = [
  "page", "ink", "soft", "ground", "grid", "edge", "hatch", "bar", "over", "over-hatch", "slo", "own-rule",
  "run-0", "run-1", "run-2", "run-3", "run-4", "run-5", "run-6", "run-7",
];

/** The colours of the page as they are now: light, dark or on paper. */
function readPalette() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

class Picture {
  /** `left` is the margin for the labels of the vertical axis. */
  constructor(host, view, left) {
    this.view = view;
    this.left = left;
    this.canvas = element("canvas", { role: "img" });
    this.context = this.canvas.getContext("2d");
    host.append(this.canvas);
    this.patterns = new Map();
  }

  /** Make ready for drawing: so high, as wide as its place, in the colours of now. */
  begin(width, height, palette) {
    const scale = Math.max(window.devicePixelRatio || 1, document.documentElement.classList.contains("paper") ? 2 : 1);
    const [across, down] = [Math.round(width * scale), Math.round(height * scale)];
    if (this.canvas.width !== across || this.canvas.height !== down) {
      this.canvas.width = across;
      this.canvas.height = down;
      this.canvas.style.height = `${height}px`;
    }
    if (this.palette !== palette) this.patterns.clear();
    this.palette = palette;
    this.width = width;
    this.height = height;
    this.right = width - RIGHT;
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    this.context.clearRect(0, 0, width, height);
    this.x = (time) =>
      this.left + ((time - this.view.from) / (this.view.to - this.view.from)) * (this.right - this.left);
    return this.context;
  }

  time(x) {
    return this.view.from + ((x - this.left) / (this.right - this.left)) * (this.view.to - this.view.from);
  }

  text(words, x, y, { colour = "ink", size = 12, weight = 400, align = "left" } = {}) {
    const { context } = this;
    context.font = `${weight} ${size}px ${FONT}`;
    context.textAlign = align;
    context.fillStyle = this.palette[colour] || colour;
    context.fillText(words, x, y);
  }

  /** Upright lines at round times between two heights, and their labels below. */
  timeAxis(top, bottom, labels = true) {
    const { context } = this;
    context.strokeStyle = this.palette.grid;
    context.lineWidth = 1;
    context.beginPath();
    const ticks = this.view.ticks(Math.max(3, Math.round((this.right - this.left) / 80)));
    for (const [time] of ticks) {
      const x = Math.round(this.x(time)) + 0.5;
      context.moveTo(x, top);
      context.lineTo(x, bottom);
    }
    context.stroke();
    if (!labels) return;
    for (const [time, words] of ticks) {
      const x = this.x(time);
      // A label at an edge stays on the picture.
      const half = 4 + words.length * 3;
      const align = x + half > this.width ? "right" : "center";
      this.text(words, align === "right" ? this.width - 1 : x, bottom + 15, { colour: "soft", size: 11, align });
    }
  }

  /** The ground of a plot between two heights, its title above, time below and round values up to `high` at the left. */
  plot(title, unit, top, base, high, write) {
    const { context, palette } = this;
    this.text(title, this.left, 13, { weight: 600 });
    const indent = context.measureText(title).width + 8;
    this.text(unit, this.left + indent, 13, { colour: "soft" });
    context.fillStyle = palette.ground;
    context.fillRect(this.left, top, this.right - this.left, base - top);
    this.timeAxis(top, base);
    const y = (value) => base - (base - top) * Math.min(value / high, 1);
    context.beginPath();
    for (const tick of evenTicks(high, 4)) {
      context.moveTo(this.left, Math.round(y(tick)) + 0.5);
      context.lineTo(this.right, Math.round(y(tick)) + 0.5);
      this.text(write(tick), this.left - 8, y(tick) + 4, { colour: "soft", size: 11, align: "right" });
    }
    context.strokeStyle = palette.grid;
    context.lineWidth = 1;
    context.stroke();
    return y;
  }

  /** An upright line with words beside it, where there is room. */
  marker(time, top, bottom, words = "") {
    if (time === null || time < this.view.from || time > this.view.to) return;
    const x = this.x(time);
    const { context } = this;
    context.strokeStyle = this.palette.ink;
    context.lineWidth = 1.4;
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, bottom);
    context.stroke();
    const late = x > (this.left + this.right) / 2;
    if (words) this.text(words, late ? x - 6 : x + 6, top + 11, { weight: 600, align: late ? "right" : "left" });
  }

  /** Lines of a colour across a fill, so that it is told apart without colours. */
  hatch(colour, step, rising) {
    const key = `${colour} ${step} ${rising}`;
    if (!this.patterns.has(key)) {
      const tile = element("canvas", { width: step * 2, height: step * 2 });
      const brush = tile.getContext("2d");
      brush.strokeStyle = this.palette[colour];
      brush.lineWidth = step / 2.2;
      brush.beginPath();
      for (let at = -2 * step; at <= 4 * step; at += 2 * step) {
        brush.moveTo(at, rising ? 2 * step : 0);
        brush.lineTo(at + 2 * step, rising ? 0 : 2 * step);
      }
      brush.stroke();
      const pattern = this.context.createPattern(tile, "repeat");
      pattern.setTransform(new DOMMatrix().scale(0.7));
      this.patterns.set(key, pattern);
    }
    return this.patterns.get(key);
  }
}

/** At most about `count` round values from 0 to `high`. */
function evenTicks(high, count) {
  const power = 10 ** Math.floor(Math.log10(high / count));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= (high / count) * (1 - 1e-9));
  return Array.from({ length: Math.floor(high / step + 1e-9) + 1 }, (_, i) => i * step);
}
