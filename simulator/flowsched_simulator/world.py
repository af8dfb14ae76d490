"""The machines as they truly are: what the simulator knows and no policy does."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Literal, NamedTuple, Protocol

import numpy as np

from flowsched.cluster.occupied_machines import service_load
from flowsched.cluster.resource import covers
from flowsched.cluster.snapshot import Machine, Service, Task
from flowsched.gpu.devices import MachineGpus, suits, use_of
from flowsched_models.execution import Execution
from flowsched_models.runtime import Host, HostFactory, Resident
from flowsched_models.uncertainty import factors, normals
from flowsched_simulator.latency_windows import LatencySpans, windows_of
from flowsched_simulator.run import LatencyWindow

_NEVER = float("inf")
_ROUNDING = 1e-12
"""Run times that differ by less, relatively, are equal."""
_Kind = tuple[int, int, tuple[tuple[str, int], ...], MachineGpus | None, tuple[int, ...]]
"""What the run time of a task alone depends on: identity of the host, memory, further resources, batch cores."""


class End(NamedTuple):
    """How a task left its machine."""

    task: str
    at_s: float
    killed: bool = False
    """Whether it was killed, instead of ending by itself."""


class RunTimeError(Protocol):
    """How far the true machines are from the models."""

    def factor(self, task: str, machine: str) -> float:
        """Run time of a task on a machine, relative to the models."""


ErrorOf = Literal["job", "job-and-machine", "class", "class-and-machine-type"]
"""What draws a factor of its own: each task, wherever it runs, each task on each machine, each class of tasks, or each class
on each machine type."""


@dataclass(frozen=True)
class ModelError:
    """A log-normal factor on run times, of the same width for all.

    ``sigma`` is the standard deviation of the factor's logarithm, 0 for machines that do what the models say. The
    factor depends on the seed and on names only, not on the order of events: on the task's, or with ``job-and-machine``, in
    which equal machines differ, on the machine's too; or on those of its class, and of the machine's type.
    """

    sigma: float = 0.0
    seed: int = 0
    of: ErrorOf = "job"
    classes: Mapping[str, str] = field(default_factory=dict)
    """Class of each task; of one that is not named its own name."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Type of each machine; of one that is not named its own name."""

    def factor(self, task: str, machine: str) -> float:
        """Run time of a task on a machine, relative to the models."""
        if self.sigma == 0.0:
            return 1.0
        if self.of == "job":
            return float(factors(self.sigma, normals(self.seed, "job", task, 1))[0])
        words = [self.seed, zlib.crc32(task.encode()), zlib.crc32(machine.encode())]
        if self.of != "job-and-machine":
            run_class = self.classes.get(task, task)
            if self.of == "class":
                return float(factors(self.sigma, normals(self.seed, "class", run_class, 1))[0])
            machine_type = self.types.get(machine, machine)
            words = [self.seed, *(zlib.crc32(word.encode()) for word in ("class", run_class, machine_type))]
        return float(factors(self.sigma, np.random.default_rng(words).standard_normal(1))[0])


