"""What holds whatever the controller says: a service that does not answer, the least number of cores, cores that exist."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from flowsched.node import LOWEST_WEIGHT, Allocation, NodeService, ServiceGrant, TaskGrant

SILENT = "the service does not answer"


def guarded(
    wanted: Allocation, services: Iterable[tuple[NodeService, int, bool]], tasks: Iterable[str], cores: Iterable[int]
) -> Allocation:
    """The allocation that is carried out. ``services``: each with its least number of cores and whether it is silent.

    A silent service gets all its cores, and batch has at most the lowest weight: it takes what the service leaves, and is
    not stopped for a service that may be gone for good. Every task is weighed down then, as none is known to be harmless.
    """
    allowed = set(cores)
    grants = dict(wanted.services)
    silent = False
    for service, least, is_silent in services:
        grant = grants.get(service.name)
        if is_silent:
            silent = True
            grants[service.name] = ServiceGrant(service.cores, SILENT)
        elif grant is not None:
            grants[service.name] = replace(grant, cores=_at_least(grant.cores, service.cores, least))
    granted = {}
    for name in tasks:
        task = wanted.tasks.get(name)
        if task is None:
            if silent:
                granted[name] = TaskGrant(False, reason=SILENT)
            continue
        usable = tuple(core for core in task.cores if core in allowed)
        weight = min(task.weight, LOWEST_WEIGHT) if silent else task.weight
        # None of its cores exist here: it cannot run as it was meant to.
        run = task.run and (bool(usable) or not task.cores)
        granted[name] = replace(task, run=run, cores=usable, weight=weight)
    return Allocation(grants, granted)


def _at_least(cores: tuple[int, ...], order: tuple[int, ...], least: int) -> tuple[int, ...]:
    more = [core for core in order if core not in cores][: max(0, least - len(cores))]
    return (*cores, *more)
