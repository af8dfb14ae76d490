"""What came and went, in order, so that a reader of many snapshots looks only at what changed between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")

_SHORTEST = 1024
"""Of fewer entries none is given up."""


@dataclass(frozen=True, eq=False)
class LogMark(Generic[Item]):
    """A place in a log: all that came and went before it."""

    owner: ChangeLog[Item]
    log: list[tuple[Item, bool]]
    """Entries, of which the first ones may be gone."""
    first: int
    """How many of those there were."""
    length: int
    """Entries before this place, from the beginning."""

    def since(self, earlier: LogMark[Item] | None) -> Sequence[tuple[Item, bool]] | None:
        """What came (True) and went (False) after an earlier mark, in order; None where that cannot be told: there is no
        mark, it is of another log, it is the later one, or entries after it are gone.
        """
        if earlier is None or earlier.owner is not self.owner or not self.first <= earlier.length <= self.length:
            return None
        return self.log[earlier.length - self.first : self.length - self.first]


class ChangeLog(Generic[Item]):
    """A log that grows at its end, and loses its beginning where it is much longer than what is there: what is older than
    the mark before.
    """

    def __init__(self) -> None:
        """Empty."""
        self._log: list[tuple[Item, bool]] = []
        self._first = 0
        self._marked = 0
        """Where the last mark is."""
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
            self._log = self._log[self._marked - self._first :]
            self._first = self._marked
        self._marked = self._first + len(self._log)
        return LogMark(self, self._log, self._first, self._marked)
