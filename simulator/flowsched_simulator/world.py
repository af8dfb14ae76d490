"""The machines as they truly are: what the simulator knows and no policy does."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from flowsched.cluster.cluster_state import service_load
from flowsched.cluster.resource import covers
from flowsched.cluster.snapshot import Machine, Service, Task
from flowsched_models.execution import Execution
from flowsched_models.runtime import Host, HostFactory, Resident
from flowsched_simulator.latency_windows import LatencySpans, windows_of
from flowsched_simulator.run import LatencyWindow


class RunTimeError(Protocol):
    """How far the true machines are from the models."""

    def factor(self, task: str, machine: str) -> float:
        """Run time of a task on a machine, relative to the models."""


@dataclass(frozen=True)
class ModelError:
    """A log-normal factor on the run time per job and machine, of the same width for all.

    ``sigma`` is the standard deviation of the factor's logarithm, 0 for machines that do what the models say. The
    factor depends on the seed and the two names only, not on the order of events.
    """

    sigma: float = 0.0
    seed: int = 0

    def factor(self, task: str, machine: str) -> float:
        """Run time of a task on a machine, relative to the models."""
        if self.sigma == 0.0:
            return 1.0
        words = [self.seed, zlib.crc32(task.encode()), zlib.crc32(machine.encode())]
        return float(np.exp(self.sigma * np.random.default_rng(words).standard_normal()))


class World:
    """The true machines in motion, and the latencies that their services show."""

    def __init__(
        self,
        machines: Sequence[Machine],
        services: Sequence[Service],
        hosts: HostFactory,
        error: RunTimeError | None = None,
    ) -> None:
        """All machines idle at time 0."""
        self._services: dict[str, tuple[Service, ...]] = {
            m.name: tuple(s for s in services if s.machine == m.name) for m in machines
        }
        self._hosts: dict[str, Host] = {
            m.name: hosts.host(m.type, [service_load(s) for s in self._services[m.name]]) for m in machines
        }
        self._machines: dict[str, Execution[str]] = {name: Execution(host) for name, host in self._hosts.items()}
        self._error: RunTimeError = error or ModelError()
        self._stretches = {s.name: LatencySpans() for s in services}

    def start(self, task: str, machine: str, resident: Resident, now_s: float) -> None:
        """Put a task on a machine."""
        self._move(machine, now_s)
        self._machines[machine].start(task, resident, self._error.factor(task, machine))

    def stop(self, task: str, machine: str, now_s: float) -> float:
        """Take a task off a machine; the share of its work that is done."""
        self._move(machine, now_s)
        execution = self._machines[machine]
        progress = execution.progress(task)
        execution.stop(task)
        return progress

    def next_event_s(self) -> float:
        """When anything changes on any machine."""
        return min((m.next_event_s() for m in self._machines.values()), default=float("inf"))

    def advance(self, to_s: float) -> list[str]:
        """Move every machine that has something to do by ``to_s``; the tasks that ended, by machine order."""
        finished = []
        for name, machine in self._machines.items():
            while machine.next_event_s() <= to_s + 1e-9:
                finished += self._move(name, machine.next_event_s())
        return finished

    def settle(self, to_s: float) -> None:
        """Bring every machine to the same time, at the end of a run."""
        for name in self._machines:
            self._move(name, to_s)

    def alone_s(self, task: Task, machines: Sequence[Machine], batch_cores: Mapping[str, tuple[int, ...]]) -> float:
        """Run time of a task alone on the machine, and at the number of cores, where it is fastest."""
        best = float("inf")
        for machine in machines:
            profile = self._hosts[machine.name].catalogue.jobs[task.profile]
            cores = batch_cores[machine.name]
            if task.machines is not None and machine.name not in task.machines:
                continue
            if task.memory_mib > machine.memory_mib or not covers(dict(machine.resources), task.resources):
                continue
            factor = self._error.factor(task.name, machine.name)
            for n in range(1, len(cores) + 1):
                threads = task.threads_on(n, profile)
                time = self._hosts[machine.name].alone_s(task.profile, threads, cores[:n], task.scale)
                best = min(best, time * factor)
        return best

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

    def _move(self, name: str, to_s: float) -> list[str]:
        machine = self._machines[name]
        to_s = max(to_s, machine.now_s)  # events closer than a nanosecond count as one instant
        for service, p95 in zip(self._services[name], machine.p95_us, strict=True):
            if to_s > machine.now_s:
                self._stretches[service.name].add(machine.now_s, to_s, float(p95))
        return machine.advance(to_s)
