"""What each agent of a machine steers, so that no two steer the same: the second would take the first one's changes for
the original settings, and both would undo each other's.

One file for each agent in a folder that all know, locked for as long as its agent lives. The kernel gives the lock back
however an agent ends; what is left in its file then still counts until its changes are undone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flowsched_agent.controls.control import ControlError, Saved
from flowsched_agent.sensors.process import tree
from flowsched_agent.state_file import StateError, StateFile, boot_id, start_time
from flowsched_agent.system import System

FOLDER = Path("/run/flowsched/claims")
"""Of agents that may write there; the others read it, and have a folder of their user's."""
_ALONE_WITHIN_S = 1.0
_AGAIN_S = 0.01
_LOCK = "lock"


@dataclass(frozen=True)
class Target:
    """What a service or task is on the machine: a process with all that it starts, or a control group."""

    pid: int | None = None
    started: int | None = None
    groups: Mapping[str, int] = field(default_factory=dict)
    """Inodes by path, of a control group in all its trees."""


@dataclass(frozen=True)
class _Other:
    """What another agent has written down."""

    pid: int
    started: int
    state_file: Path
    targets: Mapping[str, Target]


def target_of(saved: Saved) -> Target | None:
    """What a control steers, by what it wrote down; None for what nobody else could find."""
    if saved.get("kind") == "process":
        return Target(int(saved["pid"]), int(saved["start"]))
    if saved.get("kind") == "group":
        return Target(groups={str(f["path"]): int(f["inode"]) for f in saved["group"]["folders"].values()})
    return None


def usual_folders(uid: int | None = None) -> tuple[Path, ...]:
    """Where claims are looked for; those of this agent are kept in the last that it can write."""
    uid = os.geteuid() if uid is None else uid
    if uid == 0:
        return (FOLDER,)
    runtime = Path(f"/run/user/{uid}")
    return (FOLDER, (runtime if runtime.is_dir() else Path(f"/tmp/flowsched-{uid}")) / "flowsched" / "claims")


