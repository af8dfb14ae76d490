"""What a what-if changes of the cluster that a decision at linear prices is made on, by its events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from flowsched.cluster.booked_tasks import fixed
from flowsched.cluster.machine_arrays import UNLIMITED
from flowsched.cluster.snapshot import MILLI, Snapshot, Task
from flowsched.cluster.task_class import MachineSpec
from flowsched.cluster.task_rows import PENDING, TaskRows
from flowsched.inspector.change import Changes, NewMachine, NewWidth, to_copy
from flowsched.inspector.record_view import Part
from flowsched.relations.relation import MACHINE
from flowsched.round.linear.bulk_prices import BulkPrices
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.priced_classes import PricedClasses
from flowsched.round.linear.snapshot_adapter import places_order
from flowsched.support.arrays import IntArray
from flowsched_models.catalogue import Catalogue

CPU, MEMORY = "cpu", "memory"
HOSTNAME_KEYS = frozenset({MACHINE, "kubernetes.io/hostname"})
"""Keys of relations whose domains are single machines, so that a copied machine is a domain of its own."""
_MIB = 1 << 20
_PODS = "pods"


@dataclass(frozen=True)
class Footprint:
    """What a placed task takes of a machine, as linear prices count it."""

    needs: tuple[tuple[str, int], ...]
    effects: tuple[int, ...]
    """What it adds to the first readings, those that last beyond its round."""
    holds: tuple[str, ...]
    joins: tuple[str, ...]


@dataclass(eq=False)
class ChangedCluster:
    """The cluster of a decision at linear prices while it is changed, and what there is to tell about it."""

    cluster: ClusterRows
    notes: list[str] = field(default_factory=list)

    def changed(self) -> ClusterRows:
        """The changed machines, only read from now on, beside tasks that wait; what runs is known as sums only."""
        cluster, tasks, machines = self.cluster, self.cluster.tasks, self.cluster.machines
        pending = tasks.waiting()
        present = sorted(set(tasks.task_class[pending].tolist()))
        used = sorted({cluster.classes[c].places for c in present})
        places = {n: cluster.classes.places.places[n].only(machines.alive) for n in used}
        if not isinstance(cluster.classes.policy, BulkPrices):
            # Numbered by what they are, as those of a snapshot.
            places = dict(sorted(places.items(), key=lambda entry: places_order(entry[1])))
        classes = PricedClasses(cluster.classes.policy, cluster.classes.resources)
        classes.price_on(machines.kinds)
        place = {n: classes.places.intern(found) for n, found in places.items()}
        number = np.zeros(len(cluster.classes), dtype=np.int64)
        for c in present:
            number[c] = classes.intern(replace(cluster.classes[c], places=place[cluster.classes[c].places]))
        members = cluster.members_elsewhere | cluster.running_members()
        found = replace(cluster, tasks=TaskRows(), classes=classes, members_elsewhere=members)
        names = [tasks.name(row) for row in pending.tolist()]
        found.submit(number[tasks.task_class[pending]], tasks.created_s[pending], names)
        return found

    def change(self, changes: Changes, snapshots: Sequence[Snapshot]) -> None:
        """Make all changes; ``snapshots``: of the record's levels at forecast prices, which know types."""
        cluster = self.cluster
        for machine in changes.machines:
            self._add_machine(machine, snapshots)
        forecast = {m.name for snapshot in snapshots for m in snapshot.machines}
        for name in changes.drains:
            if name in cluster.machines.names:
                self._drain(name, name in forecast)
        waits = self._tasks()
        cluster.leave(np.array([waits[task] for task in changes.without if task in waits], dtype=np.int64))
        for width in changes.widths:
            if width.task in waits:
                self._set_width(width, waits[width.task])

    def commit(self, placed: Counter[tuple[Footprint, str]], sign: int) -> None:
        """Put tasks on machines, or take them off; machines that the cluster does not have are skipped."""
        cluster, store = self.cluster, self.cluster.machines.relation_store
        known = {relation.name for relation in store.relations()}
        by_kind: dict[Footprint, dict[int, int]] = {}
        there = set(cluster.machines.names)
        for (footprint, machine), count in placed.items():
            if machine in there:
                by_kind.setdefault(footprint, {})[cluster.row(machine)] = sign * count
        for footprint, counts in by_kind.items():
            rows: IntArray = np.array(list(counts), dtype=np.int64)
            times = np.array(list(counts.values()), dtype=np.int64)
            # Not the counts of what a round places: each begins with its own.
            cluster.count(rows, times, dict(footprint.needs), np.array(footprint.effects, dtype=np.int64))
            for name in known & {*footprint.holds, *footprint.joins}:
                store.count_all(name, rows, times * (name in footprint.joins), times * (name in footprint.holds))

    def at_most_empty(self) -> None:
        """What was freed by estimate is no more than there was."""
        machines = self.cluster.machines
        np.minimum(machines.free, machines.allocatable, out=machines.free)
        np.maximum(machines.readings, 0, out=machines.readings)

    def _tasks(self) -> dict[str, int]:
        """Rows of the tasks that wait, by name."""
        return {
            self.cluster.tasks.name(row): row for row in np.flatnonzero(self.cluster.tasks.state == PENDING).tolist()
        }

    def _add_machine(self, new: NewMachine, snapshots: Sequence[Snapshot]) -> None:
        """Only the machine is copied, not what runs there and is served there."""
        cluster = self.cluster
        copied = to_copy([name for name in cluster.machines.names if name is not None], new.like, snapshots)
        if copied is None:
            self.notes.append(f"a bulk round does not know {new.like}, so it does not know {new.name} either")
            return
        like = cluster.row(copied)
        allocatable = dict(zip(cluster.classes.resources, cluster.allocatable[like].tolist(), strict=True))
        (row,) = cluster.add_machines(
            [MachineSpec(new.name, cluster.machines.kinds[cluster.machines.kind[like]], allocatable)]
        ).tolist()
        like = cluster.row(copied)  # others may have other rows now
        labels = cluster.machines.relation_store.labels(like)
        # Domains of a record are numbers.
        own = {key: f"of {new.name}" if key in HOSTNAME_KEYS else value for key, value in labels.items()}
        cluster.machines.relation_store.put_machine(row, own)
        cluster.classes.places.resemble(row, like)

    def _drain(self, name: str, forecast: bool) -> None:
        cluster = self.cluster
        at = cluster.row(name)
        if (cluster.allocatable[at] - cluster.free[at]).any():
            what = "what no forecast knows" if forecast else "what runs"
            self.notes.append(f"of {what} on {name} a bulk round has sums only: it is gone with it, and not moved")
        if (cluster.limits[at] < UNLIMITED).any() and not forecast:
            self.notes.append(f"latency services on {name} are lost")
        cluster.remove_machines([name])

    def _set_width(self, width: NewWidth, task: int) -> None:
        """It is of a class of its own, unless its class has no other task."""
        cluster = self.cluster
        number = int(cluster.tasks.task_class[task])
        old = cluster.classes[number]
        waiting = cluster.tasks.task_class[cluster.tasks.state == PENDING]
        name = old.name
        if int((waiting == number).sum()) > 1 and isinstance(cluster.classes.policy, BulkPrices):
            names = {cluster.classes[c].name for c in np.unique(waiting).tolist()}
            name = width.task if width.task not in names else f"{width.task}/{width.milli}m"
            if old.name in cluster.classes.policy.waiting:
                cluster.classes.policy.waiting[name] = cluster.classes.policy.waiting[old.name]
        known = len(cluster.classes)
        new = cluster.intern(replace(old, name=name, width_milli=width.milli))
        cluster.change_class(np.array([task], dtype=np.int64), new)
        if new == known:  # next to the one that it leaves
            cluster.order_classes([*range(number + 1), new, *range(number + 1, known)])


