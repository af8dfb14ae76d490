"""Latency services: what one wishes, and the measured curve that suits it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flowsched.cluster.snapshot import MILLI
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
