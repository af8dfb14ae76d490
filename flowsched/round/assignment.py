"""A round's plan: the option that each pending task has, which can be changed and read machine by machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from flowsched.pricing.arrival import Arrival, Colocation


class PlacementOption(NamedTuple):
    """A place in a plan: a machine, now (``start_after`` 0) or after so many completions there, at a width, with the
    services' cores or without.
    """

    machine: int
    start_after: int
    width_milli: int
    shared: bool = False


@dataclass
class Assignment:
    """An option for every pending task, or None for one that stays on the unscheduled node."""

    options: list[PlacementOption | None]
    class_of: tuple[int, ...]
    machines: int

    def __post_init__(self) -> None:
        """Index the tasks by machine."""
        self.moves = 0
        """How often it was changed: a plan with as many moves as before is as it was."""
        self._by_machine: dict[int, list[int]] = {}
        self._colocations: dict[int, Colocation] = {}
        self._without: dict[int, dict[int, Colocation]] = {}
        for task, option in enumerate(self.options):
            if option is not None:
                self._by_machine.setdefault(option.machine, []).append(task)

    def copy(self) -> Assignment:
        """An independent copy."""
        twin = Assignment([], self.class_of, 0)
        twin.options, twin.machines = list(self.options), self.machines
        twin._by_machine = {m: list(tasks) for m, tasks in self._by_machine.items()}
        twin._colocations = dict(self._colocations)
        twin._without = {m: dict(known) for m, known in self._without.items()}
        return twin

    def move(self, task: int, option: PlacementOption | None) -> None:
        """Change one task's option."""
        self.moves += 1
        old = self.options[task]
        if old is not None:
            self._by_machine[old.machine].remove(task)
            self._forget(old.machine)
        self.options[task] = option
        if option is not None:
            self._by_machine.setdefault(option.machine, []).append(task)
            self._forget(option.machine)

    def on(self, machine: int) -> tuple[int, ...]:
        """Tasks that are planned for a machine, ascending."""
        return tuple(sorted(self._by_machine.get(machine, ())))

    def arrived(self) -> tuple[int, ...]:
        """Machines for which tasks are planned, ascending."""
        return tuple(sorted(m for m, tasks in self._by_machine.items() if tasks))

    def colocation(self, machine: int, without: int | None = None) -> Colocation:
        """The arriving tasks of a machine, with one task left out."""
        if machine not in self._by_machine:
            return ()
        whole = self._colocations.get(machine)
        if whole is None:
            members = (
                Arrival(self.class_of[t], c.start_after, c.width_milli, c.shared)
                for t in self._by_machine.get(machine, ())
                if (c := self.options[t]) is not None
            )
            whole = self._colocations[machine] = tuple(sorted(members))
        if without is None:
            return whole
        known = self._without.setdefault(machine, {})
        rest = known.get(without)
        if rest is None:
            option = self.options[without]
            if option is None or option.machine != machine:
                return whole
            at = whole.index(Arrival(self.class_of[without], option.start_after, option.width_milli, option.shared))
            rest = known[without] = (*whole[:at], *whole[at + 1 :])
        return rest

    def starting(self) -> Iterator[tuple[int, int]]:
        """Tasks that start now, each with its machine."""
        return ((t, o.machine) for t, o in enumerate(self.options) if o is not None and o.start_after == 0)

    def _forget(self, machine: int) -> None:
        self._colocations.pop(machine, None)
        self._without.pop(machine, None)
