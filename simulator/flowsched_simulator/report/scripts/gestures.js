// What a pointer and keys do to the time that a figure shows: drag selects, wheel and + − zoom, arrows move, 0 shows all.

const DRAG = 5;

/**
 * `host` is the focusable element around a canvas; `plot()` has the left and right edge of its time axis.
 * `acts`: click(x, y), hover(x, y, event), leave(), and key(name), which tells whether it took the key.
 */
class Gestures {
  constructor(host, canvas, view, plot, acts) {
    Object.assign(this, { host, canvas, view, plot, acts, from: null });
    this.selection = element("div", { class: "selection", hidden: true });
    host.append(this.selection);
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointercancel", () => this.stop());
    canvas.addEventListener("pointerleave", () => this.from === null && acts.leave());
    host.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    host.addEventListener("keydown", (event) => this.key(event));
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  down(event) {
    if (event.button !== 0) return;
    this.from = this.point(event)[0];
    this.dragged = false;
    this.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    const [x, y] = this.point(event);
    if (this.from === null) {
      this.acts.hover(x, y, event);
      return;
    }
    if (Math.abs(x - this.from) > DRAG) this.dragged = true;
    if (!this.dragged) return;
    this.acts.leave();
    const [low, high] = this.span(x);
    const box = this.canvas.getBoundingClientRect();
    const around = this.host.getBoundingClientRect();
    this.selection.hidden = false;
    this.selection.style.left = `${box.left - around.left + low}px`;
    this.selection.style.width = `${high - low}px`;
  }

  up(event) {
    if (this.from === null) return;
    const [x, y] = this.point(event);
    const [low, high] = this.span(x);
    const dragged = this.dragged;
    this.stop();
    if (!dragged) this.acts.click(x, y);
    else if (high - low > DRAG) this.view.set(this.time(low), this.time(high));
  }

  stop() {
    this.from = null;
    this.selection.hidden = true;
  }

  /** What is selected, within the time axis. */
  span(x) {
    const [left, right] = this.plot();
    const inside = (at) => Math.min(Math.max(at, left), right);
    return [inside(Math.min(x, this.from)), inside(Math.max(x, this.from))];
  }

  time(x) {
    const [left, right] = this.plot();
    return this.view.from + ((x - left) / (right - left)) * (this.view.to - this.view.from);
  }

  /** The page scrolls by wheel as anywhere, until the figure has been clicked; a pinch zooms always. */
  wheel(event) {
    const focused = this.host.contains(document.activeElement);
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (event.shiftKey || !(event.ctrlKey || focused)) return;
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 30 : 1;
    if (sideways) this.view.pan((event.deltaX * unit) / 800);
    else {
      const [left, right] = this.plot();
      const at = Math.min(Math.max((this.point(event)[0] - left) / (right - left), 0), 1);
      this.view.zoom(Math.exp(Math.min(Math.max(event.deltaY * unit, -120), 120) / (event.ctrlKey ? 60 : 300)), at);
    }
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== this.host) return;
    const acts = {
      "+": () => this.view.zoom(1 / 1.5),
      "=": () => this.view.zoom(1 / 1.5),
      "-": () => this.view.zoom(1.5),
      "−": () => this.view.zoom(1.5),
      0: () => this.view.reset(),
      ArrowLeft: () => this.view.pan(-0.2),
      ArrowRight: () => this.view.pan(0.2),
    };
    if (acts[event.key]) acts[event.key]();
    else if (!this.acts.key(event.key)) return;
    event.preventDefault();
  }
}
