"""What the placements of a round cost, one after the other, and where else one more of each class would cost least."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flowsched.pricing.linear import kernels
from flowsched.round.linear.linear_round import RoundOutcome
from flowsched.round.linear.reasons import PLACE, Closing
from flowsched.support.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class PlacedCosts:
    """What the placements of a round cost, in their order."""

    cost: FloatArray
    terms: Mapping[str, FloatArray]
    """They add up to the cost."""
    runner_up: IntArray
    """Machine row; -1 for none."""
    runner_up_cost: FloatArray

    @classmethod
    def in_turn(cls, outcome: RoundOutcome, closing: Closing) -> PlacedCosts:
        """What each task paid, if they came one after the other."""
        classes = closing.cluster.tasks.task_class[outcome.tasks]
        terms = closing.in_turn(classes, outcome.machines)
        terms = {name: values for name, values in terms.items() if name != PLACE or values.any()}
        cost = np.sum([np.zeros(len(classes)), *terms.values()], axis=0)
        return cls(cost, terms, *runners_up(closing, classes, outcome.machines))


def runners_up(closing: Closing, classes: IntArray, machines: IntArray) -> tuple[IntArray, FloatArray]:
    """For each placement the machine, not its own, where one more task of its class would cost least; -1 for none."""
    present, number = np.unique(classes, return_inverse=True)
    nearest = np.full((len(present), 2), -1, dtype=np.int64)
    price = np.full((len(present), 2), np.inf)

    def find(some: IntArray, closed: BoolArray) -> None:
        found = kernels.two_cheapest(present[some], closed, closing.model, closing.free, closing.readings)
        nearest[some], price[some] = found

    gone, relations = ~closing.cluster.machines.alive, closing.relations
    related = np.array([relations.concerns(c) for c in present.tolist()], dtype=np.bool_)
    find(np.flatnonzero(~related), gone)
    for i in np.flatnonzero(related).tolist():
        refused = [closed for _, closed in relations.refusals(int(present[i]))]
        find(np.array([i]), np.any([gone, *refused], axis=0))
    column = (nearest[number, 0] == machines).astype(np.int64)
    rival = nearest[number, column]
    return rival, np.where(rival < 0, 0.0, price[number, column])
