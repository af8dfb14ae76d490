"""One machine of a measured run, as the run-time model takes it: who started when, on which cores, at which weight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flowsched_models.catalogue import Catalogue
from flowsched_models.lookahead import Entry
from flowsched_models.measurements.measurements import MeasuredExecution, Placed, Run
from flowsched_models.runtime import ServiceLoad

UNKNOWN_REQUEST = 1.0
"""Cores that a container without a known request counts with as a weight, as its neighbours' requests are of that order."""


@dataclass(frozen=True)
class MachineRun:
    """Jobs and services on one machine during a run. Seconds count from the first start on this machine."""

    node: str
    machine_type: str
    executions: tuple[MeasuredExecution, ...]
    entries: tuple[Entry, ...]
    """The same jobs, each at its measured start."""
    services: tuple[ServiceLoad, ...]
    first_start_s: float
    """Of this machine, on the clock of the run."""


def machine_runs(run: Run, catalogue: Catalogue, client: str | None = None) -> Iterator[MachineRun]:
    """The machines of a run that executed jobs, by name.

    ``client`` is the load client of its services; the first one of each service's profile by default. Jobs, services and
    machine types must be in the catalogue.
    """
    for node in sorted({e.node for e in run.executions}):
        executions = tuple(e for e in run.executions if e.node == node)
        first = min(e.start_s for e in executions)
        vcpus = catalogue.machine_types[executions[0].machine_type].vcpus
        yield MachineRun(
            node,
            executions[0].machine_type,
            executions,
            tuple(_entry(e, vcpus, first) for e in executions),
            tuple(_load(s, vcpus, catalogue, client) for s in run.services if s.node == node),
            first,
        )


def _entry(e: MeasuredExecution, vcpus: int, first_s: float) -> Entry:
    return Entry(
        e.job,
        1.0,
        e.threads,
        e.cores or tuple(range(vcpus)),
        e.request or UNKNOWN_REQUEST,
        ready_s=e.start_s - first_s,
        limit=e.limit,
    )


def _load(s: Placed, vcpus: int, catalogue: Catalogue, client: str | None) -> ServiceLoad:
    cores: Sequence[int] = s.cores or range(vcpus)
    clients = catalogue.services[s.profile].clients
    return ServiceLoad(
        s.profile,
        tuple(cores),
        s.threads,
        s.request or UNKNOWN_REQUEST,
        s.qps or 0.0,
        next(iter(clients)) if client is None else client,
    )
