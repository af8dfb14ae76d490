"""p95 of a service whose load, cores and neighbours change from moment to moment.

A window of a report pools the requests of many moments: its p95 is the 95th percentile of their mixture, each moment
weighted by its requests. Beyond capacity a backlog grows, as in a queue with constant rates, and drains when there is room.

The load is open: requests come whether or not others are answered. A measuring client with few connections is not, and
bounds the backlog that it can see; so what is measured in overload is less than what is said here, and only there.

Tasks of the lowest CPU weight on the service's cores are part of the ``factor`` of a moment
(:meth:`flowsched_models.service.ServiceProfile.background_factor`), not of ``weight_share``: the kernel lets the service go
first however many they are, so it waits for no time slice of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flowsched_models.latency import LEAST_CAPACITY, QCAP, SHARING_CAPACITY, p95_us

TAIL_SIGMA = 0.46
"""Standard deviation of log latency within a moment, taken as log-normal: log(p99/p50) / 2.33 of memcached on two cores in
873 intervals of 8 to 10 s above 20K, groups of 2024 (median; docs/latency.md). The body is narrower (log(p95/p50) / 1.64 is
0.41) and what is beyond p95 wider (log(p99/p95) / 0.68 is 0.52)."""
_Z95 = 1.6448536269514722
_FINEST_S = 0.05
"""Longest piece over which a backlog counts as constant."""
_LEAST_US = 1e-9
_CLOSE = 1e-6
"""Relative precision of the percentile of a mixture."""


@dataclass(frozen=True)
class Moment:
    """A piece of time in which nothing changed."""

    t_s: float
    end_s: float
    queries: float
    p95_us: float


class Backlog:
    """The requests of one service that wait because it is overloaded."""

    def __init__(self) -> None:
        """No request waits."""
        self.queries = 0.0

    def advance(
        self,
        t_s: float,
        end_s: float,
        row: Sequence[float],
        qps: float,
        pressure: float,
        weight_share: float,
        factor: float,
    ) -> list[Moment]:
        """The moments from ``t_s`` to ``end_s`` under one latency ``row`` without a backlog of its own (``WINDOW_S`` 0).

        ``qps``: what arrives, as in the row. ``factor``: on p95, for what the row does not know. A request behind a
        backlog waits until it is served; what the service takes on top is the p95 of its row.
        """
        if end_s <= t_s:
            return []
        capacity = row[QCAP] * max(LEAST_CAPACITY, 1.0 - row[SHARING_CAPACITY] * weight_share)
        base = p95_us(row, pressure, weight_share) * factor
        grows = qps - capacity
        # The last instant with a backlog: never where it grows.
        until = end_s if grows > 0.0 else t_s
        if grows < 0.0 < self.queries:
            until = min(end_s, t_s - self.queries / grows)
        elif grows == 0.0 and self.queries > 0.0:
            until = end_s
        moments = []
        pieces = math.ceil((until - t_s) / _FINEST_S - 1e-9)
        start = t_s
        for k in range(1, pieces + 1):
            stop = until if k == pieces else t_s + k * (until - t_s) / pieces
            before = self.queries
            self.queries = max(0.0, before + grows * (stop - start))
            wait_us = 0.5 * (before + self.queries) / capacity * 1e6
            moments.append(Moment(start, stop, qps * (stop - start), base + wait_us))
            start = stop
        if until < end_s:
            self.queries = 0.0
            moments.append(Moment(start, end_s, qps * (end_s - start), base))
        return moments


def mixture_p95_us(moments: Sequence[Moment], sigma: float = TAIL_SIGMA) -> float | None:
    """95th percentile of all requests of the moments together; None where there are none.

    ``sigma``, more than 0: see ``TAIL_SIGMA``. Between the smallest and the largest p95 of the moments.
    """
    # Most moments of a window are alike.
    by_p95: dict[float, float] = {}
    for m in moments:
        if m.queries > 0.0:
            p95 = max(m.p95_us, _LEAST_US)
            by_p95[p95] = by_p95.get(p95, 0.0) + m.queries
    if not by_p95:
        return None
    low, high = min(by_p95), max(by_p95)
    parts = [(queries, math.log(p)) for p, queries in by_p95.items()]
    allowed = 0.05 * math.fsum(by_p95.values())
    scale = 1.0 / (sigma * math.sqrt(2.0))
    shift = _Z95 / math.sqrt(2.0)
    while high - low > _CLOSE * high:
        middle = math.sqrt(low * high)
        log = math.log(middle)
        above = 0.5 * math.fsum(queries * math.erfc((log - p) * scale + shift) for queries, p in parts)
        low, high = (middle, high) if above > allowed else (low, middle)
    return high
