"""Bringing a machine back from a state file: at the next start, by the watchdog, by hand."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from flowsched_agent.state_file import Started, State, StateError, StateFile, boot_id
from flowsched_models.text_table import printable

STOP_WITHIN_S = 5.0
"""A started command that has not ended so long after SIGTERM is killed."""
_LOOK_EVERY_S = 0.02

RestoreSaved = Callable[[dict[str, Any]], list[str]]


def restore_all(state: State, restore_saved: RestoreSaved) -> list[str]:
    """Undo everything that a state says; sentences of what was done or could not be done. Never raises.

    The latest change is undone first. Nothing is done about another start of the machine: it left nothing behind.
    """
    if state.boot_id and state.boot_id != (now := boot_id()) and now:
        return ["the machine was started anew since: nothing is left to restore"]
    said: list[str] = []
    for name, saved in reversed(list(state.saved.items())):
        try:
            said += restore_saved(dict(saved))
        except Exception as error:  # One that cannot be restored must not keep the others from it.
            said.append(f"{name} could not be restored: {type(error).__name__}: {error}")
    if state.on_exit == "stop":
        said += stop_commands(state.commands)
    return said


def restore_file(file: StateFile, restore_saved: RestoreSaved) -> list[str]:
    """Undo what a state file says, and remove the file, or keep only the commands that go on, and what was learnt. The lock
    must be held.

    A file that cannot be understood is set aside and said so.
    """
    try:
        state = file.read(own=True)
    except StateError as error:
        return [f"{error}; nothing could be restored, it is kept as {file.set_aside().name}"]
    if state is None:
        return []
    said = restore_all(state, restore_saved) if state.saved or state.commands else []
    running = () if state.on_exit == "stop" else still_running(state)
    if running or state.learnt:
        file.write(replace(state, saved={}, commands=running))
    else:
        file.remove()
    return said


def still_running(state: State) -> tuple[Started, ...]:
    """The started commands of a state that still run."""
    if state.boot_id and state.boot_id != boot_id():
        return ()
    return tuple(c for c in state.commands if c.runs())


def stop_commands(
    commands: Iterable[Started], within_s: float = STOP_WITHIN_S, clock: Callable[[], float] = time.monotonic
) -> list[str]:
    """End commands with all processes of their groups; sentences about those that had to be killed."""
    running = [c for c in commands if c.runs()]
    left = [c for c in running if c.is_marked()]
    said = [
        f"process {c.pid} goes on: it does not bear the mark of the command {printable(c.name)}"
        for c in running
        if c not in left
    ]
    for command in left:
        # A stopped process would keep SIGTERM waiting.
        _signal(command, signal.SIGTERM)
        _signal(command, signal.SIGCONT)
    until = clock() + within_s
    while left and clock() < until:
        time.sleep(_LOOK_EVERY_S)
        _reap(left)
        left = [c for c in left if c.runs()]
    for command in left:
        _signal(command, signal.SIGKILL)
    _reap(left)
    return [*said, *(f"{c.name} (process {c.pid}) did not end within {within_s:g} s and was killed" for c in left)]


def _signal(command: Started, number: int) -> None:
    if command.runs():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(command.pid, number)


def _reap(commands: Iterable[Started]) -> None:
    """Take leave of those that are our own children."""
    for command in commands:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(command.pid, os.WNOHANG)
