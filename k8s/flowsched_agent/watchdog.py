"""A small process beside the agent that brings the machine back when the agent is gone without having done so.

It reads a pipe whose other end only the agent holds. The kernel closes that end however the agent ends: there is no moment
at which its death could be missed, as there is with a signal on the parent's death. ``python -m flowsched_agent.watchdog``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from flowsched_agent.restoring import RestoreSaved, restore_file
from flowsched_agent.state_file import StateError, StateFile

READY, BYE = b"r", b"b"
LOCK_WITHIN_S = 10.0
_COMMAND = (sys.executable, "-m", "flowsched_agent.watchdog")


class WatchdogError(Exception):
    """The watchdog did not start; one sentence says why."""


class Watchdog:
    """The agent's side."""

    def __init__(self, state_file: Path) -> None:
        """Start it and wait until it watches. Raises :class:`WatchdogError`."""
        reading, self._writing = os.pipe()  # neither end is inherited by any other child
        try:
            self._process = subprocess.Popen(
                [*_COMMAND, str(state_file.resolve()), str(reading), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                pass_fds=(reading,),
                # Ctrl-C and the end of a terminal's session are not for it.
                start_new_session=True,
            )
        except OSError as error:
            os.close(self._writing)
            raise WatchdogError(f"the watchdog cannot be started: {error.strerror or error}") from None
        finally:
            os.close(reading)
        assert self._process.stdout is not None
        if self._process.stdout.read(1) != READY:
            self.dismiss()
            raise WatchdogError("the watchdog ended before it watched")

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether it still watches."""
        return self._process.poll() is None

    def dismiss(self) -> None:
        """Everything is restored already: it may go."""
        with contextlib.suppress(OSError):  # it may be gone before us
            os.write(self._writing, BYE)
        os.close(self._writing)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.wait()


def watch(state_file: Path, reading: int, restore_saved: RestoreSaved, agent: int) -> list[str]:
    """Wait for the agent's end; restore unless it said goodbye. Sentences of what was done."""
    said_goodbye = False
    while content := os.read(reading, 64):
        said_goodbye = said_goodbye or BYE in content
    if said_goodbye:
        return []
    file = StateFile(state_file)
    if not file.acquire(LOCK_WITHIN_S):
        return ["another agent has taken over already"]
    try:
        state = file.read()
    except StateError:
        state = None
    try:
        if state is not None and state.agent_pid != agent:
            return ["another agent has taken over already"]
        return restore_file(file, restore_saved)
    finally:
        file.release()


def main(arguments: list[str]) -> int:
    """``STATE_FILE DESCRIPTOR AGENT``."""
    # Who ends the agent's group or its service politely ends the agent, which restores by itself.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Before anything is changed: an import that fails must fail now.
    from flowsched_agent.original_groups import restore, sweep

    with contextlib.suppress(BrokenPipeError):  # the agent is gone already, and may have left something
        os.write(1, READY)
    # A reader of the agent's output through a pipe must not wait for this process.
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    said = watch(Path(arguments[0]), int(arguments[1]), restore, int(arguments[2]))
    for sentence in [*said, *sweep()]:
        with contextlib.suppress(OSError):  # the agent's terminal may be gone too
            print(f"flowsched agent watchdog: {sentence}", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
