"""Best columns for many tasks at once: asked together, forecast together, and remembered under one search's prices."""

from __future__ import annotations

from collections.abc import Iterable

from flowsched.assignment import Column, Company, Newcomer, joined
from flowsched.compaction import View
from flowsched.policies.policy import FORBIDDEN, Prices

Joining = tuple[int, Company, int, bool]
"""A group, who is on a machine of it, the class that joins, and whether it may only start now."""
Offer = tuple[float, Column | None]
"""Price and column; FORBIDDEN and None where there is none."""
NOWHERE: Offer = (FORBIDDEN, None)


class Offers:
    """The best columns of machines without reservations. Equal machines with equal company share an answer."""

    def __init__(self, view: View, prices: Prices, slots: int, widths: bool) -> None:
        """``slots`` and ``widths`` as the search has them."""
        self._view = view
        self._prices = prices
        self._slots = slots
        self._widths = widths
        self._best: dict[Joining, tuple[float, int, int]] = {}
        self._newcomers: dict[tuple[int, int, bool], tuple[Newcomer, ...]] = {}
        self._columns: dict[tuple[int, int, int], Column] = {}

    def learn(self, asked: Iterable[Joining]) -> None:
        """Find the answers to all that is not known yet."""
        by_group: dict[int, list[Joining]] = {}
        for joining in dict.fromkeys(asked):
            if joining not in self._best:
                by_group.setdefault(joining[0], []).append(joining)
        for group, here in by_group.items():
            companies: list[Company] = []
            for _, others, c, now in here:
                companies.append(others)
                companies += [joined(others, newcomer) for newcomer in self._ways(group, c, now)]
            costs = iter(self._prices.machine_costs(group, companies))
            for joining in here:
                base = next(costs)
                best = (FORBIDDEN, 0, 0)
                for newcomer in self._ways(group, joining[2], joining[3]):
                    price = next(costs) - base if base != FORBIDDEN else next(costs)
                    if price < best[0] - 1e-12 and base != FORBIDDEN:
                        best = (price, newcomer.slot, newcomer.width_milli)
                self._best[joining] = best

    def best(self, machine: int, joining: Joining) -> Offer:
        """The answer to what was learnt, for one of its group's machines."""
        price, slot, width = self._best[joining]
        if not width:
            return NOWHERE
        column = self._columns.get((machine, slot, width))
        if column is None:
            column = self._columns[machine, slot, width] = Column(machine, slot, width)
        return price, column

    def _ways(self, group: int, task_class: int, now: bool) -> tuple[Newcomer, ...]:
        """The newcomers as which a class may join a machine of a group, narrow and early ones first."""
        key = (group, task_class, now)
        found = self._newcomers.get(key)
        if found is None:
            found = ()
            if self._view.allowed(task_class, self._view.groups[group].members[0]):
                widths = self._view.classes[task_class].task.widths_milli
                slots = range(1 if now else self._slots)
                chosen = widths if self._widths else widths[:1]
                found = tuple(Newcomer(task_class, slot, width) for slot in slots for width in chosen)
            self._newcomers[key] = found
        return found
