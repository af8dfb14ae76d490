"""What a round's decisions cost, worked out from the models alone: the same yardstick for every engine.

Two of them. :func:`forecast_penalty` is for tasks that end: every machine is run forward with all that is on it, was bound
to it or is planned for it, and each task pays its penalty at the end that is forecast; a task with no place and no plan pays
the price of an unscheduled task. :func:`interference` is for tasks that run for good: pressure times sensitivity.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from benchmarks.engine_worker import BETA, EPS, GOAL_FACTOR, LENGTH_WEIGHT, REFERENCE_S
from flowsched.cluster.decision import Decisions, Placement
from flowsched.cluster.snapshot import MILLI, Machine, PlannedStart, Running, Service, Snapshot, Task
from flowsched_models.forecast import Forecast, Waiting, forecast
from flowsched_models.runtime import Host, HostFactory, Resident, ServiceLoad

HEADROOM_WEIGHT, MOST_USED = 0.05, 0.99
DUE_AGE_S, ROUND_PERIOD_S = 600.0, 1.0
"""The same constants as the default settings, kept here so that no setting moves the yardstick."""


def start_after(planned: PlannedStart) -> int:
    """After how many completions on its machine a task is planned to start, by either name of the field."""
    found: Any = getattr(planned, "start_after", None)
    return int(planned.slot if found is None else found)


class Yardstick:
    """Penalties of one snapshot: of decisions on it, in the unit of section 3.1's prices."""

    def __init__(self, snapshot: Snapshot, hosts: HostFactory) -> None:
        """Run every machine forward without any decision."""
        self._snapshot = snapshot
        self._machines = {m.name: m for m in snapshot.machines}
        self._services: dict[str, list[Service]] = defaultdict(list)
        for service in snapshot.services:
            self._services[service.machine].append(service)
        self._running: dict[str, list[Running]] = defaultdict(list)
        for running in snapshot.running:
            self._running[running.machine].append(running)
        self._hosts = {m.name: self._host(m, hosts) for m in snapshot.machines}
        self._cores = {m.name: snapshot.batch_cores(m) for m in snapshot.machines}
        self._free_milli, self._free_mib = snapshot.free_milli(), snapshot.free_memory_mib()
        self._best: dict[tuple[str, float], float] = {}
        self._before = {m.name: self._run(m.name, (), ()) for m in snapshot.machines}
        self._idle = {name: self._cost(name, found, ()) for name, found in self._before.items()}
        self._backlog_s = self._fluid_s()

    def total(self, decisions: Decisions) -> float:
        """Penalties that the waiting tasks add: their own, and what they change for all that runs already."""
        tasks = {t.name: t for t in self._snapshot.pending}
        now: dict[str, list[Placement]] = defaultdict(list)
        later: dict[str, list[PlannedStart]] = defaultdict(list)
        for placement in decisions.placements:
            now[placement.machine].append(placement)
        total = 0.0
        for postponement in decisions.postponements:
            if postponement.planned is None:
                total += self._unscheduled(tasks[postponement.task])
            else:
                later[postponement.planned.machine].append(postponement.planned)
        for machine in sorted({*now, *later}):
            started = [(tasks[p.task], self._resident(tasks[p.task], p)) for p in now[machine]]
            waiting = [
                (tasks[p.task], Waiting(self._planned(tasks[p.task], p), start_after(p))) for p in later[machine]
            ]
            found = self._run(machine, [r for _, r in started], [w for _, w in waiting])
            ends = zip([t for t, _ in started], found.residents_s[len(self._running[machine]) :], strict=True)
            total += self._cost(machine, found, [*ends, *zip([t for t, _ in waiting], found.waiting_s, strict=True)])
            total -= self._idle[machine]
        return total

    def _cost(self, machine: str, found: Forecast, arrivals: Iterable[tuple[Task, float]]) -> float:
        total = 0.0
        for service, p95_us in zip(self._services[machine], found.peak_p95_us, strict=True):
            used = min(MOST_USED, p95_us / service.slo_us)
            total += HEADROOM_WEIGHT * used / (1.0 - used)
        for running, end_s in zip(self._running[machine], found.residents_s, strict=False):
            total += self._penalty(running.task, end_s)
        for task, end_s in arrivals:
            # A planned start that never fits is no plan.
            total += self._penalty(task, end_s) if end_s < float("inf") else self._unscheduled(task)
        return total

    def _penalty(self, task: Task, end_s: float) -> float:
        best_s = self._best_s(task)
        goal_s = GOAL_FACTOR * best_s if task.goal_s is None else task.goal_s
        phi_s = self._snapshot.now_s - task.submit_s + end_s
        gentle = EPS * min(phi_s, goal_s) / goal_s + BETA * max(0.0, phi_s - goal_s) / goal_s
        return float((best_s / REFERENCE_S) ** LENGTH_WEIGHT * gentle)

    def _unscheduled(self, task: Task) -> float:
        snapshot = self._snapshot
        waits = []
        for name, machine in self._machines.items():
            if not self._could_fit(task, machine):
                continue
            drained_s = max(self._before[name].residents_s, default=0.0)
            wait_s = max(drained_s, self._backlog_s, ROUND_PERIOD_S) + snapshot.start_delay.after_waiting_s
            waits.append(wait_s + self._alone_s(name, task))
        age_s = max(0.0, snapshot.now_s - task.submit_s)
        later = self._penalty(task, min(waits)) if waits else self._penalty(task, self._best_s(task))
        return later + min(1.0, age_s / DUE_AGE_S)

    def _could_fit(self, task: Task, machine: Machine) -> bool:
        services = self._services[machine.name]
        cpu = machine.cpu_milli - sum(s.width_milli for s in services)
        memory = machine.memory_mib - sum(s.memory_mib for s in services)
        allowed = task.machines is None or machine.name in task.machines
        return allowed and bool(self._cores[machine.name]) and task.widths_milli[0] <= cpu and task.memory_mib <= memory

    def _run(self, machine: str, started: Iterable[Resident], waiting: Iterable[Waiting]) -> Forecast:
        snapshot = self._snapshot
        residents = [
            Resident(
                r.task.profile,
                work.scale,
                r.threads,
                r.cores,
                r.width_milli / MILLI,
                r.task.memory_mib,
                work.done,
                max(0.0, r.start_s - snapshot.now_s),
            )
            for r in self._running[machine]
            for work in [snapshot.estimate(r.task, r.progress)]
        ]
        started = list(started)
        return forecast(
            self._hosts[machine],
            [*residents, *started],
            list(waiting),
            free_cores=self._free_milli[machine] / MILLI - sum(r.weight for r in started),
            free_memory_mib=self._free_mib[machine] - sum(r.memory_mib for r in started),
            start_delay_s=snapshot.start_delay.after_waiting_s,
        )

    def _resident(self, task: Task, placement: Placement) -> Resident:
        delay = self._snapshot.start_delay
        fresh = task.submit_s >= self._snapshot.now_s
        return Resident(
            task.profile,
            task.scale,
            placement.threads,
            placement.cores,
            placement.width_milli / MILLI,
            task.memory_mib,
            ready_s=delay.at_submission_s if fresh else delay.after_waiting_s,
        )

    def _planned(self, task: Task, planned: PlannedStart) -> Resident:
        cores = self._cores[planned.machine]
        threads = task.threads_on(len(cores), self._snapshot.catalogue.jobs[task.profile])
        return Resident(task.profile, task.scale, threads, cores, planned.width_milli / MILLI, task.memory_mib)

    def _best_s(self, task: Task) -> float:
        key = (task.profile, task.scale)
        if key not in self._best:
            places = dict.fromkeys((self._hosts[m], self._cores[m]) for m in self._machines if self._cores[m])
            self._best[key] = min(self._on(host, cores, task) for host, cores in places)
        return self._best[key]

    def _alone_s(self, machine: str, task: Task) -> float:
        return self._on(self._hosts[machine], self._cores[machine], task)

    def _on(self, host: Host, cores: tuple[int, ...], task: Task) -> float:
        threads = task.threads_on(len(cores), self._snapshot.catalogue.jobs[task.profile])
        return host.alone_s(task.profile, threads, cores, task.scale)

    def _fluid_s(self) -> float:
        """Seconds until all remaining one-core work is done by all batch cores at once."""
        catalogue = self._snapshot.catalogue
        work_s = sum(catalogue.jobs[t.profile].work_s * t.scale for t in self._snapshot.pending)
        for r in self._snapshot.running:
            work = self._snapshot.estimate(r.task, r.progress)
            work_s += catalogue.jobs[r.task.profile].work_s * work.scale * (1.0 - work.done)
        return work_s / max(1, sum(len(cores) for cores in self._cores.values()))

    def _host(self, machine: Machine, hosts: HostFactory) -> Host:
        loads = (
            ServiceLoad(s.profile, s.cores, s.threads, s.width_milli / MILLI, s.qps, s.client)
            for s in self._services[machine.name]
        )
        return hosts.host(machine.type, loads)


