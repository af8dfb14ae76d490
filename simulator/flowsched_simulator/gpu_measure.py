"""Measures how the GPUs of a run were used, from where its tasks ran.

Fragmentation is that of FGD (``baselines/gpu/fgd_kernels.py``; Weng et al., "Beware of Fragmentation", USENIX ATC 2023),
by the same kernel as the rule ``gpu-fgd`` minimises: of each machine what is left on its devices less what typical tasks
could use of it, by their popularity, with the CPU that is free beside them. A task without GPUs uses none, so its share of
the demand counts every idle GPU as a fragment, as in the publication. Typical tasks are those of the scenario's
``gpu_demand``, else of all its tasks: the same for every policy, whatever came first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from flowsched.cluster.snapshot import Task
from flowsched.gpu.devices import WHOLE_MILLI, untouched
from flowsched.pricing.gpu_prices import as_devices, counted_shapes
from flowsched_simulator.baselines.gpu.fgd_kernels import fragmentation
from flowsched_simulator.baselines.gpu.rule import GpuOutlook
from flowsched_simulator.baselines.gpu.starts import fragmentation_tables
from flowsched_simulator.gpu_use import GpuUse
from flowsched_simulator.run import JobRun
from flowsched_simulator.scenario import Scenario


@dataclass(frozen=True)
class _Change:
    """A task comes to a machine or goes: ``sign`` -1 takes from what is left, 1 gives back."""

    t_s: float
    sign: int
    machine: str
    width_milli: int
    devices: tuple[int, ...]
    share_milli: int


def measure_gpu_use(
    scenario: Scenario, tasks: Iterable[Task], jobs: Sequence[JobRun], start_s: float, end_s: float
) -> GpuUse:
    """The use of GPUs from ``start_s`` to ``end_s``, from where and when ``jobs`` ran; what did not end runs until then."""
    machines = [m for m in scenario.machines if m.gpus is not None]
    models = tuple(sorted({m.gpus.model for m in machines if m.gpus is not None}))
    taken = dict.fromkeys((m.name for m in machines), 0)
    for service in scenario.services:
        if service.machine in taken:
            taken[service.machine] += service.width_milli
    state = as_devices(
        [m.cpu_milli - taken[m.name] for m in machines],
        [m.memory_mib for m in machines],
        [m.gpus for m in machines],
        [untouched(m.gpus) for m in machines],
        models,
    )
    demand = scenario.gpu_demand or counted_shapes(tasks)
    shapes, counts = tuple(shape for shape, _ in demand), np.array([count for _, count in demand], dtype=np.int64)
    tables = fragmentation_tables(GpuOutlook(state, models, shapes, counts, 0))
    row = {m.name: i for i, m in enumerate(machines)}
    pieces = [float(fragmentation(i, state, tables)) for i in range(len(machines))]
    allocated = 0
    curve = {start_s: (0, sum(pieces))}
    for change in sorted(_changes(jobs, end_s), key=lambda c: (c.t_s, -c.sign)):
        if (i := row.get(change.machine)) is None:
            continue
        state.cpu[i] += change.sign * change.width_milli
        for device in change.devices:
            state.devices[i, device] += change.sign * change.share_milli
        allocated -= change.sign * change.share_milli * len(change.devices)
        pieces[i] = float(fragmentation(i, state, tables))
        curve[change.t_s] = (allocated, sum(pieces))
    times = [t for t in curve if t < end_s] or [start_s]
    return GpuUse(
        WHOLE_MILLI * sum(m.gpus.count for m in machines if m.gpus is not None),
        tuple(times),
        tuple(curve[t][0] for t in times),
        tuple(curve[t][1] for t in times),
        end_s,
    )


def _changes(jobs: Iterable[JobRun], end_s: float) -> Iterator[_Change]:
    """Two for each time that a task ran somewhere: the same times as in the schedule."""
    for job in jobs:
        share = job.gpu_share_milli
        stays = [(s.start_s, s.left_s, s.machine, s.width_milli, s.devices) for s in job.earlier]
        if job.start_s is not None and job.machine is not None:
            ended = end_s if job.end_s is None else job.end_s
            stays.append((job.start_s, ended, job.machine, job.width_milli, job.devices))
        for start, left, machine, width_milli, devices in stays:
            if start < left:
                yield _Change(start, -1, machine, width_milli, devices, share)
                yield _Change(left, 1, machine, width_milli, devices, share)