class World:
    """The true machines in motion, and the latencies that their services show."""

    def __init__(
        self,
        machines: Sequence[Machine],
        services: Sequence[Service],
        hosts: HostFactory,
        error: RunTimeError | None = None,
        profiles: Mapping[str, str] | None = None,
    ) -> None:
        """All machines idle at time 0. ``profiles``: those of tasks that have another one than they are told to have."""
        self._services: dict[str, tuple[Service, ...]] = {
            m.name: tuple(s for s in services if s.machine == m.name) for m in machines
        }
        self._hosts: dict[str, Host] = {
            m.name: hosts.host(m.type, [service_load(s) for s in self._services[m.name]]) for m in machines
        }
        self._machines: dict[str, Execution[str]] = {name: Execution(host) for name, host in self._hosts.items()}
        self._number = {name: i for i, name in enumerate(self._machines)}
        self._next_s = dict.fromkeys(self._machines, _NEVER)
        """When anything changes on a machine, as far as it has not been touched since."""
        self._changes: list[tuple[float, int, str]] = []
        """The same as a heap: time, number and name of the machine; those that ``_next_s`` does not know are void."""
        self._touched: dict[str, None] = {}
        self._ended: list[End] = []
        """Tasks without length that ended before another task came to their machine, or left it, in the same instant."""
        self._kills: list[tuple[float, int, str]] = []
        """A heap of when tasks are killed: time, number of the start, task; those that ``_kill`` does not have are void."""
        self._kill: dict[str, tuple[float, int, str]] = {}
        """Time, number of the start and machine of each running task that may be killed."""
        self._starts = 0
        self._alike: tuple[Sequence[Machine], Mapping[_Kind, list[str]]] | None = None
        """Machines that were asked about last, and which of them are alike."""
        self._shortest: dict[Hashable, float] = {}
        self._error: RunTimeError = error or ModelError()
        self._profiles = profiles or {}
        self._stretches = {s.name: LatencySpans() for s in services}
        self.now_s = 0.0
        """When anything last happened on a machine."""

    def start(self, task: str, machine: str, resident: Resident, now_s: float, limit_s: float | None = None) -> None:
        """Put a task on a machine. It is killed when its program has run for ``limit_s`` seconds there; None: never."""
        self._catch_up(machine, now_s)
        if task in self._profiles:
            resident = replace(resident, profile=self._profiles[task])
        self._machines[machine].start(task, resident, self._error.factor(task, machine))
        self._touched[machine] = None
        if limit_s is not None:
            self._starts += 1
            kill_s = max(resident.ready_s, now_s) + max(0.0, limit_s)
            self._kill[task] = kill_s, self._starts, machine
            heappush(self._kills, (kill_s, self._starts, task))

    def stop(self, task: str, machine: str, now_s: float) -> float:
        """Take a task off a machine; the share of its work that is done."""
        self._catch_up(machine, now_s)
        execution = self._machines[machine]
        progress = execution.progress(task)
        execution.stop(task)
        self._kill.pop(task, None)
        return progress

    def next_event_s(self) -> float:
        """When anything changes on any machine."""
        if self._ended:
            return self._ended[0].at_s
        return min(self._next_change_s(), self._next_kill_s())

    def _next_change_s(self) -> float:
        """When a program starts, changes phase or ends by itself on any machine."""
        for name in self._touched:
            soonest = self._next_s[name] = self._machines[name].next_event_s()
            if soonest < _NEVER:
                heappush(self._changes, (soonest, self._number[name], name))
        self._touched.clear()
        while self._changes and self._changes[0][0] != self._next_s[self._changes[0][2]]:
            heappop(self._changes)
        return self._changes[0][0] if self._changes else _NEVER

    def _next_kill_s(self) -> float:
        """When a task is killed next, unless it ends by then."""
        while self._kills and self._kill.get(self._kills[0][2], ())[:2] != self._kills[0][:2]:
            heappop(self._kills)
        return self._kills[0][0] if self._kills else _NEVER

    def advance(self, to_s: float) -> list[End]:
        """Move every machine that has something to do by ``to_s``; the tasks that ended, in the order of time.

        A task that ends by itself by ``to_s`` is not killed: what happens in one instant happens together.
        """
        finished, self._ended = self._ended, []
        due: set[tuple[int, str]] = set()
        while self._next_change_s() <= to_s:
            due.add(heappop(self._changes)[1:])
        for _, name in sorted(due):
            machine = self._machines[name]
            while (event_s := machine.next_event_s()) <= to_s:
                finished += [End(task, event_s) for task in self._move(name, event_s)]
        while (kill_s := self._next_kill_s()) <= to_s:
            late = self._kills[0][2]
            where = self._kill[late][2]
            # An event of the same instant may have moved the machine past the kill.
            self.stop(late, where, max(kill_s, self._machines[where].now_s))
            finished.append(End(late, kill_s, killed=True))
        return sorted(finished, key=lambda end: end.at_s)

    def settle(self, to_s: float) -> None:
        """Bring every machine to the same time, at the end of a run."""
        for name in self._machines:
            self._move(name, to_s)

    def alone_s(
        self,
        task: Task,
        machines: Sequence[Machine],
        batch_cores: Mapping[str, tuple[int, ...]],
        ran_on: str | None = None,
    ) -> float:
        """Run time of a task alone on the kind of machine, and at the number of cores, where it is fastest by the models,
        times the true factor of the machine that it ``ran_on``.

        The factors of machines that it did not run on decide nothing: of many drawn ones the least would be a matter of
        luck. A task that never started has the factor of the first machine of the fastest kind.
        """
        task = self._true(task)
        if self._alike is None or self._alike[0] is not machines:
            self._alike = machines, _alike(machines, batch_cores, self._hosts)
        best, on = _NEVER, ran_on
        for (_, memory_mib, resources, gpus, cores), names in self._alike[1].items():
            if task.memory_mib > memory_mib or (task.resources and not covers(dict(resources), task.resources)):
                continue
            if task.gpus is not None and not suits(gpus, task.gpus):
                continue
            open_ = names if task.machines is None else [n for n in names if n in task.machines]
            if not open_:
                continue
            host = self._hosts[open_[0]]
            slowdown = use_of(host.catalogue, task.profile, gpus, task.gpus).slowdown
            alone_s = self._shortest_s(task, host, cores) * task.scale * slowdown
            if alone_s < best:
                best, on = alone_s, ran_on or open_[0]
        return best if on is None else best * self._error.factor(task.name, on)

    def given_s(self, task: Task, machine: str) -> float | None:
        """Seconds that a task with a given run time takes on a machine; None where neighbours or GPUs have a say in it."""
        task = self._true(task)
        profile = self._hosts[machine].catalogue.jobs[task.profile]
        if not profile.is_undisturbed or task.gpus is not None:
            return None
        speed = self._hosts[machine].catalogue.speed(profile.name, self._hosts[machine].machine_type)
        return profile.work_s * task.scale / speed * self._error.factor(task.name, machine)

    def error_factor(self, task: str, machine: str) -> float:
        """True run time of a task on a machine, relative to what the models say of its true profile."""
        return self._error.factor(task, machine)

    def progress(self, task: str, machine: str, now_s: float) -> float:
        """The share of a running task's work that is done."""
        self._catch_up(machine, now_s)
        return self._machines[machine].progress(task)

    def _true(self, task: Task) -> Task:
        """A task with the profile that it has in truth."""
        return replace(task, profile=self._profiles[task.name]) if task.name in self._profiles else task

    def _shortest_s(self, task: Task, host: Host, cores: tuple[int, ...]) -> float:
        """Least run time of a task of scale 1 alone on any number of these cores; infinity without any."""
        key = (id(host), cores, task.profile, task.threads)
        found = self._shortest.get(key)
        if found is None:
            profile = host.catalogue.jobs[task.profile]

            def threads(count: int) -> int:
                return task.threads_on(count, profile)

            found = self._shortest[key] = shortest_s(
                len(cores),
                lambda n: host.alone_s(task.profile, threads(n), cores[:n]),
                lambda n: profile.threading(threads(n)),
                each=bool(host.services),
            )
        return found

    def latency(self, first_s: float, last_s: float) -> tuple[LatencyWindow, ...]:
        """Time-weighted p95 of every service in windows of ten seconds, equal ones as one; the last may be shorter."""
        windows: list[LatencyWindow] = []
        for services in self._services.values():
            for service in services:
                windows += [
                    LatencyWindow(service.name, w.begin_s, w.end_s, service.qps, w.p95_us, service.slo_us, w.windows)
                    for w in windows_of(self._stretches[service.name], first_s, last_s)
                ]
        return tuple(windows)

    def _catch_up(self, name: str, now_s: float) -> None:
        """Bring a machine to the present, where what happened before is known."""
        if ended := self._move(name, now_s):
            self._ended += [End(task, now_s) for task in ended]

    def _move(self, name: str, to_s: float) -> list[str]:
        machine, services = self._machines[name], self._services[name]
        if to_s > self.now_s:
            self.now_s = to_s
        if services and to_s > machine.now_s:
            for service, p95 in zip(services, machine.p95_us, strict=True):
                self._stretches[service.name].add(machine.now_s, to_s, float(p95))
        self._touched[name] = None
        finished = machine.advance(to_s)
        if finished and self._kill:
            for task in finished:
                self._kill.pop(task, None)
        return finished


