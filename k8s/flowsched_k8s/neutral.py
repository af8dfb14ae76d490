"""What is assumed of pods and nodes that nobody measured: the middle of those that were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import median

from flowsched_k8s.names import INSTANCE_TYPE, MACHINE_TYPE
from flowsched_models.catalogue import Catalogue
from flowsched_models.machine import MachineType
from flowsched_models.profile import JobProfile, PhaseOrder

NEUTRAL = "neutral"
"""Profile of a pod that names none."""
NEUTRAL_WORK_S = 60.0
"""Assumed work on one thread; an endless pod's is that of a day."""
MOST_CPUS = 512
"""A plain machine is modelled with at most so many virtual CPUs."""
DAY_SCALE = 86_400.0 / NEUTRAL_WORK_S


def neutral_profile(catalogue: Catalogue) -> JobProfile:
    """The median of the catalogue's jobs, number by number."""
    jobs = catalogue.jobs.values()

    def middle(values: Iterable[float], otherwise: float) -> float:
        found = list(values)
        return float(median(found)) if found else otherwise

    return JobProfile(
        name=NEUTRAL,
        work_s=NEUTRAL_WORK_S,
        serial_fraction=middle((j.serial_fraction for j in jobs), 0.1),
        phase_order=PhaseOrder.MIXED,
        smt_gain=middle((j.smt_gain for j in jobs), 0.3),
        sensitivity=middle((j.sensitivity for j in jobs), 0.9),
        pressure=middle((j.pressure for j in jobs), 0.025),
        memory_mib=0,
    )


def with_neutral(catalogue: Catalogue) -> Catalogue:
    """The catalogue with the neutral profile, unless it brings one of its own."""
    jobs = catalogue.jobs if NEUTRAL in catalogue.jobs else {**catalogue.jobs, NEUTRAL: neutral_profile(catalogue)}
    return replace(catalogue, jobs=jobs, machine_types={**_PLAIN, **catalogue.machine_types})


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
