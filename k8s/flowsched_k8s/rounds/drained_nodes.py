"""Where pods will have room once all has left that leaves: one node for a pod, a set of nodes for a gang."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flowsched.cluster.task_class import TaskClass
from flowsched.relations.gang_search import steps_among
from flowsched.relations.later_places import EARLIER, earliest_set
from flowsched.round.bounded_waiting import missing
from flowsched.round.linear.bulk_rows import bulk_rows
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.gang_places import DrainingPlaces
from flowsched.round.linear.machine_reservation import Lasting
from flowsched.round.linear.places import Places
from flowsched.round.linear.round_relations import RoundRelations
from flowsched.support.arrays import BoolArray, FloatArray, IntArray
from flowsched_k8s.cache import Cache
from flowsched_k8s.departures import Departures
from flowsched_k8s.groups.group_domains import GroupDomains
from flowsched_k8s.groups.pod_groups import GroupRef
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.rounds.inputs import InputBuilder
from flowsched_k8s.rounds.start_units import StartUnit

_MOST_PAIRS = 160_000
"""Of members and nodes: beyond, the first set that is found is kept. 1000 members on 5,000 nodes take some 0.3 s."""
_Found = tuple[float, dict[str, str]]
"""The most that a node misses, and the nodes by uid."""


@dataclass(frozen=True, eq=False)
class _Kinds:
    """Members of a gang that are alike, in the order in which they are served."""

    members: tuple[tuple[PodEntry, ...], ...]
    needs: tuple[Mapping[str, int], ...]
    able: tuple[BoolArray, ...]
    """By machine row: static filters pass, and the node is large enough."""


class DrainedNodes:
    """Asks of nodes what they have once all has left that leaves while they are kept for a priority."""

    def __init__(self, cache: Cache, inputs: InputBuilder) -> None:
        """Of one scheduler; they change with it."""
        self._cache = cache
        self._inputs = inputs
        self._departures = Departures(cache)

    def forget(self, node: str) -> None:
        """A node is gone."""
        self._departures.forget(node)

    def find(
        self, unit: StartUnit, priority: int, over: frozenset[str], now: float, *, as_they_stand: bool = False
    ) -> tuple[dict[str, str], bool] | None:
        """Nodes by uid where a unit could start together, those that miss least of what it needs now, and whether all that
        has to leave them ends by itself: only where there are no such nodes, pods may have to be deleted. None where no
        nodes are found. Nodes in ``over`` are passed over.

        ``as_they_stand``: of a gang, relations to what runs count as they are, if there are such nodes, and not as they
        will be.
        """
        # A node may have come since the round began.
        self._inputs.settle()
        if unit.needed == 1:
            found = self._one(unit.members[0], priority, over, now)
            return None if found is None else ({unit.members[0].key.uid: found[0]}, found[1])
        kinds = self._kinds(unit, over)
        for deletions in (False, True) if kinds is not None else ():
            assert kinds is not None
            places = self._set(unit, kinds, priority, now, deletions, as_they_stand)
            if places is not None:
                return places, not deletions
        return None

    def could_take(
        self, members: Sequence[PodEntry], node: str, priority: int, now: float, *, deletions: bool, alone: bool
    ) -> bool:
        """Whether a node would take pods together once all has left that leaves. ``alone``: this is one pod that starts by
        itself; for those of a gang relations do not count, as they depend on where the others are.
        """
        there = self._cache.nodes.get(node)
        if there is None:
            return False
        for entry in members:
            wants = self._cache.wants(entry)
            if wants.problem is not None or wants.filter.verdict(there.node) is not None:
                return False
        if alone:
            return self._may_take(members[0], node, priority, now, deletions)
        asked = total_needs(members).items()
        return self._departures.leave_room(node, asked, priority, now, deletions)

    def missing(self, needs: Mapping[str, int], node: str) -> float:
        """What a node misses now of what is needed there, summed over resources as shares of the need."""
        machines = self._cache.machines
        row = machines.row(node)
        if row is None:
            return float("inf")
        asked = self._columns(needs)
        there = [0 if column is None else machines.free[row, column] for _, column in asked]
        return float(missing(np.array([amount for amount, _ in asked]), np.array(there)))

    # One pod

    def _one(self, entry: PodEntry, priority: int, over: frozenset[str], now: float) -> tuple[str, bool] | None:
        able = self._able(entry, entry.needs, over)
        if able is None:
            return None
        machines = self._cache.machines
        rows = np.flatnonzero(able)
        asked = self._columns(entry.needs)
        columns = [column for _, column in asked if column is not None]
        least = missing(np.array([amount for amount, _ in asked]), machines.free[rows][:, columns])
        names = (str(machines.names[r]) for r in rows.tolist())
        first = ""
        for _, name in sorted(zip(least.tolist(), names, strict=True)):
            if not self._may_take(entry, name, priority, now, deletions=True):
                continue
            if self._may_take(entry, name, priority, now, deletions=False):
                return name, True
            first = first or name
        return (first, False) if first else None

    def _able(self, entry: PodEntry, needs: Mapping[str, int], over: frozenset[str]) -> BoolArray | None:
        """By machine row, whether static filters let a pod there and the node is large enough; None if no node is."""
        machines = self._cache.machines
        verdicts = self._inputs.verdicts(self._cache.wants(entry))
        able = verdicts.passes[: machines.rows] & machines.alive
        for amount, column in self._columns(needs):
            if column is None:
                # No node has had such a resource.
                return None
            able = able & (machines.allocatable[:, column] >= amount)
        able[[row for name in over if (row := machines.row(name)) is not None]] = False
        return able if able.any() else None

    def _may_take(self, entry: PodEntry, node: str, priority: int, now: float, deletions: bool) -> bool:
        """Whether a node that static filters let a pod to would take it once all has left that leaves."""
        machines, wants = self._cache.machines, self._cache.wants(entry)
        if not self._departures.leave_room(node, _asked(entry.needs), priority, now, deletions):
            return False
        if not (wants.holds or wants.joins):
            return True
        # A pod that leaves may be one that keeps it out, or one that lets it in.
        eligible = self._inputs.verdicts(wants).eligible[: machines.rows]
        going = self._departures.going(node, priority, now, deletions)
        return any(
            self._cache.booked.permits_on(wants.holds, wants.joins, node, eligible, gone) for gone in ((), going)
        )

    def _columns(self, needs: Mapping[str, int]) -> list[tuple[int, int | None]]:
        """What is needed of each resource, and the column that has it."""
        columns = {r: i for i, r in enumerate(self._cache.machines.resources)}
        return [(amount, columns.get(resource)) for resource, amount in _asked(needs)]

    # A gang

    def _kinds(self, unit: StartUnit, over: frozenset[str]) -> _Kinds | None:
        """The members that some node is large enough for; None where they are too few."""
        alike: dict[Hashable, list[PodEntry]] = {}
        for entry in unit.members:
            alike.setdefault(self._cache.wants(entry).class_key, []).append(entry)
        found = []
        for members in alike.values():
            needs = self._cache.machines.decisive(members[0].needs)
            able = self._able(members[0], needs, over)
            if able is not None:
                found.append((tuple(members), needs, able))
        if sum(len(members) for members, _, _ in found) < unit.needed:
            return None
        return _Kinds(
            tuple(members for members, _, _ in found),
            tuple(needs for _, needs, _ in found),
            tuple(able for _, _, able in found),
        )

    def _set(
        self, unit: StartUnit, kinds: _Kinds, priority: int, now: float, deletions: bool, as_they_stand: bool
    ) -> dict[str, str] | None:
        cache, machines = self._cache, self._cache.machines
        rows = np.flatnonzero(np.logical_or.reduce(kinds.able)).tolist()
        nodes = [str(machines.names[row]) for row in rows]
        for_good = np.zeros_like(machines.allocatable)
        for row, node in zip(rows, nodes, strict=True):
            left = self._departures.room(node, machines.resources, priority, now, deletions)
            for_good[row] = [left[resource] for resource in machines.resources]
        wants = [cache.wants(members[0]) for members in kinds.members]
        drained = not as_they_stand
        for settled in (drained, not drained) if any(w.holds or w.joins for w in wants) else (False,):
            store = machines.relation_store
            if settled:
                going = (self._departures.going(node, priority, now, deletions) for node in nodes)
                store = cache.booked.relations_without(sorted(uid for uids in going for uid in uids))
            later = machines.copy(relations=False)
            later.allocatable, later.relation_store = for_good, store
            classes, places = [], []
            for members, needs, able, want in zip(kinds.members, kinds.needs, kinds.able, wants, strict=True):
                amounts = tuple(sorted((r, amount) for r, amount in _asked(needs) if r != "cpu"))
                name, cpu = str(members[0].key), needs.get("cpu", 0)
                classes.append(TaskClass(name, cpu, amounts, holds=want.holds, joins=want.joins))
                places.append(Places(able, self._inputs.verdicts(want).eligible[: machines.rows]))
            uids = [[entry.key.uid for entry in members] for members in kinds.members]
            cluster = bulk_rows(later, classes, places, uids)
            found = _earliest(cluster, [uid for some in uids for uid in some], unit.needed, self._domains(unit))
            if found is not None:
                return found
        return None

    def _domains(self, unit: StartUnit) -> list[list[BoolArray | None]]:
        """Rows of each domain that a gang may be in, those of one label together; None for
        all nodes.
        """
        assert isinstance(unit.key, GroupRef), "a unit of several pods is a gang"
        topology, machines = self._inputs.topology(unit.key), self._cache.machines
        if topology is None:
            return [[None]]
        by_key: dict[str, list[BoolArray | None]] = {}
        for key, inside in GroupDomains(machines).possible(topology):
            by_key.setdefault(key, []).append(inside)
        return list(by_key.values())


class _MissingRoom:
    """What machines miss now for one task more, where they will have room for it; in place of a time."""

    def __init__(self, cluster: ClusterRows) -> None:
        self._demands = cluster.classes.demands
        self._free, self._for_good = cluster.free.copy(), cluster.allocatable.copy()

    def when(self, task_class: int, rows: IntArray) -> FloatArray:
        """[rows] shares of the demand, summed over resources; infinite where there will never be room."""
        demand = self._demands[task_class]
        found = missing(demand, self._free[rows])
        found[((demand > 0) & (self._for_good[rows] < demand)).any(axis=1)] = np.inf
        return found

    def reserve(self, task_class: int, row: int, sign: int = 1) -> None:
        """Count room on a machine as taken, or as free again with ``sign`` -1."""
        self._free[row] -= sign * self._demands[task_class]
        self._for_good[row] -= sign * self._demands[task_class]


def _earliest(
    cluster: ClusterRows, uids: Sequence[str], needed: int, domains: Sequence[Sequence[BoolArray | None]]
) -> dict[str, str] | None:
    """The set of machines that misses least, of the first label of which a domain has one. ``uids`` by task row."""
    lasting = Lasting(cluster)
    of = cluster.tasks.task_class[: len(uids)]
    widths = np.array([cluster.classes[c].width_milli for c in of.tolist()], np.int64)
    widest = np.argsort(-widths, kind="stable")
    fits = {c: lasting.fits(c) for c in np.unique(of).tolist()}
    for alike in domains:
        best: _Found | None = None
        for inside in alike:
            here = fits if inside is None else {c: rows & inside for c, rows in fits.items()}
            if sum(lasting.most(c, rows) for c, rows in here.items()) < needed:
                continue
            relations = RoundRelations(cluster, np.unique(of))
            places = DrainingPlaces(cluster, of[widest], relations, _MissingRoom(cluster), here, lasting.free)
            # Each try takes so long, while nothing else happens.
            tries = EARLIER if needed * cluster.machines.machine_count <= _MOST_PAIRS else 1
            found = earliest_set(places, needed, steps_among(cluster.machines.machine_count), tries)
            if found is not None and (best is None or found[0] < best[0]):
                chosen = {uids[int(widest[i])]: cluster.machines.name(row) for i, row in found[1]}
                best = found[0], chosen
        if best is not None:
            return best[1]
    return None


def total_needs(members: Sequence[PodEntry]) -> dict[str, int]:
    """What pods need together, by resource."""
    total: dict[str, int] = {}
    for entry in members:
        for resource, amount in entry.needs.items():
            total[resource] = total.get(resource, 0) + amount
    return total


def _asked(needs: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(resource, amount) for resource, amount in needs.items() if amount > 0]
