"""Task groups that are placed all or none: which of them start in a round, and who waits whole.

A group that fits now, beside what higher levels have planned, starts now; one that does not keeps no room, so two groups can
never wait for each other's half.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from flowsched.cluster.compaction import View
from flowsched.cluster.running_tasks import entries_of
from flowsched.pricing.arrival import Arrival, Colocation, joined
from flowsched.pricing.flow_prices import FORBIDDEN, FlowPrices
from flowsched.relations.gang import Gang, gang_priority, gangs_of
from flowsched.relations.gang_search import GangPlaces, GangSearch
from flowsched.relations.relation import Relation
from flowsched.round.assignment import Assignment, PlacementOption
from flowsched.round.hold import Hold
from flowsched.round.round_model import RoundModel
from flowsched.support.arrays import IntArray

_TRIES = 400
"""Placements that a search for room may try once one task after the other has failed."""


RoundGang = Gang[tuple[int, ...]]
"""Its members are indices of the view's tasks."""


@dataclass(frozen=True)
class Gangs:
    """What task groups ask of a round."""

    all: tuple[RoundGang, ...] = ()
    must_start: frozenset[int] = frozenset()
    """Members of groups that fit now: they start, whatever it costs."""
    barred: frozenset[int] = frozenset()
    """Members of groups that do not."""
    reasons: Mapping[int, str] = field(default_factory=dict)
    """Why the barred ones wait."""
    seed: Assignment | None = None
    """A plan in which all who must start do."""


def ordered_gangs(view: View) -> tuple[RoundGang, ...]:
    """Groups with members to start together, the most important and oldest first. One that is content with any single
    member is none.
    """

    def order(gang: RoundGang) -> tuple[int, float, str]:
        first = min(view.tasks[t].submit_s for t in gang.members)
        return -priority_of(view, gang), first, gang.group.name

    snapshot = view.snapshot
    there = (r.task.group for r in entries_of(snapshot.running))
    gangs = gangs_of(snapshot.task_groups, there, [t.group for t in view.tasks])
    return tuple(sorted((gang for gang in gangs if gang.group.minimum > 1), key=order))


def settle_gangs(
    model: RoundModel,
    gangs: Sequence[RoundGang],
    due: frozenset[int],
    holds: Mapping[int, Hold],
    seed: Assignment,
    closed: Collection[int],
) -> Gangs:
    """Find those of a level's groups that can start beside what is ``due``, one after the other, and bar the others.

    ``seed`` has what higher levels have planned, and the overdue tasks where they are placed already; no member goes to a
    machine in ``closed``.
    """
    if not gangs:
        return Gangs(seed=seed)
    view = model.view
    finder = _Finder(view, model.prices, holds, seed, closed)
    for t in sorted(due):
        if finder.plan.options[t] is None:
            finder.place(t)
    must_start: set[int] = set()
    barred: set[int] = set()
    reasons: dict[int, str] = {}
    for gang in gangs:
        placed, most, searched = finder.fit(gang)
        if placed:
            must_start |= set(placed)
            continue
        barred |= set(gang.members)
        reasons |= dict.fromkeys(gang.members, gang.why_all_wait(most, view.snapshot.now_s, searched))
    return Gangs(tuple(gangs), frozenset(must_start), frozenset(barred), reasons, finder.plan)


def fit_now(
    model: RoundModel, gang: RoundGang, plan: Assignment | None = None, closed: Collection[int] = ()
) -> tuple[frozenset[int], Assignment]:
    """The members of one gang that could start now beside a plan if no other task did, and where; none if they are too
    few. No member goes to a machine in ``closed``.
    """
    finder = _Finder(model.view, model.prices, model.holds, plan, closed)
    placed, _, _ = finder.fit(gang)
    return frozenset(placed), finder.plan


def priority_of(view: View, gang: RoundGang) -> int:
    """That which all its members are served with."""
    return gang_priority(view.tasks[t].priority for t in gang.members)


