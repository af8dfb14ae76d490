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
        self._companies: list[Company | None] = [None] * self.machines
        self._without: list[dict[int, Company]] = [{} for _ in range(self.machines)]
        for task, column in enumerate(self.columns):
            if column is not None:
                self._by_machine[column.machine].append(task)

    def copy(self) -> Assignment:
        """An independent copy."""
        twin = Assignment([], self.class_of, 0)
        twin.columns, twin.machines = list(self.columns), self.machines
        twin._by_machine = [list(tasks) for tasks in self._by_machine]
        twin._companies = list(self._companies)
        twin._without = [dict(known) for known in self._without]
        return twin

    def move(self, task: int, column: Column | None) -> None:
        """Change one task's column."""
        self.moves += 1
        old = self.columns[task]
        if old is not None:
            self._by_machine[old.machine].remove(task)
            self._forget(old.machine)
        self.columns[task] = column
        if column is not None:
            self._by_machine[column.machine].append(task)
            self._forget(column.machine)

    def on(self, machine: int) -> tuple[int, ...]:
        """Tasks that are planned for a machine, ascending."""
        return tuple(sorted(self._by_machine[machine]))

    def company(self, machine: int, without: int | None = None) -> Company:
        """The newcomers of a machine, with one task left out."""
        whole = self._companies[machine]
        if whole is None:
            members = (
                Newcomer(self.class_of[t], c.slot, c.width_milli)
                for t in self._by_machine[machine]
                if (c := self.columns[t]) is not None
            )
            whole = self._companies[machine] = tuple(sorted(members))
        if without is None:
            return whole
        known = self._without[machine]
        rest = known.get(without)
        if rest is None:
            column = self.columns[without]
            if column is None or column.machine != machine:
                return whole
            at = whole.index(Newcomer(self.class_of[without], column.slot, column.width_milli))
            rest = known[without] = (*whole[:at], *whole[at + 1 :])
        return rest

    def _forget(self, machine: int) -> None:
        self._companies[machine] = None
        self._without[machine] = {}
