"""Pods of one place of the queue, by rank."""

from __future__ import annotations

import heapq
from typing import Any

from flowsched_k8s.instructions import PodKey


class OrderedPods:
    """Pods by rank: first out, or any one taken out, in O(log n).

    One that is taken out stays in the heap as an outdated item; when most items are outdated the heap is built anew.
    """

    def __init__(self) -> None:
        """No pods."""
        self._heap: list[tuple[Any, PodKey]] = []
        self._rank: dict[PodKey, Any] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._rank)

    def put(self, key: PodKey, rank: Any) -> None:
        """Put a pod in, or give it another rank."""
        self._rank[key] = rank
        heapq.heappush(self._heap, (rank, key))

    def bring_forward(self, key: PodKey, rank: Any) -> None:
        """An earlier rank for one that is there."""
        if rank < self._rank[key]:
            self.put(key, rank)

    def rank(self, key: PodKey) -> Any:
        """None for one that is not there."""
        return self._rank.get(key)

    def discard(self, key: PodKey) -> None:
        """Take a pod out, if it is there."""
        self._rank.pop(key, None)
        if len(self._heap) > 2 * len(self._rank) + 32:
            self._heap = [(rank, key) for key, rank in self._rank.items()]
            heapq.heapify(self._heap)

    def first(self) -> tuple[Any, PodKey] | None:
        """The lowest rank and its pod; None without pods."""
        while self._heap:
            rank, key = self._heap[0]
            if self._rank.get(key) == rank:
                return rank, key
            heapq.heappop(self._heap)
        return None
