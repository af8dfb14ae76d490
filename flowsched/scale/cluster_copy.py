"""Clusters of their own, made from others: as they are now, or as if they had just been loaded."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flowsched.scale.bulk_cluster import BulkCluster
from flowsched.scale.bulk_prices import BulkPrices
from flowsched.scale.snapshot_adapter import places_order

_LEFT = ("_task_names", "_task_row")


def copied(cluster: BulkCluster) -> BulkCluster:
    """A cluster with the same machines and tasks, for work that takes longer than a round and runs beside the rounds, in
    O(machines + tasks) of copied memory.

    What later events do to one is not seen by the other. Prices are shared, since they are never changed in place. Names
    of tasks stay behind: rows and ``sequence`` say who is who.
    """
    other = copy.copy(cluster)
    for name, value in vars(cluster).items():
        if isinstance(value, np.ndarray):
            setattr(other, name, value.copy())
        elif isinstance(value, list | dict):
            setattr(other, name, {} if name in _LEFT else copy.copy(value))
    other.relation_store = cluster.relation_store.copy()
    return other


def loaded_anew(cluster: BulkCluster, classes: Sequence[int]) -> BulkCluster:
    """A cluster of its own with the same machines and the same tasks that wait, as it is when it has just been loaded:
    machines in rows by name, kinds by their first machine, and ``classes``, those with tasks, in their order. What runs is
    known as sums only.
    """
    rows = cluster.order()
    other = BulkCluster(cluster.policy, cluster.resources)
    other.memory_unit, other.groups = cluster.memory_unit, dict(cluster.groups)
    other.members_elsewhere = cluster.members_elsewhere | cluster.running_members()
    known = [relation.name for relation in cluster.relation_store.relations()]
    other.load_machines(cluster.loaded().in_order(cluster.resources, known))
    pending = cluster.waiting()
    waiting = set(cluster.task_class[pending].tolist())
    present = [c for c in classes if c in waiting]
    used = sorted({cluster.classes[c].places for c in present})
    places = {n: cluster.places.places[n].changed(lambda values: values[rows]) for n in used}
    if not isinstance(cluster.policy, BulkPrices):
        # Numbered by what they are, as in a cluster made from a snapshot.
        places = dict(sorted(places.items(), key=lambda entry: places_order(entry[1])))
    place = {n: other.places.intern(found) for n, found in places.items()}
    number = np.zeros(len(cluster.classes), dtype=np.int64)
    for c in present:
        task_class = cluster.classes[c]
        number[c] = other.intern(replace(task_class, places=place[task_class.places]))
    names = [cluster.task_name(row) for row in pending.tolist()]
    other.submit(number[cluster.task_class[pending]], cluster.created_s[pending], names)
    return other
