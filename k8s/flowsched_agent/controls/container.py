"""A container, or whatever else has a cgroup of its own: steered by its group, and by threads where that has no file."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flowsched_agent.controls.cgroup_v1 import GroupV1
from flowsched_agent.controls.cgroup_v2 import GroupV2
from flowsched_agent.controls.control import Control, Saved, try_all
from flowsched_agent.controls.group import UNIFIED, Group
from flowsched_agent.controls.hierarchies import Hierarchies, groups_of
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.controls.scheduling import OneWay
from flowsched_agent.controls.threads import Threads
from flowsched_agent.sensors.process import Process, living
from flowsched_agent.system import System
from flowsched_models.quantity import format_cores


class ContainerControl(Control):
    """Steers one group. No process of it is the first."""

    def __init__(self, system: System, name: str, group: Group, one_way: OneWay | None = None) -> None:
        """Notes all settings. Raises :class:`ControlError`. ``one_way``: what of its threads could not be taken back."""
        super().__init__(system, name, Threads(system, name, self.members, one_way))
        self._group = group
        self._threads.remember()
        self._by_threads: set[str] = set()

    def members(self) -> list[Process]:
        """Processes of the group."""
        return sorted(living(self._system, self._group.pids()), key=lambda process: (process.start, process.pid))

    def set_cores(self, cores: tuple[int, ...]) -> None:
        """Its cpuset, or else the affinity of every thread."""
        super().set_cores(cores)
        if not self._group.has_cores:
            self._instead("cpuset", "the affinity of its threads")
            self._threads.set_cores(cores)
            return
        got = self._group.set_cores(cores)
        if set(got) != set(cores):
            self._threads.said.append(
                f"{self.name} was to run on the CPUs {format_cores(cores)} and runs on {format_cores(got)}: "
                "the group above it has no more"
            )

    def set_weight(self, weight: float) -> None:
        """Its group's, or else nice values and SCHED_IDLE within it."""
        super().set_weight(weight)
        if self._group.has_weight:
            self._group.set_weight(weight)
        else:
            self._instead("cpu", "nice values, which count only within the group that it shares")
            self._threads.set_weight(weight)

    def set_quota(self, cpus: float | None) -> None:
        """Its group's."""
        super().set_quota(cpus)
        if self._group.has_weight:
            self._group.set_quota(cpus)
        elif cpus is not None:
            raise ControlError(
                f"{self.name} was to have {cpus:g} CPUs at most",
                f"{self._group.where} has no cpu controller; let its runtime put it into a cpu group of its own",
            )

    def pause(self) -> None:
        """Freeze its group, or else SIGSTOP to all of its processes."""
        if not self._group.has_freezer:
            self._instead("freezer", "SIGSTOP")
            self._threads.stop()
        elif not self._group.freeze():
            self._threads.said.append(
                f"{self.name} is being frozen and does not stand still yet: a task of it waits inside the kernel"
            )

    def resume(self) -> None:
        """Thaw it."""
        if self._group.has_freezer:
            self._group.thaw()
        else:
            self._threads.go_on()

    def paused(self) -> bool:
        """Whether all of it stands still."""
        return self._group.frozen() if self._group.has_freezer else self._threads.stopped()

    def _used_s(self) -> float:
        """By its group, or else the sum over its processes."""
        return self._group.cpu_s() if self._group.counts_cpu else self._used.read(self.members())

    def alive(self) -> bool:
        """Whether the group is there and has a process."""
        try:
            return self._group.there() and bool(self.members())
        except (ControlError, OSError):
            return False

    def saved(self) -> Saved:
        """Plain JSON."""
        return {
            "kind": "group",
            "name": self.name,
            "boot": self._system.boot(),
            "group": self._group.saved(),
            "frozen_by_group": self._group.has_freezer,
            "stopped": self._threads.was_stopped,
            "threads": self._threads.saved(),
        }

    def before_first(self, announce: Callable[[], None]) -> None:
        """Of each file of its group."""
        self._group.before_first(announce)

    def restore(self) -> None:
        """Bring back the group's files, and the classes and affinities of its threads."""
        # A frozen thread takes new settings as well, so the order is free; the group holds the tasks, so it is first.
        try_all((self._group.restore, self._threads.restore))

    def _instead(self, controller: str, other: str) -> None:
        """Say once how it is done without a controller."""
        if controller not in self._by_threads:
            self._by_threads.add(controller)
            self._threads.said.append(f"{self.name} has no {controller} group of its own; it is steered by {other}")


def control_at(
    system: System, hierarchies: Hierarchies, name: str, paths: Mapping[str, str], one_way: OneWay | None = None
) -> ContainerControl:
    """Steers the group at these paths by tree. Raises :class:`ControlError`.

    A tree in which it is the root, or holds the agent as well, is left out: what belongs to all is not steered.
    """
    roots = hierarchies.trees()
    own = groups_of(system, hierarchies, system.own_pid())
    folders = {
        tree: roots[tree] / path.lstrip("/")
        for tree, path in paths.items()
        if path != "/" and not f"{own.get(tree, '/')}/".startswith(f"{path}/")
    }
    if not folders:
        raise ControlError(
            f"{name} was to be steered by its group",
            "it is in the root group, or in that of the agent; start it as a container, or steer it as a process",
        )
    if hierarchies.kind == "v2":
        return ContainerControl(system, name, GroupV2(system, folders[UNIFIED]), one_way)
    # The v2 tree of a hybrid machine is the last resort.
    ordered = {tree: folders[tree] for tree in sorted(folders, key=lambda tree: (tree == UNIFIED, tree))}
    return ContainerControl(system, name, GroupV1(system, ordered), one_way)
