"""How many volumes of each CSI driver a node takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from flowsched_k8s.names import VOLUME_LIMIT_PREFIX
from flowsched_k8s.volumes.attached_volumes import Attached
from flowsched_k8s.volumes.in_tree_volumes import ALWAYS, DRIVERS, MIGRATED
from flowsched_k8s.volumes.storage_objects import CsiNode

UNLIMITED = 1 << 30
"""Volumes on a node that states no limit."""


class AttachLimits:
    """The limits of all nodes. A store without I/O: CSINodes go in.

    When :meth:`counted` changes, the limits of all nodes and the needs of all pods have to be read again.
    """

    def __init__(self) -> None:
        """No limits yet."""
        self._limits: dict[str, dict[str, int]] = {}
        self._nodes: Counter[str] = Counter()
        """Nodes that limit a driver."""
        self._migrated: dict[str, frozenset[str]] = {}
        """By node, the in-tree plugins that it leaves to CSI drivers."""
        self._plugins: Counter[str] = Counter()
        """Nodes that have migrated a plugin."""

    def put(self, csi_node: CsiNode) -> None:
        """What the CSI drivers of a node allow."""
        self._set(
            csi_node.metadata.name,
            {
                d.name: max(0, d.allocatable.count)
                for d in csi_node.spec.drivers or ()
                if d.allocatable is not None and d.allocatable.count is not None
            },
            frozenset((csi_node.metadata.annotations or {}).get(MIGRATED, "").split(",")) & DRIVERS.keys(),
        )

    def remove(self, node: str) -> None:
        """A node no longer states limits."""
        self._set(node, {}, frozenset())

    def drivers(self) -> frozenset[str]:
        """CSI drivers that some node limits."""
        return frozenset(self._nodes)

    def counted(self) -> tuple[frozenset[str], frozenset[str]]:
        """Drivers whose volumes are counted, and in-tree plugins whose volumes count as a driver's."""
        return self.drivers(), ALWAYS | self._plugins.keys()

    def driver_of(self, plugin: str) -> str | None:
        """The CSI driver that attaches the volumes of an in-tree plugin; None if no node has migrated the plugin.

        One node is enough. In a cluster where only some have, the others may seem full too early, never too late.
        """
        return DRIVERS[plugin] if plugin in ALWAYS or plugin in self._plugins else None

    def of_node(self, node: str) -> dict[str, int]:
        """Volumes that a node takes, by :data:`VOLUME_LIMIT_PREFIX` + driver, for every driver that some node limits."""
        own = self._limits.get(node, {})
        return {f"{VOLUME_LIMIT_PREFIX}{driver}": own.get(driver, UNLIMITED) for driver in sorted(self._nodes)}

    def limited(self, volumes: Iterable[Attached]) -> frozenset[Attached]:
        """Those volumes of which some node limits the driver."""
        return frozenset(volume for volume in volumes if volume[0] in self._nodes) if self._nodes else frozenset()

    def needs(self, volumes: Iterable[Attached]) -> dict[str, int]:
        """Volumes by :data:`VOLUME_LIMIT_PREFIX` + driver, of drivers that some node limits."""
        drivers = Counter(driver for driver, _ in sorted(self.limited(volumes)))
        return {f"{VOLUME_LIMIT_PREFIX}{driver}": count for driver, count in drivers.items()}

    def _set(self, node: str, limits: dict[str, int], migrated: frozenset[str]) -> None:
        # Of Counters only what is above 0 stays.
        self._nodes -= Counter(list(self._limits.pop(node, ())))
        if limits:
            self._limits[node] = limits
            self._nodes += Counter(list(limits))
        self._plugins -= Counter(self._migrated.pop(node, ()))
        if migrated:
            self._migrated[node] = migrated
            self._plugins += Counter(migrated)
