"""The kinds of pods that wait for room, as arrays: one look at a node finds those that it may help."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowsched_k8s.pods.filters import StaticFilter
from flowsched_k8s.preemption.node_room import NodeRoom


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
        self._needs: dict[str, NDArray[np.int64]] = {}
        """By resource that a node was looked at for: what each kind needs. Pods may name any number of others."""
        self._asked: NDArray[np.int64] = np.zeros(64, np.int64)
        """Of how many resources each kind needs some."""
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
        if row == len(self._priorities):
            self._needs = {resource: np.resize(column, 2 * row) for resource, column in self._needs.items()}
            self._asked = np.resize(self._asked, 2 * row)
            self._priorities = np.resize(self._priorities, 2 * row)
            self._preempts = np.resize(self._preempts, 2 * row)
        for resource, column in self._needs.items():
            column[row] = max(kind.needs.get(resource, 0), 0)
        self._asked[row] = sum(amount > 0 for amount in kind.needs.values())
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
        here = np.stack([self._needs_of(resource)[:count] for resource in room.resources], axis=1)
        lacking = (here > 0).sum(axis=1) < self._asked[:count]
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

    def _needs_of(self, resource: str) -> NDArray[np.int64]:
        """What each kind needs of a resource."""
        if resource not in self._needs:
            column = self._needs[resource] = np.zeros(len(self._asked), np.int64)
            column[: len(self._kinds)] = [max(kind.needs.get(resource, 0), 0) for kind in self._kinds]
        return self._needs[resource]

    def only(self, names: Collection[Hashable]) -> WaitingKinds:
        """Those of these names."""
        kept = WaitingKinds()
        for name, kind in zip(self._names, self._kinds, strict=True):
            if name in names:
                kept.put(name, kind)
        return kept
