"""Which nodes have changed, and in which order."""

from __future__ import annotations

from collections.abc import Container, Iterator


class NodeRevisions:
    """Of the nodes of the pool."""

    def __init__(self, nodes: Container[str]) -> None:
        """None has changed. ``nodes``: those that are there, by name, as they come and go."""
        self._nodes = nodes
        self._revisions: dict[str, int] = {}
        """By node, that which changed last at the end."""
        self.last = 0
        """Of the node that changed last."""

    def of(self, name: str) -> int:
        """A number that is another one after everything that changes a node or what is on it."""
        return self._revisions.get(name, 0)

    def since(self, revision: int) -> Iterator[str]:
        """Nodes that changed after the one that has a revision, that which changed last first."""
        for name, its in reversed(self._revisions.items()):
            if its <= revision:
                return
            yield name

    def touch(self, name: str) -> None:
        """A node, or what is on it, changes; one that is not there is nothing to do."""
        if name in self._nodes:
            self.last += 1
            self._revisions.pop(name, None)
            self._revisions[name] = self.last

    def forget(self, name: str) -> None:
        """A node is gone."""
        self._revisions.pop(name, None)
