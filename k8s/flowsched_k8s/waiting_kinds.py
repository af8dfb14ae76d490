"""The kinds of pods that wait for room, as arrays: one look at a node finds those that it may help."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowsched_k8s.filters import StaticFilter
from flowsched_k8s.node_room import NodeRoom


@dataclass(frozen=True)
class WaitingKind:
    """What decides for all pods of a kind whether a node may help them."""

    needs: Mapping[str, int]
    priority: int
    preempts: bool
    """Whether pods may be evicted for them."""
    filter: StaticFilter
    relations: frozenset[str]
    """Through which pods on nodes keep them out or let them in."""
    claims: frozenset[Hashable]


class WaitingKinds:
    """By what pods are alike. None leaves by itself: :meth:`only` gives those that are still of use."""

    def __init__(self) -> None:
        """No pod waits."""
        self._rows: dict[Hashable, int] = {}
        self._names: list[Hashable] = []
        self._kinds: list[WaitingKind] = []
        self._columns: dict[str, int] = {}
        self._needs: NDArray[np.int64] = np.zeros((64, 0), np.int64)
        self._priorities: NDArray[np.int64] = np.zeros(64, np.int64)
        self._preempts: NDArray[np.bool_] = np.zeros(64, np.bool_)
        self._related: dict[Hashable, set[Hashable]] = {}
        """By relation or claim, the kinds that it matters to."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self._kinds)

    def __contains__(self, name: Hashable) -> bool:
        """Whether a kind is known."""
        return name in self._rows

    def put(self, name: Hashable, kind: WaitingKind) -> None:
        """Pods of a new kind wait."""
        row = self._rows[name] = len(self._kinds)
        self._names.append(name)
        self._kinds.append(kind)
        new = [resource for resource in kind.needs if resource not in self._columns]
        if row == len(self._priorities) or new:
            size = max(64, 2 * row) if row == len(self._priorities) else len(self._priorities)
            self._columns |= {resource: len(self._columns) + i for i, resource in enumerate(new)}
            needs = np.zeros((size, len(self._columns)), np.int64)
            needs[:row, : self._needs.shape[1]] = self._needs[:row]
            self._needs = needs
            self._priorities = np.resize(self._priorities, size)
            self._preempts = np.resize(self._preempts, size)
        self._needs[row] = 0
        for resource, amount in kind.needs.items():
            self._needs[row, self._columns[resource]] = max(amount, 0)
        self._priorities[row], self._preempts[row] = kind.priority, kind.preempts
        for what in (*kind.relations, *kind.claims):
            self._related.setdefault(what, set()).add(name)

    def related_to(self, what: Iterable[Hashable]) -> set[Hashable]:
        """Kinds to which one of these relations or claims matters."""
        found: set[Hashable] = set()
        for one in what:
            found |= self._related.get(one, set())
        return found

    def helped_by(self, room: NodeRoom, passes: Callable[[StaticFilter], bool]) -> dict[Hashable, int]:
        """Kinds that fit on a node, some pods of lower priority gone where that is allowed, with how many pods of them.

        ``passes``: whether a static filter lets pods onto the node; asked once for each that differs.
        """
        count = len(self._kinds)
        if not count:
            return {}
        known = {resource: i for i, resource in enumerate(room.resources)}
        needs, lacking = self._needs[:count], np.zeros(count, np.bool_)
        here = np.zeros((count, len(room.resources)), np.int64)
        for resource, column in self._columns.items():
            if resource in known:
                here[:, known[resource]] = needs[:, column]
            else:
                lacking |= needs[:, column] > 0
        places = room.places_of(here, self._priorities[:count], self._preempts[:count])
        places[lacking] = 0
        answers: dict[Hashable, bool] = {}
        found: dict[Hashable, int] = {}
        for row in np.flatnonzero(places).tolist():
            static = self._kinds[row].filter
            if static.key not in answers:
                answers[static.key] = passes(static)
            if answers[static.key]:
                found[self._names[row]] = int(places[row])
        return found

    def only(self, names: Collection[Hashable]) -> WaitingKinds:
        """Those of these names."""
        kept = WaitingKinds()
        for name, kind in zip(self._names, self._kinds, strict=True):
            if name in names:
                kept.put(name, kind)
        return kept
