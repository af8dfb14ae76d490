"""What is assumed of a job that was not measured: the middle of those that were, within a wide error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import median

from flowsched_models.catalogue import Catalogue
from flowsched_models.gpu_profile import NO_GPU_PROFILE
from flowsched_models.profile import NEVER_MEASURED, JobProfile, PhaseOrder

NEUTRAL = "neutral"
"""Name of the profile of a job that was not measured."""
NEUTRAL_WORK_S = 60.0
"""Its work on one thread: a job of two minutes on one thread has scale 2."""


def neutral_profile(jobs: Mapping[str, JobProfile]) -> JobProfile:
    """The median of measured jobs, number by number, with their serial parts mixed in.

    Jobs whose speed is that of their GPUs say nothing of CPUs, and are left out.
    """
    on_cpus = [job for job in jobs.values() if job.gpus == NO_GPU_PROFILE]

    def middle(values: Iterable[float], otherwise: float) -> float:
        found = list(values)
        return float(median(found)) if found else otherwise

    return JobProfile(
        name=NEUTRAL,
        work_s=NEUTRAL_WORK_S,
        serial_fraction=middle((j.serial_fraction for j in on_cpus), 0.1),
        phase_order=PhaseOrder.MIXED,
        smt_gain=middle((j.smt_gain for j in on_cpus), 0.3),
        sensitivity=middle((j.sensitivity for j in on_cpus), 0.9),
        pressure=middle((j.pressure for j in on_cpus), 0.025),
        memory_mib=0,
        error=NEVER_MEASURED,
    )


def with_neutral_job(catalogue: Catalogue) -> Catalogue:
    """The catalogue with the neutral profile, unless it brings one of its own."""
    if NEUTRAL in catalogue.jobs:
        return catalogue
    return replace(catalogue, jobs={**catalogue.jobs, NEUTRAL: neutral_profile(catalogue.jobs)})
