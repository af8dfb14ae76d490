"""What a latency goal costs: the chance to break it, and the headroom that is left."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flowsched.node.node import NodeService
from flowsched.node.settings import NodeSettings
from flowsched_models.catalogue import Catalogue
from flowsched_models.latency import WINDOW_S, p95_us


@dataclass(frozen=True)
class SloPrice:
    """Prices the cores of one service, in seconds of batch work per second."""

    catalogue: Catalogue
    machine_type: str
    service: NodeService
    settings: NodeSettings

    def predicted_p95_us(self, cores: int, qps: float, background: float, pressure: float = 0.0) -> float:
        """Mean p95 on so many cores, tasks of the lowest weight on the share ``background`` of them."""
        profile = self.catalogue.services[self.service.profile]
        curve = profile.curve_or_estimate(self.service.threads, cores)
        bandwidth = self.catalogue.machine_types[self.machine_type].bandwidth
        row = list(profile.latency_row(curve, qps, self.service.client, bandwidth, self.machine_type))
        row[WINDOW_S] = self.settings.period_s
        factor = profile.background_factor(curve, qps, background, self.machine_type)
        return p95_us(row, pressure, 0.0) * factor

    def highest_qps(self, cores: int) -> float:
        """The highest measured load that met the goal on so many cores: beyond it the service counts as overloaded."""
        profile = self.catalogue.services[self.service.profile]
        return profile.highest_measured_load(profile.curve_or_estimate(self.service.threads, cores), self.machine_type)

    def chance(self, p95: float) -> float:
        """Chance that a window's p95 breaks the goal when ``p95`` is predicted, by the noise as it was measured."""
        noise = self.catalogue.services[self.service.profile].noise(self.settings.window_s)
        return noise.share_above(self.service.slo_us / p95)

    def cost(self, cores: int, qps: float, background: float, pressure: float = 0.0) -> float:
        """Seconds of batch work per second."""
        p95 = self.predicted_p95_us(cores, qps, background, pressure)
        # Beyond the goal it still matters how far: an overloaded service is not to be burdened for nothing.
        beyond = max(0.0, qps / self.highest_qps(cores) - 1.0) + max(0.0, math.log(p95 / self.service.slo_us))
        return (
            self.settings.violation_price * (self.chance(p95) + beyond)
            + self.settings.headroom_price * (p95 / self.service.slo_us) ** 4
        )
