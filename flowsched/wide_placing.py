"""Whole tasks onto machines: along a flow first, then wherever there is room, every constraint exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from flowsched.arrays import BoolArray, FloatArray, IntArray
from flowsched.relations.relation import RelationKind
from flowsched.solvers import Solution, Solver
from flowsched.stage_timer import StageTimer
from flowsched.waterfill import waterfill
from flowsched.wide_board import TIE, UNLIMITED, Board, WideClass
from flowsched.wide_network import WideNetwork, build_wide_network

WORTH_A_SOLVE = 0.02
"""Share of tasks that must be left over for another network; fewer find their places one class after the other."""
IMPROVEMENT_PASSES = 4
IMPROVEMENT_WORK = 400_000
"""Classes times machines that improvement may look at in one round."""
SMALLEST_GAIN = 1e-9


@dataclass
class Plan:
    """Placements in the order in which they were made: one class and the machines that its next tasks take."""

    left: list[int]
    """Tasks of each class that are not placed."""
    runs: list[tuple[int, IntArray]] = field(default_factory=list)
    rivals: list[tuple[IntArray, FloatArray]] = field(default_factory=list)
    """For every placement of a run the machine that would have been next, -1 for none, and its cost then."""

    def placed(self, c: int) -> int:
        """Tasks of a class that are placed."""
        return sum(len(machines) for index, machines in self.runs if index == c)

    def copy(self) -> Plan:
        """The same plan, to be changed without changing this one."""
        return Plan(self.left.copy(), self.runs.copy(), self.rivals.copy())


class Placer:
    """Puts tasks of a board's classes into a plan."""

    def __init__(self, board: Board, solver: Solver, resolves: int) -> None:
        """Nothing is placed yet."""
        self.board = board
        self.plan = Plan([len(cls.demand.tasks) for cls in board.classes])
        self.first: tuple[WideNetwork, Solution] | None = None
        self.solves = 0
        self._solver = solver
        self._resolves = resolves
        self._tight = False

    def fill(self, active: Sequence[int], timed: StageTimer) -> None:
        """Place all that can be placed of the active classes.

        Tasks are spread; if the flow knew room for some that found none, once more as tight as possible, and the plan
        that leaves less waiting counts.
        """
        chosen = set(active)
        pending = [n if c in chosen else 0 for c, n in enumerate(self.plan.left)]
        if not any(pending) or not self.board.machine_count:
            return
        start = self.save()
        promised = self._fill(active, timed)
        missed = [c for c in active if self.plan.left[c] > pending[c] - int(promised[c])]
        if any(all(gate.counts for gate in self.board.gates(self.board.classes[c])) for c in missed):
            spread = self.save()
            self.restore(start)
            self._tight = True
            self._fill(active, timed)
            self._tight = False
            if self._waiting(self.plan) >= self._waiting(spread[1]):
                self.restore(spread)

    def _fill(self, active: Sequence[int], timed: StageTimer) -> IntArray:
        """Along the flow, through further networks, anywhere; how many tasks of each class the first network had placed."""
        order = self._order(active)
        chosen = set(active)
        promised: IntArray | None = None
        for _ in range(1 + self._resolves):
            pending = [n if c in chosen else 0 for c, n in enumerate(self.plan.left)]
            total = sum(pending)
            if not total:
                break
            timed.start("network")
            network = build_wide_network(self.board, pending)
            timed.start("solve")
            solution = self._solver.solve(network.network)
            self.solves += 1
            if not solution.status.has_flow:
                raise RuntimeError(
                    f"{self._solver.name} answers {solution.status} to a wide network: {solution.report}"
                )
            if self.first is None:
                self.first = network, solution
            timed.start("pack")
            wanted = network.whole_tasks(solution.flow)
            if promised is None:
                promised = wanted.sum(axis=1)
            placed = 0
            for c in order:
                if wanted[c].any():
                    placed += self._along(self.board.classes[c], network.group_of, wanted[c])
            if not placed or total - placed <= max(1.0, WORTH_A_SOLVE * total):
                break
        timed.start("sweep")
        self.sweep(active)
        return np.zeros(len(self.plan.left), dtype=np.int64) if promised is None else promised

    def _waiting(self, plan: Plan) -> float:
        """What the tasks that a plan leaves cost, as the first network prices them."""
        if self.first is None:
            return float(sum(plan.left))
        return float(self.first[0].waiting @ np.array(plan.left))

    def sweep(self, active: Sequence[int]) -> None:
        """Place every task that has a place, class by class, until nothing moves."""
        again = self._order(active) if self.board.machine_count else []
        while again:
            placed = 0
            for c in again:
                if self.plan.left[c]:
                    placed += self._anywhere(self.board.classes[c])
            if not placed:
                return
            # Only these may be let in by what was placed after them.
            again = [
                c for c in again if self.plan.left[c] and any(g.widens for g in self.board.gates(self.board.classes[c]))
            ]

    def improve(self, active: Sequence[int]) -> bool:
        """Let every class in turn find the cheapest places beside all others; the total can only fall.

        The price of a task is all that it adds to the total, so a class's best places are the total's best as well. Only
        classes whose moves cannot take away the ground on which another was let in.
        """
        leaned_on = {
            name
            for c in active
            for name in self.board.classes[c].demand.holds
            if self.board.standings[name].relation.kind in (RelationKind.TOGETHER, RelationKind.SPREAD)
        }
        movable = [
            c
            for c in active
            if not leaned_on & set(self.board.classes[c].relations)
            and all(gate.counts for gate in self.board.gates(self.board.classes[c]))
        ]
        work = len(movable) * max(1, self.board.machine_count)
        passes = min(IMPROVEMENT_PASSES, IMPROVEMENT_WORK // work) if work else 0
        settled: set[int] = set()
        moved = False
        for _ in range(passes):
            for c in movable:
                if c in settled:
                    continue
                if self._settle(c):
                    settled.clear()
                    moved = True
                settled.add(c)
            if len(settled) == len(movable):
                break
        return moved

    def _settle(self, c: int) -> bool:
        """Place a class anew; whether that is cheaper."""
        before = self.placement_of(c)
        if not before.any():
            return False
        cls = self.board.classes[c]
        saved = self.plan.copy()
        self.take_back([c])
        price, step = self._choice(cls)
        self._anywhere(cls)
        after = self.placement_of(c)
        gain = _cost(before, price, step) - _cost(after, price, step)
        more = int(after.sum() - before.sum())
        if more > 0 or (more == 0 and gain > SMALLEST_GAIN * float(before.sum())):
            return True
        self.board.commit(cls, np.repeat(np.arange(len(after)), after), -1)
        self.board.commit(cls, np.repeat(np.arange(len(before)), before))
        self.plan = saved
        return False

    def placement_of(self, c: int) -> IntArray:
        """Tasks of a class on each machine."""
        count = np.zeros(self.board.machine_count, dtype=np.int64)
        for index, machines in self.plan.runs:
            if index == c:
                count += np.bincount(machines, minlength=len(count))
        return count

    def _choice(self, cls: WideClass) -> tuple[FloatArray, FloatArray]:
        """Price of the next task on each machine and its rise with every one, tie-break included."""
        board = self.board
        return board.price(cls) + TIE * board.load, board.step(cls) + TIE * cls.load

    def save(self) -> tuple[Board, Plan]:
        """The state now, for ``restore``."""
        return self.board.copy(), self.plan.copy()

    def restore(self, saved: tuple[Board, Plan]) -> None:
        """Go back to a saved state."""
        board, plan = saved
        self.board, self.plan = board.copy(), plan.copy()

    def take_back(self, classes: Sequence[int]) -> None:
        """Take the tasks of these classes from their machines."""
        kept = Plan(self.plan.left)
        for (c, machines), rivals in zip(self.plan.runs, self.plan.rivals, strict=True):
            if c in classes:
                self.board.commit(self.board.classes[c], machines, -1)
                kept.left[c] += len(machines)
            else:
                kept.runs.append((c, machines))
                kept.rivals.append(rivals)
        self.plan = kept

    def _order(self, active: Sequence[int]) -> list[int]:
        """Those whom others want to be near first, then widest first."""
        classes = [self.board.classes[c] for c in active]
        wanted = {
            name
            for cls in classes
            for name in cls.demand.holds
            if self.board.standings[name].relation.kind is RelationKind.TOGETHER
        }
        return [
            cls.index
            for cls in sorted(
                classes,
                key=lambda cls: (
                    not (wanted & set(cls.demand.joins))
                    or bool(wanted & set(cls.demand.holds) - set(cls.demand.joins)),
                    -cls.width,
                    -int(cls.amounts.sum()),
                    cls.index,
                ),
            )
        ]

    def _along(self, cls: WideClass, group_of: IntArray, wanted: IntArray) -> int:
        gates = self.board.gates(cls)
        if all(gate.counts for gate in gates):
            used = np.flatnonzero(wanted)
            segment_of = np.full(len(wanted), -1, dtype=np.int64)
            segment_of[used] = np.arange(len(used))
            return self._pour(cls, segment_of[group_of], wanted[used])
        return self._in_turn(cls, min(int(wanted.sum()), self.plan.left[cls.index]), group_of, wanted.copy())

    def _anywhere(self, cls: WideClass) -> int:
        left = self.plan.left[cls.index]
        if all(gate.counts for gate in self.board.gates(cls)):
            return self._pour(cls, np.zeros(self.board.machine_count, dtype=np.int64), np.array([left]))
        return self._in_turn(cls, left, None, None)

    def _pour(self, cls: WideClass, segment: IntArray, wanted: IntArray) -> int:
        """Place tasks whose constraints are a number for each machine; machines of segment -1 take none."""
        board = self.board
        price = board.price(cls)
        step = board.step(cls)
        slots = np.minimum(board.room(cls), board.bearable(cls))
        np.minimum(slots, board.affordable(cls, price, step), out=slots)
        for gate in board.gates(cls):
            np.minimum(slots, gate.room(UNLIMITED), out=slots)
        rows = np.flatnonzero((slots > 0) & (segment >= 0))
        if not len(rows):
            return 0
        if self._tight:
            base, rise = 1.0 - board.load[rows], np.zeros(len(rows))
        else:
            base, rise = (price + TIE * board.load)[rows], (step + TIE * cls.load)[rows]
        take = waterfill(base, rise, slots[rows], segment[rows], wanted)
        nth = np.arange(int(take.sum())) - np.repeat(np.cumsum(take) - take, take)
        machines = np.repeat(rows, take)
        cost = np.repeat(base, take) + nth * np.repeat(rise, take)
        machines = machines[np.lexsort((machines, cost))]
        full = np.bincount(machines, minlength=board.machine_count)
        self._note(cls, machines, _rivals(machines, price + step * full, TIE * board.load, slots > full))
        return len(machines)

    def _in_turn(self, cls: WideClass, count: int, group_of: IntArray | None, wanted: IntArray | None) -> int:
        """Place tasks one after the other, each where it costs least then; ``wanted``: at most so many in each group."""
        board = self.board
        price = board.price(cls).copy()
        step = board.step(cls)
        choice = price + TIE * board.load
        rise = step + TIE * cls.load
        slots = np.minimum(board.room(cls), board.bearable(cls))
        np.minimum(slots, board.affordable(cls, price, step), out=slots)
        open_ = slots > 0
        if group_of is not None and wanted is not None:
            open_ &= (wanted > 0)[group_of]
        gates = board.gates(cls)
        steady = [gate for gate in gates if not gate.minds_itself]
        for gate in steady:
            open_ &= gate.open_machines()
        moving = [gate for gate in gates if gate.minds_itself]
        machines: list[int] = []
        rivals: list[int] = []
        rival_costs: list[float] = []
        for _ in range(count):
            mask = open_
            for gate in moving:
                mask = mask & gate.open_machines()
            cost = np.where(mask, choice, np.inf)
            m = int(cost.argmin())
            if cost[m] == np.inf:
                break
            cost[m] = np.inf
            rival = int(cost.argmin())
            rivals.append(-1 if cost[rival] == np.inf else rival)
            rival_costs.append(float(price[rival]))
            machines.append(m)
            choice[m] += rise[m]
            price[m] += step[m]
            slots[m] -= 1
            if not slots[m]:
                open_[m] = False
            for gate in moving:
                gate.note(m)
            if group_of is not None and wanted is not None:
                group = group_of[m]
                wanted[group] -= 1
                if not wanted[group]:
                    open_ &= group_of != group
        self._note(cls, np.array(machines, dtype=np.int64), (np.array(rivals, dtype=np.int64), np.array(rival_costs)))
        return len(machines)

    def _note(self, cls: WideClass, machines: IntArray, rivals: tuple[IntArray, FloatArray]) -> None:
        if len(machines):
            self.board.commit(cls, machines)
            self.plan.left[cls.index] -= len(machines)
            self.plan.runs.append((cls.index, machines))
            self.plan.rivals.append(rivals)


def _cost(count: IntArray, price: FloatArray, step: FloatArray) -> float:
    """Of so many tasks on each machine, the j-th at ``price + (j - 1) step``."""
    used = count > 0
    count = count[used]
    return float((count * price[used] + step[used] * (count * (count - 1) // 2)).sum())


def _rivals(machines: IntArray, price: FloatArray, tie: FloatArray, open_: BoolArray) -> tuple[IntArray, FloatArray]:
    """For each placement the machine, not its own, where one more task would cost least, and that cost."""
    cost = np.where(open_, price + tie, np.inf)
    best = int(cost.argmin())
    if cost[best] == np.inf:
        return np.full(len(machines), -1, dtype=np.int64), np.zeros(len(machines))
    cost[best] = np.inf
    second = int(cost.argmin())
    other = -1 if cost[second] == np.inf else second
    own = machines == best
    return np.where(own, other, best), np.where(own, price[other], price[best])
