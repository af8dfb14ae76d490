"""What the agent has changed, on disk before it is changed: the file suffices to bring the machine back.

One JSON object, replaced whole by a rename and flushed before that. A lock beside it is held as long as its agent lives, so
that no second process restores what a running agent has set.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flowsched.cluster.class_runs import ClassRuns
from flowsched_agent.sensors import process
from flowsched_agent.system import System

LOG = logging.getLogger(__name__)

VERSION = 1
LARGEST = 16 * 1024 * 1024
MARK = "FLOWSCHED_AGENT_COMMAND"
"""In the environment of each command that an agent starts: its name. No other process is ended."""
_AGAIN_S = 0.02
_LARGEST = 10**15
"""Of numbers that were learnt: sums of them stay whole."""
_MACHINE = System()


class StateError(Exception):
    """The state file cannot be written or used; one sentence says why."""


class ForeignStateError(StateError):
    """The state file may come from others: what it says is not done."""


@dataclass(frozen=True)
class Started:
    """A command that the agent started: leader of its own session and process group."""

    name: str
    pid: int
    started: int
    """Start time of the process as the kernel counts it: tells it from a later one with the same id."""

    def runs(self) -> bool:
        """Whether it has not ended."""
        return start_time(self.pid) == self.started

    def is_marked(self) -> bool:
        """Whether the process was started as a command of an agent: see :data:`MARK`."""
        try:
            return f"{MARK}={self.name}" in _MACHINE.read(_MACHINE.proc / str(self.pid) / "environ").split("\0")
        except OSError:
            return False


@dataclass(frozen=True)
class State:
    """Everything that has to be undone, and what was started."""

    boot_id: str
    agent_pid: int
    agent_started: int
    saved: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Original settings by the name of what they belong to, as the controls gave them."""
    commands: tuple[Started, ...] = ()
    on_exit: str = "leave"
    learnt: tuple[ClassRuns, ...] = ()
    """What completions taught of run times: kept from one agent to the next, and nothing to be undone."""


def boot_id() -> str:
    """Tells this start of the machine from all others; empty where the kernel does not say."""
    try:
        return _MACHINE.boot()
    except OSError:
        return ""


def start_time(pid: int) -> int | None:
    """When a process started, in ticks since the machine did; None if there is none, or only its remains."""
    try:
        return process.start_time(_MACHINE, pid)
    except OSError:
        return None


def locked(descriptor: int, within_s: float = 0.0, clock: Callable[[], float] = time.monotonic) -> bool:
    """Take the lock of a file; whether it was free within that time."""
    until = clock() + within_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if clock() >= until:
                return False
            time.sleep(_AGAIN_S)


class StateFile:
    """The file of one agent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None
        self._written: str | None = None

    def acquire(self, within_s: float = 0.0, clock: Callable[[], float] = time.monotonic) -> bool:
        """Take the lock, waiting up to ``within_s`` seconds; False if another process holds it. Raises StateError."""
        if self._lock is not None:
            return True
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StateError(f"the state file {self.path} cannot be kept: {error.strerror or error}") from None
        if not locked(lock, within_s, clock):
            os.close(lock)
            return False
        self._lock = lock
        return True

    def release(self) -> None:
        """Give the lock back. Its file stays: who removed it could hold another one than the next agent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write(self, state: State) -> None:
        """Replace the file unless it says this already. On disk when this returns. Raises :class:`StateError`."""
        text = json.dumps(_plain(state), sort_keys=True)
        if text == self._written:
            return
        part = self.path.with_name(f".{self.path.name}.part")
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            part.rename(self.path)
            _flush_folder(self.path.parent)
        except OSError as error:
            raise StateError(f"the state file {self.path} cannot be written: {error.strerror or error}") from None
        self._written = text

    def read(self, *, own: bool = False) -> State | None:
        """What the file says; None if there is none. Raises :class:`StateError` for one that cannot be understood.

        ``own``: raises :class:`ForeignStateError` for one that others may have written, as what it says is to be done.
        """
        try:
            with self.path.open("rb") as file:
                if own and (why := _written_by_others(os.fstat(file.fileno()))):
                    raise ForeignStateError(f"the state file {self.path} {why}")
                content = file.read(LARGEST + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"the state file {self.path} cannot be read: {error.strerror or error}") from None
        if len(content) > LARGEST:
            raise StateError(f"the state file {self.path} is larger than {LARGEST // 1024 // 1024} MiB")
        try:
            return _state(json.loads(content))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            detail = " ".join(str(error).split())[:200]
            raise StateError(f"the state file {self.path} cannot be understood ({detail})") from None

    def remove(self) -> None:
        """There is nothing to be undone any more."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        self._written = None

    def set_aside(self) -> Path:
        """Keep a file that cannot be understood under another name, for people to look at."""
        aside = self.path.with_name(f"{self.path.name}.unreadable")
        self.path.replace(aside)
        return aside

    @property
    def _lock_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.lock")


def _written_by_others(status: os.stat_result) -> str:
    """How others than this user may have written a file; empty if they cannot have."""
    if status.st_uid != os.geteuid():
        return f"belongs to another user (uid {status.st_uid}), and this one is {os.geteuid()}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"may be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
    return ""


def _plain(state: State) -> dict[str, Any]:
    return {
        "version": VERSION,
        "bootId": state.boot_id,
        "agent": {"pid": state.agent_pid, "started": state.agent_started},
        "saved": {name: dict(saved) for name, saved in state.saved.items()},
        "commands": [{"name": c.name, "pid": c.pid, "started": c.started} for c in state.commands],
        "onExit": state.on_exit,
        "learnt": [list(runs) for runs in state.learnt],
    }


def _state(plain: Any) -> State:
    if not isinstance(plain, dict):
        raise TypeError("it holds no object")
    if plain.get("version") != VERSION:
        raise ValueError(f"its version is {plain.get('version')!r}, and {VERSION} is known")
    saved = plain["saved"]
    if not isinstance(saved, dict) or not all(isinstance(s, dict) for s in saved.values()):
        raise TypeError("its saved settings are no objects")
    return State(
        boot_id=str(plain["bootId"]),
        agent_pid=int(plain["agent"]["pid"]),
        agent_started=int(plain["agent"]["started"]),
        saved=saved,
        commands=tuple(Started(str(c["name"]), int(c["pid"]), int(c["started"])) for c in plain["commands"]),
        on_exit=str(plain["onExit"]),
        learnt=_learnt(plain.get("learnt")),
    )


def _learnt(plain: Any) -> tuple[ClassRuns, ...]:
    """Of each class and machine type once, in their order; what cannot be read is left out, as the rest must be undone."""
    found: dict[tuple[str, str], ClassRuns] = {}
    for row in plain if isinstance(plain, list) else ():
        match row:
            case [str(run_class), str(machine_type), *numbers] if len(numbers) == len(ClassRuns._fields) - 2:
                if run_class and all(type(n) is int and abs(n) <= _LARGEST for n in numbers) and numbers[0] >= 1:
                    found[run_class, machine_type] = ClassRuns(run_class, machine_type, *numbers)
    return tuple(found[key] for key in sorted(found))


def _flush_folder(folder: Path) -> None:
    """So that the rename outlives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
