"""So many per second, and a few at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


class RateLimit:
    """Lets callers pass in the order in which they came, ``burst`` at once and then ``per_second``."""

    def __init__(
        self,
        per_second: float,
        burst: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Set the limit; ``per_second`` of 0 or less is none."""
        self._step = 1.0 / per_second if per_second > 0 else 0.0
        self._slack = max(burst - 1, 0) * self._step
        self._next = clock()
        self._clock = clock
        self._sleep = sleep

    async def wait(self) -> None:
        """Return when it is the caller's turn."""
        if not self._step:
            return
        now = self._clock()
        # The time at which this caller would pass if there were no burst.
        turn = max(self._next, now)
        self._next = turn + self._step
        if (delay := turn - self._slack - now) > 0:
            await self._sleep(delay)
