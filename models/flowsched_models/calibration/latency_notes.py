"""The single numbers of a latency service, noted with their intervals; and what stands in where nothing was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flowsched_models.calibration.latency_curves import CurveFit
from flowsched_models.calibration.latency_factors import (
    CACHE,
    AggressorFactors,
    Estimate,
    InterferenceSweep,
    Key,
    SharingFactors,
    cpu_per_kqps,
    over_groups,
)
from flowsched_models.measurements.measurements import REFERENCE, LatencyPoint
from flowsched_models.service import LatencyCurve

DEFAULT_ERROR = 0.15
DEFAULT_CAPACITY_ERROR = 0.1
DEFAULT_SENSITIVITY = 0.3
DEFAULT_SHARING_US = 6000.0
DEFAULT_SHARING_CAPACITY = 0.95
DEFAULT_PRESSURE = 0.03
"""Stated in the result wherever they stand in for a measurement: what memcached showed in the published sweeps; the
pressure is that of the jobs' middle."""


@dataclass(frozen=True)
class Parameter:
    """One fitted number with its 95 % interval."""

    name: str
    value: float
    low: float
    high: float
    identified: bool
    source: str
    """What it was fitted to, or that it is a default."""


@dataclass
class Notes:
    """What a fit has to say beside its numbers, collected while it goes on."""

    parameters: list[Parameter] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    defaults: list[str] = field(default_factory=list)

    def add(self, name: str, value: float, estimate: Estimate | None, source: str) -> float:
        """Note a number and its interval."""
        low, high = (0.0, math.inf) if estimate is None else (estimate.low, estimate.high)
        known = math.isfinite(high) if estimate is not None else source != "default"
        self.parameters.append(Parameter(name, value, low, high, known, source))
        if estimate is not None and not known:
            self.warnings.append(f"{name} comes from one group: there is no interval")
        return value

    def default(self, name: str, value: float, why: str) -> float:
        """Note a number that nothing measured."""
        self.defaults.append(f"{name} is assumed to be {value:g}: {why}")
        return self.add(name, value, None, "default")


def note_sensitivity(
    effects: Sequence[AggressorFactors], bandwidth: Mapping[str, float] | None, said: Notes
) -> tuple[float, dict[str, float]]:
    """Growth per unit of pressure, and factors by kind, on the machine type that most groups measured."""
    if not effects:
        return said.default("sensitivity", DEFAULT_SENSITIVITY, "there is no interference sweep"), {}
    best = max(effects, key=lambda e: (e.p95.groups, e.machine_type)).machine_type
    here = {e.kind: e for e in effects if e.machine_type == best}
    factors = {
        kind: said.add(f"p95 beside {kind} on {best}", e.p95.value, e.p95, "latency_interference")
        for kind, e in here.items()
    }
    if CACHE not in here:
        return said.default("sensitivity", DEFAULT_SENSITIVITY, f"no sweep beside '{CACHE}'"), factors
    felt = (bandwidth or {}).get(best, 1.0) or 1.0
    p95 = here[CACHE].p95
    values = [max(0.0, v - 1.0) / felt for v in (p95.value, p95.low, p95.high)]
    estimate = Estimate(values[0], values[1], values[2], p95.groups)
    return said.add("sensitivity", estimate.value, estimate, f"latency_interference, {CACHE} on {best}"), factors


def note_sharing(fitted: SharingFactors | None, said: Notes) -> SharingFactors:
    """What was fitted, or the default."""
    if fitted is None:
        why = "there is no sweep with a co-located job on the same cores"
        us = said.default("sharing_us", DEFAULT_SHARING_US, why)
        lost = said.default("sharing_capacity", DEFAULT_SHARING_CAPACITY, why)
        return SharingFactors(0.0, Estimate(us, us, us, 0), Estimate(lost, lost, lost, 0))
    said.add("sharing_slope", fitted.slope, None, "latency_interference, cpu and l1i")
    said.add("sharing_us", fitted.added_us.value, fitted.added_us, "latency_interference, cpu and l1i")
    said.add("sharing_capacity", fitted.capacity.value, fitted.capacity, "latency_interference, cpu and l1i")
    return fitted


def note_cpu(points: Sequence[LatencyPoint], whole: CurveFit, said: Notes) -> float:
    """Logged CPU, but at least what one saturated thread must use: one core at its capacity."""
    logged = cpu_per_kqps(points, whole.curves)
    single = [1000.0 / c.qcap for c in whole.curves.values() if c.servers == 1 and c.threads == 1]
    if logged is None:
        value = min(single, default=0.015)
        return said.default("cpu_per_kqps", value, "none was logged; one thread at its capacity keeps one core busy")
    return said.add("cpu_per_kqps", max([logged.value, *single]), logged, "cpu_util_pct of the latency sweeps")


def note_capacity_factors(
    found: Mapping[Key, InterferenceSweep], single: LatencyCurve, said: Notes
) -> dict[str, float]:
    """Capacity on other machine types, from sweeps without interference that reached saturation."""
    logs: dict[str, list[float]] = {}
    for (machine_type, _, kind), own in sorted(found.items()):
        if kind == REFERENCE and own.capacity is not None:
            logs.setdefault(machine_type, []).append(math.log(own.capacity / single.qcap))
    fitted = {name: over_groups(values) for name, values in logs.items()}
    source = "sweeps without interference in saturation"
    return {name: said.add(f"capacity factor of {name}", e.value, e, source) for name, e in fitted.items()}
