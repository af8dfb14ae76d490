"""A cluster as it is now, for work that takes longer than a round and runs beside the rounds."""

from __future__ import annotations

import copy

import numpy as np

from flowsched.scale.bulk_cluster import BulkCluster

_LEFT = ("_task_names", "_task_row")


def copied(cluster: BulkCluster) -> BulkCluster:
    """A cluster of its own with the same machines and tasks, in O(machines + tasks) of copied memory.

    What later events do to one is not seen by the other. Prices are shared, since they are never changed in place. Names
    of tasks stay behind: rows and ``sequence`` say who is who.
    """
    other = copy.copy(cluster)
    for name, value in vars(cluster).items():
        if isinstance(value, np.ndarray):
            setattr(other, name, value.copy())
        elif isinstance(value, list | dict):
            setattr(other, name, {} if name in _LEFT else copy.copy(value))
    other.topology = copy.deepcopy(cluster.topology)
    return other
