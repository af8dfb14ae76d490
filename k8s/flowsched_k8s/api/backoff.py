"""How long to wait after a failure."""

from __future__ import annotations

import random


class Backoff:
    """Seconds that double with every failure up to a limit, spread so that many clients do not come back at once."""

    def __init__(self, rng: random.Random, first: float = 0.5, limit: float = 30.0) -> None:
        """Start at ``first`` seconds."""
        self._rng = rng
        self._first = first
        self._limit = limit
        self._now = first

    def next(self, at_least: float = 0.0) -> float:
        """The next delay in seconds, no shorter than what the server asked for."""
        delay = self._now * self._rng.uniform(0.5, 1.0)
        self._now = min(self._now * 2.0, self._limit)
        return max(delay, at_least)

    def reset(self) -> None:
        """It works again."""
        self._now = self._first