class Claims:
    """Those of one agent."""

    def __init__(self, state_file: Path, system: System, folders: tuple[Path, ...] | None = None) -> None:
        """Nothing is claimed yet."""
        self._state_file = state_file.resolve()
        self._system = system
        self._folders = usual_folders() if folders is None else folders
        self._own: Path | None = None
        self._descriptor: int | None = None
        self._targets: dict[str, Target] = {}

    def take(self, name: str, target: Target) -> None:
        """Claim what a service or task is. Raises :class:`ControlError` where another agent has it, or had it."""
        if self._targets.get(name) == target:
            return
        what = f"{name} was to be steered"
        try:
            with self._alone():
                mine = self._processes(target)
                for other, alive in self._others():
                    for theirs, one in other.targets.items():
                        if self._overlap(target, mine, one):
                            raise ControlError(what, _refusal(theirs, other, alive))
                self._targets[name] = target
                self._write()
        except OSError as error:
            why = f"what other agents steer cannot be looked up in {self._folders[-1]}: {error.strerror or error}"
            raise ControlError(what, why) from None

    def drop(self, name: str) -> None:
        """It is steered no longer."""
        if self._targets.pop(name, None) is not None:
            # Where this fails the next claim writes it as well.
            with contextlib.suppress(OSError), self._alone():
                self._write()

    def close(self) -> None:
        """Nothing is claimed any more; what could not be put back stays written down."""
        if self._own is not None and self._all_undone():
            with contextlib.suppress(OSError):
                self._own.unlink()
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._own = self._descriptor = None

    # The folder

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One agent at a time looks and claims. Raises :class:`OSError`."""
        folder = self._folders[-1]
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        about = folder.stat()
        if about.st_uid != os.geteuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(0, "that folder is not this user's alone")
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            until = time.monotonic() + _ALONE_WITHIN_S
            while not _locked(lock):
                if time.monotonic() >= until:
                    raise TimeoutError(0, "another agent is at it and does not end")
                time.sleep(_AGAIN_S)
            yield
        finally:
            os.close(lock)

    def _others(self) -> Iterator[tuple[_Other, bool]]:
        """All others whose claims count, and whether they live. What is left of others is removed."""
        for folder in self._folders:
            for path in sorted(folder.glob("*.json")) if os.access(folder, os.R_OK | os.X_OK) else ():
                if path == self._own:
                    continue
                try:
                    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                except FileNotFoundError:
                    continue
                try:
                    alive = not _locked(descriptor)
                    other = _read(descriptor)
                finally:
                    os.close(descriptor)
                if other is not None and (alive or self._to_be_undone(other)):
                    yield other, alive
                elif not alive:
                    with contextlib.suppress(OSError):
                        path.unlink()

    def _to_be_undone(self, other: _Other) -> bool:
        """Whether an agent that is gone left changes that are still there. Ours are undone before we claim anything."""
        if other.state_file == self._state_file:
            return False
        try:
            state = StateFile(other.state_file).read()
        except StateError:
            return other.state_file.exists()
        if state is None or not state.saved or state.boot_id != boot_id():
            return False
        return (state.agent_pid, state.agent_started) == (other.pid, other.started)

    def _all_undone(self) -> bool:
        try:
            state = StateFile(self._state_file).read()
        except StateError:
            return False
        return state is None or not state.saved

    def _write(self) -> None:
        pid = os.getpid()
        started = start_time(pid) or 0
        if self._descriptor is None:
            own = self._folders[-1] / f"{pid}.{started}.json"
            descriptor = os.open(own, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            if not _locked(descriptor):
                os.close(descriptor)
                raise BlockingIOError(0, f"{own.name} belongs to an agent with the same process id")
            self._own, self._descriptor = own, descriptor
        text = json.dumps(
            {
                "pid": pid,
                "started": started,
                "stateFile": str(self._state_file),
                "targets": {
                    name: {"pid": t.pid, "started": t.started, "groups": dict(t.groups)}
                    for name, t in self._targets.items()
                },
            }
        ).encode()
        os.pwrite(self._descriptor, text, 0)
        os.ftruncate(self._descriptor, len(text))

    # Who is who

    def _overlap(self, target: Target, mine: set[tuple[int, int]], other: Target) -> bool:
        same = any(target.groups.get(path) == inode for path, inode in other.groups.items())
        return same or bool(mine & self._processes(other))

    def _processes(self, target: Target) -> set[tuple[int, int]]:
        """All that belongs to a target now, with start times."""
        if target.pid is not None:
            if start_time(target.pid, self._system.proc) != target.started:
                return set()
            return {(p.pid, p.start) for p in tree(self._system, target.pid)}
        found = set()
        for path, inode in target.groups.items():
            folder = Path(path)
            if not self._system.exists(folder) or self._system.inode(folder) != inode:
                continue
            for pid in self._members(folder):
                if (started := start_time(pid, self._system.proc)) is not None:
                    found.add((pid, started))
        return found

    def _members(self, folder: Path) -> Iterator[int]:
        """Processes of a group and of all groups below it."""
        with contextlib.suppress(OSError):
            yield from (int(pid) for pid in self._system.read(folder / "cgroup.procs").split())
            for below in self._system.folders(folder):
                yield from self._members(folder / below)


def _refusal(name: str, other: _Other, alive: bool) -> str:
    if alive:
        return (
            f"another agent, process {other.pid} with the state file {other.state_file}, steers it as {name}; stop that "
            "agent, or take it out of one of the two configurations"
        )
    return (
        f"the agent that steered it as {name}, process {other.pid}, was killed and has not put it back; "
        f"'flowsched agent restore --state {other.state_file}' does"
    )


def _locked(descriptor: int) -> bool:
    """Take the lock; whether it was free."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(descriptor: int) -> _Other | None:
    """None for a file that is not written yet, or not by an agent."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        content = file.read(1024 * 1024)
    try:
        plain: Any = json.loads(content)
        targets = {
            str(name): Target(t["pid"], t["started"], {str(p): int(i) for p, i in t["groups"].items()})
            for name, t in plain["targets"].items()
        }
        return _Other(int(plain["pid"]), int(plain["started"]), Path(str(plain["stateFile"])), targets)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
