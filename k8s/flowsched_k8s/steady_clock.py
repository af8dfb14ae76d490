"""A clock that passes evenly, whatever is done to the machine's."""

from __future__ import annotations

import time
from collections.abc import Callable


def steady(wall: Callable[[], float], monotonic: Callable[[], float]) -> Callable[[], float]:
    """Seconds since 1970 that pass evenly: every wait is measured by them.

    The machine's clock is read once. It may be set forwards and back again later; if that were followed, every pod would
    have waited for hours.
    """
    ahead = wall() - monotonic()
    return lambda: monotonic() + ahead


def uptime() -> float:
    """Seconds since the machine started, also those for which the machine slept where the system counts them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
