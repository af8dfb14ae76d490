"""Utility of a completion time, and what it costs (Amaral 2019, PhD thesis, UPC, equations 11 to 13).

``U(phi) = (tau - phi)/tau`` before the goal ``tau``, and the same times ``(10 - z)/9`` beyond it; the cost of placing a task
is ``(1 - U) P``, of leaving it unscheduled ``(1 - U) + W``. As they stand the slope is the same before and after the goal
with z = 1, which makes for plans that are late by 10 to 20 %. The penalty here is ``1 - U`` with the preference P as a
slope: ``eps`` before the goal and ``beta`` beyond it; no job has an importance z of its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowsched_models.compiled import compiled

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MOST_USED = 0.99
"""Share of its p95 goal that a service is at most charged for: beyond it the price would have no end."""


def penalty(phi_s: float, tau_s: float, eps: float = 1.0, beta: float = 20.0) -> float:
    """``g(phi) = eps min(phi, tau)/tau + beta max(0, phi - tau)/tau``: gentle before the goal, steep beyond it."""
    if phi_s <= tau_s:
        return eps * phi_s / tau_s
    return eps + beta * (phi_s - tau_s) / tau_s


_penalty = compiled(penalty)


@compiled
def sum_costs(
    rows: IntArray,
    first: IntArray,
    newcomers_s: FloatArray,
    classes: IntArray,
    residents_s: FloatArray,
    peak_p95_us: FloatArray,
    newcomer: FloatArray,
    resident: FloatArray,
    goals_us: FloatArray,
    margin: float,
    eps: float,
    beta: float,
    headroom_weight: float,
) -> FloatArray:
    """[rows] cost of a machine with everybody who is on it: penalties, and the price of the services' headroom.

    ``first`` to ``peak_p95_us`` as :class:`flowsched.prospect.Prospects` has them. ``newcomer`` [classes, 3] and
    ``resident`` [running tasks, 3]: seconds that have passed, goal in seconds, weight. NaN where a p95 is above ``margin``
    times its goal: why has to be looked at.
    """
    costs = np.zeros(rows.shape[0])
    for b in range(rows.shape[0]):
        row = rows[b]
        total = 0.0
        for k in range(goals_us.shape[0]):
            if peak_p95_us[row, k] > margin * goals_us[k]:
                total = np.nan
            used = min(MOST_USED, peak_p95_us[row, k] / goals_us[k])
            total += headroom_weight * used / (1.0 - used)
        for i in range(resident.shape[0]):
            total += resident[i, 2] * _penalty(resident[i, 0] + residents_s[row, i], resident[i, 1], eps, beta)
        for i in range(first[row], first[row + 1]):
            c = classes[i]
            total += newcomer[c, 2] * _penalty(newcomer[c, 0] + newcomers_s[i], newcomer[c, 1], eps, beta)
        costs[b] = total
    return costs


def prepare() -> None:
    """Load what is compiled, or compile it, before somebody measures how long a round takes."""
    row, none, table = np.zeros(1, np.int64), np.zeros(0), np.zeros((1, 0))
    sum_costs(
        row, np.zeros(2, np.int64), none, row[:0], table, table, table, np.zeros((0, 3)), none, 1.0, 1.0, 1.0, 1.0
    )
