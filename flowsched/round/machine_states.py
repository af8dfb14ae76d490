"""The machines of a round as arrays: what runs there and what this round has planned there so far.

Arrays are by machine of the view. Machines of a group on which nothing is planned are equal: their *representative*, the
first of them, stands for all, so options are forecast once for each distinct state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from flowsched.cluster.snapshot import MILLI
from flowsched.pricing.arrival import Colocation
from flowsched.pricing.flow_prices import FlowPrices
from flowsched.pricing.forecast_arrays import (
    CORES,
    DELAY_NOW_S,
    ELAPSED_S,
    JOB_NUMBERS,
    LATEST_S,
    MEMORY_MIB,
    READY_S,
    STARTS_PER_CLASS,
    VARIANTS_PER_START,
    MachineForecasts,
    MachineJobs,
    PlannedMachines,
)
from flowsched.pricing.forecast_kernel import base_costs
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

_Numbers = TypeVar("_Numbers", IntArray, FloatArray)

_SPARE_JOBS = 4


class MachineStates:
    """All machines of a view under one plan and one set of prices."""

    def __init__(self, prices: FlowPrices) -> None:
        """Nothing is planned yet."""
        view = prices.forecasts.view
        self.prices = prices
        self.group_of: IntArray = np.array(view.group_of, np.int64)
        self.shape: IntArray = np.array([prices.shapes[view.shape_of[g]] for g in view.group_of], np.int64)
        """[machines] row of the machine's shape in the tables of variants."""
        groups, base = view.groups, prices.base
        of = self.group_of
        self.hosts: IntArray = prices.forecasts.hosts[of]
        self.count: IntArray = base.there.size[of]
        self.jobs: FloatArray = _wider(base.there.jobs[of], _SPARE_JOBS)
        self.kinds: IntArray = _wider(base.there.kinds[of], _SPARE_JOBS)
        self.start_after: IntArray = np.zeros(self.kinds.shape, np.int64)
        self.keys: IntArray = np.full(self.kinds.shape, -1, np.int64)
        self.free_cores: FloatArray = base.there.free_cores[of]
        self.free_memory: FloatArray = base.there.free_memory[of]
        self.has_gpus: BoolArray = np.array([g.machine.gpus is not None for g in groups], np.bool_)[of]
        self.slo_us: FloatArray = prices.slo_us[of]
        self.base_cost: FloatArray = base.cost[of]
        self.base_peak: FloatArray = base.peak_us[of]
        self.settled: FloatArray = base.settled_us[of]
        self.ends: FloatArray = _wider(base.ends_s[of], _SPARE_JOBS)
        self.completions: FloatArray = base.completions_s[of]
        """[machines, starts - 1] when the k-th job ends after now, as planned so far; infinity for fewer."""
        self.representative: IntArray = np.array([groups[g].members[0] for g in view.group_of], np.int64)
        """[machines] the machine that stands for each."""
        self.bound: FloatArray = np.zeros(self.kinds.shape)
        """[machines, jobs] binding of each job, seconds from now, where anything is planned."""
        counts = 0 if prices.spread is None else prices.spread.price.shape[1]
        self.counted: FloatArray = np.zeros((len(of), counts))
        """[machines, counts] tasks planned there that should not be on one machine."""
        self.counted_prices: FloatArray = np.zeros((len(of), counts))
        """[machines, counts] the sum of their prices."""
        self._planned: dict[int, Colocation] = {}
        self._stale: dict[int, None] = {}
        self._untouched: list[list[int]] = [list(g.members) for g in groups]

    def gpu_plans(self) -> Iterator[tuple[int, Colocation]]:
        """What is planned on machines with GPUs, where anything is."""
        groups = self.prices.forecasts.view.groups
        for m, colocation in self._planned.items():
            if colocation and groups[self.group_of[m]].devices_left:
                yield m, colocation

    def plan(self, machine: int, colocation: Colocation) -> tuple[int, int] | None:
        """Make ``colocation`` what is planned on a machine.

        Where the machine stood for others, (machine, the one that stands for them now): what is known of the one holds for
        the other.
        """
        g = int(self.group_of[machine])
        handed: tuple[int, int] | None = None
        if machine not in self._planned:
            rest = self._untouched[g]
            rest.remove(machine)
            if self.representative[machine] == machine and rest:
                heir = rest[0]
                self.representative[rest] = heir
                for array in (self.base_cost, self.base_peak, self.ends, self.completions):
                    array[heir] = array[machine]
                handed = machine, heir
            self.representative[machine] = machine
        self._planned[machine] = colocation
        if self.prices.spread is not None:
            self.counted[machine], self.counted_prices[machine] = self.prices.spread.there(colocation)
        self._write(machine, g, colocation)
        self._stale[machine] = None
        self.prices.forecasts.made += 1
        return handed

    def tell(self) -> None:
        """Let the prices know what is forecast already of machines as they are planned."""
        self.refresh()
        for m, colocation in self._planned.items():
            n, g = self.count[m], int(self.group_of[m])
            ends, bound = self.ends[m, :n].tolist(), self.bound[m, :n].tolist()
            self.prices.learn(g, colocation, float(self.base_cost[m]), ends, bound, self.base_peak[m].tolist())

    def _write(self, machine: int, group: int, colocation: Colocation) -> None:
        prices, variants = self.prices, self.prices.variants.arrays
        here = prices.forecasts.view.groups[group]
        there = len(here.there.rows)
        n = there + len(colocation)
        if n > self.jobs.shape[1]:
            self._widen(n + _SPARE_JOBS)
        cores, memory = here.free_milli / MILLI, float(here.free_memory_mib)
        for i, arrival in enumerate(colocation, there):
            v = prices.variant(group, arrival)
            row = variants.numbers[v]
            self.jobs[machine, i] = row[:JOB_NUMBERS]
            self.jobs[machine, i, READY_S] = row[DELAY_NOW_S]
            self.jobs[machine, i, ELAPSED_S : LATEST_S + 1] = prices.class_goals[arrival.task_class]
            self.kinds[machine, i] = variants.kinds[v]
            self.start_after[machine, i] = arrival.start_after
            key = (arrival.task_class * STARTS_PER_CLASS + arrival.start_after) * VARIANTS_PER_START
            self.keys[machine, i] = key + variants.columns[v]
            if arrival.start_after == 0:
                cores -= row[CORES]
                memory -= row[MEMORY_MIB]
        self.count[machine] = n
        self.free_cores[machine], self.free_memory[machine] = cores, memory

    def refresh(self) -> None:
        """Forecast the machines whose plans have changed: before that their costs, ends and completions are void."""
        if not self._stale:
            return
        prices, machines = self.prices, np.array([*self._stale], np.int64)
        self._stale.clear()
        into = MachineForecasts(self.base_cost, self.base_peak, self.ends, self.bound, self.completions)
        base_costs(prices.forecasts.table.memory, machines, self._there(), prices.price_settings, into)

    def planned(self) -> PlannedMachines:
        """The machines as they are planned now, for one call of a kernel: a later plan may need wider arrays."""
        self.refresh()
        return PlannedMachines(
            self._there(), self.keys, self.shape, self.representative, self.base_cost, self.completions, self.settled
        )

    def _there(self) -> MachineJobs:
        return MachineJobs(
            self.hosts,
            self.count,
            self.jobs,
            self.kinds,
            self.start_after,
            self.free_cores,
            self.free_memory,
            self.slo_us,
        )

    def _widen(self, most: int) -> None:
        more = most - self.jobs.shape[1]
        self.jobs, self.kinds = _wider(self.jobs, more), _wider(self.kinds, more)
        self.start_after, self.keys = _wider(self.start_after, more), _wider(self.keys, more, -1)
        self.ends, self.bound = _wider(self.ends, more, np.inf), _wider(self.bound, more)


def _wider(of_jobs: _Numbers, more: int, fill: float = 0) -> _Numbers:
    """Room for more jobs of each machine; ``np.pad`` takes most of the time of making states."""
    spare = np.full((len(of_jobs), more, *of_jobs.shape[2:]), fill, of_jobs.dtype)
    return np.concatenate((of_jobs, spare), axis=1)
