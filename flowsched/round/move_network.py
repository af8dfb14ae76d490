"""The network of single moves around a finished plan: what each task could do instead, with everything else where it is.

    task -> stay, cost 0
    task -> arrive at m, cost (its price there) - (its price here);  arrive at m -> sink, capacity 1

Its optimum says what moves, at most one to a machine, would still gain. Records keep it with the terms of every arc.
"""

from __future__ import annotations

import math

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
        view = model.view
        builder = NetworkBuilder()
        sink = builder.node("sink")
        stay = builder.node("stay")
        arrive = [builder.node(f"arrive:{m.name}") for m in view.machines]
        self.moves: dict[int, tuple[int, PlacementOption | None]] = {}
        self._stays: list[tuple[int, int]] = []
        for task, here in enumerate(plan.options):
            node = builder.node(f"task:{view.tasks[task].name}", 1)
            leaving = model.leaving(plan, task)
            self._stays.append((builder.arc(node, stay, 1), 1))
            # Tasks that start later count on it: no price means anything.
            if not math.isfinite(leaving):
                continue
            if here is not None and task not in model.must_start:
                gain = model.waiting(task) - leaving
                terms = {**model.prices.waiting_terms(view.class_of[task]), LEFT: -leaving}
                self.moves[builder.arc(node, stay, 1, gain, terms=terms)] = (task, None)
            for machine in range(len(view.machines)):
                for price, option in model.offers(plan, task, machine):
                    if option == here or price == FORBIDDEN:
                        continue
                    terms = {**_terms(model, plan, task, option), LEFT: -leaving}
                    self.moves[builder.arc(node, arrive[machine], 1, price - leaving, terms=terms)] = (task, option)
        self._stays.append((builder.arc(stay, sink, len(plan.options)), len(plan.options)))
        for node in arrive:
            builder.arc(node, sink, 1)
        self.network: Network = builder.build(sink)

    def resting_flow(self) -> IntArray:
        """The flow of a plan in which every task stays."""
        flow = np.zeros(self.network.arc_count, dtype=np.int64)
        for arc, units in self._stays:
            flow[arc] = units
        return flow

    def columns(self) -> dict[str, IntArray]:
        """Start and width of the option that each arc leads to, -1 where it leads to none."""
        slots = np.full(self.network.arc_count, -1, dtype=np.int64)
        widths = slots.copy()
        for arc, (_, option) in self.moves.items():
            if option is not None:
                slots[arc], widths[arc] = option.start_after, option.width_milli
        return {"slot": slots, "width_milli": widths}


def _terms(model: RoundModel, plan: Assignment, task: int, option: PlacementOption) -> dict[str, float]:
    group = model.view.group_of[option.machine]
    here = plan.options[task]
    without = task if here is not None and here.machine == option.machine else None
    arrival = Arrival(model.view.class_of[task], *option[1:])
    colocation = joined(plan.colocation(option.machine, without=without), arrival)
    return dict(model.prices.machine_terms(group, colocation, colocation.index(arrival)))
