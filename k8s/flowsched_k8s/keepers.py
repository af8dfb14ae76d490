"""Latency services that keep pods off their nodes, and how far they yield to pods that have a claim against them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from flowsched.cluster.fleet import Fleet
from flowsched.cluster.snapshot import MILLI, Service
from flowsched.support.arrays import BoolArray
from flowsched_k8s.round_input import Keeper, NodeView, World

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


def kept_rows(keepers: Keepers, fleet: Fleet) -> BoolArray:
    """[rows] whether a service is there that keeps pods off."""
    found = np.zeros(fleet.rows, np.bool_)
    found[[row for name in keepers if (row := fleet.row(name)) is not None]] = True
    return found


def yielding_rows(keepers: Keepers, fleet: Fleet, claim: PrecedenceClaim) -> BoolArray:
    """[rows] whether a service is there that yields."""
    return kept_rows({name: here for name, here in keepers.items() if any(map(claim.moves, here))}, fleet)


def yielded_fleet(keepers: Keepers, fleet: Fleet, claim: PrecedenceClaim, per_core: float) -> Fleet:
    """A copy of the fleet as pods with a claim find it: without the goals that yield, and without the CPU that is kept."""
    found = fleet.copy()
    column = fleet.column("cpu")
    free = fleet.free()
    for name, here in keepers.items():
        row = fleet.row(name)
        if row is None or not any(map(claim.moves, here)):
            continue
        cap = min((k.pressure_cap for k in here if not claim.moves(k)), default=math.inf)
        found.set_service(name, cap, float(fleet.headroom_slope[row]))
        beyond = sum(
            claim.paid_milli(k.priority, k.request_milli, per_core) - k.request_milli for k in here if claim.moves(k)
        )
        kept = 0 if column < 0 else min(math.ceil(beyond), max(0, int(free[row, column])))
        if kept:
            found.book(f"kept:{name}", name, {"cpu": kept})
    return found


def yielded_world(keepers: Keepers, world: World, claim: PrecedenceClaim, per_core: float) -> World:
    """The world as pods with a claim find it. A service that has more cores of its own than it pays for is like any pod."""

    def seen(service: Service, by_uid: Mapping[str, Keeper]) -> Service | None:
        keeper = by_uid.get(service.name)
        if keeper is None or not claim.moves(keeper):
            return service
        if claim.leaves(len(service.cores), keeper.priority, keeper.request_milli, per_core):
            return None
        return replace(service, slo_us=_NO_GOAL_US)

    nodes = []
    for n in world.nodes:
        here = {k.uid: k for k in keepers.get(n.name, ())}
        if any(map(claim.moves, here.values())):
            services = tuple(s for service in n.services if (s := seen(service, here)) is not None)
            n = NodeView.of(n.name, n.type, n.vcpus, services, n.running)
        nodes.append(n)
    return World(world.rows, tuple(nodes), world.needs, world.plan, world.reservations)


def named(keepers: Keepers, fleet: Fleet, rows: BoolArray) -> str:
    """The services on some rows, in words: one of them, and how many more."""
    first, count = "", 0
    for row in np.flatnonzero(rows).tolist():
        name = fleet.names[row] or ""
        here = keepers.get(name, ())
        first = first or (f"{here[0].title} on {name}" if here else "")
        count += len(here)
    return f"service {first}" + (f" and {count - 1} more" if count > 1 else "") if first else ""
