"""Where a process was before it gets a cgroup of its own: written down before, for that move comes ahead of all settings."""

from __future__ import annotations

from typing import Any

from flowsched_agent.controls.control import Saved
from flowsched_agent.controls.hierarchies import Hierarchies, find_hierarchies, groups_of
from flowsched_agent.controls.own_group import PARENT, leave_group, own_folders, remove_empty_groups
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.controls.saved import restore_saved
from flowsched_agent.sensors.process import start_time
from flowsched_agent.system import System

KIND = "origin"
SWEEP_S = 2.0
"""How long groups are waited for whose last process is just ending."""


def origin_of(system: System, hierarchies: Hierarchies, name: str, pid: int) -> Saved:
    """The groups of a process as plain JSON, for :func:`restore`. Raises ``ControlError``."""
    start = start_time(system, pid)
    if start is None:
        raise ControlError(f"{name} was to be steered", f"process {pid} is gone", gone=True)
    groups = {
        tree: "/" if path.startswith(f"/{PARENT}/") else path
        for tree, path in groups_of(system, hierarchies, pid).items()
    }
    return {"kind": KIND, "name": name, "boot": system.boot(), "pid": pid, "start": start, "groups": groups}


def restore(saved: dict[str, Any], system: System | None = None) -> list[str]:
    """Bring back whatever was saved: settings of a control, or a process that was only moved. Never raises."""
    system = system or System()
    if saved.get("kind") != KIND:
        return restore_saved(saved, system)
    try:
        return _move_back(system, saved)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return [f"what was saved of a process is damaged ({error!r})"]
    except (OSError, ControlError) as error:
        return [f"{saved.get('name')} could not be moved back: {error}"]


def _move_back(system: System, saved: dict[str, Any]) -> list[str]:
    """Of the process, and of whatever else is in the group that was made for it: its children outlive it."""
    name, pid, start = str(saved["name"]), int(saved["pid"]), int(saved["start"])
    if saved["boot"] != system.boot():
        return []
    now = start_time(system, pid)
    if now not in (None, start):
        return []  # The number is another's, and so may be the group.
    hierarchies = find_hierarchies(system)
    folders = {tree: path for tree, path in own_folders(hierarchies, name, pid).items() if system.exists(path)}
    if now == start:
        roots = hierarchies.trees()
        folders |= {
            tree: roots[tree] / path.lstrip("/")
            for tree, path in groups_of(system, hierarchies, pid).items()
            if path.startswith(f"/{PARENT}/")
        }
    if not folders:
        return []
    groups = {str(tree): str(path) for tree, path in saved["groups"].items()}
    leave_group(system, name, folders, {(pid, start): groups}, hierarchies)
    return [f"{name} is in its former group again (process {pid})"]


def sweep(system: System | None = None, within_s: float = SWEEP_S) -> list[str]:
    """Remove groups without processes, whatever left them; sentences of what was removed. Never raises."""
    system = system or System()
    return remove_empty_groups(system, find_hierarchies(system), within_s)
