"""Who goes where in a round: columns of machines, and a whole plan that can be changed and priced."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple


class Column(NamedTuple):
    """A place in the plan: a machine, now (slot 0) or after the slot-th completion there, at a width."""

    machine: int
    slot: int
    width_milli: int


class Newcomer(NamedTuple):
    """A class of task in a column, as its machine sees it. Sorted tuples of these identify what joins a machine."""

    task_class: int
    slot: int
    width_milli: int


Company = tuple[Newcomer, ...]
"""All newcomers of one machine, sorted."""


def joined(company: Company, newcomer: Newcomer) -> Company:
    """A company with one more member."""
    at = bisect_left(company, newcomer)
    return (*company[:at], newcomer, *company[at:])


@dataclass
class Assignment:
    """A column for every pending task, or None for one that stays on the unscheduled node."""

    columns: list[Column | None]
    class_of: tuple[int, ...]
    machines: int

    def __post_init__(self) -> None:
        """Index the tasks by machine."""
        self.moves = 0
        """How often it was changed: a plan with as many moves as before is as it was."""
        self._by_machine: list[list[int]] = [[] for _ in range(self.machines)]
        for task, column in enumerate(self.columns):
            if column is not None:
                self._by_machine[column.machine].append(task)

    def copy(self) -> Assignment:
        """An independent copy."""
        return Assignment(list(self.columns), self.class_of, self.machines)

    def move(self, task: int, column: Column | None) -> None:
        """Change one task's column."""
        self.moves += 1
        old = self.columns[task]
        if old is not None:
            self._by_machine[old.machine].remove(task)
        self.columns[task] = column
        if column is not None:
            self._by_machine[column.machine].append(task)

    def on(self, machine: int) -> tuple[int, ...]:
        """Tasks that are planned for a machine, ascending."""
        return tuple(sorted(self._by_machine[machine]))

    def company(self, machine: int, without: int | None = None) -> Company:
        """The newcomers of a machine, with one task left out."""
        members = [
            Newcomer(self.class_of[t], c.slot, c.width_milli)
            for t in self._by_machine[machine]
            if t != without and (c := self.columns[t]) is not None
        ]
        members.sort()
        return tuple(members)