def footprint(task: Task, width_milli: int, catalogue: Catalogue, needs: Mapping[str, int] | None = None) -> Footprint:
    """What a task of a level at forecast prices takes; computed where the record does not say what it needs."""
    profile = catalogue.jobs[task.profile]
    cores = task.request_milli / MILLI
    if needs is None:
        needs = {MEMORY: task.memory_mib * _MIB, _PODS: 1, **dict(task.resources)}
    needs = {**needs, CPU: max(width_milli, task.request_milli, needs.get(CPU, 0))}
    effects = fixed(profile.pressure * cores), fixed(profile.sensitivity * min(1.0, cores)), 0
    return Footprint(tuple(needs.items()), effects, task.holds, task.joins)


def footprints(part: Part) -> Counter[tuple[Footprint, str]]:
    """The placements of a level at linear prices."""
    of_class = {}
    lasting = [not feature.get("of_round", False) for feature in part.linear["features"]]
    for name, d in part.priced_classes.items():
        effects = tuple(int(effect) for effect, lasts in zip(d["effects"], lasting, strict=True) if lasts)
        of_class[name] = Footprint(tuple(d["needs"].items()), effects, tuple(d["holds"]), tuple(d["joins"]))
    return Counter((of_class[part.class_of[p.task]], p.machine) for p in part.placements)
