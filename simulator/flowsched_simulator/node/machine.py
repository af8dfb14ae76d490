"""The machine in motion: services under load, tasks that run, are paused, move and end."""

from __future__ import annotations

from dataclasses import dataclass, replace

from flowsched.node import LOWEST_WEIGHT, NodeService, NodeTask, TaskGrant
from flowsched_models.catalogue import Catalogue
from flowsched_models.execution import Execution
from flowsched_models.latency import WINDOW_S
from flowsched_models.moving_latency import Backlog, Moment
from flowsched_models.runtime import Host, HostFactory, Occupant, Resident, ServiceLoad

_TINY = 1e-9
OWED_WEIGHT = 1000.0
"""CPU weight that stands for the deadline class: whatever it asks for comes first."""


@dataclass
class _Task:
    task: NodeTask
    slowdown: float
    grant: TaskGrant
    progress: float = 0.0
    cpu_s: float = 0.0
    started_s: float | None = None
    ready_s: float = 0.0


@dataclass
class _Service:
    service: NodeService
    cores: tuple[int, ...]
    qps: float = 0.0
    queries: float = 0.0
    busy_s: float = 0.0


@dataclass(frozen=True)
class _ServiceUse:
    name: str
    entry: _Service
    busy: float
    row: tuple[float, ...]
    """[LATENCY_COLUMNS] without a backlog."""
    pressure: float
    weight_share: float
    factor: float


@dataclass(frozen=True)
class _Stretch:
    """What all tasks do while nothing changes: ticks within it need no rates of their own."""

    tasks: tuple[tuple[_Task, float], ...]
    """Who runs, with the CPUs used."""
    services: tuple[_ServiceUse, ...]


