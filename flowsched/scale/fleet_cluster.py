"""The cluster that a bulk round on a fleet decides on: machines and relations are loaded, then tasks come class by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from flowsched.cluster.machine_arrays import UNLIMITED, LoadedMachines
from flowsched.cluster.machine_rows import MachineRows
from flowsched.cluster.task_class import TaskClass
from flowsched.scale.bulk_cluster import BulkCluster
from flowsched.scale.bulk_prices import BulkPrices
from flowsched.scale.places import Places
from flowsched.support.arrays import IntArray

MIB = 1 << 20
"""Fleets count memory in bytes."""


def cluster_of_fleet(
    fleet: MachineRows, classes: Sequence[TaskClass], waiting: Mapping[str, float] | None = None
) -> BulkCluster:
    """A fleet's machines, in rows by name, with the resources and the relations that ``classes`` ask for; no task of theirs
    is there yet. ``waiting``: costs, by class, as :class:`BulkPrices` takes them. The fleet is only read.

    Raises ``KeyError`` for a relation that the fleet does not know.
    """
    return cluster_of_machines(fleet.loaded(), fleet.order(), classes, waiting)


def cluster_of_machines(
    machines: LoadedMachines,
    order: IntArray,
    classes: Sequence[TaskClass],
    waiting: Mapping[str, float] | None = None,
) -> BulkCluster:
    """The same of a fleet's machines; ``order``: their rows."""
    needed = {r for c in classes for r, amount in c.needs if amount > 0}
    resources = ["cpu", "memory", *sorted(needed - {"cpu", "memory"})]
    related = dict.fromkeys(name for c in classes for name in (*c.holds, *c.joins))
    found = machines.over(order, resources, related)
    counts = max((1 + number for c in classes for number, _ in c.counted), default=0)
    if counts:
        # They begin at 0 in each round.
        shape = len(order), counts
        found.readings = np.hstack([found.readings, np.zeros(shape, dtype=np.int64)])
        found.limits = np.hstack([found.limits, np.full(shape, UNLIMITED, dtype=np.int64)])
    cluster = BulkCluster(BulkPrices(counts, waiting))
    cluster.memory_unit = MIB
    cluster.load_machines(found)
    return cluster


def submit_classes(
    cluster: BulkCluster,
    order: IntArray,
    classes: Sequence[TaskClass],
    places: Sequence[Places],
    tasks: Sequence[Sequence[str]],
) -> None:
    """The tasks of each class, by name, come and wait in this order. ``places``: by class, in arrays by row of the fleet;
    ``order``: the fleet's row of each machine of the cluster.

    Classes must be in an order that does not depend on chance, and their names differ.
    """
    numbers = np.zeros(len(classes), dtype=np.int64)
    for i, (task_class, where, names) in enumerate(zip(classes, places, tasks, strict=True)):
        if names:
            number = cluster.places.intern(where.changed(lambda values: values[order]))
            numbers[i] = cluster.intern(replace(task_class, places=number))
    came = np.repeat(numbers, [len(names) for names in tasks])
    cluster.submit(came, np.zeros(len(came)), [name for names in tasks for name in names])
