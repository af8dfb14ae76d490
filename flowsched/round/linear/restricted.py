"""Classes that a mask, wishes or relations restrict: what groups have for them, and which machines must not share a group.

A group has one price and so many slots for each *shape*; what goes by single machines is added up here, machine by machine,
for the classes that need it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.machine_arrays import FIXED
from flowsched.cluster.task_rows import PENDING
from flowsched.pricing.linear import kernels
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.machine_groups import Compaction
from flowsched.round.linear.round_relations import RoundRelations
from flowsched.round.linear.waiting import Waiting
from flowsched.support.arrays import FloatArray, IntArray

PRICE_BUCKET = 0.01
"""Wishes of the machines of one group differ by no more than this, unless there would be too many groups."""
MOST_ARCS = 20_000
"""Signatures are made coarser when classes times their number would pass this."""
_LEAST_SIGNATURES = 16
_FAR = 1e12
_ANY = 1e6
"""A bucket that holds every reading."""
_ATTEMPTS = 12
_EXACT_SHAPE = 4
"""Attempts in which machines of one signature have about as much room."""


@dataclass(frozen=True, eq=False)
class Domains:
    """Domains among which one class is divided, where its tasks mind each other."""

    of_group: IntArray
    """Domain of each group; -1 for none."""
    places: IntArray
    """By domain: the most that it may take in all."""
    later: IntArray
    """How many on top once the others have got theirs."""


@dataclass(frozen=True, eq=False)
class RestrictedClasses:
    """Arrays by restricted class and group."""

    position: IntArray
    """Of each class among those that wait."""
    slots: IntArray
    extra: FloatArray
    """What a task pays in the group beside the group's price: the mean over machines that take it."""
    domains: tuple[Domains | None, ...]


def restrict(
    cluster: ClusterRows,
    compaction: Compaction,
    waiting: Waiting,
    relations: RoundRelations,
    model: kernels.Model,
    readings: IntArray,
) -> RestrictedClasses | None:
    """The restricted classes among those that wait, at the state that the compaction sees; None if there are none."""
    classes = waiting.classes
    position = np.flatnonzero((model.place_of[classes] > 0) | (model.gate_of[classes] > 0))
    if not len(position):
        return None
    groups = compaction.groups
    group_of = compaction.group_of
    there = group_of >= 0
    slots = np.zeros((len(position), groups), dtype=np.int64)
    extra = np.zeros((len(position), groups))
    price = np.empty(cluster.machines.rows)
    domains: list[Domains | None] = []
    first = np.full(groups, -1, dtype=np.int64)
    rows = np.flatnonzero(there)[::-1]
    first[group_of[rows]] = rows
    for i, p in enumerate(position.tolist()):
        c, count = int(classes[p]), int(waiting.counts[p])
        many = np.where(there, np.minimum(compaction.seen_fit[:, compaction.shape_of[c]], count), 0)
        if model.gate_of[c]:
            np.minimum(many, model.gates[model.gate_of[c]], out=many)
        kernels.class_prices(c, model, readings, price)
        many[~(price <= waiting.dearest[p]) | ~np.isfinite(price)] = 0
        gate = relations.domains(c)
        if gate is not None and gate.topology.per_machine:
            # A domain node for each machine would be as many nodes and arcs again as there are machines.
            most = np.append(np.sum(gate.allowance(many, count), axis=0), 0)
            np.minimum(many, most[gate.topology.domain], out=many)
        usable = np.flatnonzero(many)
        slots[i] = np.bincount(group_of[usable], weights=many[usable], minlength=groups)
        if model.place_of[c]:
            size = np.maximum(1, np.bincount(group_of[usable], minlength=groups))
            weights = model.extra[model.place_of[c], usable]
            extra[i] = np.bincount(group_of[usable], weights=weights, minlength=groups) / size
        if gate is None or gate.topology.per_machine:
            domains.append(None)
        else:
            places, later = gate.allowance(many, count)
            domains.append(Domains(np.where(first >= 0, gate.topology.domain[first], -1), places, later))
    return RestrictedClasses(position, slots, extra, tuple(domains))