def shortest_s(most: int, alone_s: Callable[[int], float], threading: Callable[[int], float], each: bool) -> float:
    """The least of ``alone_s`` over 1 to ``most`` cores; infinity for none.

    Without services beside it, only its number of threads makes a job slower on more cores, by the factor ``threading``,
    which does not fall. So on more than ``low`` and less than ``high`` cores it takes at least ``threading(low)`` times what
    it would take on ``high`` cores if threads cost nothing: ranges that cannot hold the least are left out, and a wide
    machine is not tried core by core. ``each``: try all of them.
    """
    if each:
        return min((alone_s(n) for n in range(1, most + 1)), default=_NEVER)
    if most == 0:
        return _NEVER
    ends = alone_s(1), alone_s(most)
    best = min(ends)
    ranges = [(1, most, ends[1])]
    while ranges:
        low, high, high_s = ranges.pop()
        if high - low < 2 or threading(low) * (high_s / threading(high)) >= best * (1.0 - _ROUNDING):
            continue
        middle = (low + high) // 2
        middle_s = alone_s(middle)
        best = min(best, middle_s)
        ranges += [(middle, high, high_s), (low, middle, middle_s)]
    return best


def _alike(
    machines: Sequence[Machine], batch_cores: Mapping[str, tuple[int, ...]], hosts: Mapping[str, Host]
) -> dict[_Kind, list[str]]:
    """Names of machines by kind."""
    found: dict[_Kind, list[str]] = {}
    for m in machines:
        kind = (id(hosts[m.name]), m.memory_mib, m.resources, m.gpus, batch_cores[m.name])
        found.setdefault(kind, []).append(m.name)
    return found
