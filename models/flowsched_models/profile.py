"""The measured behaviour of one kind of batch job."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from flowsched_models.gpu_profile import NO_GPU_PROFILE, GpuProfile

NEVER_MEASURED = 0.5
"""``error`` of a profile that does not say how well it was measured: two runs in three within a factor of 1.65."""


class PhaseOrder(StrEnum):
    """Where a job's serial work stands in its run."""

    SERIAL_FIRST = "serial-first"
    """The serial part runs first, alone on one thread; then everything is parallel."""
    MIXED = "mixed"
    """Serial and parallel work alternate so quickly that their mix is constant over the run."""


@dataclass(frozen=True)
class JobProfile:
    """How long a kind of job runs, and what it does to its neighbours.

    Source of every default number: the bundled ``profiles.yaml``, value by value.
    """

    name: str
    work_s: float
    """Seconds on one thread of the reference machine type, undisturbed (``W``)."""
    serial_fraction: float
    """Share of the work that one thread alone can do (``f``), in [0, 1]. At 1 the run time is given: ``work_s`` on any
    number of virtual CPUs and any part of one; neighbours slow it down by their pressure and as busy siblings alone."""
    phase_order: PhaseOrder
    smt_gain: float
    """Extra throughput of a core when both its hardware threads are busy (``g``), in [0, 1]."""
    sensitivity: float
    """Slow-down under one unit of cache and memory pressure, minus 1 (``s``)."""
    pressure: float
    """Pressure caused per busy CPU (``P``)."""
    memory_mib: int
    """What must be free on a machine for the job to run at all."""
    oversubscription: float = 0.0
    """Relative slow-down for every doubling of the threads above four (``O - 1``)."""
    threads_power_of_two: bool = False
    """Whether the program accepts only 1, 2, 4, 8, … threads."""
    speed: Mapping[str, float] = field(default_factory=dict)
    """Speed by machine type, relative to the reference type; types that are not named use their own default."""
    gpus: GpuProfile = NO_GPU_PROFILE
    """What GPUs do to its speed; nothing where that was never measured."""
    error: float = NEVER_MEASURED
    """Standard deviation of the logarithm of measured over predicted run time."""

    @property
    def has_given_run_time(self) -> bool:
        """Whether it takes the same time on any virtual CPUs."""
        return self.serial_fraction >= 1.0

    @property
    def is_undisturbed(self) -> bool:
        """Whether its run time is given and nothing that runs beside it on a machine's CPUs changes it."""
        return self.has_given_run_time and self.sensitivity == 0.0 and self.smt_gain >= 1.0

    @property
    def is_plain(self) -> bool:
        """Whether no place makes it faster or slower, whatever it does to its neighbours."""
        return self.is_undisturbed and len(set(self.speed.values())) <= 1

    def threading(self, threads: int) -> float:
        """By how much so many threads make each of them slower: a factor of 1 up to four threads."""
        return 1.0 + self.oversubscription * math.log2(threads / 4) if threads > 4 else 1.0

    def threads_for(self, cores: int, allowed: tuple[int, ...] = ()) -> int:
        """Threads to start on ``cores`` cores: of the ``allowed`` counts (ascending; empty: any) the largest that has a core
        each, else the smallest; then what the program accepts.
        """
        if allowed:
            cores = max((n for n in allowed if n <= cores), default=allowed[0])
        if self.threads_power_of_two:
            return 1 << (max(cores, 1).bit_length() - 1)
        return max(cores, 1)
