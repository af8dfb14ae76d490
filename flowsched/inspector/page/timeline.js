// The slider over the rounds of a run, on an axis of time: rounds lie where their times are.

const SLIDER_STEPS = 1000;
/** Half of the slider's thumb: the axis begins and ends where its middle can be. */
const THUMB = 8;
const AXIS_HEIGHT = 22;

class Timeline {
  /** `acts`: go(position) shows a round, step(by) the one before or after. */
  constructor(slider, axis, heads, acts) {
    Object.assign(this, { slider, axis, heads, acts, positions: [] });
    slider.min = "0";
    slider.max = String(SLIDER_STEPS);
    slider.step = "any";
    slider.addEventListener("input", () => acts.go(this.nearest(Number(slider.value))));
    slider.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(slider);
  }

  /** Put the thumb on a round; the axis is that of its run. */
  show(position, valueText) {
    const { track } = this.heads[position];
    const positions = this.heads.map((_, i) => i).filter((i) => this.heads[i].track === track);
    const other = positions[0] !== this.positions[0];
    this.positions = positions;
    this.position = position;
    const times = positions.map((i) => this.heads[i].now_s);
    // Rounds without times, or all at once, lie beside each other in their order.
    this.timed = times.every((time) => time !== null) && d3.min(times) < d3.max(times);
    this.scale = (this.timed && times[0] > EPOCH ? d3.scaleUtc() : d3.scaleLinear())
      .domain(this.timed ? d3.extent(times).map((time) => this.moment(time)) : [0, Math.max(1, positions.length - 1)])
      .range([0, SLIDER_STEPS]);
    if (Math.abs(Number(this.slider.value) - this.place(position)) > 1e-6 || other)
      this.slider.value = String(this.place(position));
    this.slider.setAttribute("aria-valuetext", valueText);
    this.draw();
  }

  /** Of times that count from 1970 the axis has dates. */
  moment(time) {
    return time > EPOCH ? new Date(time * 1000) : time;
  }

  /** Where a round lies on the slider. */
  place(position) {
    return this.scale(this.timed ? this.moment(this.heads[position].now_s) : this.positions.indexOf(position));
  }

  nearest(value) {
    return d3.least(this.positions, (i) => Math.abs(this.place(i) - value));
  }

  key(event) {
    const { positions } = this;
    const acts = {
      ArrowRight: () => this.acts.step(1),
      ArrowUp: () => this.acts.step(1),
      ArrowLeft: () => this.acts.step(-1),
      ArrowDown: () => this.acts.step(-1),
      Home: () => this.acts.go(positions[0]),
      End: () => this.acts.go(positions[positions.length - 1]),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }

  draw() {
    const width = this.slider.clientWidth;
    if (!this.scale || !width) return;
    const x = (value) => THUMB + (value / SLIDER_STEPS) * (width - 2 * THUMB);
    const svg = d3.select(this.axis).attr("width", width).attr("height", AXIS_HEIGHT);
    svg.selectAll("*").remove();
    for (const position of this.positions)
      svg
        .append("line")
        .attr("class", position === this.position ? "here" : null)
        .attr("x1", x(this.place(position)))
        .attr("x2", x(this.place(position)))
        .attr("y2", position === this.position ? 7 : 4);
    let free = -Infinity;
    for (const [value, words] of this.labels(Math.max(2, Math.floor(width / 80)))) {
      const middle = x(this.scale(value));
      const half = words.length * 3;
      const left = Math.min(Math.max(middle - half, 0), width - 2 * half);
      if (left < free) continue;
      svg.append("text").attr("x", left + half).attr("y", AXIS_HEIGHT - 4).text(words);
      free = left + 2 * half + 6;
    }
  }

  /** Round times, or the numbers of the rounds where there are none. */
  labels(count) {
    const { scale, positions } = this;
    if (!this.timed) return positions.map((position, i) => [i, String(this.heads[position].round)]);
    const ticks = scale.ticks(count);
    if (ticks[0] instanceof Date) {
      const format = scale.tickFormat(count);
      return ticks.map((tick) => [tick, format(tick)]);
    }
    return ticks.map((tick) => [tick, seconds(tick)]);
  }
}
