"""What holds whatever the controller says: a service that does not answer, the least number of cores, cores that exist."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from flowsched.node import LOWEST_WEIGHT, Allocation, NodeService, ServiceGrant, TaskGrant
from flowsched.node.allocation import DEFAULT_WEIGHT

SILENT = "the service does not answer"
ALONE = "it cannot be given a low weight, and shares no core with a service"


@dataclass(frozen=True)
class Guarded:
    """A service that is to be protected; ``service.fewest`` cores are always its own."""

    service: NodeService
    silent: bool = False
    there: bool = True
    """The cores of a service that is gone are free for all."""


def guarded(
    wanted: Allocation,
    services: Collection[Guarded],
    tasks: Iterable[str],
    cores: Iterable[int],
    unweighed: Collection[str] = (),
) -> Allocation:
    """The allocation that is carried out. ``unweighed``: tasks that cannot be given a low weight.

    A silent service gets all its cores, and batch has at most the lowest weight: it takes what the service leaves, and is
    not stopped for a service that may be gone for good. Every task is weighed down then, as none is known to be harmless.
    Who cannot be weighed down keeps the cores that the controller found for it beside a service of the highest load.
    """
    allowed = tuple(cores)
    alone = {
        core
        for name in unweighed
        if (grant := wanted.tasks.get(name)) is not None and grant.run
        for core in grant.cores
    }
    grants = dict(wanted.services)
    silent = False
    for one in services:
        service, decided = one.service, grants.get(one.service.name)
        if one.silent:
            silent = True
            left = alone - set(() if decided is None else decided.cores) if one.there else set()
            decided = ServiceGrant(tuple(core for core in service.cores if core not in left), SILENT)
        if decided is not None:
            grants[service.name] = replace(decided, cores=_at_least(decided.cores, service.cores, service.fewest))
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
        if name in unweighed:
            granted[name] = _apart(granted[name], grants, services, allowed)
    return Allocation(grants, granted)


def _apart(
    task: TaskGrant, grants: Mapping[str, ServiceGrant], services: Iterable[Guarded], allowed: tuple[int, ...]
) -> TaskGrant:
    """Off the cores of services, whatever put it there."""
    task = replace(task, weight=max(task.weight, DEFAULT_WEIGHT))
    if not task.run:
        return task
    there = [one.service for one in services if one.there]
    taken = {core for s in there for core in grants.get(s.name, ServiceGrant(s.cores)).cores}
    own = tuple(core for core in task.cores or allowed if core not in taken)
    if own == (task.cores or allowed):
        return task
    return replace(task, run=bool(own), cores=own, reason=ALONE)


def _at_least(cores: tuple[int, ...], order: tuple[int, ...], least: int) -> tuple[int, ...]:
    more = [core for core in order if core not in cores][: max(0, least - len(cores))]
    return (*cores, *more)
