"""Weighted fair sharing between jobs."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush
from typing import Any

from flowsched.cluster.change_log import LogMark
from flowsched.cluster.pending_tasks import Wait
from flowsched.cluster.running_tasks import RunningTasks, entries_of
from flowsched.cluster.snapshot import Running, Task
from flowsched.gpu.devices import WHOLE_MILLI
from flowsched_simulator.baselines.baseline import Baseline, by_arrival
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.room import Room
from flowsched_simulator.baselines.waiting import Waiting, keeps_queue

_Arrival = tuple[int, tuple[float, int, str, str]]
_Key = tuple[int, Fraction, _Arrival]
"""Priority, share for its weight, arrival."""
_ROW, _NEXT, _CHAIN = range(3)
"""What is next: the first task of a plain job, a further one of it, or the first of another job's chain."""
_NO_ROW = -1


class WeightedFairSharing(Baseline):
    """The job that would have the least of the cluster for its weight gets the next place.

    The rule: weighted dominant resource fairness, A. Ghodsi, M. Zaharia, B. Hindman, A. Konwinski, S. Shenker, I. Stoica,
    "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types", NSDI 2011, sections 4 and 4.3: progressive
    filling. Users are jobs here, with the weights of their tasks. A job's dominant share is the largest of its shares of
    the cluster's CPU, memory and other resources, the task in question included, so that weights matter to jobs of one
    task too. A task that fits nowhere blocks nothing, and what runs is never stopped. Higher priorities come first.
    """

    name = "wfs"
    description = (
        "Weighted fair sharing (DRF): the job with the least dominant share for its weight gets the next place"
    )

    def queue(self) -> Waiting:
        """By job, with its share."""
        return _ByShare(self)

    @keeps_queue
    def turns(self, waiting: Sequence[Task], this: Round) -> Iterator[Task]:  # noqa: ARG002
        """One task after the other, as shares are when its turn comes."""
        jobs = _ByShare(self)
        jobs.catch_up(this)
        return jobs.least_first(this)

    def choose(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:  # noqa: ARG002
        """The machine with the most free cores; of equals, the first by name."""
        return min(rooms, key=lambda r: (-this.available_milli(r, task), r.name))


class _ByShare(Waiting):
    """What waits by job, and what jobs have.

    Most jobs are *plain*: all their tasks ask for the same, and nothing binds these to others. Where one of them fits
    nowhere, neither do the others, nor do those of other plain jobs that ask for the same.
    """

    def __init__(self, rule: WeightedFairSharing) -> None:
        super().__init__(rule.rank, rule.width_milli, rule.least_s)
        self._rule = rule

    def _clear(self) -> None:
        super()._clear()
        self._total: dict[str, int] = {}
        self._held: dict[str, dict[str, int]] = {}
        """What running tasks of jobs have."""
        self._running_mark: LogMark[Running] | None = None
        self._chains: dict[str, dict[int, list[tuple[_Arrival, Wait]]]] = {}
        """By job and priority, in order of arrival."""
        self._asked: dict[str, Counter[int]] = {}
        """By job, how many of its tasks are in which row; those that no machine could ever take in none."""
        self._filed: dict[str, tuple[int, _Key]] = {}
        """Row and key of plain jobs."""
        self._plain: dict[int, list[tuple[_Key, str]]] = {}
        """By row, the plain jobs by what the first task of each has for a key."""
        self._others: set[str] = set()
        """Jobs that are not plain, and of which a task may start."""
        self._changed: set[str] = set()

    def catch_up(self, this: Round) -> None:
        """Bring the queue to what waits and runs in a round."""
        super().catch_up(this)
        self._total = self._total or _total(this)
        running = this.snapshot.running
        mark = running.mark if isinstance(running, RunningTasks) else None
        changes = None if mark is None else mark.since(self._running_mark)
        if changes is None:
            self._changed.update(self._held)
            self._held.clear()
            changes = [(r, True) for r in entries_of(running)]
        self._running_mark = mark
        for r, came in changes:
            held = self._held.setdefault(r.task.job, {})
            _add(held, r.task, r.width_milli, 1 if came else -1)
            if not any(held.values()):
                del self._held[r.task.job]
            self._changed.add(r.task.job)
        for job in sorted(self._changed):
            self._file(job, this)
        self._changed.clear()

    def in_turn(
        self,
        this: Round,
        passes: Callable[[], bool],  # noqa: ARG002
        most_s: Callable[[Task, int], float],  # noqa: ARG002
    ) -> Iterator[Task]:
        """The tasks that may start, as shares are when the turn of each comes."""
        return self.least_first(this)

    def least_first(self, this: Round) -> Iterator[Task]:
        """One task after the other, as shares are when its turn comes. Where the round explains, all of them."""
        number = this.snapshot.round
        here: dict[str, dict[str, int]] = {}
        jobs = self._chains if this.explains else self._others
        left = {(priority, job): deque(chain) for job in jobs for priority, chain in self._chains[job].items()}
        keys = {at: self._key(chain[0][1].task, here, this) for at, chain in left.items()}
        heap: list[tuple[_Key, tuple[int, int, Any]]] = [(key, (_CHAIN, *at)) for at, key in keys.items()]
        if not this.explains:
            able = self._may_fit(this)
            heap += [(jobs[0][0], (_ROW, row, 0)) for row, jobs in self._plain.items() if able[row]]
        heapify(heap)

        def placed(task: Task) -> bool:
            """Whether the task, whose turn has been, was placed; its job then has more."""
            if not this.is_placed(task):
                return False
            held = here.setdefault(task.job, dict(self._held.get(task.job, {})))
            _add(held, task, self._rule.width_milli(task, this))
            return True

        while heap:
            key, (kind, first, second) = heappop(heap)
            if kind == _CHAIN:
                if keys.get((first, second)) != key:
                    continue  # The job's share has changed since.
                task = left[first, second].popleft()[1].in_round(number)
                yield task
                placed(task)
                for at in [(priority, second) for priority in self._chains[second] if (priority, second) in left]:
                    if left[at]:
                        keys[at] = self._key(left[at][0][1].task, here, this)
                        heappush(heap, (keys[at], (_CHAIN, *at)))
                    else:
                        del left[at], keys[at]
                continue
            row, place = first, 0
            if self._rows[row].demand in this.nowhere:
                continue
            if kind == _ROW:
                jobs_here = self._plain[row]
                job = jobs_here[second][1]
                if second + 1 < len(jobs_here):
                    heappush(heap, (jobs_here[second + 1][0], (_ROW, row, second + 1)))
            else:
                job, place = second
            (chain,) = self._chains[job].values()
            task = chain[place][1].in_round(number)
            yield task
            if placed(task) and place + 1 < len(chain):
                heappush(heap, (self._key(chain[place + 1][1].task, here, this), (_NEXT, row, (job, place + 1))))

    def _key(self, task: Task, here: Mapping[str, Mapping[str, int]], this: Round) -> _Key:
        """The share that the task's job would have with it. ``here``: what those jobs have that the round gave something."""
        amounts = dict(here[task.job] if task.job in here else self._held.get(task.job, {}))
        _add(amounts, task, self._rule.width_milli(task, this))
        share = max(Fraction(amount, max(1, self._total.get(name, 0))) for name, amount in amounts.items())
        return -task.priority, share / Fraction(repr(task.weight)), by_arrival(task)

    def _file(self, job: str, this: Round) -> None:
        """Put a job where it belongs, now that its tasks or its share have changed."""
        if job in self._filed:
            row, key = self._filed.pop(job)
            jobs = self._plain[row]
            del jobs[bisect_left(jobs, (key, job))]
            if not jobs:
                del self._plain[row]
        self._others.discard(job)
        if job not in self._chains:
            return
        chains, (row, *more) = self._chains[job], sorted(self._asked[job])
        if more or (row != _NO_ROW and (len(chains) > 1 or self._rows[row].demand is None)):
            self._others.add(job)
        elif row != _NO_ROW:
            (chain,) = chains.values()
            key = self._key(chain[0][1].task, {}, this)
            self._filed[job] = row, key
            insort(self._plain.setdefault(row, []), (key, job))

    def _add(self, wait: Wait, this: Round) -> None:
        super()._add(wait, this)
        task = wait.task
        chain = self._chains.setdefault(task.job, {}).setdefault(task.priority, [])
        insort(chain, (by_arrival(task), wait), key=_arrival)
        self._asked.setdefault(task.job, Counter())[self._row_of(task)] += 1
        self._changed.add(task.job)

    def _drop(self, task: Task) -> None:
        job, asked, row = task.job, self._asked[task.job], self._row_of(task)
        asked[row] -= 1
        if not asked[row]:
            del asked[row]
        chain = self._chains[job][task.priority]
        del chain[bisect_left(chain, by_arrival(task), key=_arrival)]
        if not chain:
            del self._chains[job][task.priority]
        if not asked:
            del self._asked[job], self._chains[job]
        self._changed.add(job)
        super()._drop(task)

    def _row_of(self, task: Task) -> int:
        known = self._turns.get(task.name)
        return _NO_ROW if known is None else known[1].row


def _arrival(place: tuple[_Arrival, Wait]) -> _Arrival:
    return place[0]


def _total(this: Round) -> dict[str, int]:
    total = {"cpu": 0, "memory": 0}
    for room in this.rooms:
        total["cpu"] += room.capacity_milli
        total["memory"] += room.capacity_memory_mib
        if room.devices:
            total["GPUs"] = total.get("GPUs", 0) + WHOLE_MILLI * len(room.devices)
        for name, units in room.capacity_resources.items():
            total[f"resource {name}"] = total.get(f"resource {name}", 0) + units
    return total


def _add(held: dict[str, int], task: Task, width_milli: int, sign: int = 1) -> None:
    amounts = {"cpu": width_milli, "memory": task.memory_mib} | {f"resource {n}": u for n, u in task.resources}
    if task.gpus is not None:
        amounts["GPUs"] = task.gpus.milli
    for name, amount in amounts.items():
        held[name] = held.get(name, 0) + sign * amount
