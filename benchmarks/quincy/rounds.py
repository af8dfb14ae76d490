"""Data locality round by round: every task stays in the network, and each change re-optimises the last flow."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from benchmarks.quincy.choices import Choices, choose
from benchmarks.quincy.decoding import place_tasks
from benchmarks.quincy.hub_graph import HubGraph
from benchmarks.quincy.incremental_flow import SCANNED_PER_ARC, IncrementalFlow
from benchmarks.quincy.incremental_outcome import Outcome
from benchmarks.quincy.machines import Machines
from benchmarks.quincy.tasks import DataTasks
from flowsched.pricing.linear.policies.locality_prices import LocalityPrices
from flowsched.support.arrays import IntArray


@dataclass(frozen=True)
class Placement:
    """Where tasks are after a round."""

    tasks: IntArray
    """Their numbers, ascending."""
    machines: IntArray
    """The machine of each, -1 for those that wait."""
    outcome: Outcome


class LocalityRounds:
    """Tasks and machines change by its methods, ``decide`` places all tasks at least cost.

    Unscheduled nodes of jobs are never full and lead to the sink for nothing, so each is the sink here. Otherwise this
    is the network of ``build_network``.
    """

    def __init__(
        self, machines: Machines, prices: LocalityPrices, room: int = 1024, scanned_per_arc: float = SCANNED_PER_ARC
    ) -> None:
        """Idle machines; ``room`` for tasks grows by itself."""
        self._machines = machines
        self._prices = prices
        m, r = machines.count, machines.rack_count
        self._sink = m + r + 1
        graph = HubGraph(
            m + r + 2,
            self._sink,
            np.concatenate([np.arange(m), m + machines.racks, np.full(r, m + r)]),
            np.concatenate([np.full(m, self._sink), np.arange(m), m + np.arange(r)]),
            _capacities(machines),
            np.zeros(2 * m + r, dtype=np.int64),
        )
        width = prices.preferred_machines + prices.preferred_racks + 3
        self.flow = IncrementalFlow(graph, width, room, scanned_per_arc)
        self._placed: IntArray = np.full(room, -1, dtype=np.int64)

    def arrive(self, tasks: DataTasks) -> IntArray:
        """New tasks; their numbers. Raises ``ValueError`` as ``choose``."""
        numbers = self.flow.add(*self._rows(choose(self._machines, tasks, self._prices)))
        if len(numbers):
            missing = int(numbers.max()) + 1 - len(self._placed)
            if missing > 0:
                more = np.full(max(missing, len(self._placed)), -1, dtype=np.int64)
                self._placed = np.concatenate([self._placed, more])
            self._placed[numbers] = tasks.running_on
        return numbers

    def renew(self, numbers: IntArray, tasks: DataTasks) -> None:
        """Tasks with other ages, other input, or now running: row i is the task that has number i. Raises as ``arrive``."""
        self.flow.change(numbers, *self._rows(choose(self._machines, tasks, self._prices)))
        self._placed[numbers] = np.where(tasks.running_on >= 0, tasks.running_on, self._placed[numbers])

    def leave(self, numbers: IntArray) -> None:
        """Tasks end. Raises ``ValueError`` for numbers that no task has."""
        self.flow.remove(numbers)

    def resize(self, machines: IntArray, slots: IntArray) -> None:
        """Machines get other numbers of slots: 0 for one that is gone, more than 0 for one that comes back."""
        changed = self._machines.slots.copy()
        changed[machines] = slots
        self._machines = replace(self._machines, slots=changed)
        capacities = _capacities(self._machines)
        arcs = np.flatnonzero(capacities != self.flow.graph.capacities)
        self.flow.change_arcs(arcs, capacities=capacities[arcs])

    def decide(self) -> Placement:
        """Place all tasks at least cost."""
        outcome = self.flow.reoptimise()
        tasks = self.flow.tasks()
        m, r = self._machines.count, self._machines.rack_count
        flow = self.flow.flow()
        machines = place_tasks(
            self._machines, self.flow.hub_of(tasks), flow[m : 2 * m], flow[2 * m : 2 * m + r], self._placed[tasks]
        )
        self._placed[tasks] = machines
        return Placement(tasks, machines, outcome)

    def _rows(self, choices: Choices) -> tuple[IntArray, IntArray]:
        waits = np.full((len(choices.waiting), 1), self._sink, dtype=np.int64)
        return (
            np.concatenate([waits, choices.hubs], axis=1),
            np.concatenate([choices.waiting[:, None], choices.costs], axis=1),
        )


def _capacities(machines: Machines) -> IntArray:
    """Of machines to sink, racks to machines, cluster to racks."""
    by_rack = np.bincount(machines.racks, weights=machines.slots, minlength=machines.rack_count)
    return np.concatenate([machines.slots, machines.slots, by_rack.astype(np.int64)])
