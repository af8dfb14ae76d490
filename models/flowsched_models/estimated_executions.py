"""Many machines in motion that are looked at together, as a scheduler's estimate of a cluster is in every round.

What each does is what its own :class:`Execution` would do, bit by bit. But machines on which nothing happens between two
looks move together, as arrays: a look takes array operations over all jobs, and time for those machines alone on which
something happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from flowsched_models.cell import Floats
from flowsched_models.execution import TICKS_PER_S, Execution
from flowsched_models.paged_columns import PagedColumns, SeenColumns
from flowsched_models.runtime import Host, Resident

_NO_JOB = np.array((0.0, 0.0, 0.0, np.inf))
"""A job has a progress at a time; from then on it has a pace, up to a mark."""
_NEVER = float("inf")


class Progress:
    """How far all jobs are at one moment, worked out when it is first asked for."""

    def __init__(self, courses: SeenColumns[np.float64], now_s: float, apart: Mapping[int, float]) -> None:
        """``courses``: [4, rows]. ``apart``: the progress of jobs, by row, for which they do not hold."""
        self._courses, self._now_s, self._apart = courses, now_s, apart

    @classmethod
    def given(cls, progress: Mapping[int, float]) -> Progress:
        """What is given by row."""
        rows = max(progress, default=-1) + 1
        return cls(SeenColumns([np.repeat(_NO_JOB[:, None], rows, axis=1)]), 0.0, progress)

    @cached_property
    def by_row(self) -> Floats:
        """[rows] share of each job's work that is done; a row without a job has none."""
        done, since_s, pace, mark = self._courses.all
        step_s = np.rint(np.maximum(0.0, self._now_s - since_s) * TICKS_PER_S) / TICKS_PER_S
        found: Floats = np.minimum(mark, done + pace * step_s)
        for row, progress in self._apart.items():
            found[row] = progress
        return found

    def of(self, rows: NDArray[np.int64]) -> Floats:
        """[rows] the same of some rows, which may be higher than any that has had a job."""
        known = rows < len(self.by_row)
        found: Floats = np.zeros(len(rows))
        found[known] = self.by_row[rows[known]]
        return found


class EstimatedExecutions:
    """Machines by name and the jobs on them by *row*: a number that a job has alone for as long as it is there.

    For estimates alone: no job ends by itself; one that should have ended goes on beyond a progress of 1.
    """

    def __init__(self, now_s: float = 0.0) -> None:
        """No machines."""
        self.now_s = now_s
        self._machines: dict[str, Execution[int]] = {}
        self._next_s: dict[str, float] = {}
        self._changes: list[tuple[float, str]] = []
        """A heap of when anything happens on a machine; what ``_next_s`` does not say is void."""
        self._apart: dict[str, None] = {}
        """Machines whose own execution is ahead of the arrays."""
        self._courses = PagedColumns(_NO_JOB)
        """[4, rows]"""

    def add(self, name: str, host: Host, began: Iterable[tuple[float, int, Resident]] = ()) -> None:
        """A machine. ``began``: jobs that are there already, with the seconds at which they started, of which none but the
        order counts where they lie ahead; before the first of them the machine was empty.
        """
        there = sorted(began, key=lambda job: job[0])
        first_s = min(there[0][0] if there else self.now_s, self.now_s)
        execution = self._machines[name] = Execution(host, first_s, ends=False)
        for start_s, row, resident in there:
            self._move(execution, min(start_s, self.now_s))
            execution.start(row, resident)
            self._reach(row)
        self._next_s[name] = _NEVER
        self._apart_now(name)

    def remove(self, name: str) -> None:
        """A machine goes, and the jobs on it with it."""
        for row in self._machines[name].jobs():
            self._courses.put(row, _NO_JOB)
        del self._machines[name], self._next_s[name]
        self._apart.pop(name, None)

    def start(self, machine: str, row: int, resident: Resident) -> None:
        """Put a job on a machine, at the present."""
        self._apart_now(machine).start(row, resident)
        self._reach(row)

    def stop(self, machine: str, row: int) -> float:
        """Take a job away, at the present; its progress."""
        execution = self._apart_now(machine)
        progress = execution.progress(row)
        execution.stop(row)
        self._courses.put(row, _NO_JOB)
        return progress

    def seen(self, machine: str, row: int, at_s: float) -> float:
        """The progress that a job will have made at ``at_s`` if nothing comes or goes until then. Nothing moves by that: how
        far jobs are must not depend, not even in the last bit, on who asked.
        """
        ahead = self._machines[machine].copy()
        self._move(ahead, at_s)
        return ahead.progress(row)

    def advance(self, to_s: float) -> None:
        """The present is ``to_s`` from now on."""
        self.now_s = max(self.now_s, to_s)

    def progress(self) -> Progress:
        """How far all jobs are now."""
        self._settle()
        now_s, changes = self.now_s, self._changes
        while changes and changes[0][0] <= now_s:
            soonest, name = heappop(changes)
            if self._next_s.get(name) == soonest:
                self._apart_now(name)
        here = [self._machines[name].progresses() for name in self._apart]
        return Progress(self._courses.look(), now_s, {row: done for jobs in here for row, done in jobs})

    def _apart_now(self, name: str) -> Execution[int]:
        """The execution of a machine, moved to the present."""
        execution = self._machines[name]
        self._apart[name] = None
        self._move(execution, self.now_s)
        return execution

    def _move(self, execution: Execution[int], to_s: float) -> None:
        while execution.now_s < to_s:
            execution.advance(min(to_s, execution.next_event_s()))

    def _reach(self, row: int) -> None:
        while row >= len(self._courses):
            self._courses.widen()

    def _settle(self) -> None:
        """Machines that were apart join the others."""
        for name in self._apart:
            execution = self._machines[name]
            soonest = self._next_s[name] = execution.next_event_s()
            if soonest < _NEVER:
                heappush(self._changes, (soonest, name))
            for row, *course in execution.courses():
                self._courses.put(row, course)
        self._apart.clear()