class _Finder:
    """Places tasks now, at their narrowest width, beside those that are in its plan already."""

    def __init__(
        self,
        view: View,
        prices: FlowPrices,
        holds: Mapping[int, Hold],
        seed: Assignment | None,
        closed: Collection[int] = (),
    ) -> None:
        self._view = view
        self._closed = closed
        self._prices = prices
        self._holds = holds
        empty = Assignment([None] * len(view.tasks), view.class_of, len(view.machines))
        self.plan = (empty if seed is None else seed).copy()
        placed = [(t, o) for t, o in enumerate(self.plan.options) if o is not None]
        self.counts = view.counted_with((t, o.machine) for t, o in placed)
        groups = [view.groups[g] for g in view.group_of]
        self.free: IntArray = np.array([(g.free_milli, g.free_memory_mib) for g in groups], np.int64).reshape(-1, 2)
        """[machines, 2] CPU in thousandths and MiB beside what starts now."""
        for t, option in placed:
            if not option.start_after:
                self.free[option.machine] -= option.width_milli, view.tasks[t].memory_mib

    def place(self, task: int) -> None:
        """Put a task in its cheapest place, if there is one."""
        for _, option in self.offers(task)[:1]:
            self.put(task, option)

    def fit(self, gang: RoundGang) -> tuple[tuple[int, ...], int, bool]:
        """The members that were placed, exactly as many as are needed, or none; the most that could be placed at once, and
        whether all assignments were searched for that.
        """
        needed = gang.needed
        if not gang.complete:
            return (), 0, True
        wide = sorted(gang.members, key=lambda t: (-self._size(t)[0], -self._size(t)[1], t))
        places = _Now(self, self._view, [(t, self._size(t)) for t in wide])
        search = GangSearch(places, needed, _TRIES, more=False)
        if search.fit():
            return tuple(t for t, _ in places.placed), needed, True
        return (), search.most, not search.exhausted

    def offers(self, task: int) -> list[tuple[float, PlacementOption]]:
        """Places for a task with their prices, the cheapest first; of places that are alike the first one only."""
        view = self._view
        c = view.class_of[task]
        wanted = view.tasks[task]
        width = wanted.widths_milli[0]
        offers = []
        seen: set[tuple[int, Colocation]] = set()
        for m, machine in enumerate(view.machines):
            g = view.group_of[m]
            others = self.plan.colocation(m)
            if m not in self._holds:
                if (g, others) in seen:
                    continue
                seen.add((g, others))
            if m in self._closed or not view.allowed(c, m):
                continue
            if self.counts.refusal(wanted, machine.name) is not None:
                continue
            price = self._price(m, others, Arrival(c, 0, width))
            if price < FORBIDDEN:
                offers.append((price, PlacementOption(m, 0, width)))
        return sorted(offers)

    def _price(self, machine: int, others: Colocation, arrival: Arrival) -> float:
        g = self._view.group_of[machine]
        colocation = joined(others, arrival)
        hold = self._holds.get(machine)
        if hold is not None and not hold.admits(self._view, self._prices, g, colocation):
            return FORBIDDEN
        cost = self._prices.machine_cost(g, colocation)
        return FORBIDDEN if cost == FORBIDDEN else cost - self._prices.machine_cost(g, others)

    def _size(self, task: int) -> tuple[int, int]:
        wanted = self._view.tasks[task]
        return wanted.widths_milli[0], wanted.memory_mib

    def put(self, task: int, option: PlacementOption) -> None:
        """Place a task."""
        self.plan.move(task, option)
        self.counts.add(self._view.tasks[task], self._view.machines[option.machine].name)
        self.free[option.machine] -= self._size(task)

    def take(self, task: int) -> None:
        """Undo that."""
        option = self.plan.options[task]
        if option is not None:
            self.counts.remove(self._view.tasks[task], self._view.machines[option.machine].name)
            self.plan.move(task, None)
            self.free[option.machine] += self._size(task)


class _Now(GangPlaces[int]):
    """Machines, by their index in the view, where members may start now; the cheapest is taken."""

    def __init__(self, finder: _Finder, view: View, members: Sequence[tuple[int, tuple[int, int]]]) -> None:
        """``members``: tasks of the view with the CPU and the memory of each."""
        tasks = [t for t, _ in members]
        super().__init__(
            [view.tasks[t] for t in tasks], [size for _, size in members], [view.class_of[t] for t in tasks]
        )
        self.placed: list[tuple[int, int]] = []
        """Tasks and machines."""
        self._finder, self._view, self._tasks = finder, view, tasks

    @property
    def relations(self) -> Mapping[str, Relation]:
        """Those of the snapshot."""
        return self._finder.counts.relations

    @property
    def places(self) -> Sequence[int]:
        """All machines."""
        return range(len(self._view.machines))

    @property
    def free(self) -> IntArray:
        """[machines, 2] CPU and memory."""
        return self._finder.free

    def joined(self, relation: Relation) -> int:
        """Tasks that join a relation in all domains, with those that are placed."""
        return self._finder.counts.members(relation)

    def domain(self, relation: Relation, place: int) -> str | None:
        """The domain of a machine."""
        return self._finder.counts.domain(relation, self._view.machines[place].name)

    def options(self, member: int) -> list[int]:
        """Machines where a member fits, the cheapest first."""
        return [option.machine for _, option in self._finder.offers(self._tasks[member])]

    def put(self, member: int, options: Sequence[int]) -> int:
        """Place a member on the first of the machines."""
        task = self._tasks[member]
        self._finder.put(task, PlacementOption(options[0], 0, self._view.tasks[task].widths_milli[0]))
        self.placed.append((task, options[0]))
        return options[0]

    def take_back(self) -> None:
        """Undo the last placement."""
        self._finder.take(self.placed.pop()[0])
