"""What will be free on which machine, and when, as far as the ends of running tasks are estimated."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from flowsched.support.arrays import BoolArray, FloatArray, IntArray
from flowsched_models.execution import INSTANT_S


class Availability:
    """Free amounts of all machines over time, a step function on one grid; the last step has no end.

    ``times``: [T] seconds, ascending, the first one now. ``free``: [T, M, R] units that are free on each machine from then
    on; R resources, whose meaning the caller knows.
    """

    def __init__(self, now_s: float, free: IntArray, ends: Iterable[tuple[int, IntArray, float]]) -> None:
        """``free``: [M, R] now. ``ends``: of what runs the machine, the amounts [R] that it gives back, and when."""
        known = [(row, amounts, end_s) for row, amounts, end_s in ends if end_s < np.inf]
        moments = _instants(np.unique([now_s, *(max(now_s, end_s) for _, _, end_s in known)]))
        change = np.zeros((len(moments), *free.shape), dtype=np.int64)
        change[0] = free
        for row, amounts, end_s in known:
            change[np.searchsorted(moments, max(now_s, end_s), side="right") - 1, row] += amounts
        self.times: FloatArray = moments
        self.free: IntArray = change.cumsum(axis=0)

    def copy(self) -> Availability:
        """An independent copy."""
        other = object.__new__(Availability)
        other.times, other.free = self.times, self.free.copy()
        return other

    def feasible(self, need: IntArray, lasting_s: FloatArray) -> BoolArray:
        """[T, M]: where a task that needs [R] and runs [M] seconds could start at each time of the grid."""
        enough = (self.free >= need).all(axis=2)
        # Of each step the time of the next one, itself included, that has not enough.
        short = np.where(enough, np.inf, self.times[:, None])
        short = np.minimum.accumulate(short[::-1], axis=0)[::-1]
        with np.errstate(invalid="ignore"):
            return enough & (short - self.times[:, None] >= lasting_s - INSTANT_S)

    def fits(self, step: int, need: IntArray, lasting_s: FloatArray) -> BoolArray:
        """[M]: where a task that needs [R] and runs [M] seconds could start at a step of the grid."""
        found: BoolArray = (self.free[step] >= need).all(axis=1)
        rows = np.flatnonzero(found)
        short = (self.free[step:, rows] < need).any(axis=2)
        ends = np.where(short.any(axis=0), self.times[step + short.argmax(axis=0)], np.inf)
        with np.errstate(invalid="ignore"):
            found[rows] = ends - self.times[step] >= lasting_s[rows] - INSTANT_S
        return found

    def take(self, row: int, need: IntArray, start_s: float, lasting_s: float) -> None:
        """Let a task have its amounts of a machine for a while."""
        first, last = self._step(start_s), self._step(start_s + lasting_s)
        self.free[first:last, row] -= need

    def _step(self, at_s: float) -> int:
        """The step that begins at a time; made where there is none."""
        if at_s == np.inf:
            return len(self.times)
        step = int(np.searchsorted(self.times, at_s - INSTANT_S))
        if step < len(self.times) and self.times[step] <= at_s + INSTANT_S:
            return step
        self.times = np.insert(self.times, step, at_s)
        self.free = np.insert(self.free, step, self.free[step - 1], axis=0)
        return step


def _instants(times: FloatArray) -> FloatArray:
    """Of ascending times those that begin an instant, which takes in what follows closely."""
    if (np.diff(times) > INSTANT_S).all():
        return times
    first = [0]
    while (following := int(np.searchsorted(times, times[first[-1]] + INSTANT_S, side="right"))) < len(times):
        first.append(following)
    return times[first]
