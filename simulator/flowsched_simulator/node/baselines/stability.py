"""Whether the load of a service is stable, as the two-queue design sees it."""

from __future__ import annotations

from flowsched_simulator.node.baselines.clock import Every
from flowsched_simulator.node.baselines.query_rate import LONG, SHORT, QueryRate

SCAN_S = 0.075
"""Seconds between two looks at the rates."""
TELL_S = 0.14
"""A stable rate is told this often, at the first look from then on: every 150 ms."""
LARGEST_CHANGE = 0.3
"""Largest difference of the two rates, relative to the larger one, of a stable load."""


class Stability:
    """Compares the rate of the last 400 ms with that of the last second.

    A change is told at once. The rate itself is told only while the load is stable, and not at every look, so what
    the queues act on may be older than what was read.
    """

    def __init__(self) -> None:
        """Not stable until a second was read."""
        self.stable = False
        self.qps = float("inf")
        """The rate that was told last."""
        self._scan = Every(SCAN_S)
        self._tell = Every(TELL_S)

    def look(self, t_s: float, rate: QueryRate) -> None:
        """Look again, where it is time to."""
        if not self._scan.due(t_s):
            return
        before, now = rate.over(LONG), rate.over(SHORT)
        largest = max(before, now)
        if not rate.full or abs(now - before) > LARGEST_CHANGE * largest:
            self.stable = False
            self.qps = largest if rate.full else float("inf")
            return
        tell = self._tell.due(t_s)
        if tell or not self.stable:
            self.qps = before
        self.stable = True
