"""Many machines in motion that are looked at together, as a scheduler's estimate of a cluster is in every round.

What each does is what its own :class:`Execution` would do, bit by bit. But machines on which nothing happens between two
looks move together, as arrays: a look takes array operations over all jobs, and time for those machines alone on which
something happened.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

import numpy as np

from flowsched_models.cell import Floats
from flowsched_models.execution import TICKS_PER_S, Execution
from flowsched_models.runtime import Host, Resident

Key = TypeVar("Key", bound=Hashable)

_FIRST_ROWS = 64
_NEVER = float("inf")


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
        self._done: Floats = np.zeros(0)
        """[rows] progress of each job at the time ``_since_s``; from then on it has ``_pace``, up to ``_mark``."""
        self._since_s: Floats = np.zeros(0)
        self._pace: Floats = np.zeros(0)
        self._mark: Floats = np.zeros(0)
        self._widen(_FIRST_ROWS)

    def add(self, name: str, host: Host) -> None:
        """A machine without jobs."""
        self._machines[name] = Execution(host, self.now_s, ends=False)
        self._next_s[name] = _NEVER
        self._apart[name] = None

    def remove(self, name: str) -> None:
        """A machine goes, and the jobs on it with it."""
        for key in [*self._machines[name].jobs()]:
            self._release(key)
        del self._machines[name], self._next_s[name]
        self._apart.pop(name, None)

    def start(self, machine: str, key: Key, resident: Resident) -> int:
        """Put a job on a machine, at the present; its row."""
        self._apart_now(machine).start(key, resident)
        if not self._free:
            self._widen(2 * len(self._done))
        row = self._rows[key] = self._free.pop()
        return row

    def stop(self, machine: str, key: Key) -> float:
        """Take a job away, at the present; its progress."""
        execution = self._apart_now(machine)
        progress = execution.progress(key)
        execution.stop(key)
        self._release(key)
        return progress

    def advance(self, to_s: float) -> None:
        """The present is ``to_s`` from now on."""
        self.now_s = max(self.now_s, to_s)

    def progress(self) -> Floats:
        """[rows] share of each job's work that is done now; a row without a job has none."""
        self._settle()
        now_s, changes = self.now_s, self._changes
        while changes and changes[0][0] <= now_s:
            soonest, name = heappop(changes)
            if self._next_s.get(name) == soonest:
                self._apart_now(name)
        step_s = np.rint(np.maximum(0.0, now_s - self._since_s) * TICKS_PER_S) / TICKS_PER_S
        found: Floats = np.minimum(self._mark, self._done + self._pace * step_s)
        for name in self._apart:
            for key, progress in self._machines[name].progresses():
                found[self._rows[key]] = progress
        return found

    def _apart_now(self, name: str) -> Execution[Key]:
        """The execution of a machine, moved to the present."""
        execution = self._machines[name]
        self._apart[name] = None
        self._move(execution)
        return execution

    def _move(self, execution: Execution[Key]) -> None:
        while execution.now_s < self.now_s:
            execution.advance(min(self.now_s, execution.next_event_s()))

    def _settle(self) -> None:
        """Machines that were apart join the others."""
        for name in self._apart:
            execution = self._machines[name]
            soonest = self._next_s[name] = execution.next_event_s()
            if soonest < _NEVER:
                heappush(self._changes, (soonest, name))
            for key, *course in execution.courses():
                row = self._rows[key]
                self._done[row], self._since_s[row], self._pace[row], self._mark[row] = course
        self._apart.clear()

    def _release(self, key: Key) -> None:
        row = self._rows.pop(key)
        self._done[row], self._since_s[row], self._pace[row], self._mark[row] = 0.0, 0.0, 0.0, _NEVER
        self._free.append(row)

    def _widen(self, rows: int) -> None:
        old = len(self._done)
        more = rows - old
        self._done = np.concatenate([self._done, np.zeros(more)])
        self._since_s = np.concatenate([self._since_s, np.zeros(more)])
        self._pace = np.concatenate([self._pace, np.zeros(more)])
        self._mark = np.concatenate([self._mark, np.full(more, _NEVER)])
        self._free += range(rows - 1, old - 1, -1)
