"""Random choices for a search, drawn in blocks from a seeded generator: one number at a time is slow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")
_BLOCK = 8192


class RandomBuffer:
    """The same seed, the same choices."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._left: list[float] = []

    def uniform(self) -> float:
        """A number in [0, 1)."""
        if not self._left:
            self._left = self._rng.random(_BLOCK).tolist()
        return self._left.pop()

    def below(self, count: int) -> int:
        """An index below ``count``."""
        return int(self.uniform() * count)

    def pick(self, items: Sequence[T]) -> T:
        """One of several."""
        return items[int(self.uniform() * len(items))]
