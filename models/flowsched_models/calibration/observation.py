"""What the run-time fit compares: measured times of jobs as arrays, apart from any parameters."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowsched_models.catalogue import Catalogue
from flowsched_models.cell import Bools, Floats, Ints
from flowsched_models.machine import MachineType
from flowsched_models.measurements.machine_run import MachineRun, machine_runs
from flowsched_models.measurements.measurements import REFERENCE, Measurements, Run
from flowsched_models.runtime import HostFactory

PRESSING = "llc"
"""The kind of interference that sensitivity is measured by: an aggressor on the last-level cache."""


@dataclass(frozen=True)
class Played:
    """One machine of one run: everything but the parameters of its jobs."""

    group: str
    run: str
    machine: MachineRun
    kind: int
    """Index of its machine type."""
    jobs: Ints
    """[n] indices of the jobs' names."""
    threads: Floats
    """[n] started."""
    parallel: Floats
    """[n] threads that can run at once."""
    weight: Floats
    ready_s: Floats
    duration_s: Floats
    """[n] measured."""
    repeats: int
    """Runs of the same schedule by the same group: they tell little more than one."""
    services: Floats
    can: Bools
    sibling: Ints


@dataclass(frozen=True)
class ThreadSweep:
    """One job alone on a type of machine with so many threads."""

    kind: int
    job: int
    threads: int
    cores: tuple[int, ...]
    real_s: Mapping[str, float]
    """Mean seconds by group."""

    def median_s(self, without: Collection[str] = ()) -> float | None:
        """Median over the groups; None where none is left."""
        return _median(self.real_s, without)


@dataclass(frozen=True)
class Slowdown:
    """A job beside an aggressor on the last-level cache, relative to alone."""

    job: int
    ratio: Mapping[str, float]
    """By group."""

    def median(self, without: Collection[str] = ()) -> float | None:
        """Median over the groups; None where none is left."""
        return _median(self.ratio, without)


@dataclass(frozen=True)
class Observations:
    """Everything that the run-time fit sees."""

    jobs: tuple[str, ...]
    machine_types: tuple[MachineType, ...]
    played: tuple[Played, ...]
    sweeps: tuple[ThreadSweep, ...]
    slowdowns: tuple[Slowdown, ...]

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups with measurements."""
        names = {p.group for p in self.played}
        names |= {g for s in self.sweeps for g in s.real_s} | {g for s in self.slowdowns for g in s.ratio}
        return tuple(sorted(names))


def spread_cores(machine: MachineType, count: int) -> tuple[int, ...]:
    """The virtual CPUs that a job alone uses when it may use so many: one of every physical core first."""
    second = {b for _, b in machine.siblings}
    order = sorted(range(machine.vcpus), key=lambda c: (c in second, c))
    return tuple(sorted(order[:count]))


def observe(data: Measurements, catalogue: Catalogue, client: str | None = None) -> Observations:
    """Arrays of the measurements. The catalogue knows the machine types, and the services that ran beside the jobs.

    Runs whose services the catalogue does not know are played without them.
    """
    jobs = tuple(sorted(data.jobs))
    types = sorted(
        {t.machine_type for t in data.thread_times} | {e.machine_type for r in data.runs for e in r.executions}
    )
    kinds = {name: k for k, name in enumerate(types)}
    index = {name: j for j, name in enumerate(jobs)}
    repeats = Counter((r.group, r.schedule) for r in data.runs)
    return Observations(
        jobs,
        tuple(catalogue.machine_types[name] for name in types),
        tuple(_played(data.runs, catalogue, client, kinds, index, repeats)),
        tuple(_sweeps(data, catalogue, kinds, index)),
        tuple(_slowdowns(data, index)),
    )


def _played(
    runs: Sequence[Run],
    catalogue: Catalogue,
    client: str | None,
    kinds: Mapping[str, int],
    index: Mapping[str, int],
    repeats: Mapping[tuple[str, str], int],
) -> list[Played]:
    hosts = HostFactory(catalogue)
    found = []
    for run in runs:
        for machine in machine_runs(_with_known_services(run, catalogue), catalogue, client):
            host = hosts.host(machine.machine_type, machine.services)
            entries = machine.entries
            can = host.may_use(tuple(e.cores for e in entries))
            parallel = [min(e.threads, len(e.cores), e.limit or math.inf) for e in entries]
            found.append(
                Played(
                    run.group,
                    run.name,
                    machine,
                    kinds[machine.machine_type],
                    np.array([index[e.profile] for e in entries], dtype=np.int64),
                    np.array([float(e.threads) for e in entries]),
                    np.array(parallel, dtype=np.float64),
                    np.array([e.weight for e in entries]),
                    np.array([e.ready_s for e in entries]),
                    np.array([e.duration_s for e in machine.executions]),
                    repeats[run.group, run.schedule],
                    host.service_rows,
                    can,
                    host.siblings(can.shape[1]),
                )
            )
    return found


def _with_known_services(run: Run, catalogue: Catalogue) -> Run:
    return replace(run, services=tuple(s for s in run.services if s.profile in catalogue.services))


def _sweeps(
    data: Measurements, catalogue: Catalogue, kinds: Mapping[str, int], index: Mapping[str, int]
) -> list[ThreadSweep]:
    times: dict[tuple[int, int, int, tuple[int, ...]], dict[str, list[float]]] = {}
    for t in data.thread_times:
        machine = catalogue.machine_types[t.machine_type]
        cores = spread_cores(machine, machine.vcpus if t.cores is None else min(t.cores, machine.vcpus))
        key = (kinds[t.machine_type], index[t.job], t.threads, cores)
        times.setdefault(key, defaultdict(list))[t.group].append(t.real_s)
    return [
        ThreadSweep(*key, {g: statistics.fmean(values) for g, values in sorted(by_group.items())})
        for key, by_group in sorted(times.items())
    ]


def _slowdowns(data: Measurements, index: Mapping[str, int]) -> list[Slowdown]:
    times: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for t in data.interference_times:
        times[t.job, t.group, t.interference].append(t.real_s)
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for (job, group, kind), values in sorted(times.items()):
        alone = times.get((job, group, REFERENCE))
        if kind == PRESSING and alone:
            found[job][group] = statistics.fmean(values) / statistics.fmean(alone)
    return [Slowdown(index[job], ratio) for job, ratio in sorted(found.items())]


def _median(by_group: Mapping[str, float], without: Collection[str]) -> float | None:
    left = [value for group, value in by_group.items() if group not in without]
    return statistics.median(left) if left else None
