"""Many machines in motion that are looked at together, as a scheduler's estimate of a cluster is in every round.

What each does is what its own :class:`Execution` would do, bit by bit. But machines on which nothing happens between two
looks move together, as arrays: a look takes array operations over all jobs, and time for those machines alone on which
something happened.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from heapq import heappop, heappush
from typing import Generic, TypeVar

import numpy as np

from flowsched_models.cell import Floats
from flowsched_models.execution import TICKS_PER_S, Execution
from flowsched_models.paged_columns import PagedColumns, SeenColumns
from flowsched_models.runtime import Host, Resident

Key = TypeVar("Key", bound=Hashable)

_NO_JOB = np.array((0.0, 0.0, 0.0, np.inf))
"""A job has a progress at a time; from then on it has a pace, up to a mark."""
_NEVER = float("inf")


class Progress:
    """How far all jobs are at one moment, worked out when it is first asked for."""

    def __init__(self, courses: SeenColumns[np.float64], now_s: float, apart: Mapping[int, float]) -> None:
        """``courses``: [4, rows]. ``apart``: the progress of jobs, by row, for which they do not hold."""
        self._courses, self._now_s, self._apart = courses, now_s, apart

    @cached_property
    def by_row(self) -> Floats:
        """[rows] share of each job's work that is done; a row without a job has none."""
        done, since_s, pace, mark = self._courses.all
        step_s = np.rint(np.maximum(0.0, self._now_s - since_s) * TICKS_PER_S) / TICKS_PER_S
        found: Floats = np.minimum(mark, done + pace * step_s)
        for row, progress in self._apart.items():
            found[row] = progress
        return found


class EstimatedExecutions(Generic[Key]):
    """Machines by name and the jobs on them by key, each with a *row* of arrays for as long as it is there.

    For estimates alone: no job ends by itself; one that should have ended goes on beyond a progress of 1.
    """

    def __init__(self, now_s: float = 0.0) -> None:
        """No machines."""
        self.now_s = now_s
        self._machines: dict[str, Execution[Key]] = {}
        self._next_s: dict[str, float] = {}
        self._changes: list[tuple[float, str]] = []
        """A heap of when anything happens on a machine; what ``_next_s`` does not say is void."""
        self._apart: dict[str, None] = {}
        """Machines whose own execution is ahead of the arrays."""
        self._rows: dict[Key, int] = {}
        self._free: list[int] = []
        self._courses = PagedColumns(_NO_JOB)
        """[4, rows]"""

    def add(self, name: str, host: Host, began: Iterable[tuple[float, Key, Resident]] = ()) -> None:
        """A machine. ``began``: jobs that are there already, with the seconds at which they started, of which none but the
        order counts where they lie ahead; before the first of them the machine was empty.
        """
        there = sorted(began, key=lambda job: job[0])
        first_s = min(there[0][0] if there else self.now_s, self.now_s)
        execution = self._machines[name] = Execution(host, first_s, ends=False)
        for start_s, key, resident in there:
            self._move(execution, min(start_s, self.now_s))
            execution.start(key, resident)
            self._take_row(key)
        self._next_s[name] = _NEVER
        self._apart_now(name)

    def remove(self, name: str) -> None:
        """A machine goes, and the jobs on it with it."""
        for key in [*self._machines[name].jobs()]:
            self._release(key)
        del self._machines[name], self._next_s[name]
        self._apart.pop(name, None)

    def start(self, machine: str, key: Key, resident: Resident) -> int:
        """Put a job on a machine, at the present; its row."""
        self._apart_now(machine).start(key, resident)
        return self._take_row(key)

    def row(self, key: Key) -> int:
        """The row of a job."""
        return self._rows[key]

    def stop(self, machine: str, key: Key) -> float:
        """Take a job away, at the present; its progress."""
        execution = self._apart_now(machine)
        progress = execution.progress(key)
        execution.stop(key)
        self._release(key)
        return progress

    def seen(self, machine: str, key: Key, at_s: float) -> float:
        """The progress that a job will have made at ``at_s`` if nothing comes or goes until then. Nothing moves by that: how
        far jobs are must not depend, not even in the last bit, on who asked.
        """
        ahead = self._machines[machine].copy()
        self._move(ahead, at_s)
        return ahead.progress(key)

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
        return Progress(self._courses.look(), now_s, {self._rows[key]: done for jobs in here for key, done in jobs})

    def _apart_now(self, name: str) -> Execution[Key]:
        """The execution of a machine, moved to the present."""
        execution = self._machines[name]
        self._apart[name] = None
        self._move(execution, self.now_s)
        return execution

    def _move(self, execution: Execution[Key], to_s: float) -> None:
        while execution.now_s < to_s:
            execution.advance(min(to_s, execution.next_event_s()))

    def _take_row(self, key: Key) -> int:
        if not self._free:
            old = len(self._courses)
            self._courses.widen()
            self._free += range(len(self._courses) - 1, old - 1, -1)
        row = self._rows[key] = self._free.pop()
        return row

    def _settle(self) -> None:
        """Machines that were apart join the others."""
        for name in self._apart:
            execution = self._machines[name]
            soonest = self._next_s[name] = execution.next_event_s()
            if soonest < _NEVER:
                heappush(self._changes, (soonest, name))
            for key, *course in execution.courses():
                self._courses.put(self._rows[key], course)
        self._apart.clear()

    def _release(self, key: Key) -> None:
        row = self._rows.pop(key)
        self._courses.put(row, _NO_JOB)
        self._free.append(row)
