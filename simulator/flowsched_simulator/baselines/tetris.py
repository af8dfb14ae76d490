"""Tetris: packing by alignment, with a preference for what is nearly done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from flowsched.cluster.gpus import WHOLE_MILLI
from flowsched.cluster.knowledge import Knowledge
from flowsched.cluster.snapshot import Task
from flowsched_simulator.baselines.baseline import Baseline, by_arrival
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.room import Room


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

    def turns(self, waiting: Sequence[Task], this: Round) -> Iterator[Task]:
        """The best pair of each moment; at last, in order of arrival, what fits nowhere."""
        for priority in sorted({t.priority for t in waiting}, reverse=True):
            yield from self._best_first([t for t in waiting if t.priority == priority], this)

    def choose(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:  # noqa: ARG002
        """The machine that is aligned best; of equals, the first by name."""
        return min(rooms, key=lambda r: (-alignment(task, width_milli, r), r.name))

    def _best_first(self, waiting: Sequence[Task], this: Round) -> Iterator[Task]:
        waiting = sorted(waiting, key=by_arrival)
        widths = [self.width_milli(t, this) for t in waiting]
        work = np.array([self._work(t, w, this) for t, w in zip(waiting, widths, strict=True)])
        scores = np.array(
            [[self._pair(t, w, r, this) for r in this.rooms] for t, w in zip(waiting, widths, strict=True)]
        )
        fits = np.isfinite(scores)
        mean_work = float(work[np.isfinite(work)].mean()) if np.isfinite(work).any() else 0.0
        epsilon = float(scores[fits].mean()) / mean_work if fits.any() and mean_work > 0.0 else 0.0
        # What has no end comes after all that has one.
        penalty = np.where(np.isfinite(work), epsilon * work, np.inf)
        left = np.ones(len(waiting), dtype=np.bool_)
        while left.any():
            best = scores.max(axis=1, initial=-np.inf)
            able = left & np.isfinite(best)
            if not able.any():
                break
            # Rounded, so that sums make no two equals differ: of these the first to arrive goes first.
            value = np.where(able, np.round(best - penalty, 9), -np.inf)
            t = int(value.argmax()) if np.isfinite(value).any() else int(able.argmax())
            left[t] = False
            before = [r.free_milli for r in this.rooms], [r.free_memory_mib for r in this.rooms]
            yield waiting[t]
            for m, room in enumerate(this.rooms):
                if (room.free_milli, room.free_memory_mib) != (before[0][m], before[1][m]):
                    for k in np.flatnonzero(left):
                        scores[k, m] = self._pair(waiting[k], widths[k], room, this)
        yield from (task for task, waits in zip(waiting, left, strict=True) if waits)

    def _pair(self, task: Task, width_milli: int, room: Room, this: Round) -> float:
        """The alignment where the task fits by its demands; relations are looked at when its turn comes."""
        return alignment(task, width_milli, room) if this.has_room(task, width_milli, room) else -np.inf

    def _work(self, task: Task, width_milli: int, this: Round) -> float:
        able = this.possible(task, width_milli)
        if not able:
            return 0.0
        length_s = this.fastest_s(task, width_milli)
        if not np.isfinite(length_s):
            return length_s
        kinds = Counter(tuple((asked, has) for asked, _, has in _amounts(task, width_milli, room)) for room in able)
        demand = sum(number * sum(Fraction(asked, has) for asked, has in kind) for kind, number in kinds.items())
        return float(demand * Fraction(length_s) / len(able))


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
