"""Run times alone, as a user of longest-processing-time-first would know them.

Only what a job does by itself: its work, its serial share, the machine's speed, and hardware threads that
share a core. Neighbours, and the small cost of very many threads, are left out: when jobs are sorted by
length, it is not known yet where, and next to which others, they will run.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import lru_cache

from flowsched.cluster.snapshot import Task
from flowsched_models.catalogue import Catalogue
from flowsched_models.execution import INSTANT_S, what_is_left
from flowsched_models.machine import MachineType
from flowsched_models.profile import JobProfile

OVERRUN = 0.05
"""Part of its estimate that a task is taken to need still when the estimate has passed."""


@lru_cache(maxsize=1024)
def sibling_map(machine_type: MachineType) -> dict[int, int]:
    """Each virtual CPU's sibling on the same physical core, for those that have one."""
    return {a: b for pair in machine_type.siblings for a, b in (pair, pair[::-1])}


def spread(machine_type: MachineType, cores: Collection[int], count: int) -> tuple[int, ...]:
    """The virtual CPUs that a task alone would take first: one of each physical core, then the siblings."""
    sibling = sibling_map(machine_type)
    there = set(cores)
    seconds = {c for c in cores if sibling.get(c, c) < c and sibling[c] in there}
    return (*sorted(there - seconds), *sorted(seconds))[:count]


def effective_cores(profile: JobProfile, machine_type: MachineType, cores: Collection[int], threads: int) -> float:
    """How many full cores' work the threads do on these virtual CPUs, with no other task there.

    Threads take physical cores first. The second hardware thread of a core brings only the profile's SMT
    gain.
    """
    physical = _physical_cores(machine_type, cores if isinstance(cores, tuple) else tuple(cores))
    busy = min(threads, len(cores))
    return min(busy, physical) + profile.smt_gain * max(0, busy - physical)


@lru_cache(maxsize=1024)
def _physical_cores(machine_type: MachineType, cores: tuple[int, ...]) -> int:
    sibling = sibling_map(machine_type)
    return len({min(c, sibling.get(c, c)) for c in cores})


def run_time_alone_s(catalogue: Catalogue, task: Task, machine_type: MachineType, cores: Collection[int]) -> float:
    """Predicted seconds of a task that has these virtual CPUs to itself, from start to end.

    Amdahl's form ``W scale / v (f + (1 - f) / n)``, with ``n`` effective cores. Whether the serial share
    comes first or is mixed in makes no difference to a run alone.
    """
    profile = catalogue.jobs[task.profile]
    n = effective_cores(profile, machine_type, cores, profile.threads_for(len(cores)))
    serial = profile.serial_fraction
    return _work_s(catalogue, task, machine_type) * (serial + (1.0 - serial) / n)


def told_s(catalogue: Catalogue, task: Task, machine_type: MachineType, cores: Collection[int]) -> float:
    """Seconds that policies are told for what is left of a task, alone on these virtual CPUs; infinite without an end.

    The estimate of a job with a given run time is in its profile, so that it needs no case of its own. A run time that
    the task itself states comes first.
    """
    if task.endless:
        return math.inf
    whole_s = run_time_alone_s(catalogue, task, machine_type, cores) if task.run_s is None else task.run_s
    return whole_s if task.done == 0.0 else what_is_left(1.0 - task.done, whole_s)


def left_s(told: float, start_s: float, now_s: float) -> float:
    """Seconds until a running task ends, as policies are told: its estimate, less the time since its program started.

    Neither its progress nor its neighbours are looked at. A task that should have ended is taken to need another
    twentieth of its estimate, whenever it is asked (D. Tsafrir, Y. Etsion, D. G. Feitelson, "Backfilling Using
    System-Generated Predictions Rather Than User Runtime Estimates", IEEE TPDS 18(6), 2007: a prediction that ran out is
    corrected).
    """
    left = start_s + told - now_s
    return left if left > INSTANT_S else OVERRUN * told


def load_s(catalogue: Catalogue, task: Task, machine_type: MachineType, cores: Collection[int]) -> float:
    """Single-thread work of a task, spread evenly over these virtual CPUs, in seconds.

    This is by how much the task postpones the moment at which a machine with these CPUs, always busy, runs
    empty.
    """
    profile = catalogue.jobs[task.profile]
    return _work_s(catalogue, task, machine_type) / effective_cores(profile, machine_type, cores, len(cores))


def _work_s(catalogue: Catalogue, task: Task, machine_type: MachineType) -> float:
    profile = catalogue.jobs[task.profile]
    return profile.work_s * task.scale / catalogue.speed(profile.name, machine_type.name)
