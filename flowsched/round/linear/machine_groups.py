"""Tasks folded into classes and machines into groups, kept from round to round: what did not change is not looked at.

A group is machines of one kind whose readings fall into the same buckets, so every class has one price there. How many whole
tasks fit is counted machine by machine, for every *shape* (what a task asks for, and what it adds to a reading that has a
limit); tier capacities are counted in the same way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from flowsched.cluster.machine_arrays import FIXED, UNLIMITED
from flowsched.pricing.linear import kernels
from flowsched.pricing.linear.policy import Feature
from flowsched.round.linear.cluster_rows import CPU, ClusterRows
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

RUNGS = 8
"""Steps of a group's ladder; the last one is endless."""
MAX_TIERS = 8
"""Most tiers; where there are more widths, neighbouring ones share a tier, which loosens it and cuts nothing off."""


@dataclass
class Upkeep:
    """What a round's difference from the last one was: what was applied in place, and what was made anew and why."""

    applied: Counter[str] = field(default_factory=Counter)
    rebuilt: Counter[str] = field(default_factory=Counter)

    def clear(self) -> None:
        """A round begins."""
        self.applied.clear()
        self.rebuilt.clear()

    def plain(self) -> dict[str, dict[str, int]]:
        """As a record keeps it."""
        return {"applied": dict(sorted(self.applied.items())), "rebuilt": dict(sorted(self.rebuilt.items()))}


