"""Places for the members of a gang in rounds at linear prices: on machines as they stand, and as they drain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from flowsched.pricing.linear import kernels
from flowsched.relations.gang_search import GangPlaces
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


class _BoundRows:
    """What relations say to members of some classes, by machine row."""

    def __init__(self, cluster: ClusterRows, relations: RoundRelations, members: int) -> None:
        """``members``: how many there are."""
        self.counts = relations
        self.relations: Mapping[str, Relation] = {n: c.relation for n, c in relations.topology_counts.items()}
        self._rows, self._most = cluster.machines.rows, max(_LOOKED_AT, members)

    def joined(self, relation: Relation) -> int:
        """Tasks that join a relation in all domains."""
        counts = self.counts.topology_counts[relation.name]
        return int(counts.by_domain(counts.members).sum())

    def domain(self, relation: Relation, row: int) -> int | None:
        """The domain of a machine; None where it is in none."""
        domain = int(self.counts.topology_counts[relation.name].domain[row])
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


class StartingPlaces(GangPlaces[int]):
    """Machine rows where members have room as a round's state stands; the cheapest is taken."""

    def __init__(self, state: BulkRoundState, classes: IntArray, dearest: FloatArray) -> None:
        """``classes``: of each member; ``dearest``: the most that each may cost."""
        cluster = state.cluster
        super().__init__(
            [cluster.classes[c] for c in classes.tolist()], cluster.classes.demands[classes], classes.tolist()
        )
        self._state, self._classes, self._dearest = state, classes.tolist(), dearest.tolist()
        self._bound = _BoundRows(cluster, state.relations, len(classes))
        self._rows = np.flatnonzero(cluster.machines.alive & ~state.barred)

    @property
    def relations(self) -> Mapping[str, Relation]:
        """Those that concern a class that waits."""
        return self._bound.relations

    @property
    def places(self) -> Sequence[int]:
        """All rows."""
        return range(len(self._state.free))

    @property
    def free(self) -> IntArray:
        """[rows, resources] beside all that was placed."""
        return self._state.free

    def joined(self, relation: Relation) -> int:
        """Tasks that join a relation in all domains."""
        return self._bound.joined(relation)

    def domain(self, relation: Relation, place: int) -> int | None:
        """The domain of a machine."""
        return self._bound.domain(relation, place)

    def options(self, member: int) -> list[int]:
        """Rows with room for a member, the cheapest first."""
        state, c = self._state, self._classes[member]
        rows = self._rows[~self._bound.closed(c)[self._rows]]
        room, price = np.zeros(len(rows), dtype=np.bool_), np.empty(len(rows))
        kernels.takes_at(rows, c, 0, state.model, state.free, state.readings, room)
        kernels.prices_at(rows, c, state.model, state.readings, price)
        good = room & np.isfinite(price) & (price <= self._dearest[member])
        rows, price = rows[good], price[good]
        found: list[int] = rows[self._bound.best(rows, price)].tolist()
        return found

    def put(self, member: int, options: Sequence[int]) -> int:
        """Place a member on the cheapest machine."""
        self._state.put(self._classes[member], options[0])
        return options[0]

    def take_back(self) -> None:
        """Undo the last placement."""
        self._state.take_back(self._state.count - 1, np.ones(1, dtype=np.bool_))


class DrainingPlaces(LaterPlaces):
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
        super().__init__(
            [cluster.classes[c] for c in classes.tolist()], cluster.classes.demands[classes], classes.tolist()
        )
        self._rows, self._classes, self._drain, self._fits, self._free = (
            cluster.machines.rows,
            classes.tolist(),
            drain,
            fits,
            free,
        )
        self._bound = _BoundRows(cluster, relations, len(classes))
        self._placed: list[tuple[float, int, int]] = []

    @property
    def placed(self) -> Sequence[tuple[float, int, int]]:
        """When, the row and the member."""
        return self._placed

    @property
    def relations(self) -> Mapping[str, Relation]:
        """Those that concern a member."""
        return self._bound.relations

    @property
    def places(self) -> Sequence[TimedPlace]:
        """All rows."""
        return [(0.0, row) for row in range(self._rows)]

    @property
    def free(self) -> IntArray:
        """[rows, resources] what machines have for good."""
        return self._free

    def joined(self, relation: Relation) -> int:
        """Tasks that join a relation in all domains."""
        return self._bound.joined(relation)

    def domain(self, relation: Relation, place: TimedPlace) -> int | None:
        """The domain of a machine."""
        return self._bound.domain(relation, place[1])

    def when(self, member: int) -> list[TimedPlace]:
        """When and where there will be room for a member, the earliest first."""
        c = self._classes[member]
        rows = np.flatnonzero(self._fits[c] & ~self._bound.closed(c))
        at = self._drain.when(c, rows)
        rows, at = rows[np.isfinite(at)], at[np.isfinite(at)]
        best = self._bound.best(rows, at)
        return list(zip(at[best].tolist(), rows[best].tolist(), strict=True))

    def reserve(self, member: int, place: TimedPlace) -> None:
        """Count a member where it has a place."""
        self._count(member, place[1], 1)
        self._placed.append((*place, member))

    def take_back(self) -> None:
        """Undo the last placement."""
        _, row, member = self._placed.pop()
        self._count(member, row, -1)

    def _count(self, member: int, row: int, sign: int) -> None:
        self._drain.reserve(self._classes[member], row, sign)
        self._bound.counts.note(self._classes[member], np.array([row]), sign)
