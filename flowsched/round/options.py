"""The options of pending tasks around a plan, priced: every (machine, start, width) where a task of a class may go.

A price is the exact change of its machine's cost. Forecasts are shared by all classes of one type and kept until their
machine changes; options whose lower bound is above the prices that can still matter are not forecast.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.pricing.arrival import Arrival
from flowsched.pricing.flow_prices import FORBIDDEN, FlowPrices
from flowsched.pricing.forecast_kernel import price_class
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
    end_s: FloatArray
    """[machines] completion, seconds from now."""
    start_s: FloatArray
    """[machines] binding, seconds from now."""


@dataclass
class _Table:
    """Forecasts of one type: [machines, columns, starts], NaN where not made yet."""

    others: FloatArray
    end_s: FloatArray
    start_s: FloatArray
    changes: int
    """Changes of machines that it has followed."""


class Options:
    """Prices the options of classes on the machines of a round as they are planned so far."""

    def __init__(
        self, states: MachineStates, starts: int, most_forecasts: int, offered: Offered = Offered.WIDTHS
    ) -> None:
        """``starts`` as for the states; ``most_forecasts`` is the round's budget."""
        self.states = states
        self.starts = starts
        self.most_forecasts = most_forecasts
        self.offered = offered
        self.cut_short = 0
        """Pricings of a class that ended with its budget: some options were left out."""
        self._tables: dict[int, _Table] = {}
        self._changes: list[tuple[int, int]] = []
        """(machine, the one that what was known of it holds for or -1), by time: a table follows when it is used."""

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
        self._changes.append((machine, -1 if handed is None else handed[1]))

    def of(self, task_class: int, open_now: BoolArray, open_later: BoolArray, wanted: int, budget: int) -> ClassOptions:
        """The cheapest option of a class on each machine; exact on at least the ``wanted`` cheapest machines.

        ``open_now`` and ``open_later`` [machines]: where it may start now, and after a completion. ``budget``: forecasts
        that may be made for it; options beyond it are left out, those with the largest lower bounds first.
        """
        states, prices = self.states, self.prices
        machines = len(states.hosts)
        found = ClassOptions(
            np.full(machines, FORBIDDEN),
            np.zeros(machines, np.int64),
            np.full(machines, -1, np.int64),
            np.full(machines, np.inf),
            np.full(machines, np.inf),
        )
        open_any = open_now | open_later
        reps = states.open_representatives(open_any)
        kind = prices.types[prices.type_of[task_class]]
        rows = {Offered.NARROWEST: kind.narrowest, Offered.WIDTHS: kind.own_cores, Offered.SHARED: kind.rows}[
            self.offered
        ]
        if not len(reps) or not rows.shape[1]:
            return found
        now = np.zeros(machines, np.bool_)
        later = np.zeros(machines, np.bool_)
        now[states.representative[open_now]] = True
        later[states.representative[open_later]] = True
        self._price(task_class, rows, reps, now, later, wanted, budget, found)
        others = np.flatnonzero(open_any & (states.representative != np.arange(machines)))
        of = states.representative[others]
        for array in (found.price, found.start_after, found.variant, found.end_s, found.start_s):
            array[others] = array[of]
        # A machine that is open for one kind of start only may differ from the one that stands for it.
        found.price[np.where(found.start_after == 0, ~open_now, ~open_later)] = FORBIDDEN
        return found

    def arrival(self, task_class: int, options: ClassOptions, machine: int) -> Arrival:
        """The cheapest option of a class on a machine as an arrival."""
        width, shared = self.prices.variants.ways[options.variant[machine]]
        return Arrival(task_class, int(options.start_after[machine]), width, shared)

    def _follow(self, table: _Table) -> None:
        """Forget what a table knows of machines that have changed."""
        news = self._changes[table.changes :]
        if len(news) > 1 and all(heir < 0 for _, heir in news):
            news, rows = [], [machine for machine, _ in news]
            for array in (table.others, table.end_s, table.start_s):
                array[rows] = np.nan
        for machine, heir in news:
            for array in (table.others, table.end_s, table.start_s):
                if heir >= 0:
                    array[heir] = array[machine]
                array[machine] = np.nan
        table.changes = len(self._changes)

    def _price(
        self,
        task_class: int,
        rows: IntArray,
        reps: IntArray,
        now: BoolArray,
        later: BoolArray,
        wanted: int,
        budget: int,
        found: ClassOptions,
    ) -> None:
        states, prices = self.states, self.prices
        kind = prices.type_of[task_class]
        table = self._tables.get(kind)
        if table is None:
            columns = int(prices.variants.columns[prices.types[kind].rows.ravel()].max()) + 1
            shape = (len(states.hosts), columns, self.starts)
            arrays = (np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan))
            table = self._tables[kind] = _Table(*arrays, len(self._changes))
        self._follow(table)
        made = price_class(
            prices.forecasts.table.memory,
            reps,
            states.shape,
            rows,
            now,
            later,
            states.completions,
            self.starts,
            task_class,
            prices.class_goals[task_class],
            wanted,
            budget,
            states.hosts,
            states.count,
            states.jobs,
            states.kinds,
            states.start_after,
            states.keys,
            states.free_cores,
            states.free_memory,
            states.slo_us,
            prices.numbers,
            states.base_cost,
            states.base_peak,
            prices.variants.numbers,
            prices.variants.kinds,
            prices.variants.columns,
            table.others,
            table.end_s,
            table.start_s,
            found.price,
            found.start_after,
            found.variant,
            found.end_s,
            found.start_s,
        )
        prices.forecasts.made += made
        self.cut_short += made >= budget
