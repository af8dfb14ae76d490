"""The clock of the loop, and how it is woken before its time."""

from __future__ import annotations

import contextlib
import os
import select
import time


class SystemClock:
    """The monotonic clock of Linux. :meth:`wake` may be called from a signal handler or another thread."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def wait_until(self, moment: float) -> None:
        """Sleep until then or until woken, where something happened that cannot wait; what is over returns at once."""
        left = moment - time.monotonic()
        if left > 0:
            ready, _, _ = select.select([self._reading], [], [], left)
            if ready:
                os.read(self._reading, 4096)

    def wake(self) -> None:
        """End the wait that is under way, or the next one."""
        with contextlib.suppress(BlockingIOError):  # full: it wakes up anyway
            os.write(self._writing, b"\0")

    def close(self) -> None:
        """Give both ends of the pipe back."""
        os.close(self._reading)
        os.close(self._writing)
