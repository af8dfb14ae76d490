"""Latency services: what one wishes, and the measured curve that suits it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flowsched.cluster.snapshot import MILLI
from flowsched_models.machine import MachineType
from flowsched_models.service import LatencyCurve, ServiceProfile


@dataclass(frozen=True)
class ServiceWish:
    """A latency service that a pod is."""

    profile: str
    slo_us: float
    qps: float
    """The load that its goal was stated for, or the one that is measured now."""
    client: str
    width_milli: int

    @property
    def core_count(self) -> int:
        """Cores of its own."""
        return max(1, math.ceil(self.width_milli / MILLI))


def choose_curve(profile: ServiceProfile, wish: ServiceWish, threads: tuple[int, ...] = ()) -> LatencyCurve | None:
    """The measured curve for the service's cores with the lowest p95 at its load; None if none was measured."""
    able = [c for c in profile.curves if c.cores == wish.core_count and (not threads or c.threads in threads)]
    return min(able, key=lambda c: (profile.p95_us(c, wish.qps, wish.client), c.threads), default=None)


@dataclass(frozen=True)
class GoalReach:
    """Which p95 a service could have alone, on the machine types that there are, at its load. Microseconds."""

    goal_us: float
    qps: float
    cores: int
    """That it asks for."""
    own_us: float | None
    """The lowest with these; None if it was not measured with so many, or no machine has them."""
    enough_cores: int | None
    """The least measured cores that meet the goal; None if none do."""
    lowest_us: float | None
    """The lowest with any measured cores,"""
    lowest_cores: int | None
    """and with how many."""


def goal_reach(
    profile: ServiceProfile,
    wish: ServiceWish,
    machines: Iterable[MachineType],
    threads: Sequence[int] = (),
    margin: float = 1.0,
) -> GoalReach:
    """What a service's goal asks and what could be had; ``margin``: the share of its goal that its p95 may be brought to."""
    best: dict[int, float] = {}
    for machine in machines:
        for curve in profile.curves:
            if curve.cores <= machine.vcpus and (not threads or curve.threads in threads):
                found = profile.p95_us(curve, wish.qps, wish.client, machine_type=machine.name)
                best[curve.cores] = min(found, best.get(curve.cores, math.inf))
    lowest = min(((p95_us, cores) for cores, p95_us in best.items()), default=(None, None))
    return GoalReach(
        wish.slo_us,
        wish.qps,
        wish.core_count,
        best.get(wish.core_count),
        min((cores for cores, p95_us in best.items() if p95_us <= margin * wish.slo_us), default=None),
        *lowest,
    )
