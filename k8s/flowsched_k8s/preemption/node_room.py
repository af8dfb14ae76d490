"""What a node has for pods that wait: what is free there, and what pods of lower priority would leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_MANY = np.iinfo(np.int64).max


@dataclass(frozen=True)
class NodeRoom:
    """Of one node, at one moment."""

    resources: Sequence[str]
    priorities: NDArray[np.int64]
    """Of the pods that may make room, ascending."""
    room: NDArray[np.int64]
    """By how many of these pods go, the least important ones first, and by resource: what is free then."""

    @classmethod
    def of(
        cls, resources: Sequence[str], free: NDArray[np.int64], leavers: Sequence[tuple[int, Mapping[str, int]]]
    ) -> NodeRoom:
        """``free`` by resource; ``leavers``: priority of each pod that may make room, and what it frees."""
        ordered = sorted(leavers, key=lambda leaver: leaver[0])
        room = np.zeros((len(ordered) + 1, len(resources)), np.int64)
        room[0] = free
        for i, (_, frees) in enumerate(ordered, 1):
            room[i] = [frees.get(resource, 0) for resource in resources]
        return cls(resources, np.array([p for p, _ in ordered], np.int64), np.cumsum(room, axis=0))

    def places(self, needs: Mapping[str, int], priority: int | None) -> int:
        """How many pods fit if all pods below a priority make room; None: if no pod does."""
        room = self._room_for(priority)
        columns = {resource: i for i, resource in enumerate(self.resources)}
        most = _MANY
        for resource, amount in needs.items():
            if amount > 0:
                there = int(room[columns[resource]]) if resource in columns else 0
                most = min(most, max(0, there // amount))
        return int(most)

    def places_of(
        self, needs: NDArray[np.int64], priorities: NDArray[np.int64], preempts: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """The same for many kinds of pods: ``needs`` by kind and resource, which of the kinds may have pods evicted."""
        below = np.where(preempts, np.searchsorted(self.priorities, priorities, side="left"), 0)
        there = np.maximum(self.room[below], 0)
        # A division of whole numbers takes five times as long as a comparison, and most kinds do not fit.
        found = np.zeros(len(needs), np.int64)
        fitting = np.flatnonzero((there >= needs).all(axis=1))
        asked = needs[fitting]
        counts = np.where(asked > 0, there[fitting] // np.maximum(asked, 1), _MANY)
        found[fitting] = counts.min(axis=1, initial=_MANY)
        return found

    def _room_for(self, priority: int | None) -> NDArray[np.int64]:
        below = 0 if priority is None else int(np.searchsorted(self.priorities, priority, side="left"))
        room: NDArray[np.int64] = self.room[below]
        return room
