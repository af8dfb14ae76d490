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

from flowsched_models.cell import Floats, Ints
from flowsched_models.execution import Execution
from flowsched_models.runtime import Host, Resident

Key = TypeVar("Key", bound=Hashable)

_FIRST_ROWS = 64
_TINY = 1e-9
"""An execution works out its paces anew where it stops so close to its next event."""
_NEVER = float("inf")


class EstimatedExecutions(Generic[Key]):
    """Machines by name and the jobs on them by key, each with a *row* of arrays for as long as it is there.

    For estimates alone: no job ends by itself, it stays at the ceiling.
    """

    def __init__(self, ceiling: float, now_s: float = 0.0) -> None:
        """No machines. ``ceiling``: the most progress that a job is held to have made, below 1."""
        if not ceiling < 1.0:
            raise ValueError(f"ceiling must be below 1, got {ceiling}: estimated jobs do not end by themselves")
        self._ceiling = ceiling
        self.now_s = now_s
        self._machines: dict[str, Execution[Key]] = {}
        self._number: dict[str, int] = {}
        self._numbers = 0
        self._next_s: dict[str, float] = {}
        self._changes: list[tuple[float, str]] = []
        """A heap of when anything happens on a machine; what ``_next_s`` does not say is void."""
        self._apart: dict[str, None] = {}
        """Machines whose own execution is ahead of the arrays."""
        self._moved_s: Floats = np.zeros(_FIRST_ROWS)
        """[machines] time of each machine that is not apart."""
        self._rows: dict[Key, int] = {}
        self._free: list[int] = []
        self._progress: Floats = np.zeros(0)
        self._pace: Floats = np.zeros(0)
        self._mark: Floats = np.zeros(0)
        self._at: Ints = np.zeros(0, np.int64)
        self._widen(_FIRST_ROWS)

    def add(self, name: str, host: Host) -> None:
        """A machine without jobs."""
        number = self._number[name] = self._numbers
        self._numbers += 1  # of a machine that goes, the number is not given again
        if number >= len(self._moved_s):
            self._moved_s = np.concatenate([self._moved_s, np.zeros(number)])
        self._machines[name] = Execution(host, self.now_s, self._ceiling)
        self._next_s[name] = _NEVER
        self._apart[name] = None

    def remove(self, name: str) -> None:
        """A machine goes, and the jobs on it with it."""
        for key in [*self._machines[name].jobs()]:
            self._release(key)
        del self._machines[name], self._next_s[name], self._number[name]
        self._apart.pop(name, None)

    def start(self, machine: str, key: Key, resident: Resident) -> int:
        """Put a job on a machine, at the present; its row."""
        self._apart_now(machine).start(key, resident)
        if not self._free:
            self._widen(2 * len(self._progress))
        row = self._rows[key] = self._free.pop()
        self._at[row] = self._number[machine]
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
        """[rows] share of each job's work that is done now; a row without a job has none. Valid until the next call."""
        self._settle()
        now_s, changes = self.now_s, self._changes
        # A machine whose next event is so near would work out its paces anew: that is its own execution's business.
        while changes and changes[0][0] - _TINY <= now_s:
            soonest, name = heappop(changes)
            if self._next_s.get(name) == soonest:
                self._apart_now(name)
        step = now_s - self._moved_s[self._at]
        np.minimum(self._mark, self._progress + self._pace * np.maximum(step, 0.0), out=self._progress)
        np.maximum(self._moved_s, now_s, out=self._moved_s)
        for name in self._apart:
            self._move(self._machines[name])
            for key, progress in self._machines[name].progresses():
                self._progress[self._rows[key]] = progress
        return self._progress

    def _apart_now(self, name: str) -> Execution[Key]:
        """The execution of a machine, moved to the present."""
        execution = self._machines[name]
        if name not in self._apart:
            self._apart[name] = None
            execution.resume(
                float(self._moved_s[self._number[name]]),
                {key: float(self._progress[self._rows[key]]) for key in execution.jobs()},
            )
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
            self._moved_s[self._number[name]] = execution.now_s
            for key, progress, pace, mark in execution.courses():
                row = self._rows[key]
                self._progress[row], self._pace[row], self._mark[row] = progress, pace, mark
        self._apart.clear()

    def _release(self, key: Key) -> None:
        row = self._rows.pop(key)
        self._progress[row], self._pace[row], self._mark[row], self._at[row] = 0.0, 0.0, _NEVER, 0
        self._free.append(row)

    def _widen(self, rows: int) -> None:
        old = len(self._progress)
        more = rows - old
        self._progress = np.concatenate([self._progress, np.zeros(more)])
        self._pace = np.concatenate([self._pace, np.zeros(more)])
        self._mark = np.concatenate([self._mark, np.full(more, _NEVER)])
        self._at = np.concatenate([self._at, np.zeros(more, np.int64)])
        self._free += range(rows - 1, old - 1, -1)
