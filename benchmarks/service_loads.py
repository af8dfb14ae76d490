"""The load that a service can take within its goal, by its profile."""

from __future__ import annotations

from flowsched_models.service import LatencyCurve, ServiceProfile

_SEARCH_STEPS = 100


def highest_load(
    profile: ServiceProfile,
    curve: LatencyCurve,
    slo_us: float,
    client: str,
    machine_type: str | None = None,
    background: float = 0.0,
    margin: float = 1.0,
) -> float:
    """The highest load in queries per second with p95 within ``slo_us``: the headroom in load; 0 if there is none.

    ``margin``, more than 0: as if the goal were ``slo_us / margin``, such as a quantile of the profile's noise.
    """

    def meets(qps: float) -> bool:
        p95_us = profile.p95_us(curve, qps, client, machine_type=machine_type, background=background)
        return p95_us <= slo_us / margin

    # Beyond capacity the backlog alone takes seconds per per cent, so some finite load always breaks a goal.
    low, high = 0.0, curve.qcap
    if not meets(low):
        return 0.0
    while meets(high):
        low, high = high, 2.0 * high
    for _ in range(_SEARCH_STEPS):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low


def safe_load(
    profile: ServiceProfile,
    curve: LatencyCurve,
    slo_us: float,
    client: str,
    machine_type: str | None = None,
    background: float = 0.0,
    margin: float = 1.0,
) -> float:
    """The same, but no more than what was measured: what a controller may count on."""
    load = highest_load(profile, curve, slo_us, client, machine_type, background, margin)
    return min(load, profile.highest_measured_load(curve, machine_type))
