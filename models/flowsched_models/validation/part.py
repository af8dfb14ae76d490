"""Parts of the run-time model that can be taken out, to see what each of them brings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from enum import StrEnum

from flowsched_models.catalogue import Catalogue
from flowsched_models.machine import MachineType
from flowsched_models.profile import JobProfile, PhaseOrder
from flowsched_models.service import ServiceProfile


class Part(StrEnum):
    """A part of the model. Without ``SHARING`` each job and each service is played alone on its machine."""

    MACHINE_FACTORS = "machine-factors"
    """All machines as fast as the reference type, for jobs and for services."""
    INTERFERENCE = "interference"
    """No job feels a neighbour's cache and memory pressure."""
    SMT = "smt"
    """Every virtual CPU is a core of its own."""
    PHASES = "phases"
    """Serial work is spread over the whole run of every job."""
    SHARING = "sharing"


def without(catalogue: Catalogue, parts: Collection[Part]) -> Catalogue:
    """The catalogue without some parts. ``SHARING`` is no property of profiles: who plays the runs sees to it."""
    return replace(
        catalogue,
        jobs={name: _job(job, parts) for name, job in catalogue.jobs.items()},
        services={name: _service(service, parts) for name, service in catalogue.services.items()},
        machine_types={name: _machine(kind, parts) for name, kind in catalogue.machine_types.items()},
    )


def _job(job: JobProfile, parts: Collection[Part]) -> JobProfile:
    if Part.MACHINE_FACTORS in parts:
        job = replace(job, speed={})
    if Part.INTERFERENCE in parts:
        job = replace(job, sensitivity=0.0)
    if Part.PHASES in parts:
        job = replace(job, phase_order=PhaseOrder.MIXED)
    return job


def _service(service: ServiceProfile, parts: Collection[Part]) -> ServiceProfile:
    if Part.MACHINE_FACTORS in parts:
        curves = tuple(replace(c, elsewhere=()) for c in service.curves)
        service = replace(service, curves=curves, latency_factor={}, capacity_factor={})
    if Part.INTERFERENCE in parts:
        service = replace(service, sensitivity=0.0)
    return service


def _machine(kind: MachineType, parts: Collection[Part]) -> MachineType:
    if Part.MACHINE_FACTORS in parts:
        kind = replace(kind, speed=1.0)
    if Part.SMT in parts:
        kind = replace(kind, smt=False)
    return kind
