"""The options of pending tasks around a plan, priced: every (machine, start, width) where a task of a class may go.

A price is the exact change of its machine's cost. Forecasts are shared by all classes of one type and kept until their
machine changes; options whose lower bound is above the prices that can still matter are not forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flowsched.pricing.arrival import Arrival
from flowsched.pricing.flow_prices import FlowPrices
from flowsched.pricing.forecast_arrays import CheapestOptions, ClassArrays, PricingLimits, TypeForecasts
from flowsched.pricing.option_kernel import price_classes
from flowsched.round.machine_states import MachineStates
from flowsched.round.round_model import Offered
from flowsched.support.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class ClassOptions:
    """The cheapest option of one class on every machine."""

    price: FloatArray
    """[machines] change of the total; infinity where there is none."""
    start_after: IntArray
    """[machines]"""
    variant: IntArray
    """[machines] row of the variant."""


class Budget(NamedTuple):
    """Forecasts that may be made."""

    forecasts: int
    """For all classes."""
    classes: int = 1
    """Of what is left when its turn comes a class gets one part in so many,"""
    least: int = 24
    """but so many forecasts at least."""


UNBOUNDED = Budget(1 << 40)


class Options:
    """Prices the options of classes on the machines of a round as they are planned so far."""

    def __init__(
        self, states: MachineStates, starts: int, most_forecasts: int, offered: Offered = Offered.WIDTHS
    ) -> None:
        """``starts`` as for the states; ``most_forecasts`` is the round's budget."""
        self.states = states
        self.most_forecasts = most_forecasts
        self.cut_short = 0
        """Pricings of a class that ended with its budget: some options were left out."""
        prices = states.prices
        rows = prices.rows
        if offered is not Offered.SHARED:
            rows = np.where(prices.variants.shared[rows], -1, rows)
        if offered is Offered.NARROWEST:
            rows = np.ascontiguousarray(rows[:, :, :1])
        # The forecasts of a type are made room for when it is known.
        shape = (len(rows), len(states.hosts), int(prices.variants.arrays.columns.max(initial=-1)) + 1, starts)
        self._types = TypeForecasts(rows, np.zeros(len(rows), np.bool_), np.empty(shape), np.empty(shape))

    @property
    def prices(self) -> FlowPrices:
        """The prices that the states have."""
        return self.states.prices

    @property
    def exhausted(self) -> bool:
        """Whether the round's forecasts are used up."""
        return self.prices.forecasts.made >= self.most_forecasts

    def changed(self, machine: int, handed: tuple[int, int] | None) -> None:
        """The plan of a machine changed; what was known of it holds for the one that it handed its part to."""
        if handed is not None:
            for known in (self._types.others, self._types.own_end):
                known[:, handed[1]] = known[:, machine]
        self._types.others[:, machine] = np.nan

    def of(
        self,
        classes: Sequence[int],
        open_now: BoolArray,
        open_later: BoolArray,
        wanted: int,
        budget: Budget,
    ) -> list[ClassOptions]:
        """The cheapest option of each class on each machine; exact on at least the ``wanted`` cheapest machines.

        ``open_now`` and ``open_later`` [classes, machines]: where it may start now, and after a completion. Options beyond
        the budget are left out, those with the largest lower bounds first.
        """
        prices = self.prices
        planned, rows, shape = self.states.planned(), np.array(classes, np.int64), open_now.shape
        cheapest = CheapestOptions(np.empty(shape), np.empty(shape, np.int64), np.empty(shape, np.int64))
        made, short = price_classes(
            prices.forecasts.table.memory,
            ClassArrays(
                rows, prices.type_of[rows], prices.class_goals[rows], self._of_place(rows), open_now, open_later
            ),
            planned,
            prices.variants.arrays,
            self._types,
            prices.price_settings,
            PricingLimits(wanted, budget.forecasts, max(1, budget.classes), budget.least),
            cheapest,
        )
        prices.forecasts.made += made
        self.cut_short += short
        return [ClassOptions(*each) for each in zip(*cheapest, strict=True)]

    def _of_place(self, rows: IntArray) -> FloatArray:
        """[classes, machines] what a place costs whatever runs there: wishes that it does not meet, spreading, the value of
        GPUs.
        """
        states, prices = self.states, self.prices
        cost: FloatArray = prices.wishes[rows[:, None], states.group_of]
        if prices.gpus is not None:
            cost = cost + prices.gpus.price[rows[:, None], states.group_of]
            for m, planned in states.gpu_plans():
                for i, c in enumerate(rows.tolist()):
                    cost[i, m] = prices.wishes[c, states.group_of[m]]
                    cost[i, m] += prices.gpus.marginal(int(states.group_of[m]), planned, c)[0]
        if prices.spread is not None:
            cost = cost + prices.spread.marginal(rows, states.counted, states.counted_prices)
        return cost

    def arrival(self, task_class: int, options: ClassOptions, machine: int) -> Arrival:
        """The cheapest option of a class on a machine as an arrival."""
        width, shared = self.prices.variants.ways[options.variant[machine]]
        return Arrival(task_class, int(options.start_after[machine]), width, shared)
