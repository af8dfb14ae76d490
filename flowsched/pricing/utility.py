"""Utility of a completion time, and what it costs (Amaral 2019, PhD thesis, UPC, equations 11 to 13).

``U(phi) = (tau - phi)/tau`` before the goal ``tau``, and the same times ``(10 - z)/9`` beyond it; the cost of placing a task
is ``(1 - U) P``, of leaving it unscheduled ``(1 - U) + W``. As they stand the slope is the same before and after the goal
with z = 1, which makes for plans that are late by 10 to 20 %. The penalty here is ``1 - U`` with the preference P as a
slope: ``eps`` before the goal and ``beta`` beyond it; its importance within a level is its ``weight``.
"""

from __future__ import annotations

import numpy as np

from flowsched.support.arrays import FloatArray


def penalty(phi_s: float, tau_s: float, eps: float = 1.0, beta: float = 20.0) -> float:
    """``g(phi) = eps min(phi, tau)/tau + beta max(0, phi - tau)/tau``: gentle before the goal, steep beyond it."""
    if phi_s <= tau_s:
        return eps * phi_s / tau_s
    return eps + beta * (phi_s - tau_s) / tau_s


def penalties(phi_s: FloatArray, tau_s: float | FloatArray, eps: float = 1.0, beta: float = 20.0) -> FloatArray:
    """:func:`penalty` of many completions and goals."""
    late: FloatArray = np.maximum(phi_s - tau_s, 0.0)
    found: FloatArray = eps * np.minimum(phi_s, tau_s) / tau_s + (beta * late / tau_s if beta > 0.0 else 0.0)
    return found
