"""Clusters and demand for bulk rounds, drawn with a seed: for the benchmarks of records and of the inspector's page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.cluster.task_class import TaskClass
from flowsched.round.linear.bulk_rows import bulk_rows
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.places import Places

SIZES_MILLI = (4000, 8000, 16000)
MIB = 2**20


def cluster(machines: int, busy: float) -> BookedTasks:
    """Machines of three sizes in three zones; a share of their cores runs tasks of seven kinds."""
    rng = np.random.default_rng([machines, round(busy * 100)])
    fleet = BookedTasks()
    for i in range(machines):
        cpu = SIZES_MILLI[i % len(SIZES_MILLI)]
        allocatable = {"cpu": cpu, "memory": cpu * 4 * MIB, "pods": 110}
        fleet.put_machine(f"node-{i:05d}", allocatable, {"zone": f"zone-{i % 3}"})
        for k in range(int(rng.binomial(cpu // 1000, busy))):
            fleet.book(
                f"running-{i}-{k}",
                f"node-{i:05d}",
                {"cpu": 1000, "memory": 1024 * MIB, "pods": 1},
                sensitivity=float(rng.choice((0.5, 0.8, 0.9, 1.1))),
                pressure=float(rng.choice((0.012, 0.024, 0.036, 0.1))),
            )
    return fleet


@dataclass(frozen=True, eq=False)
class Workload:
    """A fleet, and the classes that wait, with where they may go by row of the fleet and the names of their tasks."""

    fleet: BookedTasks
    classes: Sequence[TaskClass]
    places: Sequence[Places]
    tasks: Sequence[Sequence[str]]

    def cluster(self) -> ClusterRows:
        """What a bulk round decides on."""
        return bulk_rows(self.fleet.machines, self.classes, self.places, self.tasks)


def many_classes(machines: int, tasks: int, classes: int) -> Workload:
    """Batch jobs of different widths and profiles; a fifth of the classes may use half of the machines only."""
    fleet = cluster(machines, 0.3)
    rng = np.random.default_rng([machines, tasks, classes])
    found = []
    for c in range(classes):
        width = int(rng.choice((250, 500, 1000, 2000)))
        found.append(
            TaskClass(
                f"class-{c}",
                width,
                (("memory", int(rng.integers(1, 8)) * 256 * MIB), ("pods", 1)),
                sensitivity=float(rng.choice((0.5, 0.8, 1.1))),
                pressure=float(rng.choice((0.012, 0.024, 0.1))) * width / 1000,
            )
        )
    half = Places(np.arange(fleet.machines.rows) % 2 == 0)
    return Workload(
        fleet,
        found,
        [half if c % 5 == 0 else Places() for c in range(classes)],
        [[f"task-{c}-{i}" for i in range(tasks // classes)] for c in range(classes)],
    )
