"""Utility of a completion time, and what it costs (Amaral 2019, PhD thesis, UPC, equations 11 to 13).

``U(phi) = (tau - phi)/tau`` before the goal ``tau``, and the same times ``(10 - z)/9`` beyond it; the cost of placing a task
is ``(1 - U) P``, of leaving it unscheduled ``(1 - U) + W``. As they stand the slope is the same before and after the goal
with z = 1, which makes for plans that are late by 10 to 20 %. The penalty here is ``1 - U`` with the preference P as a
slope: ``eps`` before the goal and ``beta`` beyond it.
"""

from __future__ import annotations


def utility(phi_s: float, tau_s: float, z: float = 1.0) -> float:
    """Equation 11: satisfaction with a completion time, 1 at once, 0 at the goal, negative beyond it.

    ``z`` in [1, 9.9] tells how important the goal is; 1 is most important.
    """
    if not 1.0 <= z <= 9.9:
        raise ValueError(f"z must be in [1, 9.9], not {z}")
    value = (tau_s - phi_s) / tau_s
    return value if phi_s <= tau_s else value * (10.0 - z) / 9.0


def penalty(phi_s: float, tau_s: float, eps: float = 1.0, beta: float = 20.0) -> float:
    """``g(phi) = eps min(phi, tau)/tau + beta max(0, phi - tau)/tau``: gentle before the goal, steep beyond it."""
    if phi_s <= tau_s:
        return eps * phi_s / tau_s
    return eps + beta * (phi_s - tau_s) / tau_s
