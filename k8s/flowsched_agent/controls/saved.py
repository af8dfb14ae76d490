"""Settings that were written down, brought back by another process: the watchdog, or the next start."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from flowsched_agent.controls.cgroup_v1 import GroupV1
from flowsched_agent.controls.cgroup_v2 import GroupV2
from flowsched_agent.controls.control import Saved
from flowsched_agent.controls.group import group_files
from flowsched_agent.controls.hierarchies import find_hierarchies
from flowsched_agent.controls.own_group import leave_group
from flowsched_agent.controls.process import write_autogroup
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.controls.threads import Settings, Thread, restore_thread, settings_from, signal_process
from flowsched_agent.sensors.process import Process, living, read_process, start_time, threads, tree
from flowsched_agent.system import System


def restore_saved(saved: Saved, system: System | None = None) -> list[str]:
    """Bring back what a control had saved; sentences of what was done and what could not be. Never raises.

    Nothing is touched after a restart of the machine, no process that got the number of another, and no group that got
    the name of another. Doing it twice does no harm.
    """
    system = system or System()
    name = str(saved.get("name", "something without a name"))
    try:
        if saved["boot"] != system.boot():
            return [f"{name} was left alone: the machine was started anew since its settings were saved"]
        if saved["kind"] == "process":
            return _process(system, name, saved)
        if saved["kind"] == "group":
            return _group(system, name, saved)
        return [f"{name} was left alone: '{saved['kind']}' is no kind of control; it was saved by another version"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return [f"{name} was left alone: what was saved of it is damaged ({error!r})"]
    except (OSError, ControlError) as error:
        return [f"{name} could not be restored: {error}"]


def _process(system: System, name: str, saved: Saved) -> list[str]:
    known = dict(map(settings_from, saved["threads"]))
    pid, start = int(saved["pid"]), int(saved["start"])
    group = saved["group"]
    folders = {} if group is None else _same(system, group["folders"])
    members = _members(system, pid, start, known, folders)
    said = _threads(system, name, known, members)
    if saved["autogroup"] is not None and start_time(system, pid) == start:
        said += _tried(lambda: write_autogroup(system, name, pid, int(saved["autogroup"])))
    if folders:
        origins = {
            (int(entry["pid"]), int(entry["start"])): {str(k): str(v) for k, v in entry["groups"].items()}
            for entry in group["origins"]
        }
        said += _tried(lambda: leave_group(system, name, folders, origins, find_hierarchies(system)))
    said += _go_on(system, name, members, stopped=bool(saved["stopped"]))
    if not members:
        return [*said, f"{name} has ended (process {pid}); nothing of it was left to restore"]
    return said or [f"{name} has its former settings again (process {pid})"]


def _group(system: System, name: str, saved: Saved) -> list[str]:
    known = dict(map(settings_from, saved["threads"]))
    files, why = group_files(system, saved["group"])
    if files is None:
        return [f"{name}: {why}"]
    folder = next(iter(files.folders.values()))
    group = (
        GroupV2(system, folder, files) if saved["group"]["version"] == "v2" else GroupV1(system, files.folders, files)
    )
    said = _tried(group.restore)
    members = living(system, group.pids())
    said += _threads(system, name, known, members)
    if not saved["frozen_by_group"]:
        said += _go_on(system, name, members, stopped=bool(saved["stopped"]))
    return said or [f"{name} has its former settings again (group {group.where})"]


def _same(system: System, folders: dict[str, Any]) -> dict[str, Path]:
    """Those of the folders that are still the same."""
    found = {}
    for tree_name, entry in folders.items():
        path = Path(entry["path"])
        with contextlib.suppress(OSError):
            if system.cgroup in path.parents and ".." not in path.parts and system.inode(path) == entry["inode"]:
                found[str(tree_name)] = path
    return found


def _members(
    system: System, pid: int, start: int, known: dict[Thread, Settings], folders: dict[str, Path]
) -> list[Process]:
    """Processes that certainly belong to it: its tree while the first is there, those noted, those in its own group."""
    found: dict[int, Process] = {}
    if start_time(system, pid) == start:
        found = {process.pid: process for process in tree(system, pid)}
    starts = {thread.pid: thread.start for thread in known if thread.tid == thread.pid}
    inside: set[int] = set()
    for folder in folders.values():
        with contextlib.suppress(OSError):
            inside |= {int(line) for line in system.read(folder / "cgroup.procs").split()}
    for process in living(system, {*starts, *inside} - set(found)):
        if process.pid in inside or process.start == starts[process.pid]:
            found[process.pid] = process
    return list(found.values())


def _threads(system: System, name: str, known: dict[Thread, Settings], members: Iterable[Process]) -> list[str]:
    """Classes and affinities; threads that came later get those of the first."""
    said: list[str] = []
    if not known:
        return said
    usual = next(iter(known.values()))
    for process in members:
        for tid in threads(system, process.pid):
            thread = read_process(system, process.pid, tid)
            if thread is None:
                continue
            settings = known.get(Thread(process.pid, tid, thread.start), usual)
            try:
                restore_thread(system, name, tid, settings)
            except ControlError as error:
                if not error.gone:
                    said.append(str(error))
    return list(dict.fromkeys(said))


def _go_on(system: System, name: str, members: Iterable[Process], *, stopped: bool) -> list[str]:
    said = []
    for process in () if stopped else members:
        try:
            signal_process(system, process, signal.SIGCONT)
        except ProcessLookupError:
            continue
        except OSError as error:
            said.append(f"{name} could not be resumed (process {process.pid}): {error.strerror}")
    return said


def _tried(act: Callable[[], None]) -> list[str]:
    try:
        act()
    except ControlError as error:
        return [] if error.gone else [str(error)]
    return []
