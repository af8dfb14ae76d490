// The schedule of one run: jobs as lanes on each machine, or a strip of how busy the machine is.

/** More machines than these are strips until they are opened. */
const MOST_UNFOLDED = 8;
const TOP = 18;
const STRIP = 17;
const ROW_HEAD = 22;
const ROW_GAP = 6;
/** Below the cores of a machine with GPUs: a line of words, then a lane for each device. */
const GPU_HEAD = 24;
const GPU_STRIP = 12;
const GPU_GAP = 2;
/** In the highest lanes there is room for the name of a job with half a GPU. */
const [LEAST_GPU, MOST_GPU] = [14, 32];
/** What the GPUs of one machine may take before their lanes shrink: eight are 22 pixels each. */
const GPU_LANES = 176;
const [LEAST_CORE, MOST_CORE] = [3, 26];
/** What all lanes together may take before they shrink. */
const LANES = 640;
/** A schedule of few machines is drawn whole up to this height; others scroll. */
const MOST_HEIGHT = 1200;
const DIMMED = 0.2;

/** On a whole pixel of the screen, so that lanes that touch have no seam between them. */
function snapped(x) {
  const scale = window.devicePixelRatio || 1;
  return Math.round(x * scale) / scale;
}

class Schedule {
  constructor(page, run) {
    Object.assign(this, { page, run, pointed: null, cursor: null });
    this.scroller = element("div", { class: "rows" });
    this.host = element("div", { class: "figure schedule", tabindex: "0", role: "group" }, this.scroller);
    this.host.setAttribute("aria-label", `Schedule under ${run.name}`);
    this.picture = new Picture(this.scroller, page.view, page.left);
    this.filler = element("div");
    this.scroller.append(this.filler);
    this.scroller.addEventListener("scroll", () => page.redraw());
    this.gestures = new Gestures(this.host, this.picture.canvas, page.view, () => [this.picture.left, this.picture.right], {
      click: (x, y) => this.click(x, y),
      hover: (x, y, event) => this.hover(x, y, event),
      leave: () => this.leave(),
      key: (name) => this.key(name),
    });
  }

  // --- rows ---

  /** Machines as they lie above each other: those with a chosen job, folded or not. */
  layOut() {
    const { data, unfolded } = this.page;
    const chosen = this.run.selectedMachines;
    const machines = data.machines.name.map((_, machine) => machine).filter((machine) => !chosen || chosen.has(machine));
    const fold = this.page.folded ?? machines.length > MOST_UNFOLDED;
    this.rows = machines.map((machine) => ({ machine, folded: unfolded.get(machine) === undefined ? fold : !unfolded.get(machine) }));
    const cores = this.rows.reduce((sum, row) => sum + (row.folded ? 0 : data.machines.cores[row.machine]), 0);
    const core = Math.min(Math.max(LANES / Math.max(cores, 1), LEAST_CORE), MOST_CORE);
    let top = 0;
    for (const row of this.rows) {
      row.top = top;
      row.cores = data.machines.cores[row.machine];
      row.core = Math.max(core, 30 / Math.max(row.cores, 1));
      row.gpus = this.run.run.gpus ? (data.machines.gpus[row.machine] ?? 0) : 0;
      row.gpu = Math.round(Math.min(Math.max(GPU_LANES / Math.max(row.gpus, 1), LEAST_GPU), MOST_GPU));
      const gpus = row.gpus ? GPU_HEAD + row.gpus * row.gpu : 0;
      row.height = row.folded ? STRIP + (row.gpus ? GPU_STRIP : 0) : ROW_HEAD + row.cores * row.core + gpus + ROW_GAP;
      top += row.height;
    }
    this.total = top;
  }

  /** The rows that are on the screen. */
  visible() {
    const from = this.scroller.scrollTop;
    const to = from + this.picture.height - TOP - FOOT;
    return this.rows.filter((row) => row.top < to && row.top + row.height > from);
  }

  /** Where a row begins on the canvas. */
  y(row) {
    return TOP + row.top - this.scroller.scrollTop;
  }

  // --- drawing ---

