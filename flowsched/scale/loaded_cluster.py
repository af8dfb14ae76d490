"""The cluster that a bulk round on machines of Kubernetes decides on: they are loaded, then tasks come class by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from flowsched.cluster.machine_arrays import UNLIMITED, LoadedMachines
from flowsched.cluster.task_class import TaskClass
from flowsched.scale.bulk_cluster import BulkCluster
from flowsched.scale.bulk_prices import BulkPrices
from flowsched.scale.places import Places

MIB = 1 << 20
"""Memory is in bytes there."""


def load_cluster(
    machines: LoadedMachines,
    classes: Sequence[TaskClass],
    places: Sequence[Places],
    tasks: Sequence[Sequence[str]],
    waiting: Mapping[str, float] | None = None,
) -> BulkCluster:
    """Machines, in rows by name, with the resources and the relations that ``classes`` ask for, where tasks wait.

    By class: ``places``, in arrays by row of ``machines``, and the names of its tasks, which come in this order. Classes
    must be in an order that does not depend on chance, and their names differ. ``waiting``: costs, by class, as
    :class:`BulkPrices` takes them.

    Raises ``KeyError`` for a relation that was not declared.
    """
    needed = {r for c in classes for r, amount in c.needs if amount > 0}
    resources = ["cpu", "memory", *sorted(needed - {"cpu", "memory"})]
    related = dict.fromkeys(name for c in classes for name in (*c.holds, *c.joins))
    found = machines.in_order(resources, related)
    counts = max((1 + number for c in classes for number, _ in c.counted), default=0)
    if counts:
        # They begin at 0 in each round.
        shape = len(found.names), counts
        found.readings = np.hstack([found.readings, np.zeros(shape, dtype=np.int64)])
        found.limits = np.hstack([found.limits, np.full(shape, UNLIMITED, dtype=np.int64)])
    cluster = BulkCluster(BulkPrices(counts, waiting))
    cluster.memory_unit = MIB
    cluster.load_machines(found)
    numbers = np.zeros(len(classes), dtype=np.int64)
    for i, (task_class, where, names) in enumerate(zip(classes, places, tasks, strict=True)):
        if names:
            number = cluster.places.intern(where.changed(lambda values: values[machines.order]))
            numbers[i] = cluster.intern(replace(task_class, places=number))
    came = np.repeat(numbers, [len(names) for names in tasks])
    cluster.submit(came, np.zeros(len(came)), [name for names in tasks for name in names])
    return cluster
