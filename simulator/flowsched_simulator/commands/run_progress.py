"""What a long simulation is doing, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from threading import Event, Thread

import click

EVERY_S = 10.0
"""Seconds between lines where stderr is no terminal."""


class RunProgress:
    """A line that is written over on a terminal; elsewhere one every ten seconds, and one for each policy when it is done.

    Lines tell simulated time since the first submission, as the makespan counts, and how long the policy has been computed.
    """

    def __init__(
        self,
        *,
        terminal: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[str], None] = lambda text: click.echo(text, err=True, nl=False),
    ) -> None:
        """``clock``: seconds. ``write`` takes text as it is to be shown."""
        self._terminal = sys.stderr.isatty() if terminal is None else terminal
        self._clock = clock
        self._write = write
        self._shown = ""
        self._state = ""
        self._done = ""
        self._policy = ""
        self._ends: list[float] = []
        self._began_s = clock()
        self._over = Event()

    def __enter__(self) -> RunProgress:
        """Begin to tell."""
        self._began_s = self._clock()
        if not self._terminal:
            # A thread, since a single round may take longer than ten seconds.
            Thread(target=self._beat_until_over, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Clear the line, or tell what was done last."""
        self._over.set()
        if self._terminal:
            self._write("\r" + " " * len(self._shown) + "\r")
        else:
            self._finish()

    def show(self, policy: str, variant: str, t_s: float, ended: int, count: int) -> None:
        """Take note of how far a policy is: simulated seconds, jobs ended, and jobs in all."""
        if policy != self._policy:
            self._finish()
            self._policy, self._ends, self._began_s = policy, [], self._clock()
        name = f"{policy} ({variant})" if variant else policy
        self._state = f"{name}: {ended} of {count} jobs done, simulated {t_s:.0f} s"
        if self._terminal:
            line = self._with_wall_time(self._state)
            self._write("\r" + line.ljust(len(self._shown)))
            self._shown = line
        elif ended == count:
            self._ends.append(t_s)
            jobs = "1 job" if count == 1 else f"{count} jobs"
            done = f"simulated {t_s:.0f} s" if len(self._ends) == 1 else f"{len(self._ends)} variants"
            self._done, self._state = f"{policy}: {jobs} done, {done}", ""

    def beat(self) -> None:
        """Write where the run is, if it is anywhere."""
        if self._state:
            self._write(self._with_wall_time(self._state) + "\n")

    def _beat_until_over(self) -> None:
        while not self._over.wait(EVERY_S):
            self.beat()

    def _with_wall_time(self, line: str) -> str:
        return f"{line}, after {self._clock() - self._began_s:.0f} s"

    def _finish(self) -> None:
        if self._done and not self._terminal:
            self._write(self._with_wall_time(self._done) + "\n")
        self._done = self._state = ""