  draw(palette) {
    const { picture, page } = this;
    this.layOut();
    picture.left = page.left;
    const whole = TOP + this.total + FOOT;
    const room = this.rows.length > MOST_UNFOLDED ? Math.max(320, Math.round(window.innerHeight * 0.75)) : MOST_HEIGHT;
    const height = Math.min(whole, room);
    this.scroller.style.height = `${height}px`;
    this.filler.style.height = `${whole - height}px`;
    const context = picture.begin(this.scroller.clientWidth, height, palette);
    const rows = this.visible();
    const base = height - FOOT;
    context.save();
    context.beginPath();
    context.rect(0, TOP, picture.width, base - TOP);
    context.clip();
    context.fillStyle = palette.ground;
    for (const [top, tall] of rows.flatMap((row) => this.grounds(row)))
      context.fillRect(picture.left, top, picture.right - picture.left, tall);
    picture.timeAxis(TOP, base, false);
    for (const row of rows) row.folded ? this.strip(row) : this.lanes(row);
    context.restore();
    picture.timeAxis(base, base);
    const { finish, makespan } = this.run.run;
    picture.marker(finish, 1, base, makespan === null ? "" : `makespan ${fixed(makespan, 1)} s`);
    picture.canvas.setAttribute("aria-label", this.summary());
  }

  /** Top and height of what is drawn of the cores of a row. */
  plot(row) {
    return row.folded ? [this.y(row), STRIP - 3] : [this.y(row) + ROW_HEAD, row.cores * row.core];
  }

  /** Top and height of what is drawn of all GPUs of a row. */
  gpuPlot(row) {
    if (row.folded) return [this.y(row) + STRIP - 2, GPU_STRIP - 3];
    return [this.y(row) + ROW_HEAD + row.cores * row.core + GPU_HEAD, row.gpus * row.gpu];
  }

  /** Top and height of each plot of a row: its cores, and each GPU by itself unless it is folded. */
  grounds(row) {
    if (!row.gpus) return [this.plot(row)];
    const [top, tall] = this.gpuPlot(row);
    if (row.folded) return [this.plot(row), [top, tall]];
    return [this.plot(row), ...Array.from({ length: row.gpus }, (_, gpu) => [top + gpu * row.gpu, row.gpu - GPU_GAP])];
  }

  /** The lanes of an open row: of its cores, then of its GPUs, each with its pieces and where a piece lies. */
  bands(row) {
    const { run } = this.run;
    const [cores, gpus] = [this.plot(row), this.gpuPlot(row)];
    const found = [
      {
        plot: cores,
        pieces: run.pieces,
        on: this.run.pieces[row.machine],
        span: (low, high) => [cores[0] + cores[1] - high * row.core, (high - low) * row.core],
        detail: (stay) => this.detail(stay),
      },
    ];
    if (!row.gpus) return found;
    const lane = row.gpu - GPU_GAP;
    found.push({
      plot: gpus,
      pieces: run.gpus.pieces,
      on: this.run.gpuPieces[row.machine],
      // Devices lie from above, as they are listed; a share of one stands on its lower edge.
      span: (low, high) => {
        const device = Math.floor(low + 1e-6);
        return [gpus[0] + device * row.gpu + lane - (high - device) * lane, (high - low) * lane];
      },
      detail: (stay) => this.run.gpuAmount(stay),
    });
    return found;
  }

  /** Fill a plot and nothing beside it. */
  within([top, tall], draw) {
    const { context, left, right } = this.picture;
    context.save();
    context.beginPath();
    context.rect(left, top, right - left, tall);
    context.clip();
    draw(top, tall);
    context.restore();
  }

  strip(row) {
    const { picture, run } = this;
    const { context, palette, view } = picture;
    const paint = (plot, busy, whole) =>
      this.within(plot, (top, tall) => {
        const fill = (course, colour) => {
          context.fillStyle = palette[colour];
          course.walk(view.from, Math.min(view.to, run.run.end), picture.x, (x0, x1, low, high) => {
            const height = (tall * (low + high)) / 2 / Math.max(whole, 1);
            if (height > 0) context.fillRect(snapped(x0), top + tall - height, snapped(x1) - snapped(x0), height);
          });
        };
        fill(busy(null), run.selected ? "hatch" : "bar");
        if (run.selected) fill(busy((stay) => run.isSelected(stay)), "own-rule");
      });
    paint(this.plot(row), (only) => run.busy(row.machine, only), row.cores);
    if (row.gpus) {
      paint(this.gpuPlot(row), (only) => run.gpusBusy(row.machine, only), row.gpus);
      picture.text("GPUs", picture.left - 8, this.y(row) + STRIP + 6, { colour: "soft", size: 10, align: "right" });
    }
    const cursor = this.cursor === row.machine;
    const name = this.shorten(this.page.data.machines.name[row.machine], picture.left - 14);
    picture.text(name, picture.left - 8, this.y(row) + 11, {
      colour: cursor ? "own-rule" : "soft",
      weight: cursor ? 700 : 400,
      size: 11,
      align: "right",
    });
  }

