"""Where the storage behind a CSI driver has room for another volume."""

from __future__ import annotations

from dataclasses import dataclass

from flowsched_k8s.objects import Node
from flowsched_k8s.pods.quantity import whole_or
from flowsched_k8s.pods.selector import LabelTest, label_test
from flowsched_k8s.volumes.storage_objects import CsiDriver, CsiStorageCapacity, StorageClass

_Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Segments:
    """The parts of a cluster in which a volume can be made."""

    by_labels: tuple[tuple[tuple[str, ...], frozenset[tuple[str, ...]]], ...] = ()
    """Label keys, and the values of them that a node must have: one of the sets. Most drivers name nodes by one label."""
    tests: tuple[LabelTest, ...] = ()
    """Or any of these."""

    def reach(self, node: Node) -> bool:
        """Whether a node is in one of them."""
        labels = node.metadata.labels or {}
        for keys, values in self.by_labels:
            if all(key in labels for key in keys) and tuple(labels[key] for key in keys) in values:
                return True
        return any(test.matches(labels) for test in self.tests)


class StorageCapacities:
    """What the CSI drivers of a cluster say of their room: CSIDrivers and CSIStorageCapacities go in."""

    def __init__(self) -> None:
        """No driver says anything: each is assumed to have room."""
        self._telling: set[str] = set()
        self._of_class: dict[str, dict[tuple[str, str], CsiStorageCapacity]] = {}

    def put_driver(self, driver: CsiDriver) -> None:
        """A driver is there or changed; only those that say so are looked at."""
        if driver.spec.storage_capacity:
            self._telling.add(driver.metadata.name)
        else:
            self.remove_driver(driver)

    def remove_driver(self, driver: CsiDriver) -> None:
        """A driver is gone."""
        self._telling.discard(driver.metadata.name)

    def put(self, capacity: CsiStorageCapacity) -> None:
        """A driver has so much room for volumes of a class somewhere. Neither of these can change."""
        meta = capacity.metadata
        self._of_class.setdefault(capacity.storage_class_name, {})[meta.namespace, meta.name] = capacity

    def remove(self, capacity: CsiStorageCapacity) -> None:
        """The driver does not say so any more."""
        there = self._of_class.get(capacity.storage_class_name, {})
        there.pop((capacity.metadata.namespace, capacity.metadata.name), None)
        if not there:
            self._of_class.pop(capacity.storage_class_name, None)

    def room_for(self, storage_class: StorageClass, size: int) -> Segments | None:
        """Where a volume of so many bytes can be made; None if the class's driver does not tell its capacity."""
        if storage_class.provisioner not in self._telling:
            return None
        by_labels: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        tests: set[LabelTest] = set()
        for capacity in self._of_class.get(storage_class.metadata.name, {}).values():
            topology = capacity.node_topology
            if topology is None or _most(capacity) < size:
                continue
            if topology.match_labels and not topology.match_expressions:
                named: _Labels = tuple(sorted(topology.match_labels.items()))
                by_labels.setdefault(tuple(k for k, _ in named), set()).add(tuple(v for _, v in named))
            elif (test := label_test(topology)) is not None:
                tests.add(test)
        return Segments(
            tuple((keys, frozenset(values)) for keys, values in sorted(by_labels.items())),
            tuple(sorted(tests)),
        )


def _most(capacity: CsiStorageCapacity) -> int:
    """Bytes of the largest volume that can be made: what is said of single volumes, else of all. -1 if of neither."""
    return whole_or(capacity.maximum_volume_size or capacity.capacity or "", -1)
