"""What is assumed of pods and nodes that were not measured."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace

from flowsched.cluster.snapshot import MILLI
from flowsched_k8s.names import INSTANCE_TYPE, MACHINE_TYPE
from flowsched_models.catalogue import Catalogue
from flowsched_models.given_run_time import GIVEN_RUN_TIME, fixed_profile
from flowsched_models.machine import MachineType
from flowsched_models.neutral import NEUTRAL, NEUTRAL_WORK_S, with_neutral_job
from flowsched_models.profile import JobProfile

MOST_CPUS = 512
"""A plain machine is modelled with at most so many virtual CPUs."""
_SIZES = (*range(1, 17), 24, 32, 48, 64, 96, 128, 256, MOST_CPUS)
"""Numbers of cores for which there is a profile of pods whose run time is known; a pod has that of the next larger one."""
DAY_SCALE = 86_400.0 / NEUTRAL_WORK_S
"""Scale of a pod without a profile that runs until it is deleted: a day."""


def with_neutral(catalogue: Catalogue) -> Catalogue:
    """The catalogue with the neutral profile, those of pods without one whose run time is known, and plain machines of
    every size, unless it brings its own.
    """
    known = with_neutral_job(catalogue)
    jobs = {**known.jobs, **_given_run_times(known), **known.jobs}
    return replace(known, jobs=jobs, machine_types={**_PLAIN, **known.machine_types})


def without_plain(catalogue: Catalogue) -> Catalogue:
    """The catalogue without the machines and the profiles that :func:`with_neutral` adds again."""
    types = {name: kind for name, kind in catalogue.machine_types.items() if _PLAIN.get(name) != kind}
    known = replace(catalogue, machine_types=types)
    added = _given_run_times(known) if NEUTRAL in catalogue.jobs else {}
    return replace(known, jobs={name: job for name, job in catalogue.jobs.items() if added.get(name) != job})


def given_run_time(request_milli: int) -> str:
    """Name of the profile of a pod without one that asks for so much CPU and whose run time is known: at scale 1 a second,
    wherever it runs.

    Its run time alone is known, so what runs beside it does not change it. What it does to others is what the neutral
    profile does on as many cores: a job with a given run time keeps one core busy in the model, so all of that is in its
    pressure, which services and measured neighbours feel.
    """
    return _given_name(_SIZES[bisect_left(_SIZES, min(request_milli, MOST_CPUS * MILLI) / MILLI)])


def _given_run_times(catalogue: Catalogue) -> dict[str, JobProfile]:
    """By name the profiles of pods without one whose run time is known, for numbers of cores. Plain machines, which are not
    in the catalogue yet, are as fast as the reference type.
    """
    neutral, one = catalogue.jobs[NEUTRAL], fixed_profile(catalogue, NEUTRAL)
    alike = replace(one, sensitivity=0.0, smt_gain=1.0, memory_mib=0, error=neutral.error)
    return {
        name: replace(alike, name=name, pressure=neutral.pressure * size)
        for size, name in zip(_SIZES, map(_given_name, _SIZES), strict=True)
    }


def _given_name(cores: int) -> str:
    return f"{NEUTRAL}-{cores}{GIVEN_RUN_TIME}"


def machine_type(catalogue: Catalogue, labels: Mapping[str, str], vcpus: int) -> MachineType:
    """The type that a node's labels name, if it is known and has as many CPUs; else a plain one of its size."""
    for key in (MACHINE_TYPE, INSTANCE_TYPE):
        known = catalogue.machine_types.get(labels.get(key, ""))
        if known is not None and known.vcpus == vcpus:
            return known
    return catalogue.machine_types[_plain_name(min(max(vcpus, 1), MOST_CPUS))]


def _plain_name(vcpus: int) -> str:
    return f"plain-{vcpus}"


_PLAIN = {_plain_name(n): MachineType(_plain_name(n), n, 0) for n in range(1, MOST_CPUS + 1)}
