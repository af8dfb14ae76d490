"""Queries per second out of a counter that may start anew, as far as it can be true."""

from __future__ import annotations

import math
from collections import deque

ANEW_S = 10.0
"""A counter that begins anew twice within so many seconds is not believed before it has not done so for as long."""
TOO_MANY = "its counters grow by more than twice what its cores were ever measured to serve"
TOO_OFTEN = "its counters go backwards more often, or to higher numbers, than those of a server that was started anew"
_SCATTER = 4.0
"""Standard deviations that a count may be above the most that is expected."""


class Rate:
    """Rate of one counter over a window of the latest readings."""

    def __init__(self, window_s: float = 1.0, *, most_per_s: float = math.inf, least_s: float = 0.0) -> None:
        """``most_per_s``: counts per second beyond which nothing can be true. Readings that are closer together than
        ``least_s`` are judged as if they were that far apart: at which moment of a question the counter was read is not
        known.
        """
        self._window_s = window_s
        self._most_per_s = most_per_s
        self._least_s = least_s
        self._seen: deque[tuple[float, int]] = deque()
        self._last: tuple[float, int, int | None] | None = None
        """Time, count and process that the next reading is held against."""
        self._anew_s = self._doubted_until_s = -math.inf
        self.resets = 0
        """Times that the counter began anew."""
        self.doubt: str | None = None
        """Why the last reading cannot be true; None where it can, and without a reading."""

    def update(self, t_s: float, count: int | None, pid: int | None = None) -> bool:
        """A reading; whether it is believed. None: there was no answer. Without a belief nothing is known of now."""
        self.doubt = None if count is None else self._wrong(t_s, count, pid)
        if count is None or self.doubt is not None:
            self._seen.clear()
            return False
        self._seen.append((t_s, count))
        while len(self._seen) > 2 and t_s - self._seen[1][0] >= self._window_s:
            self._seen.popleft()
        return True

    @property
    def per_second(self) -> float | None:
        """Counts per second; None with fewer than two readings."""
        if len(self._seen) < 2:
            return None
        (t0, n0), (t1, n1) = self._seen[0], self._seen[-1]
        return (n1 - n0) / (t1 - t0) if t1 > t0 else None

    def _wrong(self, t_s: float, count: int, pid: int | None) -> str | None:
        """Why a reading cannot be true, in words without its numbers."""
        if self._last is not None:
            last_s, last, process = self._last
            if count < last or pid != process:
                self._begin_anew(t_s, pid == process and not self._possible(count, t_s - last_s))
            elif not self._possible(count - last, t_s - last_s):
                return TOO_MANY  # The next one is held against the same: what is true again is believed again.
        self._last = (t_s, count, pid)
        return TOO_OFTEN if t_s < self._doubted_until_s else None

    def _begin_anew(self, t_s: float, wrong: bool) -> None:
        self._seen.clear()
        if wrong or t_s - self._anew_s < ANEW_S:
            self._doubted_until_s = t_s + ANEW_S
        else:
            self.resets += 1
        self._anew_s = t_s

    def _possible(self, count: int, seconds: float) -> bool:
        most = self._most_per_s
        if math.isinf(most):
            return True
        most *= max(seconds, self._least_s)
        return count <= most + _SCATTER * math.sqrt(most) + 1.0
