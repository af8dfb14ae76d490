"""Container images that nodes have already: what a place costs where an image would have to be pulled.

As ImageLocality of kube-scheduler (pkg/scheduler/framework/plugins/imagelocality, v1.36) scores it: bytes of the pod's
images that a node has, each times the share of nodes that have it, so that pods do not all go to the one node that has
theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from flowsched.support.arrays import FloatArray, IntArray
from flowsched_k8s.objects import Node, Pod

IMAGE_WEIGHT = 0.25
"""What it costs that all images have to be pulled, where other nodes have them: as much as some six neutral neighbours."""
IMAGE_STEP = 0.025
"""Costs are multiples of it: nodes that differ by less are the same."""
_LEAST_BYTES, _MOST_BYTES = 23e6, 1000e6
"""Fewer bytes are not worth a difference; more, for each container, are worth no more."""


class ImageIndex:
    """Which nodes have an image, by the row of the node."""

    def __init__(self) -> None:
        """No node has any."""
        self._on: dict[str, dict[int, int]] = {}
        self._of_row: dict[int, Mapping[str, int]] = {}

    def put(self, row: int, node: Node) -> None:
        """A node is there, or what it has changed."""
        images = {name: image.size_bytes for image in node.status.images or () for name in image.names or ()}
        if self._of_row.get(row) == images:
            return
        self.remove(row)
        self._of_row[row] = images
        for name, size in images.items():
            self._on.setdefault(name, {})[row] = size

    def remove(self, row: int) -> None:
        """The node is gone."""
        for name in self._of_row.pop(row, {}):
            rows = self._on[name]
            del rows[row]
            if not rows:
                del self._on[name]

    def move(self, before: IntArray) -> None:
        """Nodes are in other rows now. ``before``: by row, the one where its node was; -1 for rows without one."""
        now = {old: row for row, old in enumerate(before.tolist()) if old >= 0}
        self._of_row = {now[row]: images for row, images in self._of_row.items()}
        self._on = {name: {now[row]: size for row, size in on.items()} for name, on in self._on.items()}

    def cost(self, images: Iterable[str], rows: int) -> FloatArray | None:
        """[rows] what a place costs more than on the node that has most of the images; None where all are the same."""
        wanted = tuple(images)
        found = [self._on[name] for name in wanted if name in self._on]
        nodes = len(self._of_row)
        if all(len(on) == nodes for on in found):
            return None
        there = np.zeros(rows)
        for on in found:
            if len(on) == nodes:
                there += next(iter(on.values()))
            else:
                share = len(on) / nodes
                there[np.fromiter(on, np.int64, len(on))] += np.fromiter(on.values(), np.float64, len(on)) * share
        most = _MOST_BYTES * len(wanted)
        worth = IMAGE_WEIGHT * (np.clip(there, _LEAST_BYTES, most) - _LEAST_BYTES) / (most - _LEAST_BYTES)
        steps: FloatArray = np.round((worth.max() - worth) / IMAGE_STEP) * IMAGE_STEP
        return steps if steps.any() else None


def images_of(pod: Pod) -> tuple[str, ...]:
    """Names of the images that a pod runs, init containers' and those of volumes too, as nodes name them."""
    spec = pod.spec
    named = [c.image for c in (*spec.containers, *(spec.init_containers or ()))]
    named += [v.image.reference for v in spec.volumes or () if v.image is not None]
    return tuple(sorted(_full(name) for name in named if name))


def _full(name: str) -> str:
    """An image without a tag is the latest one."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
