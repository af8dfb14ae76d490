"""The formula for p95 of a latency service beside neighbours. Its numbers come from :mod:`flowsched_models.service`.

Plain arithmetic without imports that take time: the run-time model compiles it, and who asks for one p95 calls it as it is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowsched_models.cell import Floats

OVERLOAD_WINDOW_S = 10.0
"""Beyond its capacity a service builds a backlog; p95 is what one reporting window of it comes to."""
LEAST_CAPACITY = 0.05
"""Share of its cores that a service keeps whatever others hold: its own weight is never nothing."""

# Columns of a latency row: the curve, the load on it, and what neighbours do to it.
(
    A_US,
    B_US,
    Q0,
    QCAP,
    PSAT_US,
    KNEE,
    QPS,
    WINDOW_S,
    FACTOR,
    GROWTH,
    SHARING_SLOPE,
    SHARING_CAPACITY,
    SHARING_US,
) = range(13)
LATENCY_COLUMNS = 13


def p95_us(row: Sequence[float] | Floats, pressure: float, weight_share: float) -> float:
    """p95 in microseconds of a service with a latency ``row``.

    ``pressure``: sum over neighbours of pressure times busy CPUs. ``weight_share``: share of CPU weight in [0, 1) that
    others hold on the service's cores.
    """
    qps = row[QPS]
    qcap = row[QCAP] * max(LEAST_CAPACITY, 1.0 - row[SHARING_CAPACITY] * weight_share)
    z = 1.0 / (1.0 + math.exp(min(50.0, max(-50.0, -(qps - qcap) / row[KNEE]))))
    below = row[A_US] + row[B_US] * -math.expm1(-qps / row[Q0])
    backlog_us = max(0.0, qps / qcap - 1.0) * 0.95 * row[WINDOW_S] * 1e6
    # Written so that rounding cannot make it fall: both terms grow with load, the second also with z.
    curve = below + max(0.0, max(row[PSAT_US], row[A_US] + row[B_US]) - below) * z + backlog_us
    factor = row[FACTOR] * (1.0 + row[GROWTH] * pressure) * (1.0 + row[SHARING_SLOPE] * weight_share)
    p95: float = factor * curve + row[SHARING_US] * weight_share
    return p95
