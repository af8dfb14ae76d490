"""What will be free on which machine, and when, as far as the ends of running tasks are estimated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np

from flowsched.cluster.gpus import TaskGpus
from flowsched.support.arrays import BoolArray, FloatArray, IntArray
from flowsched_models.execution import INSTANT_S

MOST_ARRANGEMENTS = 200
"""Choices of devices that are tried for one task beside the reservations of a machine."""
_MARGIN_S = 1e-3
"""By how much a bound on time is higher than what it bounds, so that no rounding makes it lower."""


@dataclass
class GpuReservation:
    """GPUs of a machine that are reserved from a time on. Which ones may change until then; machine and time do not."""

    gpus: TaskGpus
    start_s: float
    lasting_s: float
    devices: tuple[int, ...]


class Availability:
    """Free amounts of all machines over time, a step function on one grid; the last step has no end.

    ``times``: [T] seconds, ascending, the first one now. ``free``: [T, M, R + 2 D] units that are free on each machine from
    then on: R resources, whose meaning the caller knows, and thousandths of D GPUs, which do not add up. D more columns have
    what is free of these without reservations, which may change to other GPUs.
    """

    def __init__(
        self, now_s: float, free: IntArray, ends: Iterable[tuple[int, IntArray, float]], devices: int = 0
    ) -> None:
        """``free``: [M, R + D] now. ``ends``: of what runs the machine, the amounts [R + D] that it gives back, and when.

        ``devices``: D.
        """
        self._units, self._gpus_end = free.shape[1] - devices, free.shape[1]
        free = self._twice(free)
        ends = [(row, self._twice(amounts), end_s) for row, amounts, end_s in ends]
        self._reserved: dict[int, list[GpuReservation]] = {}
        """By machine."""
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
        other._units, other._gpus_end = self._units, self._gpus_end
        other._reserved = {row: [replace(one) for one in reserved] for row, reserved in self._reserved.items()}
        return other

    def feasible(self, need: IntArray, lasting_s: FloatArray, gpus: TaskGpus | None = None) -> BoolArray:
        """[T, M]: where a task that needs [R + D] and runs [M] seconds could start at each time of the grid.

        GPUs may be needed beside what is in ``need``. Where some are reserved that may be too much said: see :meth:`fits`.
        """
        found = self._lasting(self._enough(self.free, need), lasting_s)
        if gpus is not None:
            found &= self._may_have(self.free, gpus, self._lasting, lasting_s)
        return found

    def gains(self) -> BoolArray:
        """[T, M]: whether a machine has more of anything from a step on than just before; so at the first step.

        The earliest start of a task on a machine is at such a step.
        """
        found = np.ones(self.free.shape[:2], dtype=np.bool_)
        found[1:] = False
        for column in range(self.free.shape[2]):
            found[1:] |= self.free[1:, :, column] > self.free[:-1, :, column]
        return found

    def fits(self, step: int, need: IntArray, lasting_s: FloatArray, gpus: TaskGpus | None = None) -> BoolArray:
        """[M]: the same at one step, beside all reservations; their GPUs change where that helps."""
        found = np.zeros(self.free.shape[1], dtype=np.bool_)
        rows = np.flatnonzero(~np.isnan(lasting_s))
        free = self.free[step:] if len(rows) == len(found) else self.free[step:, rows]
        found[rows] = self._lasts_from(step, self._enough(free, need), lasting_s[rows])
        if gpus is None or not found.any():
            return found
        rows = np.flatnonzero(found)
        free, lasting = self.free[step:, rows], lasting_s[rows]
        left = free[..., self._units : self._gpus_end]
        found[rows] = self._lasts_from(step, left >= gpus.share_milli, lasting[:, None]).sum(axis=1) >= gpus.count
        if others := [k for k, row in enumerate(rows.tolist()) if not found[row] and self._reserved.get(row)]:
            could = self._may_have(free[:, others], gpus, partial(self._lasts_from, step), lasting[others])
            for k in np.array(others)[could].tolist():
                arranged = self._arranged(int(rows[k]), gpus, float(self.times[step]), float(lasting[k]))
                found[rows[k]] = arranged is not None
        return found

    def arrange(
        self, row: int, gpus: TaskGpus, start_s: float, lasting_s: float, left: Sequence[int] | None = None
    ) -> tuple[int, ...] | None:
        """GPUs of a machine for a task that :meth:`fits`; reservations move to others for it. None if there are none.

        ``left``: what is left of each GPU, for a task that starts now: what ends within a microsecond has its GPUs still.
        """
        found = self._arranged(row, gpus, start_s, lasting_s, left)
        if found is None:
            return None
        for one, devices in zip(self._reserved.get(row, ()), found[1:], strict=True):
            self._take_gpus(row, one, -1)
            one.devices = devices
            self._take_gpus(row, one, 1)
        return found[0]

    def reserve_gpus(self, row: int, gpus: TaskGpus, start_s: float, lasting_s: float) -> None:
        """Take GPUs of a machine for a reservation. The last one of a machine can be given back."""
        devices = self.arrange(row, gpus, start_s, lasting_s)
        assert devices is not None, "the machine was found to fit"
        one = GpuReservation(gpus, start_s, lasting_s, devices)
        self._reserved.setdefault(row, []).append(one)
        self._take_gpus(row, one, 1)

    def give_back_gpus(self, row: int) -> None:
        """Undo the last reservation of GPUs of a machine."""
        self._take_gpus(row, self._reserved[row].pop(), -1)

    def most_s(self, need: IntArray) -> float:
        """No task that needs [R + D], GPUs apart, could run longer than this from the grid's first time on, anywhere."""
        enough = self._enough(self.free, need)
        short = np.where(enough.all(axis=0), np.inf, self.times[enough.argmin(axis=0)])
        return float(short.max(initial=-np.inf) - self.times[0]) + _MARGIN_S

    def take(self, row: int, need: IntArray, start_s: float, lasting_s: float) -> None:
        """Let a task have its amounts [R + D] of a machine for a while."""
        self._take(row, self._twice(need), start_s, lasting_s)

    def _take(self, row: int, need: IntArray, start_s: float, lasting_s: float) -> None:
        first, last = self._step(start_s), self._step(start_s + lasting_s)
        self.free[first:last, row] -= need

    def _twice(self, amounts: IntArray) -> IntArray:
        """[..., R + 2 D] amounts of R resources and D GPUs, the latter with and without reservations."""
        return np.concatenate([amounts, amounts[..., self._units :]], axis=-1)

    def _may_have(
        self,
        free: IntArray,
        gpus: TaskGpus,
        lasting: Callable[[BoolArray, FloatArray], BoolArray],
        lasting_s: FloatArray,
    ) -> BoolArray:
        """Whether machines have GPUs for a task if those of reservations change: each by itself, and all in sum."""
        each = lasting(free[..., self._gpus_end :] >= gpus.share_milli, lasting_s[:, None]).sum(axis=-1) >= gpus.count
        enough: BoolArray = free[..., self._units : self._gpus_end].sum(axis=-1) >= gpus.milli
        may: BoolArray = each & lasting(enough, lasting_s)
        return may

    def _take_gpus(self, row: int, one: GpuReservation, sign: int) -> None:
        need = np.zeros(self.free.shape[2], dtype=np.int64)
        need[[self._units + device for device in one.devices]] = sign * one.gpus.share_milli
        self._take(row, need, one.start_s, one.lasting_s)

    def _arranged(
        self, row: int, gpus: TaskGpus, start_s: float, lasting_s: float, left: Sequence[int] | None = None
    ) -> list[tuple[int, ...]] | None:
        """GPUs for a task, then for each reservation of the machine: as they are, if possible. None if there are none."""
        reserved = self._reserved.get(row, [])
        new = GpuReservation(gpus, start_s, lasting_s, ())
        for devices in self._choices(self.free[:, row, self._units : self._gpus_end], new, left):
            return [devices, *(one.devices for one in reserved)]
        budget = MOST_ARRANGEMENTS

        def place(waiting: list[GpuReservation], free: IntArray) -> list[tuple[int, ...]] | None:
            nonlocal budget
            if not waiting:
                return []
            one, rest = waiting[0], waiting[1:]
            for devices in self._choices(free, one, left if one is new else None):
                budget -= 1
                if budget < 0:
                    return None
                first, last = self._window(one)
                beside = free.copy()
                beside[first:last, list(devices)] -= one.gpus.share_milli
                if (others := place(rest, beside)) is not None:
                    return [devices, *others]
            return None

        return place([new, *reserved], self.free[:, row, self._gpus_end :]) if reserved else None

    def _choices(self, free: IntArray, one: GpuReservation, left: Sequence[int] | None) -> Iterator[tuple[int, ...]]:
        """Sets of GPUs with enough free [T, D] for a task, the fullest first; of GPUs that are alike, the first ones."""
        first, last = self._window(one)
        share = one.gpus.share_milli
        able = np.flatnonzero((free[first : max(first + 1, last)] >= share).all(axis=0)).tolist()
        able = [d for d in able if left is None or left[d] >= share]
        able.sort(key=lambda d: (free[first, d], d))
        seen = set()
        for devices in combinations(able, one.gpus.count):
            alike = tuple(sorted(free[:, d].tobytes() for d in devices))
            if alike not in seen:
                seen.add(alike)
                yield tuple(sorted(devices))

    def _window(self, one: GpuReservation) -> tuple[int, int]:
        """Steps during which a task runs: the first, and one beyond the last."""
        first, last = np.searchsorted(self.times, [one.start_s - INSTANT_S, one.start_s + one.lasting_s - INSTANT_S])
        return int(first), int(last)

    def _enough(self, free: IntArray, need: IntArray) -> BoolArray:
        """[...] where all that is needed but GPUs is free [..., R + D]; quicker one by one than along the last axis."""
        enough: BoolArray = free[..., 0] >= need[0]
        for unit in range(1, self._units):
            enough &= free[..., unit] >= need[unit]
        return enough

    def _lasting(self, enough: BoolArray, lasting_s: FloatArray) -> BoolArray:
        """[T, M, ...] whether there is enough from each step on for so long."""
        times = self.times.reshape(-1, *(1,) * (enough.ndim - 1))
        # Of each step the time of the next one, itself included, that has not enough.
        short = np.where(enough, np.inf, times)
        short = np.minimum.accumulate(short[::-1], axis=0)[::-1]
        with np.errstate(invalid="ignore"):
            return enough & (short - times >= lasting_s - INSTANT_S)

    def _lasts_from(self, step: int, enough: BoolArray, lasting_s: FloatArray) -> BoolArray:
        """[M, ...] the same from one step on; ``enough``: [T - step, M, ...]."""
        short = ~enough
        ends = np.where(short.any(axis=0), self.times[step + short.argmax(axis=0)], np.inf)
        with np.errstate(invalid="ignore"):
            found: BoolArray = enough[0] & (ends - self.times[step] >= lasting_s - INSTANT_S)
        return found

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
