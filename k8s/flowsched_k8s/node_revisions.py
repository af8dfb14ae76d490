"""Which nodes have changed, for those who look at them again."""

from __future__ import annotations

from collections.abc import Callable, Container


class NodeRevisions:
    """Of the nodes of the pool."""

    def __init__(self, nodes: Container[str]) -> None:
        """None has changed. ``nodes``: those that are there, by name, as they come and go."""
        self._nodes = nodes
        self._revisions: dict[str, int] = {}
        self._last = 0
        self.followers: list[Callable[[str, str | None], None]] = []
        """Told of each node of which something changes, and of the pod there if it is that alone."""

    def of(self, name: str) -> int:
        """A number that is another one after everything that changes a node or what is on it."""
        return self._revisions.get(name, 0)

    def touch(self, name: str, uid: str | None = None) -> None:
        """A node, or what is on it, changes, and no more than one pod if that is given; a node that is not there is nothing
        to do.
        """
        if name in self._nodes:
            self._last += 1
            self._revisions[name] = self._last
            for follower in self.followers:
                follower(name, uid)

    def forget(self, name: str) -> None:
        """A node is gone."""
        self._revisions.pop(name, None)