class Compaction:
    """Groups, and what fits into them."""

    def __init__(self, cluster: ClusterRows) -> None:
        """Nothing is counted yet. Groups' numbers, shapes and tiers follow from the cluster's state alone, not from how it
        came to be.
        """
        self._cluster = cluster
        self.upkeep = Upkeep()
        self.widths: tuple[int, ...] = ()
        """Distinct widths in play, widest first. In milli-CPU."""
        self.tier_widths: tuple[int, ...] = ()
        """The narrowest width of every tier, widest tier first."""
        self.unit = 1
        """Milli-CPU of one unit of flow."""
        self.usual_milli = 1
        """The width that a ladder's steps are counted in."""
        self.largest: IntArray = np.zeros((0, 1), dtype=np.int64)
        """By tier and free units: the most units that widths of the tier or wider can take."""
        self._limits: IntArray = cluster.limits
        self._limited = False
        self._moves = cluster.machines.moves
        self._forgotten = True
        self.group_of: IntArray = np.zeros(0, dtype=np.int64)
        self._seen_units: IntArray = np.zeros(0, dtype=np.int64)
        self.signature: IntArray = np.zeros(0, dtype=np.int64)
        """By machine: what a group has in common beside its kind and buckets, as a number."""
        self._buckets = buckets_of(cluster.classes.features)
        self._bounded = np.array([0 if f.of_round else 1 for f in cluster.classes.features], dtype=np.int64)
        """1 for features that machines may have a limit of."""
        self._empty()

    def _empty(self) -> None:
        """No shapes and no groups."""
        cluster = self._cluster
        self.shape_of: IntArray = np.zeros(0, dtype=np.int64)
        """Shape of every class; -1 for those that have not waited."""
        self._shapes: dict[tuple[int, ...], int] = {}
        self._shape_demand: IntArray = np.zeros((0, len(cluster.classes.resources)), dtype=np.int64)
        self._shape_effect: IntArray = np.zeros((0, len(cluster.classes.features)), dtype=np.int64)
        self.seen_fit: IntArray = np.zeros((len(self.group_of), 0), dtype=np.int64)
        self._keys: dict[tuple[int, ...], int] = {}
        self.keys: list[tuple[int, ...]] = []
        """Kind, buckets and signature of every group."""
        self._table: IntArray = np.zeros((0, 2 + len(cluster.classes.features)), dtype=np.int64)
        self.kind: IntArray = np.zeros(0, dtype=np.int64)
        self.reading: FloatArray = np.zeros((0, len(cluster.classes.features)))
        """What stands for a group's readings: the middle of its buckets, or the exact value; 0 for what tells none apart."""
        self.members: IntArray = np.zeros(0, dtype=np.int64)
        self.open_members: IntArray = np.zeros(0, dtype=np.int64)
        self.slots: IntArray = np.zeros((0, 0), dtype=np.int64)
        self.tiers: IntArray = np.zeros((0, len(self.tier_widths)), dtype=np.int64)
        """By group and tier, in units."""
        self.rungs: IntArray = np.zeros((0, RUNGS), dtype=np.int64)
        self.cost: FloatArray = np.zeros((0, 0))
        """By class and group: what one task costs there as things stand."""
        self._priced = (0, 0, -1)

    @property
    def groups(self) -> int:
        """Groups that have a number, empty ones too."""
        return len(self.keys)

    def catch_up(self, changed: IntArray, present: IntArray) -> None:
        """Bring everything up to the cluster's state. ``changed``: machine rows; ``present``: classes that wait."""
        cluster = self._cluster
        self._follow_rows()
        self._grow_machines()
        self._limits = cluster.limits
        limited = bool((self._limits < UNLIMITED).any()) if self._limits.size else False
        if limited != self._limited or self._shape_demand.shape[1] != len(cluster.classes.resources):
            self._limited = limited
            self._forget("limits" if self._shape_demand.shape[1] == len(cluster.classes.resources) else "resources")
        free, readings = cluster.free, cluster.readings
        self._set_shapes(present, free, readings)
        self._choose_widths(present, free, readings)
        if self._forgotten:
            # All at once, with the shapes and tiers of this round.
            self._forgotten = False
            changed = np.union1d(changed, np.flatnonzero(cluster.machines.alive))
        self.update(changed, free, readings)
        self.reprice()

    def sign(self, signature: IntArray) -> IntArray:
        """Give machines other signatures; the rows where one is new, which have to be counted anew."""
        self._follow_rows()
        more = len(signature) - len(self.signature)
        old = np.concatenate([self.signature, np.zeros(more, dtype=np.int64)])
        self.signature = signature
        return np.flatnonzero(old != signature)

    def renumber(self) -> None:
        """Number groups by their keys, and forget those without machines."""
        there = np.flatnonzero(self.members)
        keys = self._key_table()
        order = there[np.lexsort(keys[there].T[::-1])]
        if len(order) == self.groups and bool((order == np.arange(self.groups)).all()):
            return
        number = np.full(self.groups + 1, -1, dtype=np.int64)
        number[order] = np.arange(len(order))
        self.group_of = number[self.group_of]
        self.keys = [self.keys[g] for g in order.tolist()]
        self._keys = {key: g for g, key in enumerate(self.keys)}
        self._table = keys[order]
        self.kind, self.reading = self.kind[order], self.reading[order]
        self.members, self.open_members = self.members[order], self.open_members[order]
        self.slots, self.cost = np.ascontiguousarray(self.slots[:, order]), self.cost[:, order]
        self.tiers, self.rungs = self.tiers[order], self.rungs[order]
        self._priced = (self._priced[0], len(order), self._priced[2])

    def update(self, rows: IntArray, free: IntArray, readings: IntArray) -> None:
        """Count some machines anew, from these arrays."""
        if not len(rows):
            return
        self._count(rows, self._groups_for(rows, readings), free, readings)
        self.upkeep.applied["machines"] += len(rows)

    def reprice(self) -> None:
        """Fill in the prices of classes and groups that are new."""
        cluster = self._cluster
        classes, groups, structure = self._priced
        if structure == cluster.classes.structure and classes == len(cluster.classes) and groups == self.groups:
            return
        if structure != cluster.classes.structure:
            groups = classes = 0  # kinds or classes turned up: the policy's arrays are new
        cost = np.empty((len(cluster.classes), self.groups))
        cost[:classes, :groups] = self.cost[:classes, :groups]
        new = slice(groups, self.groups)
        if new.start < new.stop:
            cost[:, new] = self.prices_at(
                np.arange(len(cluster.classes)), np.arange(self.groups)[new], self.reading[new]
            )
            self.upkeep.applied["prices"] += len(cluster.classes) * (new.stop - new.start)
        self.cost = cost
        self._priced = (len(cluster.classes), self.groups, cluster.classes.structure)

    def prices_at(self, classes: IntArray, groups: IntArray, readings: FloatArray) -> FloatArray:
        """What a task of each class costs on machines of each group's kind with these readings, a row for each group."""
        table = self._cluster.classes.table()
        kind = self.kind[groups]
        scaled = (self._cluster.classes.factors[kind] * readings).T
        prices: FloatArray = table.base[classes][:, kind] + table.coefficients[classes] @ scaled
        return prices

    def bucket_error(self, tasks: IntArray) -> float:
        """How far the cost of any placement of so many tasks of each class can be from its cost in the middles of buckets.

        A reading is at most half a bucket away from the middle, so a task's price is at most
        ``sum over f of coefficient * factor * bucket / 2`` off, and a round that is optimal for the middles is at most
        twice the sum over its tasks above the true optimum.
        """
        cluster = self._cluster
        if not cluster.machines.kinds or not len(tasks):
            return 0.0
        half = cluster.classes.factors.max(axis=0) * np.where(self._buckets < UNLIMITED, self._buckets, 0) / FIXED / 2.0
        return float(cluster.classes.table().coefficients @ half @ tasks)

    def active(self) -> IntArray:
        """Groups with room for a task of some shape."""
        return np.flatnonzero(self.open_members)

    # Below: how

    def _follow_rows(self) -> None:
        """Forget what is by row where machines or kinds have other rows or numbers, and maybe fewer."""
        if self._moves != self._cluster.machines.moves:
            self._moves = self._cluster.machines.moves
            self.group_of, self._seen_units, self.signature = (np.zeros(0, dtype=np.int64) for _ in range(3))
            self._forget("machine_order")

    def _grow_machines(self) -> None:
        more = self._cluster.machines.rows - len(self.group_of)
        if more > 0:
            self.group_of = np.concatenate([self.group_of, np.full(more, -1, dtype=np.int64)])
            self._seen_units = np.concatenate([self._seen_units, np.zeros(more, dtype=np.int64)])
            self.seen_fit = np.vstack([self.seen_fit, np.zeros((more, self.seen_fit.shape[1]), dtype=np.int64)])
        missing = self._cluster.machines.rows - len(self.signature)
        if missing > 0:
            self.signature = np.concatenate([self.signature, np.zeros(missing, dtype=np.int64)])

    def _forget(self, reason: str) -> None:
        """Start anew; all tasks are counted again."""
        if self.keys or self._shapes:
            self.upkeep.rebuilt[reason] += 1
        self.group_of[:] = -1
        self._forgotten = True
        self._empty()

    def _set_shapes(self, present: IntArray, free: IntArray, readings: IntArray) -> None:
        """Shapes of the classes that wait and of no others; all are counted anew where these are not the last round's."""
        cluster = self._cluster
        effects = cluster.classes.effects * self._bounded * self._limited
        keys = [(*cluster.classes.demands[c].tolist(), *effects[c].tolist()) for c in present.tolist()]
        if keys and set(keys) != self._shapes.keys():
            self.upkeep.rebuilt["shapes"] += 1
            self._shapes = {key: i for i, key in enumerate(sorted(set(keys)))}
            table = np.array(list(self._shapes), dtype=np.int64)
            self._shape_demand = np.ascontiguousarray(table[:, : len(cluster.classes.resources)])
            self._shape_effect = np.ascontiguousarray(table[:, len(cluster.classes.resources) :])
            self.seen_fit = np.zeros((len(self.group_of), len(table)), dtype=np.int64)
            self.slots = np.zeros((len(table), self.groups), dtype=np.int64)
            self._recount_all(free, readings)
        self.shape_of = np.full(len(cluster.classes), -1, dtype=np.int64)
        self.shape_of[present] = [self._shapes[key] for key in keys]

    def _recount_all(self, free: IntArray, readings: IntArray) -> None:
        """Count machines in their groups from nothing."""
        rows = np.flatnonzero(self.group_of >= 0)
        groups = self.group_of[rows].copy()
        for array in (self.members, self.open_members, self.slots, self.tiers, self.rungs):
            array[...] = 0
        self.group_of[:] = -1
        self._count(rows, groups, free, readings)

    def _count(self, rows: IntArray, groups: IntArray, free: IntArray, readings: IntArray) -> None:
        """Take machines out of the counts of their groups, and count them in these."""
        kernels.recount(
            rows,
            groups,
            kernels.MachineLoad(free, readings),
            self._limits,
            kernels.ShapeTable(self._shape_demand, self._shape_effect),
            kernels.WidthTable(self.unit, self.largest, max(1, self.usual_milli // self.unit)),
            kernels.SeenMachines(self.group_of, self.seen_fit, self._seen_units),
            kernels.GroupCounts(self.members, self.open_members, self.slots, self.tiers, self.rungs),
        )

    def _choose_widths(self, present: IntArray, free: IntArray, readings: IntArray) -> None:
        """Tiers for the widths that wait; where they differ from the last round's, tiers are counted anew."""
        cluster = self._cluster
        wide = {w for c in present.tolist() if (w := cluster.classes[c].width_milli) > 0}
        widths = tuple(sorted(wide, reverse=True))
        largest_free = int(cluster.allocatable[:, CPU].max(initial=0))
        # Whole units count: what is left of the largest machine beyond them is in no table.
        large_enough = self.largest.shape[1] - 1 >= largest_free // self.unit
        if not len(present) or (widths == self.widths and large_enough):
            return
        self.upkeep.rebuilt["larger_machines" if widths == self.widths else "widths"] += 1
        self.widths = widths
        self.unit = max(1, math.gcd(*widths))
        self.usual_milli = min(widths, default=1)
        self.tier_widths = tier_widths(self.widths)
        self.largest = largest_sums(self.widths, self.tier_widths, self.unit, largest_free // self.unit)
        self.tiers = np.zeros((self.groups, len(self.tier_widths)), dtype=np.int64)
        self._recount_all(free, readings)

    def _groups_for(self, rows: IntArray, readings: IntArray) -> IntArray:
        """Group of each machine, new ones made; -1 for machines that are gone."""
        cluster = self._cluster
        columns = np.empty((len(rows), 2 + len(self._buckets)), dtype=np.int64)
        columns[:, 0] = np.where(cluster.machines.alive[rows], cluster.machines.kind[rows], -1)
        columns[:, 1:-1] = readings[rows] // np.maximum(1, self._buckets)
        columns[:, -1] = self.signature[rows]
        answer = self.group_of[rows]
        other = np.flatnonzero(~kernels.same_group(rows, columns, self.group_of, self._key_table()))
        if len(other):
            answer[other] = self._numbered(columns[other])
        return answer

    def _key_table(self) -> IntArray:
        if len(self._table) != len(self.keys):
            self._table = np.array(self.keys, dtype=np.int64).reshape(len(self.keys), 2 + len(self._buckets))
        return self._table

    def _numbered(self, key: IntArray) -> IntArray:
        """The groups with these keys, new ones made."""
        number = _codes(list(key.T))
        _, first, inverse = np.unique(number, return_index=True, return_inverse=True)
        groups = np.empty(len(first), dtype=np.int64)
        fresh: list[tuple[int, ...]] = []
        for i, one in enumerate(map(tuple, key[first].tolist())):
            if one[0] < 0:
                groups[i] = -1
                continue
            found = self._keys.get(one)
            if found is None:
                found = self._keys[one] = len(self.keys)
                self.keys.append(one)
                fresh.append(one)
            groups[i] = found
        if fresh:
            self._add_groups(np.array(fresh, dtype=np.int64))
        found_groups: IntArray = groups[inverse]
        return found_groups

    def _add_groups(self, keys: IntArray) -> None:
        more = len(keys)
        self.kind = np.concatenate([self.kind, keys[:, 0]])
        self.reading = np.vstack([self.reading, middles_of(keys[:, 1:-1], self._buckets)])
        self.members = np.concatenate([self.members, np.zeros(more, dtype=np.int64)])
        self.open_members = np.concatenate([self.open_members, np.zeros(more, dtype=np.int64)])
        self.slots = np.hstack([self.slots, np.zeros((len(self.slots), more), dtype=np.int64)])
        self.tiers = np.vstack([self.tiers, np.zeros((more, self.tiers.shape[1]), dtype=np.int64)])
        self.rungs = np.vstack([self.rungs, np.zeros((more, RUNGS), dtype=np.int64)])
        self.upkeep.applied["groups"] += more


def buckets_of(features: Sequence[Feature]) -> IntArray:
    """The width of each feature's buckets in units of 1/FIXED; ``UNLIMITED`` for those that tell no groups apart."""
    return np.array([UNLIMITED if f.of_round else round(f.bucket * FIXED) for f in features], dtype=np.int64)


def middles_of(numbers: IntArray, buckets: IntArray) -> FloatArray:
    """What stands for the readings in buckets with these numbers, by group and feature."""
    told = np.where(buckets < UNLIMITED, buckets, 0)
    middles: FloatArray = numbers * np.maximum(told, 1) / FIXED + told / FIXED / 2.0
    return middles


def _codes(columns: list[IntArray]) -> IntArray:
    """One number for each distinct row of the columns."""
    code: IntArray = columns[0] - columns[0].min(initial=0)
    for column in columns[1:]:
        if not len(column) or (column == column[0]).all():
            continue  # tells no rows apart
        _, inverse = np.unique(column, return_inverse=True)
        code = code * (int(inverse.max(initial=0)) + 1) + inverse
        if int(code.max(initial=0)) > 1 << 40:
            code = np.unique(code, return_inverse=True)[1].astype(np.int64)
    return code


def tier_widths(widths: tuple[int, ...]) -> tuple[int, ...]:
    """The narrowest width of every tier: each width its own, or at most ``MAX_TIERS`` of them, evenly chosen."""
    if len(widths) <= MAX_TIERS:
        return widths
    ends = np.linspace(len(widths) / MAX_TIERS, len(widths), MAX_TIERS).astype(np.int64) - 1
    return tuple(widths[i] for i in ends.tolist())


def tier_of(widths: IntArray, tier_widths: tuple[int, ...]) -> IntArray:
    """The tier at which each width enters, 0 the widest; one beyond the last for tasks that ask for no CPU."""
    tiers = np.searchsorted(-np.array(tier_widths, dtype=np.int64), -widths)
    found: IntArray = np.where(widths > 0, np.minimum(tiers, max(0, len(tier_widths) - 1)), len(tier_widths))
    return found.astype(np.int64)


def largest_sums(widths: tuple[int, ...], tiers: tuple[int, ...], unit: int, top: int) -> IntArray:
    """By tier (widest first) and free units 0..top: the largest sum of repeatable widths of the tier or wider, in units.

    It equals ``floor(u / w) * w`` for dividing widths.
    """
    answer = np.zeros((len(tiers), top + 1), dtype=np.int64)
    reachable: BoolArray = np.zeros(top + 1, dtype=np.bool_)
    reachable[0] = True
    sums = np.arange(top + 1)
    for width in widths:
        # What is wider than all that is free adds nothing, however wide it is.
        step = min(width // unit, top + 1)
        # A row for each count of this width: what is reachable stays so with one more of it.
        padded: BoolArray = np.zeros(-(-(top + 1) // step) * step, dtype=np.bool_)
        padded[: top + 1] = reachable
        reachable = np.logical_or.accumulate(padded.reshape(-1, step), axis=0).ravel()[: top + 1]
        if width in tiers:
            answer[tiers.index(width)] = np.maximum.accumulate(np.where(reachable, sums, 0))
    return answer
