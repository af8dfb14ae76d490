"""Since when tasks have waited, and which of them are overdue."""

from __future__ import annotations

from collections.abc import Iterable

from flowsched.node.reading import TaskState

SeenTask = tuple[str, TaskState, float]
"""Name and state of a task, and when it was submitted."""


class TaskWaits:
    """Of the tasks of one machine. Keeps no clock: all times are those of the readings, in seconds."""

    def __init__(self, due_s: float) -> None:
        """``due_s``: seconds after which a task that waits or is paused is overdue."""
        self.due_s = due_s
        self.due: frozenset[str] = frozenset()
        """Tasks that waited for too long: they are not paused any more."""
        self._since: dict[str, float] = {}

    def note(self, t_s: float, tasks: Iterable[SeenTask]) -> None:
        """What all tasks that are there do at a moment; the others are forgotten."""
        since: dict[str, float] = {}
        present = set()
        for name, state, submitted_s in tasks:
            present.add(name)
            if state is not TaskState.RUNNING:
                since[name] = self._since.get(name, submitted_s if state is TaskState.QUEUED else t_s)
        self._since = since
        # What is overdue stays so: otherwise it would run for one tick and wait for as long again.
        late = {name for name, began_s in since.items() if t_s - began_s >= self.due_s}
        self.due = frozenset((self.due & present) | late)

    def waited_s(self, name: str, t_s: float) -> float:
        """Seconds that a task has waited by then; 0 for one that runs."""
        return t_s - self._since.get(name, t_s)
