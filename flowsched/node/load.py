"""The load that a service is about to see: up at once, along ramps, down after a calm while."""

from __future__ import annotations

import math
from collections import deque

from flowsched.node.ramp import SCATTER_OF, Line, Ramp, dispersion_of

_KEPT_S = 5.0
"""A level is the mean over so many seconds at most: slow drifts are followed."""
_SURPRISE = 4.0
"""Standard deviations by which one reading differs from the level where the level has changed."""
_SURELY = 2.5
"""So many times what was expected is another level however much counts scatter."""
_LATEST = 5
"""Readings that a level has when a ramp ends."""
_TINY = 1e-9


class LoadTracker:
    """Follows the query counter of one service.

    The load is a *level* that jumps now and then. As long as readings stay within what counts scatter (their square root),
    the level is the mean since it began; a reading beyond that begins a new one at once. A higher level counts from then
    on, a lower one when the higher has been gone for ``calm_s``. ``margin`` standard deviations are added to what was
    counted.

    A load that grows or falls evenly has no level. Where the latest readings lie on a line (:class:`Ramp`), the load is what
    that line says: of the end of the next reading where it grows, of now where it falls. Jumps are then told from the line.

    Independent arrivals scatter like the square root of their number. Where one request counts as many (a get of 200 keys is
    200 queries), counts scatter more: how much more is learned from the differences between neighbouring readings.
    """

    def __init__(self, calm_s: float, margin: float, ramp_s: float = _KEPT_S) -> None:
        """Nothing is known yet. ``ramp_s``: seconds in which ramps are looked for; 0: loads only jump."""
        self._calm_s = calm_s
        self._margin = margin
        self._counts: deque[tuple[float, int]] = deque()
        """Readings of the present level; the first is where it began."""
        self._held: deque[tuple[float, float]] = deque()
        """When levels were last seen, falling: only those that no later one exceeds."""
        self._differences: deque[float] = deque(maxlen=SCATTER_OF)
        """Squares of differences between neighbouring counts, over what independent arrivals would have."""
        self._last_rate: float | None = None
        self._ramp = Ramp(ramp_s)
        self._pid: int | None = None
        self.answers = False
        """Whether the last reading had a number."""

    def read(self, t_s: float, queries: int | None, pid: int | None = None) -> None:
        """Take note of a reading. A counter that falls, or is another process's, was started anew: what was before says
        nothing about after.
        """
        self.answers = queries is not None
        if queries is None:
            return
        counts = self._counts
        anew = bool(counts) and (queries < counts[-1][1] or pid != self._pid)
        self._pid = pid
        if counts and (anew or t_s <= counts[-1][0] + _TINY):
            if anew:
                counts.clear()
                counts.append((t_s, queries))
                self._last_rate = None
                self._ramp.forget()
            return
        if counts:
            self._count(t_s, t_s - counts[-1][0], queries - counts[-1][1])
        counts.append((t_s, queries))
        while (counts[0][0] < t_s - _KEPT_S and len(counts) > 2) or (self._ramp.line and len(counts) > _LATEST + 1):
            counts.popleft()
        if len(counts) > 1:
            self._hold(t_s)

    @property
    def known(self) -> bool:
        """Whether there is a rate: two readings that belong together, the last one answered."""
        return self.answers and len(self._counts) > 1

    @property
    def qps(self) -> float:
        """Queries per second to be ready for; 0 where nothing is known."""
        return self._held[0][1] if self._held else 0.0

    @property
    def slope(self) -> float:
        """Queries per second by which the load grows in a second; 0 where it is level."""
        return 0.0 if self._ramp.line is None else self._ramp.line.slope

    @property
    def level(self) -> float:
        """Queries per second as counted since the present level began, now on a ramp; 0 where nothing is known."""
        if len(self._counts) < 2:
            return 0.0
        if self._ramp.line is not None:
            return max(0.0, self._ramp.line.rate_at(self._counts[-1][0]))
        (start_s, start), (end_s, end) = self._counts[0], self._counts[-1]
        return (end - start) / (end_s - start_s)

    @property
    def dispersion(self) -> float:
        """Variance of a count over its mean: 1 for independent single queries, at least 1."""
        return dispersion_of(self._differences)

    def _count(self, t_s: float, step_s: float, queries: int) -> None:
        """Begin a new level where the reading says so."""
        line = self._ramp.line
        self._learn(step_s, queries)
        if line is None:
            jumps = self._surprises(step_s, queries)
        else:
            jumps = self._leaves(line, t_s - 0.5 * step_s, step_s, queries)
            if jumps:
                self._ramp.forget()
        if jumps:
            last = self._counts[-1]
            self._counts.clear()
            self._counts.append(last)
        self._ramp.add(t_s, step_s, queries)

    def _learn(self, step_s: float, queries: int) -> None:
        rate = queries / step_s
        if self._last_rate is not None and rate + self._last_rate > 0.0:
            # Both counts scatter: the difference has twice the variance of one. The median passes over jumps.
            difference = rate - self._last_rate - self.slope * step_s
            self._differences.append(difference**2 * step_s / (rate + self._last_rate))
        self._last_rate = rate

    def _surprises(self, step_s: float, queries: int) -> bool:
        if len(self._counts) < 2:
            return False
        (start_s, start), (end_s, end) = self._counts[0], self._counts[-1]
        seconds = end_s - start_s
        expected = (end - start) / seconds * step_s
        # What is counted scatters, and so does the level that was itself counted.
        scatter = math.sqrt(max(expected, 1.0) * self.dispersion * (1.0 + step_s / seconds))
        return abs(queries - expected) > _SURPRISE * scatter or queries > _SURELY * max(expected, 1.0)

    def _leaves(self, line: Line, middle_s: float, step_s: float, queries: int) -> bool:
        """Whether a reading is off the ramp."""
        expected = max(line.rate_at(middle_s) * step_s, 1.0)
        scatter = math.hypot(math.sqrt(expected * self._ramp.dispersion), line.error_at(middle_s) * step_s)
        return abs(queries - expected) > _SURPRISE * scatter or queries > _SURELY * expected

    def _ready_for(self, t_s: float) -> float:
        """What the readings say alone, with the margin."""
        line = self._ramp.line
        if line is not None:
            # A decision holds until the next reading: until then a load that grows has grown on.
            until_s = t_s + (t_s - self._counts[-2][0] if line.slope > 0.0 else 0.0)
            return max(0.0, line.rate_at(until_s) + self._margin * line.error_at(until_s))
        (start_s, start), (end_s, end) = self._counts[0], self._counts[-1]
        count = end - start
        return (count + self._margin * math.sqrt(max(count, 1) * self.dispersion)) / (end_s - start_s)

    def _hold(self, t_s: float) -> None:
        level = self._ready_for(t_s)
        while self._held and self._held[-1][1] <= level:
            self._held.pop()
        self._held.append((t_s, level))
        while self._held[0][0] < t_s - self._calm_s - _TINY:
            self._held.popleft()