def signatures(cluster: ClusterRows, present: IntArray, relations: RoundRelations, model: kernels.Model) -> IntArray:
    """A number for each machine; machines of different numbers are in different groups. 0 for all where nothing restricts.

    One number has the same masks, wishes within a bucket, and domains of the relations in play; and, where relations limit
    tasks on machines, about as much room: then ten machines with one place each take ten, and one with ten takes one.
    Where that makes too many groups, room is left out, then buckets grow, and all of it is left out last.
    """
    used = np.unique(model.place_of[present])
    used = used[used > 0]
    domains = [counts.domain for counts in relations.labels()]
    limited = relations.limits_machines()
    if not len(used) and not domains and not limited:
        return np.zeros(cluster.machines.rows, dtype=np.int64)
    limit = max(_LEAST_SIGNATURES, MOST_ARCS // max(1, len(present)))
    fixed = np.zeros(cluster.machines.rows, dtype=np.uint64)
    for salt, domain in enumerate(domains):
        fixed += mixed(domain, 1 + salt)
    shape = mixed(_room_steps(cluster, present), 0) if limited else np.zeros(cluster.machines.rows, dtype=np.uint64)
    cost = np.minimum(model.extra[used], _FAR) if len(used) else np.zeros((0, cluster.machines.rows))
    salts = 1000 + np.arange(len(used))[:, None]
    bucket = PRICE_BUCKET
    for attempt in range(_ATTEMPTS):
        code = fixed + shape if attempt < _EXACT_SHAPE else fixed.copy()
        code += mixed(np.floor(cost / bucket).astype(np.int64), salts).sum(axis=0)
        _, numbers = np.unique(code[cluster.machines.alive], return_inverse=True)
        if int(numbers.max(initial=0)) < limit:
            signature = np.zeros(cluster.machines.rows, dtype=np.int64)
            signature[cluster.machines.alive] = numbers.reshape(-1)
            return signature
        bucket *= 2.0 if attempt < _ATTEMPTS // 2 else 16.0
    return np.zeros(cluster.machines.rows, dtype=np.int64)


def coarsen(cluster: ClusterRows) -> None:
    """Give features buckets: prices differ little within a group, and classes times groups stay below ``MOST_ARCS``.

    For a cluster of one round: what is in the buckets of another is not changed.
    """
    present = np.unique(cluster.tasks.task_class[cluster.tasks.state == PENDING])
    limit = max(_LEAST_SIGNATURES, MOST_ARCS // max(1, len(present)))
    signature = signatures(cluster, present, RoundRelations(cluster, present), cluster.model())
    told = np.array([not feature.of_round for feature in cluster.classes.features], dtype=np.bool_)
    most = np.where(told, cluster.classes.table().coefficients[present].max(axis=0, initial=0.0), 0.0)
    there = np.flatnonzero(cluster.machines.alive)
    price = PRICE_BUCKET
    for _ in range(2 * _ATTEMPTS):
        width = np.where(most > 0.0, price / np.maximum(most, 1e-300), _ANY)
        buckets = np.maximum(1, np.rint(np.minimum(width, _ANY) * FIXED)).astype(np.int64)
        columns = [cluster.machines.kind[there], signature[there], *(cluster.readings[there] // buckets)[:, told].T]
        code = sum((mixed(column, salt) for salt, column in enumerate(columns)), np.zeros(len(there), dtype=np.uint64))
        if len(np.unique(code)) <= limit:
            break
        price *= 2.0
    cluster.classes.features = tuple(
        feature if feature.of_round else replace(feature, bucket=int(bucket) / FIXED)
        for feature, bucket in zip(cluster.classes.features, buckets.tolist(), strict=True)
    )


def _room_steps(cluster: ClusterRows, present: IntArray) -> IntArray:
    """How many average tasks a machine has room for, in steps of a tenth."""
    need = cluster.classes.demands[present].mean(axis=0)
    asked = need > 0.0
    room = np.maximum(cluster.free[:, asked], 0) / need[asked]
    steps: IntArray = np.rint(np.log1p(room.min(axis=1, initial=1e9)) * 10.0).astype(np.int64)
    return steps


def mixed(values: IntArray, salt: int | IntArray) -> NDArray[np.uint64]:
    """A well-spread 64-bit number for each value, different for each salt; sums of them stand for tuples."""
    salts = np.atleast_1d(np.asarray(salt, dtype=np.uint64)) * np.uint64(0xD1B54A32D192ED03)
    x: NDArray[np.uint64] = values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + salts
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
