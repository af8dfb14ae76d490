"""How p95 of windows of one load scatters, from intervals of runs in which no job near the service was moved."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from flowsched_models.cell import Floats
from flowsched_models.measurements.measurements import LoadInterval
from flowsched_models.service import ServiceProfile
from flowsched_models.window_noise import WindowNoise

LENGTHS_S = (0.9, 1.25, 2.5, 7.0)
"""Noise is fitted by classes of length, each from one of these up to the next; shorter intervals are not used."""
SETTLED_S = 2.0
"""Intervals nearer to a change on the service's cores are not used: what moving costs is modelled moment by moment, and
counted twice otherwise. After a second nothing more is to be seen of one, before or after: before, as one group's controller
logs it up to a second after its client feels it (docs/latency.md). The other second is a margin."""
SHARES = (0.84, 0.95, 0.98, 0.99)
"""Of windows: how far these reach is noted as measured, beside the fit."""
FAR = 1.5
"""So is the share of windows beyond this factor, which a load with a third of its goal left must not meet."""
NO_BACKGROUND = 0.03
"""Share of the service's cores with tasks of the lowest weight up to which there are none."""
BEHIND = 0.9
"""Share of the service's cores with tasks of the lowest weight from which on they count."""
CALM = 0.5
"""Share of capacity below which tasks of the lowest weight are taken to add nothing."""
LOAD_CLASS = 10_000.0
FEWEST = 8
"""Intervals of one group, length and class of load whose median says what to expect."""
_FEWEST_OF_LENGTH = 100


@dataclass(frozen=True)
class FittedNoise:
    """The scatter of windows of one class of length, and the windows that it was fitted to."""

    noise: WindowNoise
    windows: int
    groups: int
    unsettled: int
    """Further windows of this length, near a change on the service's cores."""
    measured: Mapping[float, float]
    """Factors on the usual p95 that these shares of the windows stay within."""
    far: float
    """Measured share of windows beyond ``FAR`` times the usual p95."""


def fit_noise(intervals: Iterable[LoadInterval], profile: ServiceProfile) -> tuple[FittedNoise, ...]:
    """Scatter of log p95 by length of the interval, around the median of one group, length and class of load.

    The intervals have one number of cores and no job of full weight on them. Those beside tasks of the lowest weight count
    below half the capacity only. Deterministic; empty where no class of length has enough intervals.
    """
    same: dict[tuple[str, float, int, bool, int], list[LoadInterval]] = defaultdict(list)
    unsettled: dict[float, int] = defaultdict(int)
    for i in intervals:
        least = max((length for length in LENGTHS_S if length <= i.length_s), default=None)
        if least is None or not _is_plain(i, profile):
            continue
        if i.settled_s < SETTLED_S:
            unsettled[least] += 1
            continue
        key = (i.group, round(i.length_s, 1), i.cores or 0, i.background >= BEHIND, int(i.qps / LOAD_CLASS))
        same[key].append(i)
    by_length: dict[float, list[tuple[LoadInterval, float]]] = defaultdict(list)
    for own in same.values():
        if len(own) >= FEWEST:
            middle = math.log(float(np.median([i.p95_us for i in own])))
            least = max(length for length in LENGTHS_S if length <= own[0].length_s)
            by_length[least] += [(i, math.log(i.p95_us) - middle) for i in own]
    return tuple(
        _fitted(rows, unsettled[least]) for least, rows in sorted(by_length.items()) if len(rows) >= _FEWEST_OF_LENGTH
    )


def _is_plain(i: LoadInterval, profile: ServiceProfile) -> bool:
    """Whether nothing that is modelled elsewhere makes its p95 scatter, but for moves."""
    if i.background <= NO_BACKGROUND:
        return True
    curve = profile.curve(i.threads, i.cores or 0)
    return i.background >= BEHIND and curve is not None and i.qps < CALM * curve.qcap


def _fitted(rows: list[tuple[LoadInterval, float]], unsettled: int) -> FittedNoise:
    logs = np.array([log for _, log in rows])
    return FittedNoise(
        _noise(float(np.median([i.length_s for i, _ in rows])), logs),
        len(rows),
        len({i.group for i, _ in rows}),
        unsettled,
        {share: math.exp(float(np.quantile(logs, share))) for share in SHARES},
        float(np.mean(logs > math.log(FAR))),
    )


def _noise(length_s: float, logs: Floats) -> WindowNoise:
    """Most likely mixture of a normal distribution, and the same plus an exponential one."""
    from scipy.optimize import minimize  # Only calibration needs it.
    from scipy.stats import exponnorm, norm

    def loss(x: Floats) -> float:
        sd, stalls, stall = math.exp(x[1]), 1.0 / (1.0 + math.exp(-x[2])), math.exp(x[3])
        density = (1.0 - stalls) * norm.pdf(logs, x[0], sd) + stalls * exponnorm.pdf(logs, stall / sd, x[0], sd)
        # A weak hold where there is nothing to tell the two apart.
        hold = 0.5 * float((x[2] + 3.0) ** 2 + (x[3] + 1.5) ** 2)
        return hold - float(np.sum(np.log(np.maximum(density, 1e-300))))

    sd = max(1e-3, 1.4826 * float(np.median(np.abs(logs))))
    start = np.array([0.0, math.log(sd), -3.0, -1.5])
    found = minimize(
        loss, start, method="Nelder-Mead", options={"xatol": 1e-5, "fatol": 1e-5, "maxiter": 4000}
    ).x.tolist()
    return WindowNoise(round(length_s, 1), math.exp(found[1]), 1.0 / (1.0 + math.exp(-found[2])), math.exp(found[3]))