class NodeMachine:
    """One machine at one moment that only moves forward. Counters grow as those of a real machine do."""

    def __init__(
        self,
        catalogue: Catalogue,
        machine_type: str,
        cores: tuple[int, ...],
        services: tuple[NodeService, ...],
        hosts: HostFactory | None = None,
    ) -> None:
        """An empty machine at 0 s; each service has all cores that it may have and no load."""
        self.now_s = 0.0
        self.cores = cores
        self.moments: dict[str, list[Moment]] = {s.name: [] for s in services}
        """Of each service, the moments since the caller last took them away."""
        self._catalogue = catalogue
        self._type = machine_type
        self._hosts = hosts or HostFactory(catalogue)
        self._services = {s.name: _Service(s, s.cores) for s in services}
        self._backlogs = {s.name: Backlog() for s in services}
        self._tasks: dict[str, _Task] = {}
        self._core_busy = dict.fromkeys(cores, 0.0)
        self._execution: Execution[str] | None = None
        self._stretch: _Stretch | None = None

    # What is asked of it.

    def submit(self, task: NodeTask, slowdown: float = 1.0) -> None:
        """A task that is not started yet. ``slowdown`` multiplies its work beyond what its profile says."""
        self._tasks[task.name] = _Task(task, slowdown, TaskGrant(run=False))

    def set_load(self, service: str, qps: float) -> None:
        """Queries per second that arrive at a service from now on."""
        if self._services[service].qps != qps:
            self._services[service].qps = qps
            self._changed()

    def set_cores(self, service: str, cores: tuple[int, ...]) -> None:
        """Virtual CPUs of a service from now on."""
        if self._services[service].cores != cores:
            self._services[service].cores = cores
            self._changed()

    def set_grant(self, task: str, grant: TaskGrant, start_delay_s: float = 0.0) -> None:
        """What a task gets from now on. A program that is started does nothing for ``start_delay_s``."""
        entry = self._tasks[task]
        if grant.run and entry.started_s is None:
            entry.started_s = self.now_s
            entry.ready_s = self.now_s + start_delay_s
        if replace(grant, reason="") != replace(entry.grant, reason=""):
            self._changed()
        entry.grant = grant

    # What it shows.

    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks that are not done, in order of submission."""
        return tuple(self._tasks)

    def grant(self, task: str) -> TaskGrant:
        """What a task has."""
        return self._tasks[task].grant

    def started_s(self, task: str) -> float | None:
        """When its program was started first."""
        return self._tasks[task].started_s

    def progress(self, task: str) -> float:
        """Share of its work that is done, in [0, 1]."""
        self._settle()
        return self._tasks[task].progress

    def cpu_s(self, task: str) -> float:
        """CPU seconds that a task has used."""
        return self._tasks[task].cpu_s

    def queries(self, service: str) -> float:
        """Queries that a service was sent, from the start."""
        return self._services[service].queries

    def service_busy_s(self, service: str) -> float:
        """CPU seconds that a service has used."""
        return self._services[service].busy_s

    def service_cores(self, service: str) -> tuple[int, ...]:
        """Virtual CPUs of a service."""
        return self._services[service].cores

    def core_busy_s(self) -> tuple[float, ...]:
        """CPU seconds used on each virtual CPU, by index."""
        return tuple(self._core_busy.get(c, 0.0) for c in range(max(self.cores) + 1))

    # Time.

    def advance(self, to_s: float) -> list[tuple[float, str]]:
        """Move to ``to_s``; the tasks that ended on the way, with their times. They are no longer here."""
        ended: list[tuple[float, str]] = []
        while self.now_s < to_s - _TINY:
            execution = self._start_execution()
            event_s = execution.next_event_s()
            step_to = min(to_s, event_s)
            self._count(execution, step_to)
            done = execution.advance(step_to)
            self.now_s = step_to
            for name, entry in self._tasks.items():
                if entry.grant.run and name not in done:
                    entry.progress = execution.progress(name)
            for name in done:
                ended.append((self.now_s, name))
                del self._tasks[name]
            if step_to >= event_s - _TINY:
                self._stretch = None
            if done:
                self._execution = None
        return ended

    def _settle(self) -> None:
        if self._execution is not None:
            for name, entry in self._tasks.items():
                if entry.grant.run:
                    entry.progress = self._execution.progress(name)

    def _changed(self) -> None:
        self._settle()
        self._execution = None
        self._stretch = None

    def _start_execution(self) -> Execution[str]:
        if self._execution is None:
            loads = tuple(
                ServiceLoad(e.service.profile, e.cores, e.service.threads, e.service.weight, e.qps, e.service.client)
                for e in self._services.values()
            )
            self._execution = Execution(self._hosts.host(self._type, loads), self.now_s)
            for name, entry in self._tasks.items():
                if entry.grant.run:
                    self._execution.start(name, self._resident(entry), entry.slowdown)
        return self._execution

    def _resident(self, entry: _Task) -> Resident:
        grant, task = entry.grant, entry.task
        owed = grant.deadline
        return Resident(
            task.profile,
            task.scale,
            task.threads,
            grant.cores,
            # A task with an admitted deadline comes before all others, up to what it is owed.
            grant.weight if owed is None else OWED_WEIGHT,
            progress=entry.progress,
            ready_s=entry.ready_s,
            limit=grant.quota if owed is None else owed.bandwidth,
        )

    def _occupants(self, host: Host) -> tuple[list[_Task], tuple[Occupant, ...]]:
        entries = [e for e in self._tasks.values() if e.grant.run and e.ready_s <= self.now_s + _TINY]
        occupants = []
        for entry in entries:
            first, later, serial_until = host.course(self._resident(entry))
            occupants.append(first if entry.progress < serial_until - _TINY else later)
        return entries, tuple(occupants)

    def _count(self, execution: Execution[str], to_s: float) -> None:
        """CPU seconds, queries and moments of a stretch in which nothing changes."""
        if self._stretch is None:
            self._stretch = self._start_stretch(execution.host)
        step = to_s - self.now_s
        for task, busy in self._stretch.tasks:
            task.cpu_s += busy * step
            for core in task.grant.cores:
                self._core_busy[core] += busy * step / len(task.grant.cores)
        for use in self._stretch.services:
            service = use.entry
            service.busy_s += use.busy * step
            service.queries += service.qps * step
            for core in service.cores:
                self._core_busy[core] += use.busy * step / len(service.cores)
            self.moments[use.name] += self._backlogs[use.name].advance(
                self.now_s, to_s, use.row, service.qps, use.pressure, use.weight_share, use.factor
            )

    def _start_stretch(self, host: Host) -> _Stretch:
        entries, occupants = self._occupants(host)
        canonical = tuple(sorted(occupants, key=lambda o: (o.profile, o.stage, o.weight, o.threads, o.cores)))
        busy = host.rates(canonical).busy
        around = host.around(canonical)
        # The kernel lets a service go before tasks of the lowest weight however many they are: those count as background.
        shares = host.around(tuple(o for o in canonical if o.weight > LOWEST_WEIGHT))
        without_owed = host.around(tuple(o for o in canonical if LOWEST_WEIGHT < o.weight < OWED_WEIGHT))
        bandwidth = self._catalogue.machine_types[self._type].bandwidth
        uses = []
        for k, (name, service) in enumerate(self._services.items()):
            profile = self._catalogue.services[service.service.profile]
            used = min(float(len(service.cores)), profile.cpu_per_kqps * service.qps / 1000.0)
            curve = profile.curve_or_estimate(service.service.threads, len(service.cores))
            row = list(profile.latency_row(curve, service.qps, service.service.client, bandwidth, self._type))
            row[WINDOW_S] = 0.0  # the backlog is kept here, moment by moment
            pressure, weight_share = around[k][0], self._bounded(shares[k][1], without_owed[k][1], service.cores)
            factor = profile.background_factor(curve, service.qps, self._background(service.cores), self._type)
            uses.append(_ServiceUse(name, service, used, tuple(row), pressure, weight_share, factor))
        return _Stretch(tuple((e, busy[o]) for e, o in zip(entries, occupants, strict=True)), tuple(uses))

    def _bounded(self, share: float, without_owed: float, cores: tuple[int, ...]) -> float:
        """What others hold of these virtual CPUs: tasks with a deadline come first, for no more than they are owed."""
        owed = 0.0
        for entry in self._tasks.values():
            deadline = entry.grant.deadline
            if entry.grant.run and deadline is not None:
                beside = len(set(entry.grant.cores) & set(cores))
                owed += deadline.bandwidth * beside / len(entry.grant.cores) / len(cores)
        return min(share, 1.0 - (1.0 - without_owed) * max(0.0, 1.0 - owed)) if owed else share

    def _background(self, cores: tuple[int, ...]) -> float:
        """Share of these virtual CPUs on which tasks of the lowest weight run."""
        used = {
            c for e in self._tasks.values() if e.grant.run and e.grant.weight <= LOWEST_WEIGHT for c in e.grant.cores
        }
        return sum(c in used for c in cores) / len(cores)
