"""Room for tasks that fit nowhere: running tasks go elsewhere or wait again, so that one after the other gets in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.pricing.linear.kernels import MachineLoad, Model
from flowsched.round.linear import room_kernels
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

_NONE: IntArray = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Quota:
    """Most tasks of a class that come to the machines of each group."""

    most: IntArray
    group_of: IntArray
    """Of each machine."""


@dataclass(frozen=True, eq=False)
class Steps:
    """What letting tasks of one class in takes, one after the other."""

    who: IntArray
    """Position of the running task that goes, or -1 - k for the k-th one that comes."""
    target: IntArray
    """Machine row; -1 for one that waits again."""
    gain: FloatArray
    plan: IntArray
    """The k-th one that comes, for all who go for it and for itself."""


class RoomSearch:
    """Machines and the running tasks on them that may go. Changes the arrays that it is given."""

    def __init__(
        self,
        model: Model,
        free: IntArray,
        readings: IntArray,
        open_: BoolArray,
        task_class: IntArray,
        machine: IntArray,
        gone: BoolArray,
    ) -> None:
        """``open_``: machines that may take a task; the others by running task, ``gone``: those that go already."""
        self._model = model
        self._free, self._readings, self._open = free, readings, open_
        self._order = np.argsort(machine, kind="stable")
        self._first = np.searchsorted(machine[self._order], np.arange(len(free) + 1))
        self._class = task_class[self._order]
        self._gone = gone
        self._size = len(machine)

    def let_in(
        self,
        c: int,
        worth: FloatArray,
        weight: FloatArray,
        least_gain: FloatArray | None,
        most: int,
        quota: Quota | None = None,
    ) -> Steps:
        """Let tasks of class c in, each where that costs least, as long as it pays.

        ``worth``: what leaving each of them costs, the dearest first. ``weight``: what the going of each running task costs,
        infinite if it stays. With ``least_gain``, what each move must bring, those who go find other places at once; without
        they wait again. ``most``: steps at most.
        """
        rows = self._open if quota is None else self._open & (quota.group_of >= 0)
        if quota is not None:
            rows = rows & (quota.most[np.maximum(quota.group_of, 0)] > 0)
        who, target, gain, plan = room_kernels.make_room(
            c,
            worth,
            room_kernels.RoomPlaces(
                np.flatnonzero(rows),
                self._open,
                _NONE if quota is None else quota.most,
                _NONE if quota is None else quota.group_of,
            ),
            room_kernels.LeavingTasks(
                self._first,
                self._class,
                (weight if least_gain is None else least_gain)[self._order],
                weight[self._order],
                self._gone[self._order],
            ),
            least_gain is None,
            self._model,
            MachineLoad(self._free, self._readings),
            min(most, len(worth) + self._size),
        )
        who[who >= 0] = self._order[who[who >= 0]]
        self._gone[who[who >= 0]] = True
        return Steps(who, target, gain, plan)


def in_turn(cluster: ClusterRows, classes: IntArray) -> list[int]:
    """Classes in the order in which they are let in: higher priorities first, then those that ask for more."""
    asked = cluster.classes.demands[classes]
    order = np.lexsort((classes, -asked.sum(axis=1), -asked[:, 0], -cluster.classes.table().priority[classes]))
    found: list[int] = classes[order].tolist()
    return found


def alone(cluster: ClusterRows, tasks: IntArray) -> IntArray:
    """Those of the tasks that depend on no other: of a group one neither starts nor goes without the others, and what
    relations count is placed by rounds only.
    """
    single = np.array([not c.bound for c in cluster.classes], dtype=np.bool_)
    found: IntArray = tasks[single[cluster.tasks.task_class[tasks]]]
    return found