  lanes(row) {
    const { picture, run, page } = this;
    const { context, view } = picture;
    const { machines } = page.data;
    const top = this.y(row);
    const cursor = this.cursor === row.machine;
    const colour = cursor ? "own-rule" : "ink";
    picture.text(machines.name[row.machine], picture.left, top + 15, { weight: 600, colour });
    const indent = context.measureText(machines.name[row.machine]).width + 8;
    picture.text(machines.kind[row.machine], picture.left + indent, top + 15, { colour: "soft" });
    picture.text("cores", picture.left - 8, top + 15, { colour: "soft", size: 11, align: "right" });
    const [first, tall] = this.plot(row);
    for (const cores of evenTicks(row.cores, Math.max(1, Math.min(4, Math.floor(tall / 22)))).filter(Number.isInteger))
      picture.text(String(cores), picture.left - 8, first + tall - cores * row.core + 4, {
        colour: "soft",
        size: 11,
        align: "right",
      });
    if (row.gpus) this.gpuNames(row);
    for (const band of this.bands(row)) {
      const { start, end } = band.pieces;
      const pieces = band.on.filter((piece) => start[piece] < view.to && end[piece] > view.from);
      this.within(band.plot, () => {
        for (const piece of pieces) this.piece(band, piece);
        this.labels(band, pieces);
      });
    }
  }

  /** The words beside the lanes of GPUs: their model and their numbers. */
  gpuNames(row) {
    const { picture, page } = this;
    const [top] = this.gpuPlot(row);
    const soft = { colour: "soft", size: 11 };
    picture.text("GPU", picture.left - 8, top - 5, { ...soft, align: "right" });
    picture.text(page.data.machines.gpu_model[row.machine], picture.left, top - 5, soft);
    for (let gpu = 0; gpu < row.gpus; gpu++)
      picture.text(String(gpu), picture.left - 8, top + gpu * row.gpu + (row.gpu - GPU_GAP) / 2 + 4, { ...soft, align: "right" });
  }

  /** Left, top, width and height of a lane piece. */
  box(band, piece) {
    const { start, end, low, high } = band.pieces;
    const { x } = this.picture;
    const left = snapped(x(start[piece]));
    const width = Math.max(snapped(x(end[piece])) - left, 0.7);
    const [top, height] = band.span(low[piece], high[piece]);
    return [left, top, width, height];
  }

  piece(band, piece) {
    const { picture, run } = this;
    const { context } = picture;
    const { stay, stays } = { stay: band.pieces.stay[piece], stays: run.run.stays };
    const box = this.box(band, piece);
    const job = stay < 0 ? null : stays.job[stay];
    context.globalAlpha = run.isSelected(stay) && (this.pointed === null || this.pointed === (job ?? stay)) ? 1 : DIMMED;
    context.fillStyle = stay < 0 ? picture.hatch("hatch", 5, true) : this.colours(job)[0];
    context.fillRect(...box);
    if (stay >= 0 && stays.ended[stay] === UNFINISHED && box[2] > 3) {
      context.fillStyle = picture.hatch("edge", 8, false);
      context.fillRect(...box);
    }
    context.globalAlpha = 1;
    if (box[2] > 3 && box[3] > 3) this.edge(band.pieces, piece, ...box);
  }

