"""Cores of latency services that a task may use too, and what that does to the services' p95."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowsched.inspector.record_view import Part
from flowsched.inspector.restored_round import RestoredRound
from flowsched_models.quantity import parse_cores, parse_duration_us


def shared_services(
    part: Part, opened: RestoredRound | None, machine: str, cores: Sequence[int]
) -> list[dict[str, Any]]:
    """Of each service on a machine with cores among these: ``service``, ``cores`` (those), and what the plan means for it.

    ``p95_ms`` (predicted peak), ``goal_ms``, ``headroom_percent``; ``p95_unshared_ms`` and ``headroom_unshared_percent``:
    the same if all that comes to the machine kept to the cores that no service has, None where nothing comes. Those of the
    models are None where the record cannot be opened again.
    """
    services = [s for s in part.forecast["snapshot"].get("services", ()) if s["machine"] == machine]
    peaks, off = (None, None) if opened is None else _peaks_us(opened, machine)
    found = []
    for k, service in enumerate(services):
        name, both = service["name"], sorted(set(parse_cores(service["cores"])) & set(cores))
        if both:
            goal_us = parse_duration_us(service["slo_p95"])
            p95_ms, headroom = _left(peaks, k, goal_us)
            off_ms, headroom_off = _left(off, k, goal_us)
            found.append(
                {
                    "service": name,
                    "cores": both,
                    "goal_ms": goal_us / 1e3,
                    "p95_ms": p95_ms,
                    "headroom_percent": headroom,
                    "p95_unshared_ms": off_ms,
                    "headroom_unshared_percent": headroom_off,
                }
            )
    return found


def _left(peaks_us: Sequence[float] | None, k: int, goal_us: float) -> tuple[float | None, float | None]:
    """Predicted p95 of a service in milliseconds, and the percentage of its goal that it leaves."""
    return (None, None) if peaks_us is None else (peaks_us[k] / 1e3, 100.0 * (1.0 - peaks_us[k] / goal_us))


def _peaks_us(opened: RestoredRound, machine: str) -> tuple[Sequence[float] | None, Sequence[float] | None]:
    """Highest p95 of each service of a machine under the plan, and if all arriving tasks kept to the other cores."""
    prices, group = opened.model.prices, opened.group_number.get(machine)
    if group is None:
        return None, None
    colocation = opened.colocation(machine)
    chosen = prices.forecast(group, colocation)
    off = prices.forecast(group, tuple(sorted(a._replace(shared=False) for a in colocation))) if colocation else None
    return (None if chosen is None else chosen.peak_p95_us), (None if off is None else off.peak_p95_us)
