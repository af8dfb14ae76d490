"""All processes of a session: what a started program leaves behind can be found by it, whatever group it is in."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

_STATE, _SESSION = 0, 3
"""Fields of ``/proc/PID/stat`` behind the name, see proc(5)."""
_ROUNDS, _PAUSE_S = 1000, 0.01


def processes_of(session: int, proc: Path = Path("/proc")) -> list[int]:
    """The processes of a session that still run."""
    found = []
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name stands in parentheses and may hold anything, also spaces and parentheses.
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[_SESSION]) == session and fields[_STATE] not in "ZX":
            found.append(int(entry.name))
    return found


def signal_all(session: int, number: signal.Signals) -> bool:
    """Send a signal to all processes of a session; False if there are none."""
    found = processes_of(session)
    for process in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)
    return bool(found)


def kill_all(session: int) -> None:
    """End all processes of a session, also those that are being forked meanwhile, and wait until they are gone: freeing
    gigabytes takes a tenth of a second and more.
    """
    for _ in range(_ROUNDS):
        if not signal_all(session, signal.SIGKILL):
            return
        time.sleep(_PAUSE_S)
