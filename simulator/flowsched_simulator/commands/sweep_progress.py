"""How far a sweep is, on stderr."""

from __future__ import annotations

from flowsched.commands.status_line import StatusLine
from flowsched_models.text_table import counted


class SweepProgress(StatusLine):
    """Runs done and the time left: a line that is written over on a terminal, elsewhere one every ten seconds."""

    _counts = (0, 0)

    def show(self, done: int, total: int, left_s: float | None) -> None:
        """Take note of runs done, runs in all, and about how many seconds are left."""
        left = "" if left_s is None or done == total else f", about {duration(left_s)} left"
        self._counts = done, total
        self._state = f"{done} of {counted(total, 'run')} done{left}"
        if self._terminal:
            self._show()

    def _finish(self) -> None:
        done, total = self._counts
        if total:
            self._write(self._with_wall_time(f"{done} of {counted(total, 'run')} done") + "\n")


def duration(seconds: float) -> str:
    """A time in words, with two digits of it at most: 40 s, 12 min, 3.5 h."""
    if seconds < 1.0:
        return "1 s"
    if seconds < 90.0:
        return f"{seconds:.0f} s"
    if seconds < 5400.0:
        return f"{seconds / 60.0:.0f} min"
    return f"{seconds / 3600.0:.1f} h"
