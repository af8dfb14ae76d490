"""What each agent of a machine steers, so that no two steer the same: the second would take the first one's changes for
the original settings, and both would undo each other's.

One file for each agent in a folder that all know, locked for as long as its agent lives. The kernel gives the lock back
however an agent ends; what is left in its file then still counts until its changes are undone.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flowsched_agent.controls.control import Saved
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.sensors.process import Process, processes, tree_among
from flowsched_agent.state_file import StateError, StateFile, boot_id, locked, start_time
from flowsched_agent.system import System

FOLDER = Path("/run/flowsched/claims")
"""Of agents that may write there; the others read it, and have a folder of their user's."""
_ALONE_WITHIN_S = 1.0
_LARGEST = 1024 * 1024
_LOCK = "lock"
_CLAIMS = "[0-9]*.[0-9]*.json"
"""Files of agents, by process id and start time. Nothing else in the folder is ours to read or to remove."""


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
    """What a control steers, by what it wrote down; None for what no other agent could find."""
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
    # Right below /tmp no other user can put another folder in its place.
    own = runtime / "flowsched" / "claims" if runtime.is_dir() else Path(f"/tmp/flowsched-claims-{uid}")
    return (FOLDER, own)


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
        self._content = b""
        """Of our file."""

    def take(self, name: str, target: Target) -> None:
        """Claim what a service or task is. Raises :class:`ControlError` where another agent has it, or had it."""
        if self._targets.get(name) == target:
            return
        what = f"{name} was to be steered"
        try:
            with self._alone():
                self._compare(what, target)
                self._write({**self._targets, name: target})
        except OSError as error:
            why = f"what other agents steer cannot be looked up in {self._folders[-1]}: {error.strerror or error}"
            raise ControlError(what, why) from None

    def drop(self, name: str) -> None:
        """It is steered no longer."""
        if self._targets.pop(name, None) is not None:
            # Where this fails the next claim writes it as well.
            with contextlib.suppress(OSError), self._alone():
                self._write(self._targets)

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
        about = folder.lstat()
        alone = stat.S_ISDIR(about.st_mode) and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not alone or about.st_uid != os.geteuid():
            raise PermissionError(0, "that folder is not this user's alone")
        # Who may open it can hold it, and keep every agent waiting.
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if not locked(lock, _ALONE_WITHIN_S):
                raise TimeoutError(0, f"timed out after {_ALONE_WITHIN_S:g} s waiting for another agent's lock")
            yield
        finally:
            os.close(lock)

    def _others(self) -> Iterator[tuple[_Other, bool]]:
        """All others whose claims count, and whether they live. What is left of others is removed.

        Raises :class:`OSError` where one that lives cannot be understood: it may steer anything.
        """
        for folder in self._folders:
            for path in sorted(folder.glob(_CLAIMS)) if os.access(folder, os.R_OK | os.X_OK) else ():
                if path == self._own:
                    continue
                try:
                    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                except FileNotFoundError:
                    continue
                try:
                    alive = not locked(descriptor)
                    other = _read(descriptor)
                finally:
                    os.close(descriptor)
                if other is None and alive:
                    raise OSError(0, f"{path.name}, of an agent that lives, cannot be understood")
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
            with contextlib.suppress(OSError):
                return other.state_file.exists()
            return True
        if state is None or not state.saved or state.boot_id != boot_id():
            return False
        return (state.agent_pid, state.agent_started) == (other.pid, other.started)

    def _all_undone(self) -> bool:
        try:
            state = StateFile(self._state_file).read()
        except StateError:
            return False
        return state is None or not state.saved

    def _write(self, targets: Mapping[str, Target]) -> None:
        """These are ours from now on. Where that cannot be written, those before are. Raises :class:`OSError`."""
        pid = os.getpid()
        started = start_time(pid) or 0
        if self._descriptor is None:
            own = self._folders[-1] / f"{pid}.{started}.json"
            descriptor = os.open(own, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            if not locked(descriptor):
                os.close(descriptor)
                raise BlockingIOError(0, f"{own.name} belongs to an agent with the same process id")
            os.fchmod(descriptor, 0o644)  # whatever the umask is: agents of others read it
            self._own, self._descriptor = own, descriptor
        plain = {
            "pid": pid,
            "started": started,
            "stateFile": str(self._state_file),
            "targets": {name: asdict(target) for name, target in targets.items()},
        }
        content = json.dumps(plain).encode()
        try:
            _fill(self._descriptor, content)
        except OSError:
            self._as_before()
            raise
        self._content, self._targets = content, dict(targets)

    def _as_before(self) -> None:
        """A running agent must leave no file that cannot be parsed."""
        assert self._own is not None and self._descriptor is not None
        with contextlib.suppress(OSError):
            if self._content:
                _fill(self._descriptor, self._content)  # there was room for it
            else:
                self._own.unlink()
        if self._content:
            return
        os.close(self._descriptor)
        self._own = self._descriptor = None

    # Who is who

    def _compare(self, what: str, target: Target) -> None:
        """Raise :class:`ControlError` if another agent has the target, a part of it or something around it."""
        others = list(self._others())
        if not others:
            return
        there = processes(self._system)  # once for all claims: that is most of the work
        mine = self._members_of(target, there)
        for other, alive in others:
            for theirs, one in other.targets.items():
                if self._nested(target, one) or mine & self._members_of(one, there):
                    raise ControlError(what, _refusal(theirs, other, alive))

    def _nested(self, one: Target, other: Target) -> bool:
        """Whether a group of one is the other's, or lies within it, also where no process is in it yet."""
        inner, outer = self._folders_of(one), self._folders_of(other)
        return any(a.is_relative_to(b) or b.is_relative_to(a) for a in inner for b in outer)

    def _folders_of(self, target: Target) -> list[Path]:
        """Its groups, but those that are gone or others by now."""
        folders = [(Path(path), inode) for path, inode in target.groups.items()]
        return [folder for folder, inode in folders if self._is(folder, inode)]

    def _is(self, folder: Path, inode: int) -> bool:
        try:
            return self._system.inode(folder) == inode
        except OSError:
            return False

    def _members_of(self, target: Target, there: list[Process]) -> set[tuple[int, int]]:
        """All that belongs to a target now, with start times."""
        starts = {process.pid: process.start for process in there}
        if target.pid is not None:
            if starts.get(target.pid) != target.started:
                return set()
            return {(p.pid, p.start) for p in tree_among(there, target.pid)}
        pids = {pid for folder in self._folders_of(target) for pid in self._pids(folder)}
        return {(pid, starts[pid]) for pid in pids if pid in starts}

    def _pids(self, folder: Path) -> Iterator[int]:
        """Processes of a group and of all groups below it."""
        with contextlib.suppress(OSError):
            yield from (int(pid) for pid in self._system.read(folder / "cgroup.procs").split())
            for below in self._system.folders(folder):
                yield from self._pids(folder / below)


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


def _fill(descriptor: int, content: bytes) -> None:
    """Replace what a file holds, in place: its lock is that of its inode. Raises :class:`OSError`."""
    if (written := os.pwrite(descriptor, content, 0)) != len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{written} bytes")
    os.ftruncate(descriptor, len(content))


def _read(descriptor: int) -> _Other | None:
    """None for what no agent has written."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        content = file.read(_LARGEST)
    try:
        # The end of an older, longer text may follow for a moment.
        plain: Any = json.JSONDecoder().raw_decode(content.decode())[0]
        targets = {
            str(name): Target(t["pid"], t["started"], {str(p): int(i) for p, i in t["groups"].items()})
            for name, t in plain["targets"].items()
        }
        return _Other(int(plain["pid"]), int(plain["started"]), Path(str(plain["stateFile"])), targets)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
