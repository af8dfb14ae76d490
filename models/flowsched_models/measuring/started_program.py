"""A program that runs now, in a session of its own."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flowsched_models.measuring.clock import MachineClock
from flowsched_models.measuring.runner import Ended, Program
from flowsched_models.measuring.session_processes import kill_all, signal_all

_STARTER = Path(__file__).with_name("starter.py")
_LONGEST_LINE = 300
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold interrupts back, so that none falls between starting a process and knowing of it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class StartedProgram:
    """Runs from its creation on; :meth:`kill` must be called in the end, however it ended."""

    def __init__(self, program: Program) -> None:
        self._words = tempfile.TemporaryFile()  # noqa: SIM115, closed by kill()
        self._report, report = os.pipe()
        self._text = b""
        self._told: Mapping[str, Any] | None = None
        cores = ",".join(map(str, program.cores))
        starter = [sys.executable, "-I", "-S", str(_STARTER), str(os.getpid()), str(report), cores]
        try:
            self._process = subprocess.Popen(
                [*starter, *program.command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._words,
                env={**os.environ, **program.environment},
                pass_fds=(report,),
                start_new_session=True,
            )
        finally:
            os.close(report)

    def wait(self, clock: MachineClock, until_s: float) -> bool:
        """Wait for the end of the program, at most until a moment of the clock; says whether it ended."""
        poll = select.poll()
        poll.register(self._report, select.POLLIN)
        while self._told is None:
            if not poll.poll(max(0.0, until_s - clock.now()) * 1000):
                return False
            part = os.read(self._report, 65536)
            self._text += part
            if not part:
                self._told = json.loads(self._text) if self._text else {"error": "it was ended from outside"}
        return True

    @property
    def trouble(self) -> str:
        """Why the program never ran or left no report; empty if it ended."""
        return str((self._told or {}).get("error", ""))

    @property
    def ended(self) -> Ended | None:
        """What the program took; None as long as it runs, and if there is no report."""
        if self._told is None or self.trouble:
            return None
        return Ended(**self._told, said=self.said())

    def said(self) -> str:
        """The last line of its standard error so far."""
        size = self._words.seek(0, os.SEEK_END)
        self._words.seek(max(0, size - 4 * _LONGEST_LINE))
        lines = [line.strip() for line in self._words.read().decode(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")[-_LONGEST_LINE:]

    def ask_to_end(self, clock: MachineClock, patience_s: float) -> None:
        """Ask the program to end, and give it some time to do so."""
        signal_all(self._process.pid, signal.SIGTERM)
        self.wait(clock, clock.now() + patience_s)

    def kill(self) -> None:
        """End whatever still runs of the program, and free what is held for it."""
        with uninterrupted():
            # The process itself is waited for last: as long as it is there, its number is not reused.
            kill_all(self._process.pid)
            self._process.wait()
            if not self._words.closed:
                os.close(self._report)
                self._words.close()
