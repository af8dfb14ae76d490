"""What is assumed of pods and nodes that were not measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from flowsched_k8s.names import INSTANCE_TYPE, MACHINE_TYPE
from flowsched_models.catalogue import Catalogue
from flowsched_models.machine import MachineType
from flowsched_models.neutral import NEUTRAL_WORK_S, with_neutral_job

MOST_CPUS = 512
"""A plain machine is modelled with at most so many virtual CPUs."""
DAY_SCALE = 86_400.0 / NEUTRAL_WORK_S
"""Scale of a pod without a profile that runs until it is deleted: a day."""


def with_neutral(catalogue: Catalogue) -> Catalogue:
    """The catalogue with the neutral profile and plain machines of every size, unless it brings its own."""
    known = with_neutral_job(catalogue)
    return replace(known, machine_types={**_PLAIN, **known.machine_types})


def without_plain(catalogue: Catalogue) -> Catalogue:
    """The catalogue without the machines that :func:`with_neutral` adds again."""
    types = {name: kind for name, kind in catalogue.machine_types.items() if _PLAIN.get(name) != kind}
    return replace(catalogue, machine_types=types)


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
