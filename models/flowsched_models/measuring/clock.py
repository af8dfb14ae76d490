"""Time, passed in so that whatever waits can be tried without waiting."""

from __future__ import annotations

import time


class MachineClock:
    """Seconds that only ever grow, and waiting: the clock of this machine."""

    def now(self) -> float:
        """Seconds of the system's monotonic clock, which all processes share."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Come back after so many seconds."""
        time.sleep(seconds)
