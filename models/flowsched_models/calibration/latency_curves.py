"""Latency curves fitted to sweeps of the load, for several sizes of a service at once.

Least squares on the logarithm of p95 with a soft-L1 loss, over the load that was *asked for*: a client with few connections
gets less once the service is saturated. What it then achieves is the capacity, and is fitted as such.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from flowsched_models.measurements.measurements import LatencyPoint
from flowsched_models.service import LatencyCurve

SATURATED = 0.97
"""A client that achieves less than this share of the load it was asked for is held up by the service."""
NAMES = ("a_us", "b_us", "q0", "qcap", "psat_us", "w")
"""Parameters of one curve. Fitted are their logarithms, and for ``psat_us`` that of psat - (a + b): never below it."""

_NOISE = 0.05
"""Scale of a log residual from which on the loss grows linearly: repeats of one sweep differ by about this."""
_PRIOR_LOG_SD = np.array([1.5, 1.5, 1.5, 1.5, 1.5, 0.7])
"""Per parameter of a curve. Weak: a factor of 4.5 away from the usual shape (2 for w, which few sweeps show) costs as much
as one residual of 5 %."""
_FACTOR_LOG_SD = 0.5
_SHAPE = {"b": 1.5, "q0": 0.2, "extra": 0.6, "w": 0.02}
"""Usual shape: b/a, q0/qcap, psat/(a + b) - 1 and w/qcap of one thread on one core in the published sweeps."""
_LOG_LIMIT = math.log(100.0)
"""Every parameter stays within a factor of 100 of where it starts."""

Size = tuple[int, int]
"""Threads, cores."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Reading:
    """Median p95 over the repetitions of one load in one group."""

    group: str
    size: Size
    load: float
    """Load asked for in queries per second; the achieved one where it was not noted."""
    achieved: float
    p95_us: float

    @property
    def saturated(self) -> bool:
        """Whether the service could not follow."""
        return self.achieved < SATURATED * self.load


def readings(points: Sequence[LatencyPoint]) -> tuple[Reading, ...]:
    """Medians over repetitions, sorted."""
    found: dict[tuple[str, Size, float], list[tuple[float, float]]] = defaultdict(list)
    for p in points:
        load = p.qps if p.target_qps is None else p.target_qps
        found[(p.group, (p.threads, p.cores), load)].append((p.qps, p.p95_us))
    result = []
    for (group, size, load), values in sorted(found.items()):
        achieved, p95 = np.median(np.array(values), axis=0)
        result.append(Reading(group, size, load, float(achieved), float(p95)))
    return tuple(result)


@dataclass(frozen=True)
class CurveFit:
    """Curves of all sizes, and factors of cohorts on them."""

    sizes: tuple[Size, ...]
    cohorts: tuple[str, ...]
    """Cohorts with factors of their own; the reference is not among them."""
    logs: Floats
    """Six logarithms per size (see ``NAMES``), then the logs of latency and capacity factor per cohort."""
    standard_errors: Floats
    """From the curvature of the loss: right for independent residuals."""

    @cached_property
    def curves(self) -> dict[Size, LatencyCurve]:
        """The curves of the reference cohort. ``max_measured_qps`` is left 0: the fit does not know it."""
        return {size: self._curve(k, size) for k, size in enumerate(self.sizes)}

    def factors(self, cohort: str) -> tuple[float, float]:
        """Factors on latency and capacity; 1 for the reference and for a cohort that the fit does not know."""
        if cohort not in self.cohorts:
            return 1.0, 1.0
        k = 6 * len(self.sizes) + 2 * self.cohorts.index(cohort)
        return math.exp(self.logs[k]), math.exp(self.logs[k + 1])

    def p95_us(self, size: Size, load: float, cohort: str) -> float:
        """p95 as the client of the sweep sees it."""
        latency, capacity = self.factors(cohort)
        return latency * self.curves[size].measured_p95_us(load, capacity)

    def _curve(self, k: int, size: Size) -> LatencyCurve:
        a, b, q0, qcap, extra, w = (float(v) for v in np.exp(self.logs[6 * k : 6 * k + 6]))
        return LatencyCurve(size[0], size[1], a, b, q0, qcap, a + b + extra, w, 0.0)


def starting_logs(own: Sequence[Reading]) -> Floats:
    """Where the fit of one size starts, and what its weak prior holds on to.

    Capacity: the median achieved load in saturation, else the highest load asked for. The rest by the usual shape.
    """
    held_up = [r.achieved for r in own if r.saturated]
    qcap = float(np.median(held_up)) if held_up else max(r.load for r in own)
    free = [r for r in own if r.load < 0.8 * qcap] or list(own)
    level = float(
        np.median([r.p95_us / (1.0 + _SHAPE["b"] * -math.expm1(-r.load / (_SHAPE["q0"] * qcap))) for r in free])
    )
    b = _SHAPE["b"] * level
    top = [r.p95_us for r in own if r.saturated]
    extra = max(0.05 * (level + b), float(np.median(top)) - level - b) if top else _SHAPE["extra"] * (level + b)
    return np.log([level, b, _SHAPE["q0"] * qcap, qcap, extra, _SHAPE["w"] * qcap])


