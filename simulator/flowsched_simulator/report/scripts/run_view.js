// One run as the figures need it: what is on each machine, and the courses of CPU and queue.

const [FINISHED, PREEMPTED, MOVED, UNFINISHED] = [0, 1, 2, 3];
const ENDINGS = { [PREEMPTED]: "then preempted", [MOVED]: "then moved" };

class RunView {
  constructor(data, number) {
    this.data = data;
    this.run = data.runs[number];
    this.number = number;
    this.colour = `run-${number % 8}`;
    this.dashed = number >= 8;
    const { policy, variant, seed } = this.run;
    const several = data.runs.some((other) => other.policy === policy && other.variant === variant && other.seed !== seed);
    this.name = several ? `${policy}, seed ${seed}` : policy;
    this.cores = data.machines.cores.reduce((sum, cores) => sum + cores, 0) || 1;
    this.busyOn = new Map();
    this.gpusBusyOn = new Map();
    this.gpuCourses = {};
    this.selected = null;
  }

  jobName(job) {
    return this.data.jobs.name[this.run.jobs.job[job]];
  }

  stayName(stay) {
    return this.jobName(this.run.stays.job[stay]);
  }

  /** Lane pieces of each machine, those of services first. */
  get pieces() {
    this.found ??= this.byMachine(this.run.pieces);
    return this.found;
  }

  /** The same of GPUs. */
  get gpuPieces() {
    this.foundGpus ??= this.byMachine(this.run.gpus.pieces);
    return this.foundGpus;
  }

  byMachine(pieces) {
    const found = this.data.machines.name.map(() => []);
    pieces.stay.forEach((stay, piece) => {
      const machine = stay < 0 ? this.data.services[-1 - stay].machine : this.run.stays.machine[stay];
      found[machine].push(piece);
    });
    return found;
  }

  /** Cores that jobs hold on a machine; with `only`, a test of stays, those that it lets through. */
  busy(machine, only = null) {
    if (only) return new Course(this.changes(this.pieces[machine], only));
    if (!this.busyOn.has(machine)) this.busyOn.set(machine, new Course(this.changes(this.pieces[machine])));
    return this.busyOn.get(machine);
  }

  /** GPUs that jobs hold on a machine, in the same way. */
  gpusBusy(machine, only = null) {
    const course = () => new Course(this.changes(this.gpuPieces[machine], only, this.run.gpus.pieces));
    if (only) return course();
    if (!this.gpusBusyOn.has(machine)) this.gpusBusyOn.set(machine, course());
    return this.gpusBusyOn.get(machine);
  }

  /** Share of all GPUs over time: `allocated`, or `fragmented`; nothing for a run without GPUs. */
  ofGpus(what) {
    const { gpus } = this.run;
    if (!gpus) return new Course([]);
    this.gpuCourses[what] ??= Course.of(gpus.time, gpus[what].map((milli) => milli / gpus.capacity));
    return this.gpuCourses[what];
  }

  /** What a stay has of GPUs: a share of one, or how many. */
  gpuAmount(stay) {
    const { devices, share } = this.run.gpus;
    return share[stay] < 1000 ? `${share[stay]}m` : counted(devices[stay].length, "GPU");
  }

  changes(which, only = null, pieces = this.run.pieces) {
    const { stay, start, end, low, high } = pieces;
    const found = [];
    for (const piece of which) {
      if (stay[piece] < 0 || (only && !only(stay[piece]))) continue;
      const height = high[piece] - low[piece];
      found.push([start[piece], height], [end[piece], -height]);
    }
    return found;
  }

  /** Share of the cluster's cores that jobs hold. */
  get utilisation() {
    this.inUse ??= new Course(this.changes(this.run.pieces.stay.keys()).map(([time, by]) => [time, by / this.cores]));
    return this.inUse;
  }

  /** Jobs that were submitted and do not run: before they start, and again after they are preempted. */
  get queue() {
    if (!this.waiting) {
      const { jobs, stays, end } = this.run;
      const since = [...jobs.submit];
      const found = [];
      const wait = (from, to) => to > from && found.push([from, 1], [to, -1]);
      stays.job.forEach((job, stay) => {
        if (since[job] !== null) wait(since[job], stays.start[stay]);
        since[job] = stays.ended[stay] === PREEMPTED ? stays.end[stay] : null;
      });
      for (const from of since) if (from !== null) wait(from, end);
      this.waiting = new Course(found);
    }
    return this.waiting;
  }

  /** Choose the jobs whose name has all words of a text; null for all jobs. */
  filter(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const { jobs, stays } = this.run;
    if (!words.length) this.selected = null;
    else {
      const fits = this.data.jobs.name.map((name) => words.every((word) => name.toLowerCase().includes(word)));
      this.selected = jobs.job.map((name) => fits[name]);
    }
    this.selectedMachines = this.selected && new Set(stays.machine.filter((_, stay) => this.selected[stays.job[stay]]));
  }

  isSelected(stay) {
    return !this.selected || (stay >= 0 && this.selected[this.run.stays.job[stay]]);
  }

  /** What the tip says of a stay, or of a service. */
  words(stay) {
    const { data, run } = this;
    const { stays, jobs } = run;
    if (stay < 0) {
      const service = data.services[-1 - stay];
      const slo = service.slo === null ? "" : `, SLO ${compact(service.slo)} ms`;
      return [
        `${service.name} (service)`,
        `${data.machines.name[service.machine]}, core ${service.cores}`,
        `${counted(service.threads, "thread")}${slo}`,
      ].join("\n");
    }
    const job = stays.job[stay];
    const name = this.jobName(job);
    const profile = data.profiles[data.jobs.profile[jobs.job[job]]];
    const ended = stays.ended[stay];
    const end = ended === UNFINISHED ? "not finished" : `${fixed(stays.end[stay], 1)} s`;
    const lines = [
      name + (profile && profile !== name ? ` (${profile})` : ""),
      `${data.machines.name[stays.machine[stay]]}, core ${data.core_lists[stays.cores[stay]]}`,
      `${counted(stays.threads[stay], "thread")}, request ${compact(stays.request[stay])} cores`,
      `submitted ${fixed(jobs.submit[job], 1)} s, runs ${fixed(stays.start[stay], 1)} s to ` +
        [end, ENDINGS[ended]].filter(Boolean).join(", "),
    ];
    if (run.gpus && run.gpus.devices[stay].length) {
      const devices = run.gpus.devices[stay];
      const model = data.machines.gpu_model[stays.machine[stay]];
      const amount = run.gpus.share[stay] < 1000 ? `${run.gpus.share[stay]}m of GPU` : devices.length > 1 ? "GPUs" : "GPU";
      lines.push(`${amount} ${devices.join(", ")} (${model})`);
    }
    if (jobs.alone[job] !== null) {
      const slow = jobs.slowdown[job] === null ? "" : `, slowdown ${fixed(jobs.slowdown[job], 2)}`;
      lines.push(`alone it would take ${fixed(jobs.alone[job], 1)} s${slow}`);
    }
    return lines.join("\n");
  }
}
