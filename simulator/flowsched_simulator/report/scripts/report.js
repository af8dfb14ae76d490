// The page: which runs, which time and which jobs all figures show.

/** Charts of latency for each run; of more services those show that were over their SLO most. */
const MOST_SERVICES = 4;

class ReportPage {
  constructor(data) {
    this.data = data;
    this.view = new TimeView(data.end);
    this.tip = new Tip(document.getElementById("tip"));
    this.runs = data.runs.map((_, number) => new RunView(data, number));
    this.shown = this.runs.filter((run) => data.shown.includes(run.number));
    this.unfolded = new Map();
    /** Whether machines are strips unless they were opened; null: as their number asks for. */
    this.folded = null;
    this.tops = new Map();
    this.services = this.worstServices();
    this.courses = [
      new LineChart(this, {
        title: "CPU held by jobs",
        unit: "% of all cores",
        course: (run) => run.utilisation,
        write: percent,
        top: 1,
      }),
      new LineChart(this, {
        title: "Queue",
        unit: "jobs that wait",
        course: (run) => run.queue,
        write: (value) => compact(value, 1),
        top: 4,
      }),
    ];
    if (data.runs.some((run) => run.gpus))
      for (const [what, title] of [["allocated", "GPU allocation"], ["fragmented", "GPU fragmentation"]])
        this.courses.push(
          new LineChart(this, {
            title,
            unit: "% of all GPUs",
            course: (run) => run.ofGpus(what),
            write: percent,
            top: what === "allocated" ? 1 : 0.1,
          }),
        );
    this.at("courses").append(...this.courses.map((chart) => chart.host));
    this.blocks = new Map();
    this.controls();
    this.view.listeners.push(() => this.redraw());
    this.choose();
    // At once, not with the first frame: who prints or stores the page when it is loaded has the drawings too.
    this.draw();
  }

  at(id) {
    return document.getElementById(id);
  }

  // --- what is shown ---

  controls() {
    this.at("runs").append(
      ...this.runs.map((run) => {
        const { variant } = run.run;
        const chip = element("button", { type: "button", class: "chip", title: variant || null }, run.name);
        chip.prepend(element("span", { class: "line", style: `background:var(--${run.colour})` }));
        chip.addEventListener("click", () => this.toggle(run));
        run.chip = chip;
        return chip;
      }),
    );
    this.at("closer").addEventListener("click", () => this.view.zoom(1 / 1.5));
    this.at("wider").addEventListener("click", () => this.view.zoom(1.5));
    this.at("whole").addEventListener("click", () => this.view.reset());
    this.at("filter").addEventListener("input", () => this.filter());
    this.at("fold").addEventListener("click", () => this.fold());
    const main = document.querySelector("main");
    new ResizeObserver(() => main.clientWidth === this.width || this.redraw()).observe(main);
    const repaint = () => {
      this.palette = null;
      this.redraw();
    };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
    for (const [event, paper] of [["beforeprint", true], ["afterprint", false]])
      addEventListener(event, () => {
        document.documentElement.classList.toggle("paper", paper);
        this.palette = null;
        this.draw();
      });
  }

  toggle(run) {
    const without = this.shown.filter((one) => one !== run);
    if (without.length === this.shown.length) without.push(run);
    if (!without.length) return;
    this.shown = this.runs.filter((one) => without.includes(one));
    this.choose();
  }

  choose() {
    for (const run of this.runs) run.chip.setAttribute("aria-pressed", String(this.shown.includes(run)));
    this.at("schedules").replaceChildren(...this.shown.map((run) => this.block(run).host));
    this.filter();
  }

  filter() {
    const text = this.at("filter").value;
    let fits = 0;
    for (const run of this.shown) {
      run.filter(text);
      fits = run.selected ? Math.max(fits, run.selected.filter(Boolean).length) : run.run.jobs.job.length;
      this.block(run).table.fill();
    }
    this.at("fits").textContent = text.trim() ? counted(fits, "job") : "";
    this.redraw();
  }

