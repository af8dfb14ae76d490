"""What will be free on which machine, and when, as far as the ends of running tasks are estimated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np

from flowsched.gpu.devices import TaskGpus
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


class Ends(NamedTuple):
    """What gives back amounts of machines, and when."""

    rows: IntArray
    """[N] machines."""
    amounts: IntArray
    """[N, R + D]: R resources, whose meaning the caller knows, and thousandths of D GPUs."""
    ends_s: FloatArray
    """[N] infinite where a task has no end."""

    @classmethod
    def of(cls, ends: Sequence[tuple[int, IntArray, float]], units: int) -> Ends:
        """The same as columns; ``units``: R + D."""
        return cls(
            np.array([row for row, _, _ in ends], np.int64),
            np.array([amounts for _, amounts, _ in ends], np.int64).reshape(len(ends), units),
            np.array([end_s for _, _, end_s in ends], np.float64),
        )

    def and_(self, other: Ends) -> Ends:
        """These and others."""
        return Ends(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))


class Availability:
    """Free amounts of machines over time: of each a step function, the last step of which has no end.

    ``times``: [T] seconds, ascending, the first one now: the instants at which steps of any machine begin. ``began``: [S, M]
    when the steps of each machine begin, infinite where it has fewer than S. ``free``: [S, M, R + 2 D] units that are free
    from then on: R resources, whose meaning the caller knows, and thousandths of D GPUs, which do not add up. D more columns
    have what is free of these without reservations, which may change to other GPUs.
    """

    def __init__(self, now_s: float, free: IntArray, ends: Ends, devices: int = 0) -> None:
        """``free``: [M, R + D] now. ``ends``: what is given back. ``devices``: D."""
        self._units, self._gpus_end = free.shape[1] - devices, free.shape[1]
        self._reserved: dict[int, list[GpuReservation]] = {}
        """By machine."""
        known = np.isfinite(ends.ends_s)
        ends_s = np.maximum(now_s, ends.ends_s[known])
        self.times: FloatArray = _instants(np.unique(np.append(ends_s, now_s)))
        count, length = len(free), len(self.times)
        # A step is a machine and an instant; what begins with it is added up.
        instant = np.searchsorted(self.times, ends_s, side="right") - 1
        steps_of_ends = ends.rows[known] * length + instant
        keys, of = np.unique(np.append(np.arange(count) * length, steps_of_ends), return_inverse=True)
        change = np.zeros((len(keys), free.shape[1]), dtype=np.int64)
        np.add.at(change, of, np.concatenate([free, ends.amounts[known]]))
        rows = keys // length
        self._count: IntArray = np.bincount(rows, minlength=count)
        """[M] steps of each machine."""
        step = np.arange(len(keys)) - (np.cumsum(self._count) - self._count)[rows]
        steps = int(self._count.max(initial=1))
        self.began: FloatArray = np.full((steps, count), np.inf)
        self.began[step, rows] = self.times[keys % length]
        changes = np.zeros((steps, count, free.shape[1]), dtype=np.int64)
        changes[step, rows] = change
        self.free: IntArray = self._twice(changes.cumsum(axis=0))

    def advance(self, now_s: float) -> None:
        """Let time pass until now: what begins by now has begun. GPUs may not be reserved."""
        begun = (self.began <= now_s + INSTANT_S).sum(axis=0) - 1
        for row in np.flatnonzero(begun).tolist():
            step, count = int(begun[row]), int(self._count[row])
            left = self._count[row] = count - step
            self.began[:left, row] = self.began[step:count, row].copy()
            self.free[:left, row] = self.free[step:count, row].copy()
            self.began[left:count, row] = np.inf
        self.began[0] = now_s
        self.times = np.append(now_s, self.times[self.times > now_s + INSTANT_S])

    def copy(self) -> Availability:
        """An independent copy."""
        other = object.__new__(Availability)
        other.times, other.began, other.free = self.times, self.began.copy(), self.free.copy()
        other._count, other._units, other._gpus_end = self._count.copy(), self._units, self._gpus_end
        other._reserved = {row: [replace(one) for one in reserved] for row, reserved in self._reserved.items()}
        return other

    def feasible(
        self, need: IntArray, lasting_s: FloatArray, gpus: TaskGpus | None = None, at_s: FloatArray | None = None
    ) -> BoolArray:
        """[S, M]: where a task that needs [R + D] and runs [M] seconds could start as each step begins.

        ``at_s``: [T] other times to start at, ascending; then it is [T, M]. GPUs may be needed beside what is in ``need``.
        Where some are reserved that may be too much said: see :meth:`fits`.
        """
        lasting = partial(self._lasting, at_s=at_s)
        found = lasting(self._enough(self.free, need), lasting_s)
        if gpus is not None:
            found &= self._may_have(self.free, gpus, lasting, lasting_s)
        return found

    def first(self, need: IntArray, lasting_s: FloatArray) -> tuple[float, int] | None:
        """The earliest start of a task without GPUs, and where: of machines the one that ends it first, then the first."""
        could = self.feasible(need, lasting_s)
        starts = np.where(could.any(axis=0), self.began[could.argmax(axis=0), np.arange(could.shape[1])], np.inf)
        start_s = starts.min(initial=np.inf)
        if start_s == np.inf:
            return None
        return float(start_s), int(np.where(starts == start_s, lasting_s, np.inf).argmin())

    def gains(self) -> BoolArray:
        """[S, M]: whether a machine has more of anything from a step on than just before; so at the first step.

        The earliest start of a task on a machine is at such a step.
        """
        found = np.ones(self.free.shape[:2], dtype=np.bool_)
        found[1:] = False
        for column in range(self.free.shape[2]):
            found[1:] |= self.free[1:, :, column] > self.free[:-1, :, column]
        return found

    def fits(self, at_s: float, need: IntArray, lasting_s: FloatArray, gpus: TaskGpus | None = None) -> BoolArray:
        """[M]: the same at one time, beside all reservations; their GPUs change where that helps."""
        found = np.zeros(self.free.shape[1], dtype=np.bool_)
        rows, at = np.flatnonzero(~np.isnan(lasting_s)), np.array([at_s])
        free = self.free if len(rows) == len(found) else self.free[:, rows]
        found[rows] = self._lasting(self._enough(free, need), lasting_s[rows], rows, at)[0]
        if gpus is None or not found.any():
            return found
        rows = np.flatnonzero(found)
        free, lasting = self.free[:, rows], lasting_s[rows]
        left = free[..., self._units : self._gpus_end]
        found[rows] = self._lasting(left >= gpus.share_milli, lasting[:, None], rows, at)[0].sum(axis=1) >= gpus.count
        if others := [k for k, row in enumerate(rows.tolist()) if not found[row] and self._reserved.get(row)]:
            lasts = partial(self._lasting, rows=rows[others], at_s=at)
            could = self._may_have(free[:, others], gpus, lasts, lasting[others])[0]
            for k in np.array(others)[could].tolist():
                found[rows[k]] = self._arranged(int(rows[k]), gpus, at_s, float(lasting[k])) is not None
        return found

    def free_at(self, at_s: float) -> IntArray:
        """[M, R + 2 D]: what is free at a time."""
        found: IntArray = self.free[self._steps_at(np.array([at_s]), slice(None))[0], np.arange(self.free.shape[1])]
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
        short = np.where(self._enough(self.free, need), np.inf, self.began).min(axis=0)
        return float(short.max(initial=-np.inf) - self.times[0]) + _MARGIN_S

    def take(self, row: int, need: IntArray, start_s: float, lasting_s: float) -> None:
        """Let a task have its amounts [R + D] of a machine for a while."""
        self._take(row, self._twice(need), start_s, lasting_s)

    def _take(self, row: int, need: IntArray, start_s: float, lasting_s: float) -> None:
        first, last = self._step(row, start_s), self._step(row, start_s + lasting_s)
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
        here = self.free[: self._count[row], row]
        for devices in self._choices(row, here[:, self._units : self._gpus_end], new, left):
            return [devices, *(one.devices for one in reserved)]
        budget = MOST_ARRANGEMENTS

        def place(waiting: list[GpuReservation], free: IntArray) -> list[tuple[int, ...]] | None:
            nonlocal budget
            if not waiting:
                return []
            one, rest = waiting[0], waiting[1:]
            for devices in self._choices(row, free, one, left if one is new else None):
                budget -= 1
                if budget < 0:
                    return None
                first, last = self._window(row, one)
                beside = free.copy()
                beside[first:last, list(devices)] -= one.gpus.share_milli
                if (others := place(rest, beside)) is not None:
                    return [devices, *others]
            return None

        return place([new, *reserved], here[:, self._gpus_end :]) if reserved else None

    def _choices(
        self, row: int, free: IntArray, one: GpuReservation, left: Sequence[int] | None
    ) -> Iterator[tuple[int, ...]]:
        """Sets of GPUs with enough free [steps, D] of a machine, fullest first; of GPUs that are alike, the first ones."""
        first, last = self._window(row, one)
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

    def _window(self, row: int, one: GpuReservation) -> tuple[int, int]:
        """Steps of a machine during which a task runs: the first, and one beyond the last."""
        began = self.began[: self._count[row], row]
        first = np.searchsorted(began, one.start_s + INSTANT_S, side="right") - 1
        return int(first), int(np.searchsorted(began, one.start_s + one.lasting_s - INSTANT_S))

    def _enough(self, free: IntArray, need: IntArray) -> BoolArray:
        """[...] where all that is needed but GPUs is free [..., R + D]; quicker one by one than along the last axis."""
        enough: BoolArray = free[..., 0] >= need[0]
        for unit in range(1, self._units):
            enough &= free[..., unit] >= need[unit]
        return enough

    def _lasting(
        self,
        enough: BoolArray,
        lasting_s: FloatArray,
        rows: IntArray | slice = slice(None),
        at_s: FloatArray | None = None,
    ) -> BoolArray:
        """[S or T, machines, ...] whether some machines have enough [S, machines, ...] for so long: from each of their steps
        on, or from each of these times [T] on.
        """
        began = self.began[:, rows].reshape(*enough.shape[:2], *(1,) * (enough.ndim - 2))
        # Of each step the beginning of the next one, itself included, that has not enough.
        short = np.where(enough, np.inf, began)
        short = np.minimum.accumulate(short[::-1], axis=0)[::-1]
        if at_s is not None:
            step = self._steps_at(at_s, rows).reshape(len(at_s), *began.shape[1:])
            enough, short = np.take_along_axis(enough, step, axis=0), np.take_along_axis(short, step, axis=0)
            began = at_s.reshape(-1, *(1,) * (enough.ndim - 1))
        with np.errstate(invalid="ignore"):
            return enough & (short - began >= lasting_s - INSTANT_S)

    def _steps_at(self, at_s: FloatArray, rows: IntArray | slice) -> IntArray:
        """[T, machines] the steps of some machines in which times [T] are."""
        began = self.began[:, rows]
        if len(at_s) == 1:
            return np.asarray((began <= at_s[0]).sum(axis=0) - 1)[None]
        return np.array([np.searchsorted(column, at_s, side="right") - 1 for column in began.T], np.int64).T

    def _step(self, row: int, at_s: float) -> int:
        """The step of a machine that begins at a time; made where there is none."""
        count = int(self._count[row])
        if at_s == np.inf:
            return count
        place = int(np.searchsorted(self.times, at_s - INSTANT_S))
        if place < len(self.times) and self.times[place] <= at_s + INSTANT_S:
            at_s = float(self.times[place])
        else:
            self.times = np.insert(self.times, place, at_s)
        step = int(np.searchsorted(self.began[:count, row], at_s))
        if step < count and self.began[step, row] == at_s:
            return step
        if count == len(self.began):
            self.began = np.concatenate([self.began, np.full_like(self.began, np.inf)])
            self.free = np.concatenate([self.free, np.zeros_like(self.free)])
        self.began[step + 1 : count + 1, row] = self.began[step:count, row]
        self.free[step + 1 : count + 1, row] = self.free[step:count, row]
        self.began[step, row], self.free[step, row] = at_s, self.free[step - 1, row]
        self._count[row] += 1
        return step


def _instants(times: FloatArray) -> FloatArray:
    """Of ascending times those that begin an instant, which takes in what follows closely."""
    if (np.diff(times) > INSTANT_S).all():
        return times
    first = [0]
    while (following := int(np.searchsorted(times, times[first[-1]] + INSTANT_S, side="right"))) < len(times):
        first.append(following)
    return times[first]