  /** The border of a lane: upright only where the job comes and goes, not where its share changes. */
  edge(pieces, piece, left, top, width, height) {
    const { context, palette } = this.picture;
    const { stays } = this.run.run;
    const stay = pieces.stay[piece];
    context.strokeStyle = palette.edge;
    context.lineWidth = 1.2;
    context.beginPath();
    for (const y of [top, top + height]) {
      context.moveTo(left, y);
      context.lineTo(left + width, y);
    }
    for (const [x, time, own] of [
      [left, pieces.start[piece], stays.start[stay]],
      [left + width, pieces.end[piece], stays.end[stay]],
    ])
      if (time === own) {
        context.moveTo(x, top);
        context.lineTo(x, top + height);
      }
    context.stroke();
  }

  /** Fill and ink of a job. */
  colours(job) {
    const { data } = this.page;
    return data.colours[data.jobs.colour[this.run.run.jobs.job[job]]];
  }

  /** Words in the largest piece of each stay, of one on several GPUs in each of them, where they fit. */
  labels(band, pieces) {
    const { picture, run } = this;
    const { context, left, right } = picture;
    const best = new Map();
    for (const piece of pieces) {
      const stay = band.pieces.stay[piece];
      const key = band.pieces === run.run.pieces ? stay : `${stay} ${Math.floor(band.pieces.low[piece] + 1e-6)}`;
      const [x, y, width, height] = this.box(band, piece);
      const [from, to] = [Math.max(x, left), Math.min(x + width, right)];
      const area = (to - from) * height;
      if (height < 12 || to - from < 22 || area <= (best.get(key)?.area ?? 0)) continue;
      best.set(key, { stay, area, x: from + 6, y, room: to - from - 12, height });
    }
    for (const place of best.values()) {
      const { stay } = place;
      if (!run.isSelected(stay)) continue;
      const name = stay < 0 ? this.page.data.services[-1 - stay].name : run.stayName(stay);
      const lines = this.fit(name, band.detail(stay), place);
      const ink = stay < 0 ? picture.palette.ink : this.colours(run.run.stays.job[stay])[1];
      const first = place.y + (place.height - lines.length * 14) / 2 + 11;
      const haloed = stay < 0 || run.run.stays.ended[stay] === UNFINISHED;
      lines.forEach((words, line) => {
        if (haloed) {
          context.font = `400 12px ${FONT}`;
          context.fillStyle = stay < 0 ? picture.palette.ground : this.colours(run.run.stays.job[stay])[0];
          context.fillRect(place.x - 3, first + line * 14 - 11, context.measureText(words).width + 6, 14);
        }
        picture.text(words, place.x, first + line * 14, { colour: ink });
      });
    }
  }

  detail(stay) {
    if (stay < 0) return "service";
    const { threads, request, ended } = this.run.run.stays;
    const words = [`${threads[stay]} thr`, `req ${compact(request[stay])}`];
    if (ended[stay]) words.push({ [PREEMPTED]: "preempted", [MOVED]: "moved", [UNFINISHED]: "unfinished" }[ended[stay]]);
    return words.join(", ");
  }

  /** As many of the words as there is room for. */
  fit(name, detail, { room, height }) {
    const { context } = this.picture;
    context.font = `400 12px ${FONT}`;
    const fits = (words) => context.measureText(words).width <= room;
    if (fits(`${name}  ${detail}`)) return [`${name}  ${detail}`];
    if (height >= 30 && fits(name) && fits(detail)) return [name, detail];
    return fits(name) ? [name] : [];
  }

  /** A name without its middle, where it is too long. */
  shorten(name, room) {
    const { context } = this.picture;
    context.font = `400 11px ${FONT}`;
    let words = name;
    for (let keep = name.length - 1; keep > 3 && context.measureText(words).width > room; keep--)
      words = `${name.slice(0, Math.floor(keep / 3))}…${name.slice(name.length - Math.ceil((keep * 2) / 3))}`;
    return words;
  }

  summary() {
    const { run } = this;
    const late = run.run.stays.ended.filter((ended) => ended === UNFINISHED).length;
    const ending = run.run.makespan === null ? "" : `; makespan ${fixed(run.run.makespan, 1)} s`;
    const shown = run.selected ? `; ${counted(this.rows.length, "machine")} with jobs that fit the filter` : "";
    return (
      `Schedule under ${run.name}: ${counted(run.run.jobs.job.length, "job")} on ` +
      `${counted(run.data.machines.name.length, "machine")}${ending}${late ? `; ${late} did not finish` : ""}${shown}. ` +
      "The same figures are in the table of jobs below."
    );
  }

