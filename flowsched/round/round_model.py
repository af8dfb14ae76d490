"""A plan under prices and constraints: what it costs, and where each task could go instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from flowsched.cluster.compaction import View
from flowsched.cluster.domain_counts import DomainCounts
from flowsched.pricing.arrival import Arrival, Colocation, joined
from flowsched.pricing.flow_prices import FORBIDDEN, FlowPrices
from flowsched.pricing.forecast_cache import ForecastCache
from flowsched.round.assignment import Assignment, PlacementOption
from flowsched.round.hold import Hold

_ORDERS = 3
"""Orders that are tried where relations refuse a task in the first one."""


class Offered(Enum):
    """Which ways to join a machine are options."""

    NARROWEST = 1
    """The narrowest width only."""
    WIDTHS = 2
    """All widths on the batch cores."""
    SHARED = 3
    """Services' cores too."""

    def of(self, ways: Sequence[tuple[int, bool]]) -> Sequence[tuple[int, bool]]:
        """The ways that are options; those without services' cores come first, narrow ones first."""
        if self is Offered.SHARED:
            return ways
        own = [way for way in ways if not way[1]]
        return own[:1] if self is Offered.NARROWEST else own


@dataclass
class RoundModel:
    """Prices and constraints of a round. A reserved machine takes of its level and lower ones only what is predicted to be
    gone before it is needed.

    Relations between tasks hold for every plan that has a cost: machine by machine in the forecasts of co-locations, by
    domain in ``refused`` and ``total``.
    """

    view: View
    forecasts: ForecastCache
    prices: FlowPrices
    starts: int
    """Starts that a machine offers: now, and after each of the next ``starts - 1`` completions."""
    holds: Mapping[int, Hold] = field(default_factory=dict)
    """Machines that are reserved for an overdue task."""
    must_start: frozenset[int] = frozenset()
    """Tasks that may neither wait nor be planned for later."""
    barred: frozenset[int] = frozenset()
    """Tasks that may not start or be planned: their task group cannot start."""
    offered: Offered = Offered.WIDTHS
    """Which of a task's options there are."""

    def __post_init__(self) -> None:
        """Note which tasks are bound by relations; most rounds have none."""
        domain_counts = self.view.domain_counts
        self._related = frozenset(t for t, task in enumerate(self.view.tasks) if domain_counts.concerns(task))
        self._counted: tuple[Assignment, int, DomainCounts] | None = None

    def machine_cost(self, machine: int, colocation: Colocation) -> float:
        """Cost of a machine that a co-location joins; ``FORBIDDEN`` where it must not, reservations included."""
        hold = self.holds.get(machine)
        if (
            hold is not None
            and colocation
            and not hold.admits(self.view, self.prices, self.view.group_of[machine], colocation)
        ):
            return FORBIDDEN
        return self.prices.machine_cost(self.view.group_of[machine], colocation)

    def cost(self, plan: Assignment, machine: int) -> float:
        """Cost of one machine under a plan."""
        return self.machine_cost(machine, plan.colocation(machine))

    def waiting(self, task: int) -> float:
        """Cost of a task on the unscheduled node."""
        return self.prices.waiting_cost(self.view.class_of[task])

    def total(self, plan: Assignment) -> float:
        """Cost of everything: machines with all that is on them, and tasks that wait."""
        if any((option := plan.options[t]) is None or option.start_after > 0 for t in self.must_start):
            return FORBIDDEN
        if self._related and not self.orderly(plan):
            return FORBIDDEN
        machines = sum(self.cost(plan, m) for m in range(len(self.view.machines))) + self.spare_cost()
        return machines + sum(self.waiting(t) for t, option in enumerate(plan.options) if option is None)

    def spare_cost(self) -> float:
        """Cost of the machines that no plan of this round uses."""
        groups = enumerate(self.view.groups)
        return sum(len(group.spares) * self.prices.machine_cost(g, ()) for g, group in groups if group.spares)

    def refused(self, plan: Assignment, task: int, machine: int, gone: int | None = None) -> bool:
        """Whether a relation keeps a task off a machine beside the rest of a plan; what is planned counts as there."""
        if task not in self._related:
            return False
        domain_counts = self._count(plan)
        away = [
            (self.view.tasks[t], self.view.machines[option.machine].name)
            for t in {task, gone}
            if t is not None and t in self._related and (option := plan.options[t]) is not None
        ]
        for other, place in away:
            domain_counts.remove(other, place)
        refusal = domain_counts.refusal(self.view.tasks[task], self.view.machines[machine].name)
        for other, place in away:
            domain_counts.add(other, place)
        return refusal is not None

    def orderly(self, plan: Assignment) -> bool:
        """Whether there is an order in which relations let every task go where the plan has it."""
        placed = [t for t in sorted(self._related) if plan.options[t] is not None]
        return len(self.in_order(plan, placed, self.view.domain_counts.copy())) == len(placed)

    def in_order(self, plan: Assignment, tasks: Sequence[int], domain_counts: DomainCounts) -> list[int]:
        """Those of some tasks that can go to their machines one after the other, in an order that relations allow.

        They are added to ``domain_counts``. Later ones may open what was closed before; where a task stays
        refused because of an earlier one, those that were refused go first in another try.
        """
        order = list(tasks)
        best: list[int] = []
        for _ in range(_ORDERS):
            admitted = self._admit(plan, order, domain_counts)
            if len(admitted) == len(order):
                return admitted
            for t in reversed(admitted):
                self._count_in(domain_counts, plan, t, -1)
            if len(admitted) > len(best):
                best = admitted
            come = set(admitted)
            again = [*(t for t in order if t not in come), *(t for t in order if t in come)]
            if again == order:
                break
            order = again
        for t in best:
            self._count_in(domain_counts, plan, t, 1)
        return best

    def _admit(self, plan: Assignment, tasks: Sequence[int], domain_counts: DomainCounts) -> list[int]:
        """The same for one order; they are added to ``domain_counts``."""
        admitted: list[int] = []
        left = list(tasks)
        while left:
            refused = []
            for t in left:
                if domain_counts.refusal(self.view.tasks[t], self._place(plan, t)) is None:
                    self._count_in(domain_counts, plan, t, 1)
                    admitted.append(t)
                else:
                    refused.append(t)
            if len(refused) == len(left):
                break
            left = refused
        return admitted

    def _count_in(self, domain_counts: DomainCounts, plan: Assignment, task: int, sign: int) -> None:
        (domain_counts.add if sign > 0 else domain_counts.remove)(self.view.tasks[task], self._place(plan, task))

    def _place(self, plan: Assignment, task: int) -> str:
        option = plan.options[task]
        assert option is not None, "only tasks with a option are asked for"
        return self.view.machines[option.machine].name

    def related(self, task: int) -> bool:
        """Whether any relation binds or counts a task."""
        return task in self._related

    def _count(self, plan: Assignment) -> DomainCounts:
        """All that runs or has an option, counted by relation."""
        if self._counted is None or self._counted[0] is not plan or self._counted[1] != plan.moves:
            domain_counts = self.view.counted_with(
                (t, option.machine) for t in self._related if (option := plan.options[t]) is not None
            )
            self._counted = (plan, plan.moves, domain_counts)
        return self._counted[2]

    def finish(self, plan: Assignment) -> tuple[int, float]:
        """What a makespan is judged by: tasks without an option that could have one, then the last predicted completion.

        A task that no machine could ever take spoils no plan.
        """
        ends = [
            self.prices.makespan_s(self.view.group_of[m], plan.colocation(m)) for m in range(len(self.view.machines))
        ]
        ends += [self.prices.makespan_s(g, ()) for g, group in enumerate(self.view.groups) if group.spares]
        return sum(self._placeable(t) for t, option in enumerate(plan.options) if option is None), max(
            ends, default=0.0
        )

    def _placeable(self, task: int) -> bool:
        if task in self.barred:
            return False
        c = self.view.class_of[task]
        width = self.view.tasks[task].widths_milli[0]
        return any(self.view.could_fit(c, g, width) and self.prices.welcome(g, c) for g in range(len(self.view.groups)))

    def options_on(self, task: int, machine: int) -> list[PlacementOption]:
        """Options of a machine that a task may take, early and narrow ones first."""
        c = self.view.class_of[task]
        if not self.view.allowed(c, machine) or task in self.barred:
            return []
        hold = self.holds.get(machine)
        late = 1 if (hold is not None and c not in hold.above) or task in self.must_start else self.starts
        ways = self.forecasts.ways(self.view.group_of[machine], c)
        return [PlacementOption(machine, k, *way) for k in range(late) for way in self.offered.of(ways)]

    def leaving(self, plan: Assignment, task: int) -> float:
        """What a task costs where it is: the change of the total if it were gone.

        Minus infinity for one that others on its machine count on.
        """
        option = plan.options[task]
        if option is None:
            return self.waiting(task)
        machine = option.machine
        return self.machine_cost(machine, plan.colocation(machine)) - self.machine_cost(
            machine, plan.colocation(machine, without=task)
        )

    def best_option(
        self, plan: Assignment, task: int, machine: int, gone: int | None = None
    ) -> tuple[float, PlacementOption | None]:
        """Cheapest option of a machine for a task, and its price, with another task of the machine gone.

        The price is the exact change of the machine's total. Ties keep the earlier, narrower option.
        """
        best: tuple[float, PlacementOption | None] = (FORBIDDEN, None)
        for price, option in self.offers(plan, task, machine, gone):
            if price < best[0] - 1e-12:
                best = (price, option)
        return best

    def _leaves(self, plan: Assignment, task: int, machine: int, gone: int | None) -> int | None:
        """The task that leaves a machine when another comes there: itself, if it is there and no other is to."""
        here = plan.options[task]
        return task if gone is None and here is not None and here.machine == machine else gone

    def offers(
        self, plan: Assignment, task: int, machine: int, gone: int | None = None
    ) -> Iterator[tuple[float, PlacementOption]]:
        """Every option of a machine that a task may take, narrow and early ones first, with the exact change of the
        machine's total; nothing where a relation refuses it or a task there counts on the one that is to be gone.
        """
        gone = self._leaves(plan, task, machine, gone)
        if self._related and self.refused(plan, task, machine, gone):
            return
        others = plan.colocation(machine, without=gone)
        base = self.machine_cost(machine, others)
        if base == FORBIDDEN:
            return
        c = self.view.class_of[task]
        options = self.options_on(task, machine)
        together = [joined(others, Arrival(c, *option[1:])) for option in options]
        self.prices.machine_costs(self.view.group_of[machine], together)
        for option, colocation in zip(options, together, strict=True):
            yield self.machine_cost(machine, colocation) - base, option
