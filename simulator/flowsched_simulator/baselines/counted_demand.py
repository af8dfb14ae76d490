"""How many tasks ask for what of CPU, memory and GPUs, counted as they come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from flowsched.cluster.change_log import LogMark
from flowsched.cluster.pending_tasks import PendingTasks, Wait, waits_of
from flowsched.cluster.running_tasks import RunningTasks, entries_of
from flowsched.cluster.snapshot import Running, Snapshot
from flowsched.gpu.shapes import GpuShape


class CountedDemand:
    """The demand of :func:`flowsched.pricing.gpu_prices.expected_demand`, kept from round to round."""

    def __init__(self) -> None:
        """Nothing is counted."""
        self._snapshot: Snapshot | None = None
        self._demand: Mapping[GpuShape, int] = {}
        self._counts: Counter[GpuShape] = Counter()
        self._waiting: LogMark[Wait] | None = None
        self._running: LogMark[Running] | None = None

    def of(self, snapshot: Snapshot) -> Mapping[GpuShape, int]:
        """The arrivals of each shape that a snapshot leads to expect, in order of the shapes."""
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            self._demand = dict(snapshot.gpu_demand or self._counted(snapshot))
        return self._demand

    def _counted(self, snapshot: Snapshot) -> list[tuple[GpuShape, int]]:
        """Of all that runs and waits."""
        pending, running = snapshot.pending, snapshot.running
        waiting_mark = pending.mark if isinstance(pending, PendingTasks) else None
        running_mark = running.mark if isinstance(running, RunningTasks) else None
        waits = None if waiting_mark is None else waiting_mark.since(self._waiting)
        runs = None if running_mark is None else running_mark.since(self._running)
        self._waiting, self._running = waiting_mark, running_mark
        if waits is None or runs is None:
            self._counts.clear()
            waits, runs = [(w, True) for w in waits_of(snapshot)], [(r, True) for r in entries_of(running)]
        for task, came in (*((w.task, came) for w, came in waits), *((r.task, came) for r, came in runs)):
            self._counts[task.gpu_shape] += 1 if came else -1
        return sorted((shape, count) for shape, count in self._counts.items() if count)
