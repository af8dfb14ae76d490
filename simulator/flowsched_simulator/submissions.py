"""When the scheduler is told of tasks: at their time, or once the jobs have ended that they come after."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

from flowsched.cluster.snapshot import Task
from flowsched_simulator.scenario import JobTerms

_NEVER = float("inf")


class Submissions:
    """Tasks that the scheduler does not know yet."""

    def __init__(self, tasks: Sequence[Task], terms: Mapping[str, JobTerms]) -> None:
        """``terms``: what holds for jobs as a whole, by job. Tasks of one moment come in the order given."""
        self._open = Counter(task.job for task in tasks)
        self.jobs = len(self._open)
        """How many there are in all."""
        self.jobs_ended = 0
        self._after: dict[str, set[str]] = {
            job: {name for name in terms[job].after if name in self._open}
            for job in self._open
            if job in terms and terms[job].after
        }
        self._followers: dict[str, list[str]] = defaultdict(list)
        for job, names in self._after.items():
            for name in sorted(names):
                self._followers[name].append(job)
        self._held: dict[str, list[tuple[int, Task]]] = defaultdict(list)
        self._queue: list[tuple[float, int, Task]] = []
        for index, task in enumerate(tasks):
            if self._after.get(task.job):
                self._held[task.job].append((index, task))
            else:
                self._queue.append((task.submit_s, index, task))
        heapify(self._queue)

    def next_s(self) -> float:
        """When the next task is submitted; infinity if none is, as far as is known by now."""
        return self._queue[0][0] if self._queue else _NEVER

    def take(self, now_s: float) -> list[Task]:
        """The tasks that are submitted by now; each is given out once. ``submit_s`` is when it could be submitted."""
        found = []
        while self._queue and self._queue[0][0] <= now_s:
            found.append(heappop(self._queue)[2])
        return found

    def ended(self, task: Task, now_s: float) -> None:
        """Take note of an end: the last one of a job lets those come that are after it."""
        self._open[task.job] -= 1
        if self._open[task.job]:
            return
        self.jobs_ended += 1
        for job in self._followers.get(task.job, ()):
            self._after[job].discard(task.job)
            if not self._after[job]:
                for index, held in self._held.pop(job, ()):
                    submit_s = max(held.submit_s, now_s)
                    heappush(self._queue, (submit_s, index, replace(held, submit_s=submit_s)))

    def why_held(self, task: Task) -> str:
        """Which jobs a task still waits for; empty for one that is not held."""
        if task.job not in self._held:
            return ""
        names = sorted(self._after[task.job])
        return f"comes after {', '.join(names[:3])}{' and others' if len(names) > 3 else ''}, which did not end"
