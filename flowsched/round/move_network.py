"""The network of single moves around a finished plan: what each task could do instead, with everything else where it is.

    task -> stay, cost 0
    task -> arrive at m, cost (its price there) - (its price here);  arrive at m -> sink, capacity 1

Its optimum says what moves, at most one to a machine, would still gain. Records keep it with the terms of every arc.

Machines of a group with the same plan are one node, and so are tasks of a class with the same place on such machines: all
their prices are equal. From there they move within their own machine, or to another one of the node, by different arcs.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from flowsched.network.network import IntArray, Network, NetworkBuilder
from flowsched.pricing.arrival import Arrival, joined
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.round.assignment import Assignment, PlacementOption
from flowsched.round.round_model import RoundModel

LEFT = "place_left"
"""Term of a move: what the task costs where it is, with the sign of a gain. With it the terms add up to the arc's cost."""


class MoveNetwork:
    """The moves around a plan, and the arcs that stand for them."""

    def __init__(self, model: RoundModel, plan: Assignment) -> None:
        """Price every option of every task around ``plan``."""
        self._model, self._plan = model, plan
        self._builder = NetworkBuilder()
        sink = self._builder.node("sink")
        self._stay = self._builder.node("stay")
        self._sets = _machine_sets(model, plan)
        self._set_of = {m: i for i, machines in enumerate(self._sets) for m in machines}
        names = [machine.name for machine in model.view.machines]
        self._members: dict[str, list[str]] = {}
        self._arrive = [self._node("arrive", [names[m] for m in machines]) for machines in self._sets]
        self._moves: dict[int, PlacementOption] = {}
        self._own: list[int] = []
        self._stays: list[tuple[int, int]] = []
        for tasks in _gathered(self._task_key(task) for task in range(len(plan.options))):
            self._add_moves(tasks)
        everything = len(plan.options)
        self._stays.append((self._builder.arc(self._stay, sink, everything), everything))
        for node, machines in zip(self._arrive, self._sets, strict=True):
            self._builder.arc(node, sink, len(machines))
        self.network: Network = self._builder.build(sink)

    def _node(self, kind: str, names: list[str], supply: int = 0) -> int:
        label = f"{kind}:{names[0]}"
        if len(names) > 1:
            self._members[label] = names
        return self._builder.node(label, supply)

    def _task_key(self, task: int) -> Hashable:
        """Equal for tasks whose moves have equal prices."""
        model, here = self._model, self._plan.options[task]
        return (
            model.view.class_of[task],
            None if here is None else (self._set_of[here.machine], *here[1:]),
            task in model.must_start,
            task in model.barred,
        )

    def _add_moves(self, tasks: list[int]) -> None:
        """The node of equal tasks with its arcs."""
        model, plan, builder = self._model, self._plan, self._builder
        task, here = tasks[0], plan.options[tasks[0]]
        node = self._node("task", [model.view.tasks[t].name for t in tasks], len(tasks))
        leaving = model.leaving(plan, task)
        self._stays.append((builder.arc(node, self._stay, len(tasks)), len(tasks)))
        # Tasks that start later count on it: no price means anything.
        if not math.isfinite(leaving):
            return
        if here is not None and task not in model.must_start:
            gain = model.waiting(task) - leaving
            terms = {**model.prices.waiting_terms(model.view.class_of[task]), LEFT: -leaving}
            builder.arc(node, self._stay, len(tasks), gain, terms=terms)
        for head, machines in zip(self._arrive, self._sets, strict=True):
            for machine in _looked_at(machines, here):
                for price, option in model.offers(plan, task, machine):
                    if option == here or price == FORBIDDEN:
                        continue
                    terms = {**_terms(model, plan, task, option), LEFT: -leaving}
                    most = min(len(tasks), len(machines))
                    arc = builder.arc(node, head, most, price - leaving, terms=terms)
                    self._moves[arc] = option
                    if here is not None and machine == here.machine:
                        self._own.append(arc)

    def resting_flow(self) -> IntArray:
        """The flow of a plan in which every task stays."""
        flow = np.zeros(self.network.arc_count, dtype=np.int64)
        for arc, units in self._stays:
            flow[arc] = units
        return flow

    def to_plain(self, flow: IntArray) -> dict[str, Any]:
        """What a record keeps, with the flow that solved it; further keys only where nodes stand for more than one."""
        plain = self.network.to_plain(flow, self._columns())
        return {**plain, "members": self._members} if self._members else plain

    def _columns(self) -> dict[str, IntArray]:
        """Start and width of the option that each arc leads to, -1 where it leads to none."""
        slots = np.full(self.network.arc_count, -1, dtype=np.int64)
        widths = slots.copy()
        for arc, option in self._moves.items():
            slots[arc], widths[arc] = option.start_after, option.width_milli
        columns = {"slot": slots, "width_milli": widths}
        if self._members:
            columns["own"] = np.zeros_like(slots)
            columns["own"][self._own] = 1
        return columns


def _machine_sets(model: RoundModel, plan: Assignment) -> list[list[int]]:
    """Machines on which every option of a task that is not there has the same price: all of a group are in the same domains
    of relations.
    """
    view = model.view
    return _gathered(
        (view.group_of[m], plan.colocation(m), m if m in model.holds else None) for m in range(len(view.machines))
    )


def _gathered(keys: Iterable[Hashable]) -> list[list[int]]:
    """Numbers of equal keys together, in the order of the first of each."""
    found: dict[Hashable, list[int]] = {}
    for number, key in enumerate(keys):
        found.setdefault(key, []).append(number)
    return list(found.values())


def _looked_at(machines: list[int], here: PlacementOption | None) -> list[int]:
    """The machines of a set that stand for all of it: a task's own one, and the first other one."""
    own = [m for m in machines if here is not None and m == here.machine]
    return own + [m for m in machines[:2] if m not in own][:1]


def _terms(model: RoundModel, plan: Assignment, task: int, option: PlacementOption) -> dict[str, float]:
    group = model.view.group_of[option.machine]
    here = plan.options[task]
    without = task if here is not None and here.machine == option.machine else None
    arrival = Arrival(model.view.class_of[task], *option[1:])
    colocation = joined(plan.colocation(option.machine, without=without), arrival)
    return dict(model.prices.machine_terms(group, colocation, colocation.index(arrival)))
