// The stretch of time that all figures show.

const STEPS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

class TimeView {
  constructor(end) {
    this.end = end * 1.01;
    this.from = 0;
    this.to = this.end;
    this.listeners = [];
  }

  get whole() {
    return this.from <= 0 && this.to >= this.end;
  }

  /** Show a stretch of time; what would lie outside of the run is moved inside. */
  set(from, to) {
    const span = Math.min(Math.max(to - from, this.end * 1e-5), this.end);
    this.from = Math.max(0, Math.min(from, this.end - span));
    this.to = this.from + span;
    for (const listener of this.listeners) listener();
  }

  /** `factor` above 1 shows more time; `at` is the share of the width that stays where it is. */
  zoom(factor, at = 0.5) {
    const span = this.to - this.from;
    const fixedTime = this.from + at * span;
    this.set(fixedTime - at * span * factor, fixedTime + (1 - at) * span * factor);
  }

  pan(share) {
    const by = share * (this.to - this.from);
    this.set(this.from + by, this.to + by);
  }

  reset() {
    this.set(0, this.end);
  }

  /** Seconds between labels, at most `count` of them. */
  step(count) {
    const least = (this.to - this.from) / Math.max(1, count);
    const power = 10 ** Math.floor(Math.log10(least));
    if (least < 1) return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * (1 - 1e-9));
    return STEPS.find((step) => step >= least) ?? Math.ceil(least / 86400) * 86400;
  }

  ticks(count) {
    const step = this.step(count);
    const found = [];
    for (let i = Math.ceil(this.from / step - 1e-9); i * step <= this.to + step * 1e-9; i++) found.push(i * step);
    return found.map((time) => [time, moment(time, step)]);
  }
}
