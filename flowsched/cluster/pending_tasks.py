"""The waiting tasks of a cluster as events change them, and what a snapshot shows of them.

Each round leaves most of them waiting. So the number of rounds that a task has waited is not counted up: it is the number of
the round less that of the first one, and a task with that number is made when a reader asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from flowsched.cluster.change_log import ChangeLog, LogMark
from flowsched.cluster.snapshot import Snapshot, Task
from flowsched.support.late_sequence import LateSequence


class Wait(NamedTuple):
    """A task that waits, the same object from snapshot to snapshot."""

    task: Task
    """As it came."""
    first: int
    """The round that was its first, as far as its ``rounds_waited`` tells."""

    def in_round(self, number: int) -> Task:
        """The task as the round with this number sees it."""
        return self.task.waiting_for(number - self.first)


class PendingTasks(LateSequence[Task]):
    """The tasks that wait at one moment, in the order in which they came; made when the first is asked for."""

    def __init__(self, waits: tuple[Wait, ...], round: int, mark: LogMark[Wait]) -> None:
        """``round``: the number of the next round. ``mark``: all that came and went until then."""
        self.waits = waits
        self.mark = mark
        self._round = round

    @cached_property
    def all(self) -> tuple[Task, ...]:
        """All of them."""
        return tuple([wait.in_round(self._round) for wait in self.waits])

    def __len__(self) -> int:
        return len(self.waits)


def waits_of(snapshot: Snapshot) -> Sequence[Wait]:
    """What waits, without making each task again."""
    if isinstance(snapshot.pending, PendingTasks):
        return snapshot.pending.waits
    return [Wait(task, snapshot.round - task.rounds_waited) for task in snapshot.pending]


class PendingTable:
    """What waits, by name."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._waits: dict[str, Wait] = {}
        self._log: ChangeLog[Wait] = ChangeLog()

    def __len__(self) -> int:
        return len(self._waits)

    def __contains__(self, name: str) -> bool:
        return name in self._waits

    def put(self, task: Task, round: int) -> None:
        """A task waits from now on; ``round``: the number of the next round."""
        wait = self._waits[task.name] = Wait(task, round - task.rounds_waited)
        self._log.came(wait)

    def get(self, name: str, round: int) -> Task | None:
        """A task with the rounds that it has waited; None where it does not wait."""
        wait = self._waits.get(name)
        return None if wait is None else wait.in_round(round)

    def drop(self, name: str) -> None:
        """A task that waits does so no longer."""
        self._log.went(self._waits.pop(name))

    def postponed(self, names: Iterable[str]) -> None:
        """Count, for those of the tasks that wait, that a round let them wait by choice."""
        for name in names:
            if name in self._waits:
                wait = self._waits[name]
                self._log.went(wait)
                other = replace(wait.task, postponements=wait.task.postponements + 1)
                self._waits[name] = wait._replace(task=other)
                self._log.came(self._waits[name])

    def mark(self) -> LogMark[Wait]:
        """All that came and went until now."""
        return self._log.mark()

    def at(self, round: int) -> PendingTasks:
        """What waits now; ``round``: the number of the next round."""
        return PendingTasks(tuple(self._waits.values()), round, self._log.mark())
