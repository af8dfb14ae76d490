"""What a bulk round on machines of Kubernetes reads: the machines that are kept, and tasks that wait class by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from flowsched.cluster.machine_rows import MachineRows
from flowsched.cluster.task_class import TaskClass
from flowsched.cluster.task_rows import TaskRows
from flowsched.round.linear.bulk_prices import BulkPrices
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.places import Places
from flowsched.round.linear.priced_classes import PricedClasses

MIB = 1 << 20
"""Memory is in bytes there."""


def bulk_rows(
    machines: MachineRows,
    classes: Sequence[TaskClass],
    places: Sequence[Places],
    tasks: Sequence[Sequence[str]],
    waiting: Mapping[str, float] | None = None,
) -> ClusterRows:
    """Machines, which are only read and whose rows are settled, where tasks wait; what runs is known as sums only.

    By class: ``places`` and the names of its tasks, which come in this order. Classes must be in an order that does not
    depend on chance, and their names differ. ``waiting``: costs, by class, as :class:`BulkPrices` takes them.

    Raises ``KeyError`` for a relation that was not declared.
    """
    needed = {r for c in classes for r, amount in c.needs if amount > 0}
    machines.relation_store.ids([name for c in classes for name in (*c.holds, *c.joins)])
    counts = max((1 + number for c in classes for number, _ in c.counted), default=0)
    priced = PricedClasses(BulkPrices(counts, waiting), ("memory", *sorted(needed - {"cpu", "memory"})))
    priced.price_on(machines.kinds)
    numbers = np.zeros(len(classes), dtype=np.int64)
    for i, (task_class, where, names) in enumerate(zip(classes, places, tasks, strict=True)):
        if names:
            numbers[i] = priced.intern(replace(task_class, places=priced.places.intern(where)))
    found = ClusterRows(machines, TaskRows(), priced, memory_unit=MIB)
    came = np.repeat(numbers, [len(names) for names in tasks])
    found.submit(came, np.zeros(len(came)), [name for names in tasks for name in names])
    return found
