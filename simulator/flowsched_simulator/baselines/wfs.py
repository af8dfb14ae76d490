"""Weighted fair sharing between jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush

from flowsched.cluster.gpus import WHOLE_MILLI
from flowsched.cluster.snapshot import Task
from flowsched_simulator.baselines.baseline import Baseline, by_arrival
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.room import Room


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

    def turns(self, waiting: Sequence[Task], this: Round) -> Iterator[Task]:
        """One task after the other, as shares are when its turn comes."""
        total = _total(this)
        held: dict[str, dict[str, int]] = {}
        for r in this.snapshot.running:
            _add(held.setdefault(r.task.job, {}), r.task, r.width_milli)
        queues: dict[tuple[int, str], list[Task]] = {}
        for task in sorted(waiting, key=by_arrival):
            queues.setdefault((task.priority, task.job), []).append(task)
        keys = {key: self._key(tasks[0], held, total, this) for key, tasks in queues.items()}
        levels: dict[str, list[int]] = {}
        for priority, job in queues:
            levels.setdefault(job, []).append(priority)
        heap = [(value, key) for key, value in keys.items()]
        heapify(heap)
        while queues:
            value, key = heappop(heap)
            if keys.get(key) != value:
                continue  # The job's share has changed since.
            task = queues[key].pop(0)
            yield task
            if this.is_placed(task):
                _add(held.setdefault(task.job, {}), task, self.width_milli(task, this))
            for other in [(p, task.job) for p in levels[task.job] if (p, task.job) in queues]:
                if queues[other]:
                    keys[other] = self._key(queues[other][0], held, total, this)
                    heappush(heap, (keys[other], other))
                else:
                    del queues[other], keys[other]

    def choose(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:  # noqa: ARG002
        """The machine with the most free cores; of equals, the first by name."""
        return min(rooms, key=lambda r: (-this.available_milli(r, task), r.name))

    def _key(
        self, task: Task, held: dict[str, dict[str, int]], total: dict[str, int], this: Round
    ) -> tuple[int, Fraction, tuple[int, tuple[float, int, str, str]]]:
        amounts = dict(held.get(task.job, {}))
        _add(amounts, task, self.width_milli(task, this))
        share = max(Fraction(amount, max(1, total.get(name, 0))) for name, amount in amounts.items())
        return -task.priority, share / Fraction(repr(task.weight)), by_arrival(task)


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


def _add(held: dict[str, int], task: Task, width_milli: int) -> None:
    amounts = {"cpu": width_milli, "memory": task.memory_mib} | {f"resource {n}": u for n, u in task.resources}
    if task.gpus is not None:
        amounts["GPUs"] = task.gpus.milli
    for name, amount in amounts.items():
        held[name] = held.get(name, 0) + amount
