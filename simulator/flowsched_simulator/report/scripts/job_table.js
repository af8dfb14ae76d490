// Every job of a run with its place and its times: what the schedule shows, in words.

const FIRST_ROWS = 200;
const HEADS = [
  "Job", "Machine", "May use core", "Request, cores", "Threads", "Submitted, s", "Start, s", "End, s", "Alone, s",
  "Slowdown, ×",
];

class JobTable {
  constructor(page, run) {
    Object.assign(this, { page, run, most: FIRST_ROWS });
    this.place = element("div", { class: "scroll" });
    this.host = element("details", null, element("summary", null, "Jobs of this run"), this.place);
    this.host.addEventListener("toggle", () => this.fill());
  }

  fill() {
    if (!this.host.open) return;
    const { run } = this;
    const last = new Map();
    run.run.stays.job.forEach((job, stay) => last.set(job, stay));
    const jobs = run.run.jobs.job.map((_, job) => job).filter((job) => !run.selected || run.selected[job]);
    const shown = jobs.slice(0, this.most);
    const some = shown.length < jobs.length ? `The first ${fixed(shown.length, 0)} of ${counted(jobs.length, "job")}` : "Every job";
    const heads = [...HEADS, ...run.run.jobs.columns.map((column) => column.head)];
    const table = element(
      "table",
      { class: "jobs" },
      element("caption", null, `${run.selected ? some.replace("Every job", "Every job that fits the filter,") : some} with place and times`),
      element("thead", null, element("tr", null, ...heads.map((head) => element("th", { scope: "col" }, head)))),
      element("tbody", null, ...shown.map((job) => this.row(job, last.get(job)))),
    );
    this.place.replaceChildren(table);
    if (shown.length === jobs.length) return;
    const more = element("button", { type: "button", class: "more" }, "Show 1000 more");
    more.addEventListener("click", () => {
      this.most += 1000;
      this.fill();
    });
    this.place.append(more);
  }

  row(job, stay) {
    const { data, run } = this.run;
    const { stays, jobs } = run;
    const ran = stay !== undefined;
    const cells = [
      ran ? data.machines.name[stays.machine[stay]] : NOTHING,
      ran ? data.core_lists[stays.cores[stay]] || NOTHING : NOTHING,
      compact(ran ? stays.request[stay] : null),
      compact(ran ? stays.threads[stay] : null),
      fixed(jobs.submit[job], 1),
      fixed(ran ? stays.start[stay] : null, 1),
      fixed(ran && stays.ended[stay] === FINISHED ? stays.end[stay] : null, 1),
      fixed(jobs.alone[job], 1),
      fixed(jobs.slowdown[job], 2),
    ];
    for (const column of jobs.columns) {
      const cell = column.cells[job];
      cells.push(typeof cell === "string" ? cell : fixed(cell, 1));
    }
    const name = element("th", { scope: "row" }, this.run.jobName(job));
    return element("tr", null, name, ...cells.map((cell) => element("td", null, cell)));
  }
}