  /** Fold all machines where any is open, and open all where none is. */
  fold() {
    const open = this.shown.some((run) => this.block(run).schedule.rows.some((row) => !row.folded));
    this.unfolded.clear();
    this.folded = open;
    this.redraw();
  }

  // --- a run's figures ---

  block(run) {
    if (!this.blocks.has(run)) this.blocks.set(run, this.makeBlock(run));
    return this.blocks.get(run);
  }

  makeBlock(run) {
    const { variant, facts, notes } = run.run;
    const heading = element("h3", null, element("span", { class: "line", style: `background:var(--${run.colour})` }), run.name);
    if (variant) heading.append(" ", element("span", { class: "variant" }, variant));
    const schedule = new Schedule(this, run);
    const latencies = run.run.latency
      .filter((windows) => this.services.includes(windows.service))
      .map((windows) => new LatencyChart(this, run, windows));
    const table = new JobTable(this, run);
    const host = element(
      "article",
      { class: "run" },
      heading,
      element("p", { class: "facts" }, facts),
      schedule.host,
      ...latencies.map((chart) => chart.host),
      ...notes.map((note) => element("p", { class: "note" }, note)),
      table.host,
    );
    return { host, schedule, latencies, table };
  }

  worstServices() {
    const over = this.data.services.map(() => 0);
    for (const { run } of this.runs)
      for (const { service, p95 } of run.latency) {
        const { slo } = this.data.services[service];
        for (const value of p95) over[service] += slo !== null && value > slo ? 1 : 0;
      }
    const order = over.map((_, service) => service).sort((a, b) => over[b] - over[a] || a - b);
    if (order.length > MOST_SERVICES)
      this.at("some-services").textContent =
        `Of ${order.length} services, the ${MOST_SERVICES} that were over their SLO most often are drawn.`;
    return order.slice(0, MOST_SERVICES);
  }

  /** The latency at the top of a service's charts, in ms: the same for all runs. */
  latencyTop(service) {
    if (!this.tops.has(service)) {
      const { slo } = this.data.services[service];
      let most = 0;
      for (const { run } of this.runs)
        for (const windows of run.latency)
          if (windows.service === service) for (const value of windows.p95) most = Math.max(most, value);
      this.tops.set(service, 1.08 * (slo === null ? most || 1 : Math.min(Math.max(most, 1.2 * slo), CUT * slo)));
    }
    return this.tops.get(service);
  }

  // --- drawing ---

  /** Room at the left of all figures: for the names of folded machines where there are any. */
  margin() {
    const names = this.data.machines.name;
    if (names.length <= MOST_UNFOLDED && !this.folded) return 46;
    const longest = names.reduce((most, name) => Math.max(most, name.length), 0);
    return Math.min(Math.max(46, longest * 6.2 + 16), document.documentElement.clientWidth < 600 ? 84 : 150);
  }

  redraw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => this.draw());
  }

  draw() {
    cancelAnimationFrame(this.waiting);
    this.waiting = 0;
    this.width = document.querySelector("main").clientWidth;
    this.palette ??= readPalette();
    this.left = this.margin();
    for (const chart of this.courses) chart.draw(this.palette);
    for (const run of this.shown) {
      const { schedule, latencies } = this.block(run);
      schedule.draw(this.palette);
      for (const chart of latencies) chart.draw(this.palette);
    }
    this.tell();
    document.documentElement.dataset.ready = "";
  }

  tell() {
    const range = this.at("range");
    const { from, to, whole } = this.view;
    const step = this.view.step(400);
    range.textContent = whole ? "all of it" : `${moment(Math.round(from / step) * step, step)} – ${moment(Math.round(to / step) * step, step)}`;
    range.dataset.from = from;
    range.dataset.to = to;
    this.at("whole").disabled = whole;
    const open = this.shown.some((run) => this.block(run).schedule.rows.some((row) => !row.folded));
    this.at("fold").textContent = open ? "fold machines" : "unfold machines";
  }

  /** For those who hear the page. */
  say(words) {
    this.at("said").textContent = words;
  }
}

new ReportPage(JSON.parse(document.getElementById("data").textContent));
