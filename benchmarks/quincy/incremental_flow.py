"""A min-cost flow that is kept optimal while tasks come and go, machines change and costs move.

For networks where every task is a source of one unit with a short list of choices, and everything else, the hubs, is
shared: Quincy's data-locality network above all. Flow and prices are kept between rounds; each change costs one
shortest path (see ``kernel``). Where searches get too long, as in a contended cluster, OR-tools solves the round from
scratch instead, and the outcome says so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from benchmarks.quincy import incremental_kernel as kernel
from benchmarks.quincy import incremental_state as state
from benchmarks.quincy.hub_graph import HubGraph
from benchmarks.quincy.incremental_certificate import FlowCertificate, certify
from benchmarks.quincy.incremental_outcome import Outcome, Reason, Way
from flowsched.network.network import COST_LIMIT, Network
from flowsched.solvers.ortools import OrtoolsSolver
from flowsched.solvers.solver import Status
from flowsched.support.arrays import BoolArray, IntArray

SCANNED_PER_ARC = 4.0
"""Choices that the searches of a round may scan for each arc of the network, before the round is solved from scratch:
what OR-tools needs grows with the arcs too, and at this number both have taken about as long."""
_SCANNED_FREE = 10_000
_MORE_THAN_TASKS = 1_000
"""Units beyond the number of tasks that an arc may get when it becomes cheaper, before that is no step any more."""
_MOST_STRIKES = 5
"""Each round in a row that had to be solved from scratch halves what the next may scan, so often at most."""


class InfeasibleError(ValueError):
    """Some task has no way to the sink."""


class IncrementalFlow:
    """Changes are queued by its methods; ``reoptimise`` makes the flow optimal again.

    Tasks are numbers that ``add`` hands out; numbers of removed tasks are used again.
    """

    def __init__(
        self, graph: HubGraph, width: int = 12, room: int = 1024, scanned_per_arc: float = SCANNED_PER_ARC
    ) -> None:
        """No tasks yet; room for ``room`` of up to ``width`` choices, which grows by itself.

        ``scanned_per_arc``: when to stop searching and solve from scratch; 0: always from scratch.
        """
        if not (1 <= width <= kernel.WIDEST and room >= 1):
            raise ValueError(
                f"room for {room} tasks of {width} choices; give 1 or more of 1 to {kernel.WIDEST} choices"
            )
        self._graph = graph
        self._limit = scanned_per_arc
        self._strikes = 0
        self._s = state.empty_state(graph, width, room)
        self._free = np.arange(room - 1, -1, -1, dtype=np.int64)
        self._free_count = room
        self._added: list[IntArray] = []
        self._touched: list[IntArray] = []
        self._crowded: list[IntArray] = []
        self._changes = 0
        self._reason = Reason.NONE
        self.reasons: Counter[str] = Counter()
        """How often a round was solved from scratch, by reason."""
        self.packings = 0
        """How often the lists of choices were packed anew."""
        if kernel.refine(self._s, graph.sink, graph.hubs + 2) < 0:
            raise ValueError("the arcs between hubs have a cycle of negative cost")

    @property
    def graph(self) -> HubGraph:
        """The hubs and the arcs between them, as they are now."""
        return self._graph

    @property
    def task_count(self) -> int:
        """Tasks in the network."""
        return len(self._s.at) - self._free_count

    @property
    def arc_count(self) -> int:
        """Arcs of the network: choices, and arcs between hubs."""
        return int(np.count_nonzero(self._s.hub >= 0)) + len(self._graph.tails)

    def tasks(self) -> IntArray:
        """The numbers of all tasks, ascending."""
        return np.flatnonzero(self._s.hub[:, 0] >= 0)

    def add(self, hubs: IntArray, costs: IntArray) -> IntArray:
        """New tasks: row i names the hubs where task i may go (-1 behind the last) and what each costs; their numbers.

        Raises ``ValueError`` for rows that name no hub, unknown hubs, or costs out of range.
        """
        hubs, costs = self._checked(hubs, costs)
        if len(hubs) > self._free_count:
            self._grow(len(hubs))
        numbers: IntArray = self._free[self._free_count - len(hubs) : self._free_count][::-1].copy()
        self._free_count -= len(hubs)
        self._write(numbers, hubs, costs)
        self._added.append(numbers)
        self._changes += len(numbers)
        return numbers

    def remove(self, tasks: IntArray) -> None:
        """Tasks leave. Raises ``ValueError`` for numbers that no task has, or that are named twice."""
        tasks = self._known(tasks)
        kernel.take_out(self._s, tasks, self._graph.sink)
        self._free[self._free_count : self._free_count + len(tasks)] = tasks
        self._free_count += len(tasks)
        self._changes += len(tasks)

    def reprice(self, tasks: IntArray, costs: IntArray) -> None:
        """New costs for all choices of tasks, in the order in which they were given. Raises ``ValueError`` as ``add``."""
        tasks = self._known(tasks)
        costs = np.atleast_2d(costs)
        if costs.shape[0] != len(tasks) or costs.shape[1] > self._s.cost.shape[1]:
            raise ValueError(f"costs of shape {costs.shape} for {len(tasks)} tasks of {self._s.cost.shape[1]} choices")
        _check_costs(costs)
        s = self._s
        s.cost[tasks, : costs.shape[1]] = costs
        s.paid[tasks] = s.cost[tasks, s.at[tasks]]
        places = s.wish_place[tasks]
        known = (s.hub[tasks] >= 0) & (s.hub[tasks] != self._graph.sink)
        s.pool_cost[places[known]] = s.cost[tasks][known]
        self._touched.append(tasks)
        self._changes += len(tasks)

    def change(self, tasks: IntArray, hubs: IntArray, costs: IntArray) -> None:
        """Tasks get other choices, as ``add`` takes them; they keep their numbers. Raises ``ValueError`` as ``add``."""
        tasks = self._known(tasks)
        hubs, costs = self._checked(hubs, costs)
        if len(hubs) != len(tasks):
            raise ValueError(f"choices of {len(hubs)} tasks for {len(tasks)} numbers; give a row for each")
        s = self._s
        old = s.here[tasks]
        kernel.take_out(s, tasks, self._graph.sink)
        self._write(tasks, hubs, costs)
        s = self._s
        stays: BoolArray = (hubs == old[:, None]) & (old[:, None] >= 0)
        able = stays.any(axis=1)
        kernel.seat(s, tasks[able], stays.argmax(axis=1)[able])
        kept = old[able]
        np.subtract.at(s.lack, kept[kept != self._graph.sink], 1)
        self._touched.append(tasks)
        self._changes += len(tasks)

    def change_arcs(self, arcs: IntArray, capacities: IntArray | None = None, costs: IntArray | None = None) -> None:
        """New capacities or costs of arcs between hubs. Raises ``ValueError`` as ``HubGraph``, and for arcs that there are
        not, or that are named twice.
        """
        arcs = np.atleast_1d(np.asarray(arcs))
        count = len(self._graph.tails)
        if arcs.dtype.kind not in "iu" and len(arcs):
            raise ValueError(f"arcs are named by their numbers, not by {arcs.dtype}")
        if len(arcs) and not (int(arcs.min()) >= 0 and int(arcs.max()) < count):
            raise ValueError(f"arcs {int(arcs.min())} to {int(arcs.max())} are named, but arcs are 0 to {count - 1}")
        if len(np.unique(arcs)) != len(arcs):
            raise ValueError("an arc is named twice in one change")
        arcs = arcs.astype(np.int64)
        room, price = self._graph.capacities.copy(), self._graph.costs.copy()
        if capacities is not None:
            room[arcs] = capacities
        if costs is not None:
            price[arcs] = costs
        self._graph = replace(self._graph, capacities=room, costs=price)
        self._s.capacities[:] = self._graph.capacities
        self._s.costs[:] = self._graph.costs
        self._balance(arcs)

    def add_hubs(self, count: int, tails: IntArray, heads: IntArray, capacities: IntArray, costs: IntArray) -> IntArray:
        """Further hubs and arcs behind the old ones; the numbers of the new hubs. Raises ``ValueError`` as ``HubGraph``."""
        before, old_arcs = self._graph.hubs, len(self._graph.tails)
        self._graph = HubGraph(
            before + count,
            self._graph.sink,
            np.concatenate([self._graph.tails, tails]),
            np.concatenate([self._graph.heads, heads]),
            np.concatenate([self._graph.capacities, capacities]),
            np.concatenate([self._graph.costs, costs]),
        )
        self._s = state.with_graph(self._s, self._graph)
        self._balance(np.arange(old_arcs, len(self._graph.tails)))
        return np.arange(before, before + count)

    def reoptimise(self) -> Outcome:
        """Make the flow optimal for all changes since the last call. Raises ``InfeasibleError`` if there is no flow."""
        scanned = int(self._s.counters[kernel.SCANNED])
        reason = self._reason
        if reason is Reason.NONE and not self._steps(scanned + self._budget()):
            reason = Reason.SEARCHES_TOO_LONG
        if reason is Reason.SEARCHES_TOO_LONG:
            self._strikes = min(self._strikes + 1, _MOST_STRIKES)
        elif reason is Reason.NONE and self._changes > 0:
            self._strikes = max(self._strikes - 1, 0)
        if reason is not Reason.NONE:
            self._solve_from_scratch(reason)
        way = Way.STEPS if reason is Reason.NONE else Way.SCRATCH
        outcome = Outcome(way, reason, self._changes, int(self._s.counters[kernel.SCANNED]) - scanned)
        self._forget_changes()
        return outcome

    def restart(self) -> Outcome:
        """Solve from scratch with OR-tools and derive the prices. Raises ``InfeasibleError`` if there is no flow."""
        self._reason = Reason.ASKED
        return self.reoptimise()

    def certificate(self) -> FlowCertificate:
        """Whether the flow is feasible and of least cost; takes as long as building the whole network."""
        hub, cost = self.choices()
        named = hub >= 0
        price = self._s.price[np.where(named, hub, self._graph.sink)]
        own = np.where(named, cost + price, np.iinfo(np.int64).max).min(axis=1, initial=np.iinfo(np.int64).max)
        return certify(self.network(), self.network_flow(), np.concatenate([own, self._s.price]))

    def cost(self) -> int:
        """The cost of the flow."""
        s = self._s
        tasks = np.flatnonzero(s.at >= 0)
        return int(s.cost[tasks, s.at[tasks]].sum()) + int(s.costs @ s.flow)

    def hub_of(self, tasks: IntArray) -> IntArray:
        """The hub of each task's choice."""
        return self._s.here[tasks]

    def flow(self) -> IntArray:
        """Units on each arc between hubs."""
        return self._s.flow.copy()

    def prices(self) -> IntArray:
        """What one more unit at each hub would cost on its way to the sink."""
        return self._s.price.copy()

    def choices(self) -> tuple[IntArray, IntArray]:
        """Hubs and costs of all tasks' choices, a row for each of ``tasks()``."""
        tasks = self.tasks()
        return self._s.hub[tasks], self._s.cost[tasks]

    def network(self) -> Network:
        """The network as any solver takes it: tasks first, in the order of ``tasks()``, then hubs.

        Arcs: the tasks' choices, row by row, then those between hubs.
        """
        hub, cost = self.choices()
        count = len(hub)
        named = hub >= 0
        supplies = np.ones(count + self._graph.hubs, dtype=np.int64)
        supplies[count:] = 0
        supplies[count + self._graph.sink] = -count
        rows = np.repeat(np.arange(count), named.sum(axis=1))
        return Network(
            np.concatenate([rows, count + self._graph.tails]),
            np.concatenate([count + hub[named], count + self._graph.heads]),
            np.concatenate([np.ones(len(rows), dtype=np.int64), np.minimum(self._graph.capacities, max(count, 1))]),
            np.concatenate([cost[named], self._graph.costs]),
            supplies,
            1.0,
        )

    def network_flow(self) -> IntArray:
        """The flow on the arcs of ``network()``."""
        hub, _ = self.choices()
        at = self._s.at[self.tasks()]
        chosen: BoolArray = np.arange(hub.shape[1]) == at[:, None]
        return np.concatenate([chosen[hub >= 0].astype(np.int64), self._s.flow])

    def _budget(self) -> int:
        if self._limit <= 0.0:
            return -1
        arcs = self.task_count * self._s.hub.shape[1] + len(self._graph.tails)
        return (_SCANNED_FREE + int(self._limit * arcs)) >> self._strikes

    def _steps(self, budget: int) -> bool:
        """Whether the changes were made good by shortest paths; not, where that takes more than the budget."""
        if budget < self._s.counters[kernel.SCANNED]:
            return False
        sink = self._graph.sink
        nothing = np.empty(0, dtype=np.int64)
        touched = np.unique(np.concatenate([*self._touched, nothing]))
        kernel.lift(self._s, touched, sink)
        added = np.unique(np.concatenate([*self._added, touched]))
        added = added[(self._s.hub[added, 0] >= 0) & (self._s.at[added] < 0)]
        crowded = np.concatenate([*self._crowded, nothing])
        for work, items in ((kernel.drain, crowded), (kernel.fill, None), (kernel.place, added)):
            todo = np.flatnonzero(self._s.lack) if items is None else items
            done = work(self._s, todo, sink, budget)
            if done < 0:
                self._forget_changes()
                self._reason = Reason.AFTER_FAILURE
                raise InfeasibleError("some task has no way to the sink; give every task a choice that is never full")
            if done < len(todo):
                return False
        return True

    def _balance(self, arcs: IntArray) -> None:
        """Make the flow on arcs fit their new capacities and reduced costs; the hubs at their ends get what is amiss."""
        s = self._s
        reduced = s.costs[arcs] + s.price[s.heads[arcs]] - s.price[s.tails[arcs]]
        wanted = np.minimum(s.flow[arcs], s.capacities[arcs])
        wanted = np.where(reduced > 0, 0, np.where(reduced < 0, s.capacities[arcs], wanted))
        # Units are brought to their place one by one: as well from scratch where an arc would get more than all tasks.
        if (wanted > self.task_count + _MORE_THAN_TASKS).any():
            self._reason = Reason.UNCAPPED_ARC_CHEAPER
            return
        more = wanted - s.flow[arcs]
        s.flow[arcs] = wanted
        amiss = np.zeros(self._graph.hubs, dtype=np.int64)
        np.subtract.at(amiss, s.tails[arcs], more)
        np.add.at(amiss, s.heads[arcs], more)
        amiss[self._graph.sink] = 0
        s.lack[:] += np.maximum(-amiss, 0)
        self._crowded.append(np.repeat(np.arange(len(amiss)), np.maximum(amiss, 0)))
        self._changes += int(np.abs(amiss).sum())

    def _solve_from_scratch(self, reason: Reason) -> None:
        s = self._s
        network = self.network()
        solution = OrtoolsSolver().solve(network)
        if solution.status is not Status.OPTIMAL:
            self._forget_changes()
            self._reason = Reason.AFTER_FAILURE
            raise InfeasibleError(f"OR-tools finds no flow for {self.task_count} tasks: {solution.status}")
        tasks = self.tasks()
        hub, _ = self.choices()
        named = hub >= 0
        rows, columns = np.nonzero(named)
        chosen = solution.flow[: len(rows)] > 0
        s.first[:] = -1
        s.at[:] = -1
        s.here[:] = -1
        kernel.seat(s, tasks[rows[chosen]], columns[chosen])
        s.flow[:] = solution.flow[len(rows) :]
        if kernel.refine(s, self._graph.sink, 4 * self._graph.hubs + 8) < 0:
            raise RuntimeError("OR-tools' flow has no prices that prove it optimal")
        self.reasons[reason] += 1

    def _forget_changes(self) -> None:
        for queue in (self._added, self._touched, self._crowded):
            queue.clear()
        self._s.lack[:] = 0
        self._changes = 0
        self._reason = Reason.NONE

    def _checked(self, hubs: IntArray, costs: IntArray) -> tuple[IntArray, IntArray]:
        hubs, costs = np.atleast_2d(hubs), np.atleast_2d(costs)
        width = self._s.hub.shape[1]
        if hubs.shape != costs.shape or hubs.shape[1] > width:
            raise ValueError(f"choices of shape {hubs.shape}, costs of {costs.shape}; both at most {width} wide")
        named = hubs >= 0
        if len(hubs) and (not named[:, 0].all() or (named[:, 1:] & ~named[:, :-1]).any()):
            raise ValueError("a task names no hub, or has a gap between its choices; -1 only behind the last choice")
        if len(hubs) and int(hubs.max()) >= self._graph.hubs:
            raise ValueError(f"a task may go to hub {int(hubs.max())}, but hubs are 0 to {self._graph.hubs - 1}")
        _check_costs(np.where(named, costs, 0))
        return hubs, costs

    def _write(self, numbers: IntArray, hubs: IntArray, costs: IntArray) -> None:
        s, width = self._s, hubs.shape[1]
        s.hub[numbers, :width] = hubs
        s.hub[numbers, width:] = -1
        s.cost[numbers, :width] = costs
        s.at[numbers] = -1
        s.here[numbers] = -1
        if kernel.note_wishes(s, numbers, self._graph.sink) < 0:
            self._s = state.packed(s, self._graph.sink)
            self.packings += 1

    def _known(self, tasks: IntArray) -> IntArray:
        tasks = np.atleast_1d(np.asarray(tasks, dtype=np.int64))
        if len(tasks) and (int(tasks.min()) < 0 or int(tasks.max()) >= len(self._s.at)):
            raise ValueError(f"tasks {int(tasks.min())} to {int(tasks.max())} are named, but numbers end earlier")
        wrong = tasks[self._s.hub[tasks, 0] < 0]
        if len(wrong):
            raise ValueError(f"no task has the number {int(wrong[0])}")
        if len(np.unique(tasks)) != len(tasks):
            raise ValueError("a task is named twice in one change")
        return tasks

    def _grow(self, more: int) -> None:
        old = len(self._s.at)
        room = max(2 * old, old + more)
        self._s = state.packed(state.with_room(self._s, room), self._graph.sink)
        self.packings += 1
        free = np.empty(room, dtype=np.int64)
        fresh = np.arange(room - 1, old - 1, -1)
        free[: len(fresh)] = fresh
        free[len(fresh) : len(fresh) + self._free_count] = self._free[: self._free_count]
        self._free = free
        self._free_count += len(fresh)


def _check_costs(costs: IntArray) -> None:
    largest = int(np.abs(costs).max(initial=0))
    if largest > COST_LIMIT:
        raise ValueError(f"a task's choice costs {largest}, beyond {COST_LIMIT}")
