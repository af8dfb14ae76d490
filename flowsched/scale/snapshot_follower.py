"""A cluster kept in step with snapshots: what differs from the last one, name by name, becomes events.

A cluster made afresh from a snapshot has machines in the order of their names, classes in the order of what they are, and
waiting tasks in the order in which they came. One that is kept has them in that order too, or is made anew, so that rounds
on a snapshot are the same whatever was there before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from operator import attrgetter

import numpy as np

from flowsched.cluster.machine_arrays import FIXED
from flowsched.cluster.snapshot import Machine, RelationCount, Running, Service, Snapshot, Task, by_machine
from flowsched.cluster.task_class import MachineSpec, TaskClass
from flowsched.pricing.linear.policy import CostModel
from flowsched.relations.relation import Relation, roles_of
from flowsched.scale.bulk_cluster import BulkCluster
from flowsched.scale.compaction import Upkeep
from flowsched.scale.price_table import checked_prices
from flowsched.scale.snapshot_adapter import ClassContext, SnapshotAdapter, class_key
from flowsched.support.arrays import IntArray
from flowsched_models.runtime import HostFactory

_ARRIVAL, _TASK_NAME = attrgetter("arrival"), attrgetter("task.name")
_Known = tuple[Task, int, str]
"""Task, width, and machine; empty while it waits."""


class SnapshotFollower:
    """One cluster at a time, and what it was told."""

    def __init__(
        self,
        policy: CostModel,
        headroom_weight: float,
        slo_margin: float,
        hosts: HostFactory | None = None,
        behaviours: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        """Nothing is known yet. ``hosts`` may be shared with others that use the same profiles. ``behaviours``: sensitivity
        and pressure of tasks, by name, that are not as their profiles say.
        """
        self._policy = policy
        self._weight = headroom_weight
        self._margin = slo_margin
        self._given_hosts = hosts
        self._behaviours = behaviours or {}
        self._frame: ClassContext | None = None
        self._machines: dict[str, tuple[Machine, tuple[Service, ...]]] = {}
        self._specs: dict[str, MachineSpec] = {}
        self._known: dict[str, _Known] = {}
        self._relations: tuple[tuple[Relation, ...], tuple[RelationCount, ...]] = (), ()
        self.upkeep = Upkeep()
        """Events of the last snapshot, and why the cluster was made anew for it."""

    def follow(self, snapshot: Snapshot) -> BulkCluster:
        """The cluster at a snapshot; another object than before if it was made anew."""
        self.upkeep.clear()
        frame = ClassContext.of(snapshot)
        told = snapshot.relations, snapshot.relation_counts
        reason = self._changed_frame(frame) or ("relations" if self._relations != told else "")
        reason = reason or self._apply(snapshot)
        if reason:
            self.upkeep.rebuilt[reason] += 1
            self._begin(snapshot, frame)
        return self.cluster

    def load(self, snapshot: Snapshot) -> BulkCluster:
        """The cluster of one round on a snapshot, which is not followed: what runs is known as sums only.

        Machines, classes and waiting tasks are as in :meth:`follow`; rounds that change nothing that runs decide the same.
        """
        self._load(snapshot, ClassContext.of(snapshot))
        self._frame = None
        cluster = self.cluster
        found: dict[int, tuple[TaskClass, list[str]]] = {}
        for r in snapshot.running:
            task_class = self._class(r.task, r.width_milli, placed=True)
            found.setdefault(id(task_class), (task_class, []))[1].append(r.machine)
        for task_class, names in found.values():
            rows = np.array(list(map(cluster.row, names)), dtype=np.int64)
            there, times = np.unique(rows, return_counts=True)
            effects = np.rint(checked_prices(self._policy, task_class, ()).effects * FIXED).astype(np.int64)
            cluster.count(there, times, task_class.demand(), effects)
            cluster.relation_store.book(roles_of(task_class.holds, task_class.joins), rows, 1)
            group = task_class.group
            if group in cluster.groups:
                cluster.members_elsewhere[group] = cluster.members_elsewhere.get(group, 0) + len(rows)
        return cluster

    def services(self, machine: str) -> tuple[Service, ...]:
        """Services of a machine."""
        return self._machines[machine][1]

    def machine(self, name: str) -> Machine:
        """A machine by its name."""
        return self._machines[name][0]

    # Anew

    def _changed_frame(self, frame: ClassContext) -> str:
        old = self._frame
        if old is None:
            return "first_round"
        if old.catalogue is not frame.catalogue and old.catalogue != frame.catalogue:
            return "profiles"
        if old.types != frame.types:
            return "machine_types"
        if (old.lists, old.machines, old.spreads) != (frame.lists, frame.machines, frame.spreads):
            return "machine_lists"
        return "locality" if old.labels != frame.labels else ""

    def _begin(self, snapshot: Snapshot, frame: ClassContext) -> None:
        self._load(snapshot, frame)
        self._submit_running(snapshot.running)

    def _load(self, snapshot: Snapshot, frame: ClassContext) -> None:
        """A cluster with all but what runs."""
        hosts = self._given_hosts or HostFactory(frame.catalogue)
        self._frame = frame
        self._adapter = SnapshotAdapter(frame, self._policy, hosts, self._weight, self._margin)
        self._machines = _machines(snapshot)
        self._specs = {name: self._adapter.machine(*self._machines[name]) for name in sorted(self._machines)}
        self._known = {}
        self.cluster = BulkCluster(self._policy)
        self.cluster.add_machines(list(self._specs.values()))
        for relation in sorted(snapshot.relations, key=lambda r: r.name):
            self.cluster.declare_relation(relation)
        for count in snapshot.relation_counts:
            row = np.array([self.cluster.row(count.machine)])
            self.cluster.relation_store.count_all(count.relation, row, count.members, count.holders)
        for places in frame.places:
            self.cluster.places.append(places)
        self._relations = snapshot.relations, snapshot.relation_counts
        self._declare_groups(snapshot)
        self._submit_pending(snapshot.pending)

    def _declare_groups(self, snapshot: Snapshot) -> None:
        """Members of a group that was not declared are tasks like all others."""
        names = {group.name for group in snapshot.task_groups}
        for name in [name for name in self.cluster.groups if name not in names]:
            del self.cluster.groups[name]
        for group in snapshot.task_groups:
            if self.cluster.groups.get(group.name) != group.minimum:
                self.cluster.declare_group(group.name, max(1, group.minimum))

    def _submit_pending(self, tasks: Sequence[Task]) -> None:
        tasks = sorted(tasks, key=_ARRIVAL)
        classes = [self._class(t, t.widths_milli[0]) for t in tasks]
        for task_class in sorted(set(classes), key=class_key):
            self.cluster.intern(task_class)
        self._submit(tasks, classes)
        for task in tasks:
            self._known[task.name] = task, task.widths_milli[0], ""

    def _submit_running(self, running: Sequence[Running]) -> None:
        running = sorted(running, key=_TASK_NAME)
        classes = [self._class(r.task, r.width_milli, placed=True) for r in running]
        self._bind(self._submit([r.task for r in running], classes), running)

    def _class(self, task: Task, width_milli: int, placed: bool = False) -> TaskClass:
        behaviour = self._behaviours.get(task.name) if self._behaviours else None
        return self._adapter.task_class(task, width_milli, placed, behaviour)

    def _submit(self, tasks: Sequence[Task], classes: Sequence[TaskClass]) -> IntArray:
        # Thousands of tasks have the same class, and to compare classes takes a while.
        number = {i: self.cluster.intern(c) for i, c in {id(c): c for c in classes}.items()}
        numbers = np.array([number[id(c)] for c in classes], dtype=np.int64)
        created_s = np.array([t.submit_s for t in tasks], dtype=np.float64)
        return self.cluster.submit(numbers, created_s, [t.name for t in tasks])

    def _bind(self, rows: IntArray, running: Sequence[Running]) -> None:
        """Tasks start; each is predicted to end on its width alone, its progress is believed from the same model."""
        cluster = self.cluster
        names = [r.machine for r in running]
        machines = np.array(list(map(cluster.row, names)), dtype=np.int64)
        start_s = np.array([r.start_s for r in running], dtype=np.float64)
        left = 1.0 - np.array([r.task.done for r in running], dtype=np.float64)
        lasting_s = cluster.lasting_s()[cluster.task_class[rows], cluster.kind[machines]]
        end_s = np.full(len(running), inf)
        ends = np.isfinite(lasting_s)
        end_s[ends] = start_s[ends] + lasting_s[ends] * left[ends]
        cluster.bind(rows, machines, end_s)
        known = zip([r.task for r in running], [r.width_milli for r in running], names, strict=True)
        self._known.update(zip([r.task.name for r in running], known, strict=True))

    # Differences

    def _apply(self, snapshot: Snapshot) -> str:
        """Tell the cluster what is different; why that is not enough, empty if it is."""
        cluster, applied = self.cluster, self.upkeep.applied
        machines = _machines(snapshot)
        changed = [name for name, found in machines.items() if self._machines.get(name, found) != found]
        specs = {name: self._adapter.machine(*machines[name]) for name in changed}
        if any(spec.kind != self._specs[name].kind for name, spec in specs.items()):
            return "machine_kinds"
        if any(spec.labels != self._specs[name].labels for name, spec in specs.items()):
            return "machine_labels"
        leaving, submitted, started, stopped = self._differences(snapshot)
        cluster.leave(np.array([cluster.task_row(name) for name in leaving], dtype=np.int64))
        for name in leaving:
            del self._known[name]
        gone = sorted(self._machines.keys() - machines.keys())
        if gone:
            cluster.remove_machines(gone)
            for name in gone:
                del self._specs[name]
        new = sorted(machines.keys() - self._machines.keys())
        self._machines = machines
        if new:
            more = {name: self._adapter.machine(*machines[name]) for name in new}
            cluster.add_machines(list(more.values()))
            self._specs |= more
        for name, spec in specs.items():
            self._reread(spec, self._specs[name])
            self._specs[name] = spec
        self._declare_groups(snapshot)
        self._submit_pending(submitted)
        self._submit_running([r for r in started if r.task.name not in self._known])
        ours = [r for r in started if r.task.name in self._known and not self._known[r.task.name][2]]
        self._bind(np.array([cluster.task_row(r.task.name) for r in ours], dtype=np.int64), ours)
        for what, count in (
            ("machines_added", len(new)),
            ("machines_removed", len(gone)),
            ("machines_changed", len(specs)),
            ("tasks_submitted", len(submitted)),
            ("tasks_started", len(started)),
            ("tasks_left", len(leaving) - stopped),
        ):
            if count:
                applied[what] += count
        return self._disorder(snapshot, bool(new or gone), bool(submitted))

    def _differences(self, snapshot: Snapshot) -> tuple[list[str], list[Task], list[Running], int]:
        """Tasks to take out, to submit, and to start; and how many of the first are only to come back as others."""
        known = self._known
        leaving: list[str] = []
        submitted: list[Task] = []
        started: list[Running] = []
        again = 0
        there = set()
        for task in snapshot.pending:
            there.add(task.name)
            old = known.get(task.name)
            if old is not None and not old[2] and _same(old[0], task) and old[1] == task.widths_milli[0]:
                continue
            if old is not None:
                leaving.append(task.name)
                again += 1
            submitted.append(task)
        for r in snapshot.running:
            name = r.task.name
            there.add(name)
            old = known.get(name)
            if old is not None and _same(old[0], r.task) and old[1] == r.width_milli and old[2] in ("", r.machine):
                if not old[2]:
                    started.append(r)
                continue
            if old is not None:
                leaving.append(name)
                again += 1
            started.append(r)
        leaving += [name for name in known if name not in there]
        return leaving, submitted, started, again

    def _reread(self, spec: MachineSpec, old: MachineSpec) -> None:
        if spec.allocatable != old.allocatable:
            self.cluster.resize(spec.name, dict(spec.allocatable))
        for feature in sorted({*spec.readings, *spec.limits, *old.readings, *old.limits}):
            now = spec.readings.get(feature, 0.0), spec.limits.get(feature, inf)
            if now != (old.readings.get(feature, 0.0), old.limits.get(feature, inf)):
                self.cluster.read(spec.name, feature, *now)

    def _disorder(self, snapshot: Snapshot, machines: bool, tasks: bool) -> str:
        """What would have another place in a cluster made afresh; empty if nothing has."""
        cluster = self.cluster
        if machines:
            rows = np.flatnonzero(cluster.alive)
            names = [cluster.names[row] for row in rows.tolist()]
            if names != sorted(map(str, names)):
                return "machine_order"
            there, first = np.unique(cluster.kind[rows], return_index=True)
            if not _ascending(first) or len(there) < len(cluster.kinds):
                return "kind_order"
        if tasks:
            rows = np.array([cluster.task_row(t.name) for t in sorted(snapshot.pending, key=_ARRIVAL)], dtype=np.int64)
            if not _ascending(cluster.sequence[rows]):
                return "arrival_order"
            present = np.unique(cluster.task_class[rows]).tolist()
            if sorted(present, key=lambda c: class_key(cluster.classes[c])) != present:
                return "class_order"
        return ""


def _machines(snapshot: Snapshot) -> dict[str, tuple[Machine, tuple[Service, ...]]]:
    services = by_machine(snapshot.services)
    return {m.name: (m, tuple(sorted(services[m.name], key=lambda s: s.name))) for m in snapshot.machines}


def _same(old: Task, task: Task) -> bool:
    """Whether a task is still what it was, but for what does not matter here, such as the rounds that it has waited."""
    return old is task or _essence(old) == _essence(task)


def _essence(task: Task) -> tuple[object, ...]:
    return (
        task.profile, task.scale, task.memory_mib, task.resources, task.priority, task.endless, task.threads,
        task.machines, task.submit_s, task.group, task.holds, task.joins, task.done, task.spread_over, task.wishes,
        task.run_s, task.interference_class, task.input_mb, task.locality, task.number,
    )  # fmt: skip


def _ascending(values: IntArray) -> bool:
    return bool((np.diff(values) > 0).all())
