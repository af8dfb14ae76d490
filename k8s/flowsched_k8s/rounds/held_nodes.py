"""Nodes that all other pods leave alone, as a round is told of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from flowsched.round.bounded_waiting import binds


@dataclass(frozen=True)
class HeldNodes:
    """Nodes that are kept for an overdue pod, or for those of a gang that start together."""

    places: tuple[tuple[str, str], ...]
    """(uid, node) of each of the pods."""
    priority: int
    """Pods of a higher priority may use the nodes."""
    group: str | None = None
    """The gang, by its name in rounds; None for one pod."""
    has_room: bool = False
    """Whether all of them could start there now, as far as room goes, or will by forecasts."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Each of them once."""
        return tuple(dict.fromkeys(node for _, node in self.places))

    def bar(self, uids: Collection[str], group: str | None, priority: int) -> bool:
        """Whether pods of a class, of a group or of none, leave these nodes alone."""
        mine = self.group == group if self.group is not None else any(uid in uids for uid, _ in self.places)
        return not mine and binds(self.priority, priority)
