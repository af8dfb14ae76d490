"""Tetris: packing by alignment, with a preference for what is nearly done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np

from flowsched.cluster.knowledge import Knowledge
from flowsched.cluster.snapshot import Task
from flowsched.gpu.devices import WHOLE_MILLI
from flowsched.support.arrays import BoolArray, FloatArray
from flowsched_simulator.baselines.baseline import Baseline
from flowsched_simulator.baselines.greedy_round import Demand, Round
from flowsched_simulator.baselines.room import Room
from flowsched_simulator.baselines.waiting import Waiting, keeps_queue
from flowsched_simulator.baselines.waiting_columns import IMPOSSIBLE, WaitingColumns


class Tetris(Baseline):
    """The task whose demands are most like what a machine has free, and which has little work, goes first.

    The rule: R. Grandl, G. Ananthanarayanan, S. Kandula, S. Rao, A. Akella, "Multi-Resource Packing for Cluster
    Schedulers", SIGCOMM 2014, section 3: of all tasks that fit somewhere and all these machines, the pair with the highest
    ``a - epsilon p``. ``a`` is the dot product of the task's demands and what is free on the machine, CPU, memory and all
    other resources as shares of the machine's. ``p`` is the task's remaining work, the sum of those shares of an average
    machine times its run time; ``epsilon`` the mean ``a`` over the mean ``p`` of what waits. A task that fits nowhere blocks
    nothing. Tasks of higher priority come first. ``a`` and the demands are worked out in integers and rounded once, so that
    equal ones are equal.
    """

    name = "tetris"
    description = "Tetris: highest alignment of demands with what is free, less remaining work; all resources"
    told = (Knowledge.RUN_TIMES,)

    def queue(self) -> Waiting:
        """By arrival, with the work of each task and the scores of what they ask for."""
        return _Scored(self)

    @keeps_queue
    def turns(self, waiting: Sequence[Task], this: Round) -> Iterator[Task]:  # noqa: ARG002
        """The best pair of each moment; at last, in order of arrival, what fits nowhere; by priority."""
        scored = _Scored(self)
        scored.catch_up(this)
        return scored.best_first(this)

    def choose(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:  # noqa: ARG002
        """The machine that is aligned best; of equals, the first by name."""
        return min(rooms, key=lambda r: (-alignment(task, width_milli, r), r.name))

    def share(self, task: Task, width_milli: int, this: Round) -> Fraction:
        """What a task asks for, in shares of an average machine that could take it; 0 where none ever could."""
        able = this.possible(task, width_milli)
        kinds = Counter(tuple((asked, has) for asked, _, has in _amounts(task, width_milli, room)) for room in able)
        demand = sum(number * sum(Fraction(asked, has) for asked, has in kind) for kind, number in kinds.items())
        return Fraction(demand, max(1, len(able)))


def alignment(task: Task, width_milli: int, room: Room) -> float:
    """Dot product of a task's demands and what is free on a machine, both as shares of what the machine has."""
    numerator, denominator = 0, 1
    for asked, free, has in _amounts(task, width_milli, room):
        if asked:
            numerator = numerator * has * has + asked * free * denominator
            denominator *= has * has
    return numerator / denominator


def _amounts(task: Task, width_milli: int, room: Room) -> list[tuple[int, int, int]]:
    """What the task asks for, what is free and what the machine has: of CPU, memory, other resources and GPUs."""
    units = dict(task.resources)
    found = [
        (width_milli, room.free_milli, room.machine.cpu_milli),
        (task.memory_mib, room.free_memory_mib, room.machine.memory_mib),
        *((units.get(name, 0), room.free_resources.get(name, 0), has) for name, has in room.capacity_resources.items()),
        (0 if task.gpus is None else task.gpus.milli, sum(room.devices), WHOLE_MILLI * len(room.devices)),
    ]
    return [(asked, free, max(1, has)) for asked, free, has in found]


