"""Queries per second out of a counter that may start anew."""

from __future__ import annotations

from collections import deque


class Rate:
    """Rate of one counter over a window of the latest readings."""

    def __init__(self, window_s: float = 1.0) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, int]] = deque()
        self._pid: int | None = None
        self.resets = 0
        """Times that the counter began anew."""

    def update(self, t_s: float, count: int | None, pid: int | None = None) -> None:
        """A reading; None: there was no answer, and nothing is known of now."""
        if count is None:
            self._seen.clear()
            return
        if self._seen and (count < self._seen[-1][1] or pid != self._pid):
            self._seen.clear()
            self.resets += 1
        self._pid = pid
        self._seen.append((t_s, count))
        while len(self._seen) > 2 and t_s - self._seen[1][0] >= self._window_s:
            self._seen.popleft()

    @property
    def per_second(self) -> float | None:
        """Counts per second; None with fewer than two readings."""
        if len(self._seen) < 2:
            return None
        (t0, n0), (t1, n1) = self._seen[0], self._seen[-1]
        return (n1 - n0) / (t1 - t0) if t1 > t0 else None
