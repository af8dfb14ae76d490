"""Latency services: where one keeps its p95 goal, and what it leaves for its neighbours."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flowsched.snapshot import MILLI
from flowsched_models.catalogue import Catalogue
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


@dataclass(frozen=True)
class Headroom:
    """What is left of a p95 goal."""

    pressure_cap: float
    """Pressure of neighbours that brings p95 to the goal; negative where it is broken already."""
    slope: float
    """Price of one unit of pressure."""


def choose_curve(profile: ServiceProfile, wish: ServiceWish, threads: tuple[int, ...] = ()) -> LatencyCurve | None:
    """The measured curve for the service's cores with the lowest p95 at its load; None if none was measured."""
    able = [c for c in profile.curves if c.cores == wish.core_count and (not threads or c.threads in threads)]
    return min(able, key=lambda c: (profile.p95_us(c, wish.qps, wish.client), c.threads), default=None)


def headroom(
    catalogue: Catalogue, wish: ServiceWish, curve: LatencyCurve, machine: MachineType, weight: float, margin: float
) -> Headroom:
    """How much pressure the service's neighbours may cause on a machine, and its price.

    p95 is linear in pressure, so the cap is exact; the slope is that of ``weight u/(1-u)``, u = p95/goal, at no pressure.
    """
    profile = catalogue.services[wish.profile]
    alone = profile.p95_us(curve, wish.qps, wish.client, machine_type=machine.name)
    growth = profile.sensitivity * machine.bandwidth
    if growth <= 0.0:
        return Headroom(math.inf if alone <= margin * wish.slo_us else -math.inf, 0.0)
    cap = (margin * wish.slo_us / alone - 1.0) / growth
    used = min(0.99, alone / wish.slo_us)
    return Headroom(cap, weight * growth * used / (1.0 - used) ** 2)
