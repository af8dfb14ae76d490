"""Tasks that cannot be given a low weight: they share no core with a service.

The controller lets batch run beside a service at the lowest weight, which costs the service next to nothing, and so gives
services more cores than they need. Where that weight cannot be had, services get the fewest cores on which their goal is
kept with some room, tasks the others; a task without a core is paused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from flowsched.node import Allocation, Node, NodeService, Reading, ServiceGrant, TaskGrant
from flowsched.node.load import LoadTracker
from flowsched.node.settings import NodeSettings
from flowsched.node.slo import SloPrice

ALONE = "it cannot be given a low weight, so it shares no core with a service"
MADE_ROOM = "the fewest cores for its load: batch without a low weight shares none"
ROOM = 0.8
"""Share of the goal that predicted p95 may take up on the fewest cores."""


@dataclass(frozen=True)
class Present:
    """A service that is to be protected."""

    service: NodeService
    least: int
    """Cores that it never has fewer of."""


class Apart:
    """Knows the loads, for that alone."""

    def __init__(self, node: Node) -> None:
        """Nothing is known yet."""
        self._node = node
        self._settings = NodeSettings()
        self._loads: dict[str, LoadTracker] = {}

    def read(self, reading: Reading) -> None:
        """Take note of a reading."""
        for seen in reading.services:
            name = seen.service.name
            if name not in self._loads:
                self._loads[name] = LoadTracker(self._settings.calm_s, self._settings.load_margin)
            self._loads[name].read(reading.t_s, seen.queries)

    def keep(
        self, wanted: Allocation, services: Sequence[Present], unweighed: Collection[str], cores: Iterable[int]
    ) -> tuple[Allocation, frozenset[str]]:
        """The allocation without shared cores, and the tasks that were moved or paused for it.

        ``unweighed``: names of the tasks; ``cores``: all that may be used. Tasks of full weight are meant to share.
        """
        allowed = tuple(cores)
        asking = {
            name: task
            for name in unweighed
            if (task := wanted.tasks.get(name)) is not None and task.run and task.weight < 1.0
        }
        wanted_grants = {one.service.name: _grant(wanted, one.service) for one in services}
        grants = wanted_grants
        if any(_shares(task, grants.values(), allowed) == "all" for task in asking.values()):
            grants = {one.service.name: self._fewest(grants[one.service.name], one) for one in services}
        taken = {core for grant in grants.values() for core in grant.cores}
        left = {core for grant in wanted_grants.values() for core in grant.cores} - taken
        tasks = dict(wanted.tasks)
        changed = set()
        for name, task in asking.items():
            if _shares(task, wanted_grants.values(), allowed) != "none":
                own = tuple(core for core in task.cores or allowed if core not in taken)
                free = own or tuple(core for core in allowed if core in left)
                tasks[name] = replace(task, run=bool(free), cores=free, reason=ALONE)
                changed.add(name)
        services_of = grants if grants != wanted_grants else {}
        return Allocation({**wanted.services, **services_of}, tasks), frozenset(changed)

    def _fewest(self, grant: ServiceGrant, one: Present) -> ServiceGrant:
        """The first of the cores that are enough by its profile; all of them where the load is not known."""
        tracker = self._loads.get(one.service.name)
        if tracker is None or not tracker.known:
            return grant
        price = SloPrice(self._node.catalogue, self._node.machine_type, one.service, self._settings)
        for count in range(max(1, one.least), len(grant.cores)):
            enough = tracker.qps <= price.highest_qps(count)
            if enough and price.predicted_p95_us(count, tracker.qps, 0.0) <= ROOM * one.service.slo_us:
                return ServiceGrant(grant.cores[:count], MADE_ROOM)
        return grant


def _grant(wanted: Allocation, service: NodeService) -> ServiceGrant:
    return wanted.services.get(service.name, ServiceGrant(service.cores))


def _shares(task: TaskGrant, services: Iterable[ServiceGrant], allowed: tuple[int, ...]) -> str:
    """How many of a task's cores are a service's: ``none``, ``some`` or ``all``."""
    taken = {core for grant in services for core in grant.cores}
    own = set(task.cores or allowed)
    return "none" if not taken & own else "all" if own <= taken else "some"
