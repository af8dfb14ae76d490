"""Jobs whose GPUs may be on other machines, in motion: they end with the last of their sub-tasks."""

from __future__ import annotations

from collections.abc import Iterable

from flowsched.cluster.snapshot import Task


class CoupledTasks:
    """Which tasks belong together, and which of them are through and wait for the others."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        """None is through."""
        members: dict[str, list[str]] = {}
        for task in tasks:
            if task.gpus_for:
                members.setdefault(task.gpus_for, [task.gpus_for]).append(task.name)
        self._together = {name: tuple(names) for names in members.values() for name in names}
        self._through: set[str] = set()

    def others(self, task: str) -> tuple[str, ...]:
        """The other sub-tasks of a task's job; none of a job that is not taken apart."""
        return tuple([name for name in self._together.get(task, ()) if name != task])

    def ended(self, task: str) -> tuple[str, ...]:
        """A task is through: the tasks that end with it. What a job holds it holds until its last sub-task is through."""
        names = self._together.get(task)
        if names is None:
            return (task,)
        self._through.add(task)
        if not self._through.issuperset(names):
            return ()
        self._through.difference_update(names)
        return names