def forecast_penalty(snapshot: Snapshot, decisions: Decisions, hosts: HostFactory) -> float:
    """What all waiting tasks of a snapshot add, together."""
    return Yardstick(snapshot, hosts).total(decisions)


def interference(snapshot: Snapshot, decisions: Decisions) -> float:
    """Slow-down that the placements of tasks without an end add, to themselves and to what runs already.

    On a machine every task i suffers ``s_i * sum of P_j * width_j over the others`` (in cores); summed over all machines,
    with the placements minus without.
    """
    tasks = {t.name: t for t in snapshot.pending}
    jobs = snapshot.catalogue.jobs
    sums: dict[str, tuple[float, float, float]] = defaultdict(lambda: (0.0, 0.0, 0.0))

    def add(machine: str, task: Task, width_milli: int) -> None:
        sensitivity, pressure = jobs[task.profile].sensitivity, jobs[task.profile].pressure * width_milli / MILLI
        s, p, own = sums[machine]
        sums[machine] = s + sensitivity, p + pressure, own + sensitivity * pressure

    def whole() -> float:
        return sum(s * p - own for s, p, own in sums.values())

    for running in snapshot.running:
        add(running.machine, running.task, running.width_milli)
    before = whole()
    for placement in decisions.placements:
        add(placement.machine, tasks[placement.task], placement.width_milli)
    return whole() - before
