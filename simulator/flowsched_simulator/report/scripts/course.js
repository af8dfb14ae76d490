// A value over time that changes in steps.

class Course {
  /** `changes` are pairs of a time and by how much the value changes there. */
  constructor(changes) {
    const order = changes.filter(([, by]) => by !== 0).sort((a, b) => a[0] - b[0]);
    this.times = [];
    this.values = [];
    let value = 0;
    for (const [time, by] of order) {
      value += by;
      const rounded = Math.round(value * 1e6) / 1e6;
      const last = this.times.length - 1;
      if (last >= 0 && this.times[last] === time) this.values[last] = rounded;
      else {
        this.times.push(time);
        this.values.push(rounded);
      }
    }
  }

  /** A course whose values are known: each lasts from its time to the next. */
  static of(times, values) {
    return Object.assign(new Course([]), { times, values });
  }

  /** Index of the last change at or before a time; -1 before the first. */
  index(time) {
    let [low, high] = [0, this.times.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.times[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  at(time) {
    const index = this.index(time);
    return index < 0 ? 0 : this.values[index];
  }

  /** The mean over a time, weighted by how long each value lasts. */
  mean(from, to) {
    let [sum, time] = [0, from];
    for (let i = this.index(from); i < this.times.length && time < to; i++) {
      const until = Math.min(i + 1 < this.times.length ? this.times[i + 1] : to, to);
      sum += (i < 0 ? 0 : this.values[i]) * (until - time);
      time = until;
    }
    return to > from ? sum / (to - from) : 0;
  }

  most(from = -Infinity, to = Infinity) {
    let most = 0;
    for (let i = Math.max(0, this.index(from)); i < this.times.length && this.times[i] < to; i++)
      most = Math.max(most, this.values[i]);
    return most;
  }

  /**
   * Go along the course between two times, as steps on columns of pixels: `step(x0, x1, low, high, last)` is called with
   * the span of each value, or of all values within less than a pixel.
   */
  walk(from, to, x, step) {
    let i = this.index(from);
    let left = x(from);
    const end = x(to);
    while (left < end) {
      let value = i < 0 ? 0 : this.values[i];
      let [low, high] = [value, value];
      let right = i + 1 < this.times.length ? Math.min(x(this.times[i + 1]), end) : end;
      while (right < end && right - left < 1) {
        i += 1;
        value = this.values[i];
        [low, high] = [Math.min(low, value), Math.max(high, value)];
        right = i + 1 < this.times.length ? Math.min(x(this.times[i + 1]), end) : end;
      }
      step(left, right, low, high, value);
      left = right;
      i += 1;
    }
  }
}
