"""What holds whatever the controller says: a service that does not answer, the least number of cores, cores that exist, and
that what is overdue runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from flowsched.node import LOWEST_WEIGHT, Allocation, NodeService, ServiceGrant, TaskGrant, reasons
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


@dataclass(frozen=True)
class Overdue:
    """A task that has waited or been paused for so long that it runs, on one core, whatever was decided."""

    name: str
    allowed: tuple[int, ...] = ()
    """Cores that it may be on; empty: any."""
    due_s: float = 0.0
    """Seconds that it has waited at least."""
    pinned: bool = True
    """Whether it can be given cores at all."""


def guarded(
    wanted: Allocation,
    services: Collection[Guarded],
    tasks: Iterable[str],
    cores: Iterable[int],
    unweighed: Collection[str] = (),
    overdue: Iterable[Overdue] = (),
) -> Allocation:
    """The allocation that is carried out. ``unweighed``: tasks that cannot be given a low weight.

    What is ``overdue`` runs: on the core that services can best do without, at the lowest weight. If it cannot have that
    weight, the services leave it the core, unless one of them would have fewer than its ``fewest`` then.

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
    for late in overdue:
        before = granted.get(late.name)
        if before is None or not before.run:
            _let_run(late, late.name in unweighed, grants, granted, [s for s in services if s.there], allowed)
    return Allocation(grants, granted)


def _let_run(
    task: Overdue,
    alone: bool,
    grants: dict[str, ServiceGrant],
    granted: dict[str, TaskGrant],
    services: Collection[Guarded],
    allowed: tuple[int, ...],
) -> None:
    """Give an overdue task a core; ``alone``: one that the services leave to it."""

    def users(core: int) -> list[NodeService]:
        found = (one.service for one in services)
        return [s for s in found if core in grants.get(s.name, ServiceGrant(s.cores)).cores]

    def spare(service: NodeService) -> bool:
        return len(grants.get(service.name, ServiceGrant(service.cores)).cores) > service.fewest

    def loss(core: int) -> tuple[int, bool, int]:
        """Fewer is better: services on the core, whether it is the first of one, and the last cores first."""
        using = users(core)
        return len(using), any(core in s.cores[: s.fewest] for s in using), -allowed.index(core)

    within = [core for core in allowed if core in task.allowed] or [*allowed]
    if alone:
        within = [core for core in within if all(map(spare, users(core)))]
    if not within:
        return
    core = min(within, key=loss)
    if alone:
        for service in users(core):
            held = grants.get(service.name, ServiceGrant(service.cores))
            grants[service.name] = replace(held, cores=tuple(c for c in held.cores if c != core))
    weight = DEFAULT_WEIGHT if alone else LOWEST_WEIGHT
    granted[task.name] = TaskGrant(True, (core,) if task.pinned else (), weight, reason=reasons.due(task.due_s))


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
