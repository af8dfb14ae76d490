"""What the passes share: a plan under prices, with the moves that are allowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flowsched.assignment import Assignment, Column, Company, Newcomer, joined
from flowsched.compaction import View
from flowsched.outlook import Outlook
from flowsched.policies.policy import FORBIDDEN, Prices
from flowsched.reservation import Hold
from flowsched.solvers import Solver


@dataclass
class Tally:
    """Work done in a round, counted across all its searches."""

    solves: int = 0
    """Networks solved."""


@dataclass
class Search:
    """One round's search. A reserved machine takes only what is predicted to be gone before it is needed."""

    view: View
    outlook: Outlook
    prices: Prices
    solver: Solver
    slots: int
    pricings: int
    holds: Mapping[int, Hold] = field(default_factory=dict)
    """Machines that are reserved for a due task."""
    must_start: frozenset[int] = frozenset()
    """Tasks that may neither wait nor be planned for later."""
    widths: bool = False
    """Whether other widths than the narrowest are offered."""
    tally: Tally = field(default_factory=Tally)

    def machine_cost(self, machine: int, company: Company) -> float:
        """Cost of a machine that a company joins; ``FORBIDDEN`` where it must not, reservations included."""
        hold = self.holds.get(machine)
        if hold is not None and company and not hold.admits(self.outlook, self.view.group_of[machine], company):
            return FORBIDDEN
        return self.prices.machine_cost(self.view.group_of[machine], company)

    def cost(self, plan: Assignment, machine: int) -> float:
        """Cost of one machine under a plan."""
        return self.machine_cost(machine, plan.company(machine))

    def waiting(self, task: int) -> float:
        """Cost of a task on the unscheduled node."""
        return self.prices.waiting_cost(self.view.class_of[task])

    def total(self, plan: Assignment) -> float:
        """Cost of everything: machines with all who are on them, and tasks that wait."""
        if any((column := plan.columns[t]) is None or column.slot > 0 for t in self.must_start):
            return FORBIDDEN
        machines = sum(self.cost(plan, m) for m in range(len(self.view.machines)))
        return machines + sum(self.waiting(t) for t, column in enumerate(plan.columns) if column is None)

    def finish(self, plan: Assignment) -> tuple[int, float]:
        """What a makespan is judged by: tasks without a column that could have one, then the last predicted completion.

        A task that no machine could ever take spoils no plan.
        """
        ends = [self.prices.makespan_s(self.view.group_of[m], plan.company(m)) for m in range(len(self.view.machines))]
        return sum(self._placeable(t) for t, column in enumerate(plan.columns) if column is None), max(
            ends, default=0.0
        )

    def _placeable(self, task: int) -> bool:
        c = self.view.class_of[task]
        width = self.view.tasks[task].widths_milli[0]
        return any(self.view.could_fit(c, g, width) and self.prices.welcome(g, c) for g in range(len(self.view.groups)))

    def exhausted(self) -> bool:
        """Whether the round's forecasts are used up."""
        return self.outlook.forecasts >= self.pricings

    def columns(self, task: int, machine: int) -> list[Column]:
        """Columns of a machine that a task may take, narrow and early ones first."""
        c = self.view.class_of[task]
        if not self.view.allowed(c, machine):
            return []
        widths = self.view.classes[c].task.widths_milli
        if not self.widths:
            widths = widths[:1]
        late = 1 if machine in self.holds or task in self.must_start else self.slots
        return [Column(machine, slot, w) for slot in range(late) for w in widths]

    def leaving(self, plan: Assignment, task: int) -> float:
        """What a task costs where it is: the change of the total if it were gone."""
        column = plan.columns[task]
        if column is None:
            return self.waiting(task)
        machine = column.machine
        return self.machine_cost(machine, plan.company(machine)) - self.machine_cost(
            machine, plan.company(machine, without=task)
        )

    def best_column(
        self, plan: Assignment, task: int, machine: int, gone: int | None = None
    ) -> tuple[float, Column | None]:
        """Cheapest column of a machine for a task, and its price, with another task of the machine gone.

        The price is the exact change of the machine's total. Ties keep the earlier, narrower column.
        """
        here = plan.columns[task]
        stays = here is not None and here.machine == machine
        if gone is None and stays:
            gone = task
        others = plan.company(machine, without=gone)
        base = self.machine_cost(machine, others)
        c = self.view.class_of[task]
        best: tuple[float, Column | None] = (FORBIDDEN, None)
        for column in self.columns(task, machine):
            cost = self.machine_cost(machine, joined(others, Newcomer(c, column.slot, column.width_milli)))
            if cost - base < best[0] - 1e-12:
                best = (cost - base, column)
        return best
