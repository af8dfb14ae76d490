"""What the passes share: a plan under prices, with the moves that are allowed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flowsched.assignment import Assignment, Column, Company, Newcomer, joined
from flowsched.census import Census
from flowsched.compaction import View
from flowsched.hold import Hold
from flowsched.offer import Offers
from flowsched.outlook import Outlook
from flowsched.policies.policy import FORBIDDEN, Prices
from flowsched.solvers import Solver

_ORDERS = 3
"""Orders that are tried where relations refuse somebody in the first one."""


@dataclass
class Tally:
    """Work done in a round, counted across all its searches."""

    solves: int = 0
    """Networks solved."""


@dataclass
class Search:
    """One round's search. A reserved machine takes only what is predicted to be gone before it is needed.

    Relations between tasks hold for every plan that has a cost: machine by machine in the prospects of companies, by
    domain in ``refused`` and ``total``.
    """

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
    barred: frozenset[int] = frozenset()
    """Tasks that may not start or be planned: their task group cannot start."""

    def __post_init__(self) -> None:
        """Note which tasks are bound by relations; most rounds have none."""
        census = self.view.census
        self._related = frozenset(t for t, task in enumerate(self.view.tasks) if census.concerns(task))
        self._counted: tuple[Assignment, int, Census] | None = None
        self.best_known = Offers(self.view, self.prices, self.slots, self.widths)
        """The best columns that were asked for so far."""
        self.passed: dict[tuple[Column | None, ...], list[tuple[int, Column | None]]] = {}
        """What one pass makes of a plan: its moves. Many starts come to the same plans."""
        self.exchanged: dict[tuple[Column | None, ...], Assignment | None] = {}
        """What an exchange makes of a plan; None where it is of no use."""

    def machine_cost(self, machine: int, company: Company) -> float:
        """Cost of a machine that a company joins; ``FORBIDDEN`` where it must not, reservations included."""
        hold = self.holds.get(machine)
        if (
            hold is not None
            and company
            and not hold.admits(self.view, self.prices, self.view.group_of[machine], company)
        ):
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
        if self._related and not self.orderly(plan):
            return FORBIDDEN
        machines = sum(self.cost(plan, m) for m in range(len(self.view.machines))) + self.spare_cost()
        return machines + sum(self.waiting(t) for t, column in enumerate(plan.columns) if column is None)

    def spare_cost(self) -> float:
        """Cost of the machines that no plan of this round uses."""
        groups = enumerate(self.view.groups)
        return sum(len(group.spares) * self.prices.machine_cost(g, ()) for g, group in groups if group.spares)

    def refused(self, plan: Assignment, task: int, machine: int, gone: int | None = None) -> bool:
        """Whether a relation keeps a task off a machine beside the rest of a plan; who is planned counts as there."""
        if task not in self._related:
            return False
        census = self._count(plan)
        away = [
            (self.view.tasks[t], self.view.machines[column.machine].name)
            for t in {task, gone}
            if t is not None and t in self._related and (column := plan.columns[t]) is not None
        ]
        for other, place in away:
            census.remove(other, place)
        refusal = census.refusal(self.view.tasks[task], self.view.machines[machine].name)
        for other, place in away:
            census.add(other, place)
        return refusal is not None

    def orderly(self, plan: Assignment) -> bool:
        """Whether there is an order in which relations let everybody go where the plan has them."""
        placed = [t for t in sorted(self._related) if plan.columns[t] is not None]
        return len(self.in_order(plan, placed, self.view.census.copy())) == len(placed)

    def in_order(self, plan: Assignment, tasks: Sequence[int], census: Census) -> list[int]:
        """Those of some tasks that can go to their machines one after the other, in an order that relations allow.

        They are added to ``census``. Those who come later may let in who was refused before, and where somebody stays
        refused because of who came earlier, those who were refused go first in another try.
        """
        order = list(tasks)
        best: list[int] = []
        for _ in range(_ORDERS):
            admitted = self._admit(plan, order, census)
            if len(admitted) == len(order):
                return admitted
            for t in reversed(admitted):
                self._count_in(census, plan, t, -1)
            if len(admitted) > len(best):
                best = admitted
            come = set(admitted)
            again = [*(t for t in order if t not in come), *(t for t in order if t in come)]
            if again == order:
                break
            order = again
        for t in best:
            self._count_in(census, plan, t, 1)
        return best

    def _admit(self, plan: Assignment, tasks: Sequence[int], census: Census) -> list[int]:
        """The same for one order; they are added to ``census``."""
        admitted: list[int] = []
        left = list(tasks)
        while left:
            refused = []
            for t in left:
                if census.refusal(self.view.tasks[t], self._place(plan, t)) is None:
                    self._count_in(census, plan, t, 1)
                    admitted.append(t)
                else:
                    refused.append(t)
            if len(refused) == len(left):
                break
            left = refused
        return admitted

    def _count_in(self, census: Census, plan: Assignment, task: int, sign: int) -> None:
        (census.add if sign > 0 else census.remove)(self.view.tasks[task], self._place(plan, task))

    def _place(self, plan: Assignment, task: int) -> str:
        column = plan.columns[task]
        assert column is not None, "only tasks with a column are asked for"
        return self.view.machines[column.machine].name

    def related(self, task: int) -> bool:
        """Whether any relation binds or counts a task."""
        return task in self._related

    def _count(self, plan: Assignment) -> Census:
        """Everybody who runs or has a column, counted by relation."""
        if self._counted is None or self._counted[0] is not plan or self._counted[1] != plan.moves:
            census = self.view.census.copy()
            for t in self._related:
                column = plan.columns[t]
                if column is not None:
                    census.add(self.view.tasks[t], self.view.machines[column.machine].name)
            self._counted = (plan, plan.moves, census)
        return self._counted[2]

    def finish(self, plan: Assignment) -> tuple[int, float]:
        """What a makespan is judged by: tasks without a column that could have one, then the last predicted completion.

        A task that no machine could ever take spoils no plan.
        """
        ends = [self.prices.makespan_s(self.view.group_of[m], plan.company(m)) for m in range(len(self.view.machines))]
        ends += [self.prices.makespan_s(g, ()) for g, group in enumerate(self.view.groups) if group.spares]
        return sum(self._placeable(t) for t, column in enumerate(plan.columns) if column is None), max(
            ends, default=0.0
        )

    def _placeable(self, task: int) -> bool:
        if task in self.barred:
            return False
        c = self.view.class_of[task]
        width = self.view.tasks[task].widths_milli[0]
        return any(self.view.could_fit(c, g, width) and self.prices.welcome(g, c) for g in range(len(self.view.groups)))

    def exhausted(self) -> bool:
        """Whether the round's forecasts are used up."""
        return self.outlook.forecasts >= self.pricings

    def columns(self, task: int, machine: int) -> list[Column]:
        """Columns of a machine that a task may take, narrow and early ones first."""
        c = self.view.class_of[task]
        if not self.view.allowed(c, machine) or task in self.barred:
            return []
        widths = self.view.classes[c].task.widths_milli
        if not self.widths:
            widths = widths[:1]
        late = 1 if machine in self.holds or task in self.must_start else self.slots
        return [Column(machine, slot, w) for slot in range(late) for w in widths]

    def leaving(self, plan: Assignment, task: int) -> float:
        """What a task costs where it is: the change of the total if it were gone.

        Minus infinity for one that the others on its machine count on.
        """
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
        if machine in self.holds or task in self.barred:
            best: tuple[float, Column | None] = (FORBIDDEN, None)
            for price, column in self.offers(plan, task, machine, gone):
                if price < best[0] - 1e-12:
                    best = (price, column)
            return best
        if self._related and self.refused(plan, task, machine, self._leaves(plan, task, machine, gone)):
            return FORBIDDEN, None
        others = plan.company(machine, without=self._leaves(plan, task, machine, gone))
        joining = (self.view.group_of[machine], others, self.view.class_of[task], task in self.must_start)
        self.best_known.learn((joining,))
        return self.best_known.best(machine, joining)

    def _leaves(self, plan: Assignment, task: int, machine: int, gone: int | None) -> int | None:
        """Who leaves a machine when a task comes there: itself, if it is there and nobody else is to."""
        here = plan.columns[task]
        return task if gone is None and here is not None and here.machine == machine else gone

    def offers(
        self, plan: Assignment, task: int, machine: int, gone: int | None = None
    ) -> Iterator[tuple[float, Column]]:
        """Every column of a machine that a task may take, narrow and early ones first, with the exact change of the
        machine's total; nothing where a relation refuses it or somebody there counts on who is to be gone.
        """
        gone = self._leaves(plan, task, machine, gone)
        if self._related and self.refused(plan, task, machine, gone):
            return
        others = plan.company(machine, without=gone)
        base = self.machine_cost(machine, others)
        if base == FORBIDDEN:
            return
        c = self.view.class_of[task]
        for column in self.columns(task, machine):
            cost = self.machine_cost(machine, joined(others, Newcomer(c, column.slot, column.width_milli)))
            yield cost - base, column
