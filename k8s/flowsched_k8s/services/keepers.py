"""Latency services that keep pods off their nodes, and how far they yield to pods that have a claim against them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.cluster.machine_rows import MachineRows
from flowsched.cluster.snapshot import MILLI, Service, Snapshot
from flowsched.support.arrays import BoolArray, IntArray
from flowsched_k8s.rounds.round_input import Keeper

Keepers = Mapping[str, tuple[Keeper, ...]]
"""By node, those that are there."""
_NO_GOAL_US = 1e15
"""Beyond every p95."""


@dataclass(frozen=True)
class PrecedenceClaim:
    """What a waiting pod has before services."""

    priority: int
    overdue: bool
    """Whether it has waited longer than the due age."""

    def moves(self, keeper: Keeper) -> bool:
        """Whether a service yields: all that it keeps off, or what it has not paid for."""
        return self.outranks(keeper.priority)

    def outranks(self, priority: int) -> bool:
        """The same of any service with this priority."""
        return self.overdue or priority < self.priority

    def paid_milli(self, priority: int, request_milli: int, per_core: float) -> float:
        """How much CPU of its node a service that yields holds on to, its request included."""
        return request_milli * (max(1.0, per_core) if priority >= self.priority else 1.0)

    def leaves(self, cores: int, priority: int, request_milli: int, per_core: float) -> bool:
        """Whether a service has to leave its own cores to pods with the claim: it has more of them than it pays for."""
        return self.outranks(priority) and cores * MILLI > self.paid_milli(priority, request_milli, per_core)


@dataclass(frozen=True, eq=False)
class KeptRows:
    """Services by machine row."""

    count: IntArray
    """How many keep pods off."""
    least_priority: IntArray
    """The least priority among them."""
    _keepers: Keepers
    _names: Sequence[str | None]

    @classmethod
    def of(cls, keepers: Keepers, machines: MachineRows) -> KeptRows:
        """Where they are."""
        count, least = np.zeros(machines.rows, np.int64), np.full(machines.rows, np.iinfo(np.int64).max)
        for name, here in keepers.items():
            if (row := machines.row(name)) is not None:
                count[row], least[row] = len(here), min(k.priority for k in here)
        return cls(count, least, keepers, machines.names)

    def yielding(self, claim: PrecedenceClaim) -> BoolArray:
        """[rows] whether a service is there that yields."""
        found: BoolArray = (self.count > 0) & (claim.overdue | (self.least_priority < claim.priority))
        return found

    def named(self, rows: BoolArray) -> str:
        """The services on some rows, in words: the first by the names of nodes, and how many more. There has to be one."""
        mine = rows & (self.count > 0)
        name = self._names[int(np.flatnonzero(mine)[0])] or ""
        more = int(self.count[mine].sum()) - 1
        return f"service {self._keepers[name][0].title} on {name}" + (f" and {more} more" if more else "")


def yielded_bookings(keepers: Keepers, booked: BookedTasks, claim: PrecedenceClaim, per_core: float) -> BookedTasks:
    """A copy of what is booked, as pods with a claim find it: without goals that yield, and without the CPU that is kept."""
    found, machines = booked.copy(), booked.machines
    column = machines.column("cpu")
    free = machines.free
    for name, here in keepers.items():
        row = machines.row(name)
        if row is None or not any(map(claim.moves, here)):
            continue
        cap = min((k.pressure_cap for k in here if not claim.moves(k)), default=math.inf)
        found.machines.set_service(name, cap, machines.service(name)[1])
        beyond = sum(
            claim.paid_milli(k.priority, k.request_milli, per_core) - k.request_milli for k in here if claim.moves(k)
        )
        kept = 0 if column < 0 else min(math.ceil(beyond), max(0, int(free[row, column])))
        if kept:
            found.book(f"kept:{name}", name, {"cpu": kept})
    return found


def yielded_cluster(keepers: Keepers, cluster: Snapshot, claim: PrecedenceClaim, per_core: float) -> Snapshot:
    """The nodes as pods with a claim find them. A service with more cores of its own than it pays for is like any pod."""
    by_uid = {k.uid: k for here in keepers.values() for k in here}

    def seen(service: Service) -> Service | None:
        keeper = by_uid.get(service.name)
        if keeper is None or not claim.moves(keeper):
            return service
        if claim.leaves(len(service.cores), keeper.priority, keeper.request_milli, per_core):
            return None
        return replace(service, slo_us=_NO_GOAL_US)

    return replace(cluster, services=tuple([s for service in cluster.services if (s := seen(service)) is not None]))