@dataclass(frozen=True)
class _Data:
    """Readings as arrays; the model and its derivatives over them."""

    size: npt.NDArray[np.intp]
    cohort: npt.NDArray[np.intp]
    """-1 for the reference."""
    load: Floats
    log_p95: Floats
    held_up: npt.NDArray[np.intp]
    """Which readings were taken in saturation: what they achieved is the capacity."""
    log_achieved: Floats
    """Of those."""
    start: Floats
    prior_sd: Floats
    size_count: int

    def residuals(self, logs: Floats) -> Floats:
        value, _ = self._model(logs)
        capacity = logs[6 * self.size[self.held_up] + 3] + self._factors(logs)[self.cohort[self.held_up], 1]
        return np.concatenate(
            [
                (np.log(value) - self.log_p95) / _NOISE,
                (capacity - self.log_achieved) / _NOISE,
                (logs - self.start) / self.prior_sd,
            ]
        )

    def jacobian(self, logs: Floats) -> Floats:
        value, slopes = self._model(logs)
        rows = np.arange(len(value))
        jacobian = np.zeros((len(value) + len(self.held_up) + len(logs), len(logs)))
        for k in range(6):
            jacobian[rows, 6 * self.size + k] = slopes[k] / value / _NOISE
        with_factor = rows[self.cohort >= 0]
        column = 6 * self.size_count + 2 * self.cohort[with_factor]
        jacobian[with_factor, column] = 1.0 / _NOISE
        jacobian[with_factor, column + 1] = (slopes[3] / value)[with_factor] / _NOISE
        rows = len(value) + np.arange(len(self.held_up))
        jacobian[rows, 6 * self.size[self.held_up] + 3] = 1.0 / _NOISE
        cohort = self.cohort[self.held_up]
        jacobian[rows[cohort >= 0], 6 * self.size_count + 2 * cohort[cohort >= 0] + 1] = 1.0 / _NOISE
        jacobian[len(value) + len(self.held_up) :] = np.diag(1.0 / self.prior_sd)
        return jacobian

    def _factors(self, logs: Floats) -> Floats:
        """Log factors on latency and capacity per cohort; the last row, which -1 means, is the reference."""
        return np.concatenate([logs[6 * self.size_count :], [0.0, 0.0]]).reshape(-1, 2)

    def _model(self, logs: Floats) -> tuple[Floats, list[Floats]]:
        a, b, q0, qcap, extra, w = np.exp(logs[: 6 * self.size_count].reshape(-1, 6)[self.size].T)
        latency, capacity = np.exp(self._factors(logs)[self.cohort].T)
        gone = np.exp(-self.load / q0)
        distance = np.clip((self.load - qcap * capacity) / w, -50.0, 50.0)
        z = 1.0 / (1.0 + np.exp(-distance))
        below = a + b * (1.0 - gone)
        rise = a + b + extra - below
        knee = latency * rise * z * (1.0 - z)
        return latency * (below + rise * z), [
            latency * a,
            latency * b * ((1.0 - gone) * (1.0 - z) + z),
            latency * b * -(self.load / q0) * gone * (1.0 - z),
            knee * -(qcap * capacity / w),
            latency * extra * z,
            knee * -distance,
        ]


def fit_curves(
    data: Sequence[Reading], cohort_of: Mapping[str, str], reference: str, near: CurveFit | None = None
) -> CurveFit:
    """Fit the curves of all sizes in ``data`` and the factors of all cohorts but the ``reference`` one, jointly.

    ``near``: a fit of nearly the same data to begin from. Deterministic. Raises ValueError without any reading.
    """
    from scipy.optimize import least_squares  # Only calibration needs it: slow to import and an extra.

    if not data:
        raise ValueError("there is nothing to fit: no reading of a latency sweep")
    sizes = tuple(sorted({r.size for r in data}))
    cohorts = tuple(sorted({cohort_of.get(r.group, reference) for r in data} - {reference}))
    start = np.concatenate(
        [*(starting_logs([r for r in data if r.size == size]) for size in sizes), np.zeros(2 * len(cohorts))]
    )
    arrays = _Data(
        size=np.array([sizes.index(r.size) for r in data], dtype=np.intp),
        cohort=np.array([_index(cohorts, cohort_of.get(r.group, reference)) for r in data], dtype=np.intp),
        load=np.array([r.load for r in data]),
        log_p95=np.log([r.p95_us for r in data]),
        held_up=np.array([i for i, r in enumerate(data) if r.saturated], dtype=np.intp),
        log_achieved=np.log([r.achieved for r in data if r.saturated]),
        start=start,
        prior_sd=np.concatenate([np.tile(_PRIOR_LOG_SD, len(sizes)), np.full(2 * len(cohorts), _FACTOR_LOG_SD)]),
        size_count=len(sizes),
    )
    begin = start.copy()
    for k, size in enumerate(sizes if near is not None else ()):
        if near is not None and size in near.sizes:
            j = near.sizes.index(size)
            begin[6 * k : 6 * k + 6] = near.logs[6 * j : 6 * j + 6]
    limits = (start - _LOG_LIMIT, start + _LOG_LIMIT)
    solution = least_squares(
        arrays.residuals,
        np.clip(begin, limits[0] + 1e-9, limits[1] - 1e-9),
        jac=arrays.jacobian,
        bounds=limits,
        loss="soft_l1",
        x_scale="jac",
        ftol=1e-6,
        max_nfev=100,
    )
    return CurveFit(sizes, cohorts, solution.x, _standard_errors(arrays, solution.x))


def _index(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else -1


def _standard_errors(arrays: _Data, logs: Floats) -> Floats:
    """Square roots of the diagonal of s^2 (J' W J)^-1, with the weights W that the loss gives each residual."""
    residuals, jacobian = arrays.residuals(logs), arrays.jacobian(logs)
    weight = 1.0 / np.sqrt(1.0 + residuals**2)
    degrees = max(1, len(residuals) - 2 * len(logs))
    variance = float(np.sum(weight * residuals**2)) / degrees
    information = jacobian.T @ (weight[:, None] * jacobian)
    errors: Floats = np.sqrt(np.diag(np.linalg.inv(information)) * max(variance, 1e-12))
    return errors
