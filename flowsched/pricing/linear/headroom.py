"""What jobs and latency services do to their neighbours, and what a service's p95 goal leaves for its own: one sum each.

Wherever thousands of tasks are priced at once, behaviour is two numbers per task, which add up on a machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from flowsched_models.machine import MachineType
from flowsched_models.profile import JobProfile
from flowsched_models.service import LatencyCurve, ServiceProfile


@dataclass(frozen=True)
class Headroom:
    """What is left of a p95 goal."""

    pressure_cap: float
    """Pressure of neighbours that brings p95 to the goal; negative where it is broken already."""
    slope: float
    """Price of one unit of pressure."""


def job_behaviour(profile: JobProfile, cores: float) -> tuple[float, float]:
    """(sensitivity, pressure) of a job that is granted so many cores: below one core it is there for part of the time."""
    return profile.sensitivity * min(1.0, cores), profile.pressure * cores


def service_pressure(profile: ServiceProfile, cores: float, qps: float) -> float:
    """Pressure that a service causes at a load."""
    return profile.pressure * min(cores, profile.cpu_per_kqps * qps / 1000.0)


def headroom(
    profile: ServiceProfile,
    curve: LatencyCurve,
    machine: MachineType,
    *,
    qps: float,
    client: str,
    slo_us: float,
    weight: float,
    margin: float,
) -> Headroom:
    """How much pressure a service's neighbours may cause on a machine, and its price.

    p95 is linear in pressure, so the cap is exact; the slope is that of ``weight u/(1-u)``, u = p95/goal, at no pressure.
    """
    alone = profile.p95_us(curve, qps, client, machine_type=machine.name)
    growth = profile.sensitivity * machine.bandwidth
    if growth <= 0.0:
        return Headroom(math.inf if alone <= margin * slo_us else -math.inf, 0.0)
    cap = (margin * slo_us / alone - 1.0) / growth
    used = min(0.99, alone / slo_us)
    return Headroom(cap, weight * growth * used / (1.0 - used) ** 2)
