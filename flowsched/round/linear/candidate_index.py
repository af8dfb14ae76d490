"""Machines with room for a task, group by group, as a level of a round starts."""

from __future__ import annotations

import numpy as np

from flowsched.cluster.machine_arrays import FIXED
from flowsched.pricing.linear import kernels
from flowsched.round.linear.machine_groups import Compaction
from flowsched.support.arrays import FloatArray, IntArray


class CandidateIndex:
    """Open machines by group, and for each class the groups in the order of what it can cost there at least."""

    def __init__(self, compaction: Compaction, readings: IntArray) -> None:
        """Read the compaction. ``readings``: those as the level starts, since what its own tasks bring must not make
        the least that they can cost there look dearer than it is once they are gone.
        """
        self.groups = compaction.active()
        wanted = np.zeros(compaction.groups, dtype=np.bool_)
        wanted[self.groups] = True
        self.first, self.rows = kernels.members_by_group(
            compaction.group_of, compaction.seen_fit, compaction.groups, wanted
        )
        self._compaction = compaction
        self._readings = readings
        self._cheap: tuple[IntArray, IntArray, FloatArray] | None = None
        self._least_extra: dict[int, FloatArray] = {}

    def cheap(
        self, classes: IntArray, total: int, model: kernels.Model | None = None
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """For each class the groups that take it, in the order of the least that it costs there.

        ``model``: the round's, whose masks and wishes count where it is given first.
        """
        if self._cheap is None:
            compaction = self._compaction
            floor = np.zeros((compaction.groups, self._readings.shape[1]), dtype=np.int64)
            kernels.least_readings(self.first, self.rows, self._readings, floor)
            least = compaction.prices_at(classes, self.groups, floor[self.groups] / FIXED)
            if model is not None:
                for i, place in enumerate(model.place_of[classes].tolist()):
                    if place:
                        least[i] += self._extra(place, model)[self.groups]
            slots = compaction.slots[compaction.shape_of[classes]][:, self.groups]
            least = np.where(slots > 0, least, np.inf)
            order = np.argsort(least, axis=1, kind="stable")
            cost = np.take_along_axis(least, order, axis=1)
            many = np.isfinite(cost).sum(axis=1)
            kept = np.isfinite(cost)
            first = np.zeros(total + 1, dtype=np.int64)
            first[classes + 1] = many
            self._cheap = (
                np.cumsum(first),
                np.broadcast_to(self.groups, order.shape)[np.arange(len(order))[:, None], order][kept],
                cost[kept],
            )
        return self._cheap

    def _extra(self, place: int, model: kernels.Model) -> FloatArray:
        """By group, the least that a mask and wishes add there."""
        if place not in self._least_extra:
            least = np.zeros(len(self.first) - 1)
            kernels.least_extra(place, self.first, self.rows, model, least)
            self._least_extra[place] = least
        return self._least_extra[place]
