"""What volumes demand of a node, as values: equal demands have equal verdicts everywhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from flowsched_k8s.names import NO_STORAGE, NO_VOLUMES, VOLUME_AFFINITY
from flowsched_k8s.objects import Node
from flowsched_k8s.pods.selector import NodeTest
from flowsched_k8s.volumes.storage_capacity import Segments

_OLD_KEYS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
ZONE_KEYS = (*_OLD_KEYS, *_OLD_KEYS.values())
"""Labels that say where a volume or a node is."""


@dataclass(frozen=True)
class Reach:
    """Where a volume can be used."""

    nodes: NodeTest | None = None
    """Its node affinity."""
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Its zone and region labels, each with the values it allows."""

    def covers(self, node: Node) -> bool:
        """Whether pods on the node can use it. Zone labels bind only nodes that are in some zone or region."""
        if self.nodes is not None and not self.nodes.matches(node):
            return False
        labels = node.metadata.labels or {}
        if not self.zones or not any(key in labels for key in ZONE_KEYS):
            return True
        return all(labels.get(key, labels.get(_OLD_KEYS.get(key, key))) in allowed for key, allowed in self.zones)


ANYWHERE = Reach()


@dataclass(frozen=True)
class Choice:
    """An unbound claim that waits for its pod's node: the ways in which it can be settled."""

    volumes: tuple[tuple[str, Reach], ...] = ()
    """Existing volumes that would do, best first."""
    provisioned: bool = False
    """Whether a volume can be made."""
    topologies: tuple[tuple[tuple[str, tuple[str, ...]], ...], ...] = ()
    """Where one can be made: any of these sets of labels; empty for anywhere."""
    selected: str = ""
    """The node that a provisioner was told already."""
    room: Segments | None = None
    """Where the driver has room for one; None if it does not tell."""

    def settle(self, node: Node, taken: Iterable[str] = ()) -> str | None:
        """How on this node: the name of an existing volume, ``""`` for a volume to be made, None for not at all."""
        if self.selected and self.selected != node.metadata.name:
            return None
        for name, reach in self.volumes:
            if name not in taken and reach.covers(node):
                return name
        return "" if self.provisioned and self._can_be_made(node) else None

    def _can_be_made(self, node: Node) -> bool:
        if self.room is not None and not self.room.reach(node):
            return False
        labels = node.metadata.labels or {}
        return not self.topologies or any(
            all(labels.get(key) in allowed for key, allowed in term) for term in self.topologies
        )


@dataclass(frozen=True)
class VolumeNeeds:
    """What a pod's volumes demand of its node. Equal needs have equal verdicts on every node."""

    blocked: str | None = None
    """Why no node will do."""
    bound: tuple[Reach, ...] = ()
    choices: tuple[Choice, ...] = ()
    """Smallest request first: that leaves the large volumes to those who need them."""

    def verdict(self, node: Node) -> str | None:
        """The reason why the pod cannot run there, or None."""
        if not all(reach.covers(node) for reach in self.bound):
            return VOLUME_AFFINITY
        if self.settle(node) is not None:
            return None
        with_room = replace(self, choices=tuple(replace(choice, room=None) for choice in self.choices))
        return NO_VOLUMES if with_room.settle(node) is None else NO_STORAGE

    def settle(self, node: Node) -> tuple[str, ...] | None:
        """For every choice the volume it gets on this node (``""``: a new one), or None if one gets none."""
        taken: list[str] = []
        for choice in self.choices:
            name = choice.settle(node, taken)
            if name is None:
                return None
            taken.append(name)
        return tuple(taken)


NOTHING = VolumeNeeds()