class _Scored(WaitingColumns):
    """What waits, with the work of each task, and the alignment with each machine of all that tasks ask for."""

    more = 2
    """Columns: number of what the task asks for, wherever it may run, and its work."""

    def __init__(self, rule: Tetris) -> None:
        super().__init__(rule.rank, rule.width_milli, rule.least_s)
        self._rule = rule

    def _clear(self) -> None:
        super()._clear()
        self._shares: dict[Demand, Fraction] = {}
        """By demand, what it is of an average machine."""
        self._kinds: dict[Demand, int] = {}
        self._examples: list[tuple[Task, int]] = []
        """[kinds] a task, and its width."""
        self._scores: FloatArray = np.zeros((0, 0))
        """[kinds, machines] the alignment; minus infinity where there is no room."""
        self._seen: list[Room] = []
        """[machines] the rooms that the scores are of; a room that has changed is another one in the next round."""

    def _more(self, task: Task, this: Round) -> tuple[float, float]:
        """What it asks for, wherever it may run, and what is left of it: shares of an average machine times seconds."""
        width_milli = self._rule.width_milli(task, this)
        demand = this.demand_of(task, width_milli)
        if demand not in self._shares:
            self._shares[demand] = self._rule.share(task, width_milli, this)
        kind = self._kinds.setdefault(demand._replace(machines=None), len(self._kinds))
        if kind == len(self._examples):
            self._examples.append((task, width_milli))
        work = this.fastest_s(task, width_milli)
        return float(kind), float(self._shares[demand] * Fraction(work)) if np.isfinite(work) else work

    def in_turn(
        self,
        this: Round,
        passes: Callable[[], bool],  # noqa: ARG002
        most_s: Callable[[Task, int], float],  # noqa: ARG002
    ) -> Iterator[Task]:
        """The tasks that may start, the best pair of each moment first."""
        return self.best_first(this)

    def best_first(self, this: Round) -> Iterator[Task]:
        """By priority the best pair of each moment. Where the round explains, all others have a turn, too."""
        self._score(this)
        ends = [0, *(np.flatnonzero(np.diff(self.priority)) + 1).tolist(), len(self.priority)]
        for first, last in pairwise(ends):
            yield from self._level(first, last, this)

    def _level(self, first: int, last: int, this: Round) -> Iterator[Task]:
        """The tasks of a priority."""
        number, rows = this.snapshot.round, self.rows[first:last]
        kinds, work = self._columns[2, first:last].astype(np.int64), self._columns[3, first:last]
        scores, scarce = self._scores, not this.explains
        fits: BoolArray = np.isfinite(scores)
        left = np.asarray(fits.any(axis=1))[kinds]
        some = bool(left.any())
        if scarce and not some:
            return
        penalty = np.zeros(0)
        if some:
            # Of all pairs that fit, in the order of tasks, then machines, so that sums are always rounded alike.
            columns = np.flatnonzero(fits.any(axis=0))
            fitting = scores[:, columns][kinds[left]]
            ending = np.isfinite(work)
            mean_work = float(work[ending].mean()) if ending.any() else 0.0
            epsilon = float(fitting[np.isfinite(fitting)].mean()) / mean_work if mean_work > 0.0 else 0.0
            # What has no end comes after all that has one.
            penalty = np.where(ending, epsilon * work, np.inf)
        rest = np.ones(last - first, dtype=np.bool_)
        if scarce:
            left &= rows != IMPOSSIBLE
        while left.any():
            best = scores.max(axis=1, initial=-np.inf)[kinds]
            able = left & np.isfinite(best)
            if not able.any():
                break
            # Rounded, so that sums make no two equals differ: of these the first to arrive goes first.
            with np.errstate(invalid="ignore"):
                value = np.where(able, np.round(best - penalty, 9), -np.inf)
            t = int(value.argmax()) if np.isfinite(value).any() else int(able.argmax())
            left[t] = rest[t] = False
            before = [(r.free_milli, r.free_memory_mib) for r in this.rooms]
            yield self.task_at(first + t, number)
            for m, room in enumerate(this.rooms):
                if (room.free_milli, room.free_memory_mib) != before[m]:
                    self._score_on(m, room, this)
            if scarce and self.is_nowhere(rows[t], this):
                left &= rows != rows[t]
        if not scarce:
            for t in np.flatnonzero(rest).tolist():
                yield self.task_at(first + t, number)

    def _score(self, this: Round) -> None:
        """Bring scores to what a round begins with."""
        count, known = len(self._examples), len(self._scores)
        if not self._seen:
            self._scores, self._seen, known = np.zeros((count, len(this.rooms))), list(this.rooms), 0
        elif known < count:
            self._scores = np.concatenate([self._scores, np.zeros((count - known, len(this.rooms)))])
        for m, room in enumerate(this.rooms):
            if self._seen[m] is not room:
                self._seen[m] = room
                self._score_on(m, room, this)
            elif known < count:
                self._score_on(m, room, this, known)

    def _score_on(self, m: int, room: Room, this: Round, first: int = 0) -> None:
        """Work out the scores of a machine, from one kind on; relations are looked at when the turn of a task comes."""
        for kind, (task, width_milli) in enumerate(self._examples[first:], first):
            fits = this.has_room(task, width_milli, room)
            self._scores[kind, m] = alignment(task, width_milli, room) if fits else -np.inf
