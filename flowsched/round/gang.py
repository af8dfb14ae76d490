"""Task groups that are placed all or none: which of them start in a round, and who waits whole.

A group that fits now, beside what higher levels have planned, starts now; one that does not keeps no room, so two groups can
never wait for each other's half.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flowsched.cluster.compaction import View
from flowsched.cluster.running_tasks import entries_of
from flowsched.pricing.arrival import Arrival, Colocation, joined
from flowsched.pricing.flow_prices import FORBIDDEN, FlowPrices
from flowsched.relations.gang import Gang, gangs_of
from flowsched.relations.relation import Relation, RelationKind
from flowsched.round.assignment import Assignment, PlacementOption
from flowsched.round.hold import Hold
from flowsched.round.round_model import RoundModel

_TRIES = 400
"""Places that a search for room may look at once one task after the other has failed."""

_SEARCHED = 64
"""Larger groups are placed one task after the other only."""


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
        placed, most = finder.fit(gang)
        if placed:
            must_start |= set(placed)
            continue
        barred |= set(gang.members)
        reasons |= dict.fromkeys(gang.members, gang.why_all_wait(most, view.snapshot.now_s))
    return Gangs(tuple(gangs), frozenset(must_start), frozenset(barred), reasons, finder.plan)


def fit_now(
    model: RoundModel, gang: RoundGang, plan: Assignment | None = None, closed: Collection[int] = ()
) -> tuple[frozenset[int], Assignment]:
    """The members of one gang that could start now beside a plan if no other task did, and where; none if they are too
    few. No member goes to a machine in ``closed``.
    """
    finder = _Finder(model.view, model.prices, model.holds, plan, closed)
    placed, _ = finder.fit(gang)
    return frozenset(placed), finder.plan


def priority_of(view: View, gang: RoundGang) -> int:
    """The highest of its members': all are served with it."""
    return max(view.tasks[t].priority for t in gang.members)


def homes(view: View, gang: RoundGang) -> Iterator[tuple[Relation, str]]:
    """Domains that members who want to be together could all go to."""
    domain_counts = view.domain_counts
    wanted = {name for t in gang.members for name in view.tasks[t].holds}
    for name in sorted(wanted & domain_counts.relations.keys()):
        relation = domain_counts.relations[name]
        if relation.kind is RelationKind.TOGETHER:
            here = {domain_counts.domain(relation, m.name) for m in view.machines}
            yield from ((relation, domain) for domain in sorted(d for d in here if d is not None))


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
        self._reset(empty if seed is None else seed)
        self._tries = 0

    def _reset(self, plan: Assignment) -> None:
        self.plan = plan.copy()
        self._counts = self._view.counted_with((t, o.machine) for t, o in enumerate(plan.options) if o is not None)

    def place(self, task: int) -> None:
        """Put a task in its cheapest place, if there is one."""
        for _, option in self._offers(task, None)[:1]:
            self._put(task, option)

    def fit(self, gang: RoundGang) -> tuple[tuple[int, ...], int]:
        """The members that were placed, exactly as many as are needed, or none; and the most that were placed at once."""
        needed = gang.needed
        if not gang.complete:
            return (), 0
        wide = sorted(gang.members, key=lambda t: (-self._size(t)[0], -self._size(t)[1], t))
        orders = [wide] if needed == len(wide) else [wide, sorted(wide, key=lambda t: (*self._size(t), t))]
        before, most = self.plan, 0
        for within in (None, *homes(self._view, gang)):
            for order in orders:
                placed = self._greedy(order, needed, within)
                if len(placed) == needed:
                    return tuple(placed), needed
                most = max(most, len(placed))
                self._reset(before)
        self._tries = _TRIES if len(wide) <= _SEARCHED else 0
        found = self._search(orders[-1], needed) if self._tries else None
        if found is None:
            self._reset(before)
            return (), most
        return tuple(found), needed

    def _greedy(self, order: Sequence[int], needed: int, within: tuple[Relation, str] | None) -> list[int]:
        """Place one after the other where it is cheapest; later ones may open what was closed before."""
        self.plan = self.plan.copy()
        placed: list[int] = []
        left = list(order)
        while left and len(placed) < needed:
            refused = []
            for t in left:
                if len(placed) == needed:
                    break
                offers = self._offers(t, within)
                if offers:
                    self._put(t, offers[0][1])
                    placed.append(t)
                else:
                    refused.append(t)
            if len(refused) == len(left):
                break
            left = refused
        return placed

    def _search(self, order: Sequence[int], needed: int) -> list[int] | None:
        """Depth first, cheapest places first, until it has looked at ``_TRIES`` of them."""
        if needed == 0:
            return []
        if len(order) < needed or self._tries <= 0:
            return None
        first, rest = order[0], order[1:]
        for _, option in self._offers(first, None):
            if self._tries <= 0:
                return None
            self._tries -= 1
            self._put(first, option)
            found = self._search(rest, needed - 1)
            if found is not None:
                return [first, *found]
            self._take(first)
        return self._search(rest, needed)

    def _offers(self, task: int, within: tuple[Relation, str] | None) -> list[tuple[float, PlacementOption]]:
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
            if (
                m in self._closed
                or not view.allowed(c, m)
                or (within is not None and self._counts.domain(within[0], machine.name) != within[1])
            ):
                continue
            if self._counts.refusal(wanted, machine.name) is not None:
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

    def _put(self, task: int, option: PlacementOption) -> None:
        self.plan.move(task, option)
        self._counts.add(self._view.tasks[task], self._view.machines[option.machine].name)

    def _take(self, task: int) -> None:
        option = self.plan.options[task]
        if option is not None:
            self._counts.remove(self._view.tasks[task], self._view.machines[option.machine].name)
            self.plan.move(task, None)