  // --- pointer and keys ---

  rowAt(y) {
    return y < TOP || y > this.picture.height - FOOT
      ? undefined
      : this.visible().find((row) => y >= this.y(row) && y < this.y(row) + row.height);
  }

  /** The stay, or service, whose lane is under a point of an open row; null for none. */
  stayAt(row, x, y) {
    for (const band of this.bands(row)) {
      const found = band.on.findLast((piece) => {
        const [left, top, width, height] = this.box(band, piece);
        return x >= left && x <= left + width && y >= top && y <= top + height;
      });
      if (found !== undefined) return band.pieces.stay[found];
    }
    return null;
  }

  click(x, y) {
    const row = this.rowAt(y);
    if (row && (row.folded || y < this.y(row) + ROW_HEAD || x < this.picture.left)) this.toggle(row);
  }

  toggle(row) {
    this.page.unfolded.set(row.machine, row.folded);
    this.cursor = row.machine;
    const name = this.page.data.machines.name[row.machine];
    this.page.say(row.folded ? `${name} unfolded` : `${name} folded`);
    this.leave();
    this.page.redraw();
  }

  hover(x, y, event) {
    const row = this.rowAt(y);
    const inside = row && x >= this.picture.left && x <= this.picture.right;
    const stay = inside && !row.folded ? this.stayAt(row, x, y) : null;
    const pointed = stay === null ? null : stay < 0 ? stay : this.run.run.stays.job[stay];
    this.picture.canvas.style.cursor = row && (row.folded || y < this.y(row) + ROW_HEAD) ? "pointer" : "crosshair";
    if (pointed !== this.pointed) {
      this.pointed = pointed;
      this.page.redraw();
    }
    if (stay !== null) this.page.tip.show(this.run.words(stay), event.clientX, event.clientY);
    else if (row && row.folded) this.page.tip.show(this.stripWords(row, x), event.clientX, event.clientY);
    else this.page.tip.hide();
  }

  stripWords(row, x) {
    const { machines } = this.page.data;
    const { view } = this.picture;
    const busy = this.run.busy(row.machine);
    const share = (cores) => percent(cores / Math.max(row.cores, 1));
    const lines = [
      machines.name[row.machine],
      `${machines.kind[row.machine]} ${counted(row.cores, "core")}`.trim(),
      `${share(busy.mean(view.from, Math.min(view.to, this.run.run.end)))} held by jobs in the time shown`,
    ];
    const time = x >= this.picture.left ? this.picture.time(x) : null;
    if (time !== null) lines.push(`${share(busy.at(time))} at ${fixed(time, 1)} s`);
    if (row.gpus) {
      const held = this.run.gpusBusy(row.machine);
      const mean = percent(held.mean(view.from, Math.min(view.to, this.run.run.end)) / row.gpus);
      const now = time === null ? "" : `, ${percent(held.at(time) / row.gpus)} at ${fixed(time, 1)} s`;
      lines.push(`${counted(row.gpus, "GPU")} (${machines.gpu_model[row.machine]}): ${mean} held${now}`);
    }
    return [...lines, "click to unfold"].join("\n");
  }

  leave() {
    this.page.tip.hide();
    if (this.pointed === null) return;
    this.pointed = null;
    this.page.redraw();
  }

  /** Up and down go from machine to machine; Enter folds and unfolds. */
  key(name) {
    const at = this.rows.findIndex((row) => row.machine === this.cursor);
    if ((name === "Enter" || name === " ") && at >= 0) {
      this.toggle(this.rows[at]);
      return true;
    }
    if (name !== "ArrowUp" && name !== "ArrowDown") return false;
    const next = this.rows[Math.min(Math.max(at + (name === "ArrowDown" ? 1 : -1), 0), this.rows.length - 1)];
    if (!next) return true;
    this.cursor = next.machine;
    const room = this.picture.height - TOP - FOOT;
    if (next.top < this.scroller.scrollTop) this.scroller.scrollTop = next.top;
    else if (next.top + next.height > this.scroller.scrollTop + room)
      this.scroller.scrollTop = Math.min(next.top, next.top + next.height - room);
    this.page.say(this.stripWords(next, 0).split("\n").slice(0, 3).join(", "));
    this.page.redraw();
    return true;
  }
}
