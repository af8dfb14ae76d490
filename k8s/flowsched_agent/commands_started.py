"""Programs that the agent starts: written down before they run a single instruction of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from flowsched_agent.configuration import Command
from flowsched_agent.state_file import MARK, Started, start_time

GATE = 'read -r _ || exit 125\nexec "$@" </dev/null'
"""Waits for a line, which never comes if the agent dies before it has written the process down; then becomes the program."""
NEVER_RUN: Mapping[int, str] = {
    126: "it, or what runs it, may not be run (code 126)",
    127: "it, or what runs it, was not found (code 127)",
}
"""Exit codes by which a shell says that a program did not come to run."""


class StartError(Exception):
    """A command could not be started; one sentence says why."""


def start(name: str, command: Command, prepare: Callable[[Started], None]) -> subprocess.Popen[bytes]:
    """Start a command as leader of a session of its own. Raises :class:`StartError`.

    ``prepare`` is called while it waits, to write it down and to give it its cores; if that fails, the program is never run.
    """
    if (why := missing_program(command)) is not None:
        raise StartError(f"{name} cannot be started: {why}")
    output: int = subprocess.DEVNULL
    try:
        if command.output is not None:
            output = os.open(command.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        process = subprocess.Popen(
            ["/bin/sh", "-c", GATE, "sh", *command.argv],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=command.directory,
            env={**os.environ, **command.environment, MARK: name},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StartError(f"{name} cannot be started ({command.argv[0]}): {reason}") from None
    finally:
        if output >= 0:
            os.close(output)
    assert process.stdin is not None
    try:
        started = start_time(process.pid)
        if started is None:
            raise StartError(f"{name} ended before it was started")
        prepare(Started(name, process.pid, started))
        process.stdin.write(b"go\n")
        process.stdin.close()
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process


def missing_program(command: Command) -> str | None:
    """Why a command cannot be run, as far as can be told before; None if nothing is known."""
    program = command.argv[0]
    if command.directory is not None and not command.directory.is_dir():
        return f"there is no folder {command.directory}"
    if "/" in program:
        path = (command.directory or Path()) / program
        if not path.exists():
            return f"there is no program {program}"
        return None if path.is_file() and os.access(path, os.X_OK) else f"{program} may not be run"
    folders = {**os.environ, **command.environment}.get("PATH", os.defpath).split(os.pathsep)
    found = any(os.access(Path(folder) / program, os.X_OK) for folder in folders if folder)
    return None if found else f"there is no program {program} in PATH"
