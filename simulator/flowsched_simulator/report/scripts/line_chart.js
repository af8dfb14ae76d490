// A value of every shown run over time, as lines.

const LINE_HEAD = 22;
const LINE_PLOT = 110;

class LineChart {
  /** `course(run)` is what is drawn, `write(value)` how it is written; `top`: the least value that the axis reaches. */
  constructor(page, { title, unit, course, write, top }) {
    Object.assign(this, { page, title, unit, course, write, top });
    this.host = element("div", { class: "figure", tabindex: "0", role: "group", "aria-label": title });
    this.picture = new Picture(this.host, page.view, page.left);
    this.gestures = new Gestures(this.host, this.picture.canvas, page.view, () => [this.picture.left, this.picture.right], {
      click: () => {},
      hover: (x, y, event) => this.hover(x, event),
      leave: () => page.tip.hide(),
      key: () => false,
    });
  }

  high() {
    return Math.max(this.top, ...this.page.shown.map((run) => this.course(run).most())) || 1;
  }

  draw(palette) {
    const { picture, page } = this;
    picture.left = page.left;
    picture.begin(this.host.clientWidth, LINE_HEAD + LINE_PLOT + FOOT, palette);
    const y = picture.plot(this.title, this.unit, LINE_HEAD, LINE_HEAD + LINE_PLOT, this.high(), this.write);
    for (const run of [...page.shown].reverse()) this.line(run, y, palette);
    this.picture.canvas.setAttribute("aria-label", this.summary());
  }

  line(run, y, palette) {
    const { picture } = this;
    const { context } = picture;
    const until = Math.min(run.run.end, picture.view.to);
    context.strokeStyle = palette[run.colour];
    context.lineWidth = 1.8;
    context.lineJoin = "round";
    context.setLineDash(run.dashed ? [5, 3] : []);
    context.beginPath();
    let begun = false;
    this.course(run).walk(picture.view.from, until, picture.x, (x0, x1, low, high, last) => {
      if (begun) context.lineTo(x0, y(low === high ? last : high));
      else context.moveTo(x0, y(high));
      begun = true;
      if (low !== high) {
        context.lineTo(x0, y(low));
        context.lineTo(x0, y(last));
      }
      context.lineTo(x1, y(last));
    });
    context.stroke();
    context.setLineDash([]);
  }

  summary() {
    const { from, to } = this.picture.view;
    const each = this.page.shown.map((run) => {
      const course = this.course(run);
      const end = Math.min(to, run.run.end);
      return `${run.name} ${this.write(course.mean(from, end))} on average, ${this.write(course.most(from, end))} at most`;
    });
    return `${this.title} from ${fixed(from, 1)} s to ${fixed(to, 1)} s: ${each.join("; ")}`;
  }

  hover(x, event) {
    const { picture, page } = this;
    if (x < picture.left || x > picture.right) {
      page.tip.hide();
      return;
    }
    const time = picture.time(x);
    const lines = page.shown.map((run) => `${run.name}: ${this.write(this.course(run).at(time))}`);
    page.tip.show([`${fixed(time, 1)} s`, ...lines].join("\n"), event.clientX, event.clientY);
  }
}
