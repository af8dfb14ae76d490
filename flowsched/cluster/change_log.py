"""What came and went, in order, so that a reader of many snapshots looks only at what changed between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")

_SHORTEST = 1024
"""A log is not begun again before it has this many entries."""


@dataclass(frozen=True, eq=False)
class LogMark(Generic[Item]):
    """A place in a log: all that came and went before it."""

    log: list[tuple[Item, bool]]
    length: int

    def since(self, earlier: LogMark[Item] | None) -> Sequence[tuple[Item, bool]] | None:
        """What came (True) and went (False) after an earlier mark, in order; None where that cannot be told: there is no
        mark, it is of another log, or it is the later one.
        """
        if earlier is None or earlier.log is not self.log or earlier.length > self.length:
            return None
        return self.log[earlier.length : self.length]


class ChangeLog(Generic[Item]):
    """A log that grows at its end, and is begun again where it is much longer than what is there."""

    def __init__(self) -> None:
        """Empty."""
        self._log: list[tuple[Item, bool]] = []
        self._there = 0

    def came(self, item: Item) -> None:
        """Take note that an item is there."""
        self._there += 1
        self._log.append((item, True))

    def went(self, item: Item) -> None:
        """Take note that an item, the same object as came, is gone."""
        self._there -= 1
        self._log.append((item, False))

    def mark(self) -> LogMark[Item]:
        """The present end."""
        if len(self._log) > max(_SHORTEST, 4 * self._there):
            self._log = []
        return LogMark(self._log, len(self._log))
