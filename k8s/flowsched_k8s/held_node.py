"""The node that drains for a pod that has waited too long for room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.snapshot import Reservation
from flowsched_k8s.cache import Cache
from flowsched_k8s.entries import PodEntry
from flowsched_k8s.inputs import InputBuilder
from flowsched_k8s.queue import Cause
from flowsched_k8s.round_input import Fate, Held
from flowsched_k8s.wakeups import Wakeups

_ABOVE_ALL = 1 << 31
"""Above every priority that a pod may have."""


class HeldNode:
    """One node at a time, and the pod that it is held for."""

    def __init__(self, cache: Cache, inputs: InputBuilder, wakeups: Wakeups) -> None:
        """None is held."""
        self._cache = cache
        self._inputs = inputs
        self._wakeups = wakeups
        self.held: tuple[str, str, int] | None = None
        """(uid, node, priority): pods of a higher priority may use it; None if no node drains."""

    def let_go(self, uid: str, now: float) -> None:
        """A pod needs no node any more: what is free on one that drained for it is for all."""
        if self.held is not None and self.held[0] == uid:
            node = self.held[1]
            self.held = None
            self._wakeups.room_on(node, now)

    def node_gone(self, node: str) -> None:
        """A node is gone."""
        if self.held is not None and self.held[1] == node:
            self.held = None

    def choose(self, held: Sequence[Held], reservations: Sequence[Reservation], now: float) -> None:
        """The earliest pod that has waited longer than the due age for room gets a node that drains for it."""
        cache = self._cache
        if self.held is not None:
            entry = cache.pods.get(self.held[0])
            row = cache.fleet.row(self.held[1])
            if entry is not None and not entry.place and row is not None and self._takes_empty(entry)[row]:
                return
            self.held = None
        for reservation in reservations:
            waiting = cache.pods.get(reservation.task)
            if reservation.machine in cache.nodes and waiting is not None:
                self.held = reservation.task, reservation.machine, self._priority(waiting.priority)
                return
        engine = cache.configuration.engine
        candidates = [
            e
            for h in held
            if h.fate is Fate.UNSCHEDULABLE and Cause.RESOURCES in h.causes and Cause.GROUP not in h.causes
            for uid in h.uids
            if (e := cache.pods.get(uid)) is not None and not e.place and now - e.waits_since_s > engine.due_age_s
        ]
        crosses = engine.aging_crosses_priority
        for entry in sorted(candidates, key=lambda e: (0 if crosses else -e.priority, e.waits_since_s, e.key)):
            node = self._candidate(entry)
            if node is not None:
                self.held = entry.key.uid, node, self._priority(entry.priority)
                return

    def _priority(self, priority: int) -> int:
        return _ABOVE_ALL if self._cache.configuration.engine.aging_crosses_priority else priority

    def _candidate(self, entry: PodEntry) -> str | None:
        """The node that a pod fits on once it is empty, and that misses least of what it needs now."""
        fleet = self._cache.fleet
        able = self._takes_empty(entry)
        free = fleet.free()
        missing = np.zeros(fleet.rows)
        for amount, column in self._columns(entry.needs):
            if column is not None:
                missing += np.maximum(0, amount - free[:, column]) / amount
        best = [r for r in fleet.order().tolist() if able[r]]
        if not best:
            return None
        return min((float(missing[r]), str(fleet.names[r])) for r in best)[1]

    def _takes_empty(self, entry: PodEntry) -> NDArray[np.bool_]:
        """By row: nodes that would take a pod once they are empty."""
        fleet = self._cache.fleet
        verdicts = self._inputs.verdicts(self._cache.wants(entry))
        able = verdicts.passes[: fleet.rows] & fleet.alive
        for amount, column in self._columns(entry.needs):
            able = able & (False if column is None else fleet.allocatable()[:, column] >= amount)
        return able

    def _columns(self, needs: Mapping[str, int]) -> list[tuple[int, int | None]]:
        """What is needed of each resource, and the column of the fleet that has it."""
        columns = {r: i for i, r in enumerate(self._cache.fleet.resources)}
        return [(amount, columns.get(resource)) for resource, amount in needs.items() if amount > 0]
