"""Places for the members of a gang in rounds at linear prices: on machines as they stand, and as they drain."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from flowsched.pricing.linear import kernels
from flowsched.relations.gang_search import GangPlaces, Place
from flowsched.relations.later_places import LaterPlaces, TimedPlace
from flowsched.relations.relation import MACHINE, Relation
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.round_relations import RoundRelations
from flowsched.round.linear.round_state import BulkRoundState
from flowsched.support.arrays import BoolArray, FloatArray, IntArray, ranks

_LOOKED_AT = 16
"""So many machines of a domain, the best ones, are tried for a member; as many as there are members if these are more."""


class RoomToCome(Protocol):
    """When machines have room for one task more, beside what is reserved."""

    def when(self, task_class: int, rows: IntArray) -> FloatArray:
        """[rows] in any unit that only grows as more is reserved; infinite for never."""

    def reserve(self, task_class: int, row: int, sign: int = 1) -> None:
        """Count room on a machine as taken, or as free again with ``sign`` -1."""


class _PlacesByRow(GangPlaces[Place]):
    """Machine rows, and what relations say there to the classes of members."""

    def __init__(self, cluster: ClusterRows, classes: IntArray, relations: RoundRelations) -> None:
        """``classes``: of each member."""
        self.classes: list[int] = classes.tolist()
        super().__init__([cluster.classes[c] for c in self.classes], cluster.classes.demands[classes], self.classes)
        self.counts = relations
        self._known = {n: c.relation for n, c in relations.topology_counts.items()}
        self._rows, self._most = cluster.machines.rows, max(_LOOKED_AT, len(classes))

    @abstractmethod
    def row(self, place: Place) -> int:
        """The row of a place."""

    @property
    def relations(self) -> Mapping[str, Relation]:
        """Those that concern a member, or a class that waits."""
        return self._known

    def joined(self, relation: Relation) -> int:
        """Tasks that join a relation in all domains."""
        counts = self.counts.topology_counts[relation.name]
        return int(counts.by_domain(counts.members).sum())

    def domain(self, relation: Relation, place: Place) -> int | None:
        """The domain of a machine; None where it is in none."""
        domain = int(self.counts.topology_counts[relation.name].domain[self.row(place)])
        return domain if domain >= 0 else None

    def closed(self, task_class: int) -> BoolArray:
        """Machines that some relation closes to a class."""
        closed = np.zeros(self._rows, dtype=np.bool_)
        for _, refused in self.counts.refusals(task_class):
            closed |= refused
        return closed

    def best(self, rows: IntArray, price: FloatArray) -> IntArray:
        """Positions of rows in the order of a price, of each domain the first ones only."""
        order: IntArray = np.argsort(price, kind="stable")
        if len(rows) <= self._most:
            return order
        first: IntArray = order[ranks(self._cell[rows[order]]) < self._most]
        return first

    @cached_property
    def _cell(self) -> IntArray:
        """By machine, a number for the domains that it is in, taken together."""
        labels = [c.domain for c in self.counts.topology_counts.values() if c.relation.key != MACHINE]
        if not labels:
            return np.zeros(self._rows, dtype=np.int64)
        return np.unique(np.array(labels, dtype=np.int64), axis=1, return_inverse=True)[1].reshape(-1)


class StartingPlaces(_PlacesByRow[int]):
    """Machine rows where members have room as a round's state stands; the cheapest is taken."""

    def __init__(self, state: BulkRoundState, classes: IntArray, dearest: FloatArray) -> None:
        """``classes``: of each member; ``dearest``: the most that each may cost."""
        super().__init__(state.cluster, classes, state.relations)
        self._state, self._dearest = state, dearest.tolist()
        self._open = np.flatnonzero(state.cluster.machines.alive & ~state.barred)

    def row(self, place: int) -> int:
        """Itself."""
        return place

    @property
    def places(self) -> Sequence[int]:
        """All rows."""
        return range(len(self._state.free))

    @property
    def free(self) -> IntArray:
        """[rows, resources] beside all that was placed."""
        return self._state.free

    def options(self, member: int) -> list[int]:
        """Rows with room for a member, the cheapest first."""
        state, c = self._state, self.classes[member]
        rows = self._open[~self.closed(c)[self._open]]
        room, price = np.zeros(len(rows), dtype=np.bool_), np.empty(len(rows))
        kernels.takes_at(rows, c, 0, state.model, state.free, state.readings, room)
        kernels.prices_at(rows, c, state.model, state.readings, price)
        good = room & np.isfinite(price) & (price <= self._dearest[member])
        rows, price = rows[good], price[good]
        found: list[int] = rows[self.best(rows, price)].tolist()
        return found

    def put(self, member: int, options: Sequence[int]) -> int:
        """Place a member on the cheapest machine."""
        self._state.put(self.classes[member], options[0])
        return options[0]

    def take_back(self) -> None:
        """Undo the last placement."""
        self._state.take_back(self._state.count - 1, np.ones(1, dtype=np.bool_))


class DrainingPlaces(_PlacesByRow[TimedPlace], LaterPlaces):
    """Machine rows that have room for members once tasks have ended."""

    def __init__(
        self,
        cluster: ClusterRows,
        classes: IntArray,
        relations: RoundRelations,
        drain: RoomToCome,
        fits: Mapping[int, BoolArray],
        free: IntArray,
    ) -> None:
        """``classes``: of each member; ``fits``: by class, machines that may be held and have room some time; ``free``:
        [rows, resources] what machines have for good.
        """
        super().__init__(cluster, classes, relations)
        self._drain, self._fits, self._free = drain, fits, free

    def row(self, place: TimedPlace) -> int:
        """Its second part."""
        return place[1]

    @property
    def free(self) -> IntArray:
        """[rows, resources] what machines have for good."""
        return self._free

    def when(self, member: int) -> list[TimedPlace]:
        """When and where there will be room for a member, the earliest first."""
        c = self.classes[member]
        rows = np.flatnonzero(self._fits[c] & ~self.closed(c))
        at = self._drain.when(c, rows)
        rows, at = rows[np.isfinite(at)], at[np.isfinite(at)]
        best = self.best(rows, at)
        return list(zip(at[best].tolist(), rows[best].tolist(), strict=True))

    def count(self, member: int, machine: int, sign: int) -> None:
        """Count a member where it has a place, for relations and for the room that is left."""
        self._drain.reserve(self.classes[member], machine, sign)
        self.counts.note(self.classes[member], np.array([machine]), sign)
