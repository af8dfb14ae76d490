"""How far something is, on stderr: a line that is written over on a terminal; elsewhere one every ten seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Any, Self

import click

EVERY_S = 10.0
"""Seconds between lines where stderr is no terminal."""
PATIENCE_S = 2.0
"""Seconds before a terminal hears what a single step is."""


class StatusLine:
    """The present state as one line of text."""

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
        self._began_s = clock()
        self._over = Event()

    def __enter__(self) -> Self:
        """Begin to tell."""
        self._began_s = self._clock()
        if not self._terminal:
            # A thread, since a single step may take longer than ten seconds.
            Thread(target=self._beat_until_over, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Clear the line, or tell what was done last."""
        self._over.set()
        if self._terminal:
            self._write("\r" + " " * len(self._shown) + "\r")
        else:
            self._finish()

    def beat(self) -> None:
        """Write the state, if there is any."""
        if self._state:
            self._write(self._with_wall_time(self._state) + "\n")

    def _show(self) -> None:
        """Write the state over what a terminal shows."""
        line = self._with_wall_time(self._state)
        self._write("\r" + line.ljust(len(self._shown)))
        self._shown = line

    def _with_wall_time(self, line: str) -> str:
        return f"{line}, after {self._clock() - self._began_s:.0f} s"

    def _finish(self) -> None:
        """Write what is left to say at the end."""

    def _beat_until_over(self) -> None:
        while not self._over.wait(EVERY_S):
            self.beat()


class StepLine(StatusLine):
    """A status line of a single step that may take long; one that is done within two seconds is not told of."""

    def __init__(self, state: str, **how: Any) -> None:
        """``state``: what is done. ``how``: as for any status line."""
        super().__init__(**how)
        self._state = state
        self._thread = Thread(target=self._show_late, daemon=True)

    def __enter__(self) -> Self:
        """Begin to wait."""
        super().__enter__()
        self._thread.start()
        return self

    def __exit__(self, *about: object) -> None:
        """Clear the line."""
        self._over.set()
        self._thread.join()
        super().__exit__(*about)

    def _show_late(self) -> None:
        wait_s = PATIENCE_S
        while self._terminal and not self._over.wait(wait_s):
            self._show()
            wait_s = 1.0
