"""What a what-if changes of the input of a bulk round, in place."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from flowsched.cluster.fleet import fixed
from flowsched.cluster.machine_rows import UNLIMITED
from flowsched.cluster.snapshot import MILLI, Snapshot, Task
from flowsched.inspector.change import Changes, NewMachine, NewWidth, to_copy
from flowsched.inspector.record_view import Part
from flowsched.relations.relation import MACHINE
from flowsched.relations.topology_counts import TopologyCounts
from flowsched.scale.bulk_input import BulkInput
from flowsched.scale.demand import Demand
from flowsched.support.arrays import IntArray
from flowsched_models.catalogue import Catalogue

CPU, MEMORY = "cpu", "memory"
HOSTNAME_KEYS = frozenset({MACHINE, "kubernetes.io/hostname"})
"""Keys of relations whose domains are single machines, so that a copied machine is a domain of its own."""
_MIB = 1 << 20
_PODS = "pods"
_ARRAYS = ("allocatable", "free", "kind", "readings", "limits")


@dataclass(frozen=True)
class Footprint:
    """What a placed task takes of a machine, as bulk rounds count it."""

    needs: tuple[tuple[str, int], ...]
    effects: tuple[int, ...]
    """What it adds to the first readings, those that last beyond its round."""
    holds: tuple[str, ...]
    joins: tuple[str, ...]


@dataclass(eq=False)
class ChangedBulk:
    """The input of a bulk round while it is changed, and what there is to tell about it."""

    given: BulkInput
    notes: list[str] = field(default_factory=list)

    def change(self, changes: Changes, snapshots: Sequence[Snapshot]) -> None:
        """Make all changes; ``snapshots``: of the record's searches, which know types."""
        given = self.given
        for machine in changes.machines:
            self._add_machine(machine, snapshots)
        searched = {m.name for snapshot in snapshots for m in snapshot.machines}
        for name in changes.drains:
            if name in given.names:
                self._drain(name, name in searched)
        gone = set(changes.without)
        if gone:
            given.demands = [
                demand_of(d, [t for t in d.tasks if t not in gone]) if gone & set(d.tasks) else d for d in given.demands
            ]
            given.order = tuple(t for t in given.order if t not in gone)
        for width in changes.widths:
            self._set_width(width)

    def commit(self, placed: Counter[tuple[Footprint, str]], sign: int) -> None:
        """Put tasks on machines, or take them off; machines that the input does not have are skipped."""
        given = self.given
        row = {name: i for i, name in enumerate(given.names)}
        by_kind: dict[Footprint, dict[int, int]] = {}
        for (footprint, machine), count in placed.items():
            if machine in row:
                by_kind.setdefault(footprint, {})[row[machine]] = count
        for footprint, counts in by_kind.items():
            rows: IntArray = np.array(list(counts), dtype=np.int64)
            number = sign * np.array(list(counts.values()), dtype=np.int64)
            for resource, amount in footprint.needs:
                if resource in given.resources:
                    given.free[rows, given.resources.index(resource)] -= number * amount
            # Not the counts of what a round places: each begins with its own.
            effects = np.array(footprint.effects, dtype=np.int64)
            given.readings[rows[:, None], np.arange(len(effects))] += number[:, None] * effects
            for name in dict.fromkeys((*footprint.holds, *footprint.joins)):
                if name in given.relations:
                    each = np.repeat(rows, abs(number))
                    given.relations[name].add(each, name in footprint.holds, name in footprint.joins, sign)

    def at_most_empty(self) -> None:
        """What was freed by estimate is no more than there was."""
        np.minimum(self.given.free, self.given.allocatable, out=self.given.free)
        np.maximum(self.given.readings, 0, out=self.given.readings)

    def _add_machine(self, new: NewMachine, snapshots: Sequence[Snapshot]) -> None:
        given = self.given
        copied = to_copy(given.names, new.like, snapshots)
        if copied is None:
            self.notes.append(f"a bulk round does not know {new.like}, so it does not know {new.name} either")
            return
        like = given.names.index(copied)
        at = bisect_left(given.names, new.name)

        def grown(array: Any) -> Any:
            return np.insert(array, at, array[like], axis=0)

        given.names.insert(at, new.name)
        for name in _ARRAYS:
            setattr(given, name, grown(getattr(given, name)))
        # Only the machine is copied, not what runs there and is served there.
        given.free[at] = given.allocatable[at]
        given.readings[at] = 0
        given.limits[at] = UNLIMITED
        for name, counts in given.relations.items():
            domain, domains = grown(counts.domain), counts.domains
            if counts.relation.key in HOSTNAME_KEYS and domain[at] >= 0:
                domain[at] = domains
                domains += 1
            members, holders = (np.insert(a, at, 0) for a in (counts.members, counts.holders))
            given.relations[name] = TopologyCounts(counts.relation, domain, domains, members, holders)
        given.demands = [replace(d, places=d.places.changed(grown)) for d in given.demands]

    def _drain(self, name: str, searched: bool) -> None:
        given = self.given
        at = given.names.index(name)

        def shrunk(array: Any) -> Any:
            return np.delete(array, at, axis=0)

        if (given.allocatable[at] - given.free[at]).any():
            what = "what no search knows" if searched else "what runs"
            self.notes.append(f"of {what} on {name} a bulk round has sums only: it is gone with it, and not moved")
        if (given.limits[at] < UNLIMITED).any() and not searched:
            self.notes.append(f"latency services on {name} are lost")
        del given.names[at]
        for key in _ARRAYS:
            setattr(given, key, shrunk(getattr(given, key)))
        for key, counts in given.relations.items():
            arrays = (shrunk(a) for a in (counts.members, counts.holders))
            given.relations[key] = TopologyCounts(counts.relation, shrunk(counts.domain), counts.domains, *arrays)
        given.demands = [replace(d, places=d.places.changed(shrunk)) for d in given.demands]

    def _set_width(self, width: NewWidth) -> None:
        demands: list[Demand] = []
        names = Counter(d.name for d in self.given.demands)
        for demand in self.given.demands:
            if width.task not in demand.tasks:
                demands.append(demand)
                continue
            needs = {**demand.needs, CPU: width.milli}
            others = [t for t in demand.tasks if t != width.task]
            if not others:
                demands.append(replace(demand, needs=needs))
                continue
            name = width.task if width.task not in names else f"{width.task}/{width.milli}m"
            alone = replace(demand_of(demand, [width.task]), name=name, needs=needs)
            demands += [demand_of(demand, others), alone]
        self.given.demands = demands


def demand_of(demand: Demand, tasks: Sequence[str]) -> Demand:
    """The same for some of its tasks."""
    since = dict(zip(demand.tasks, demand.since_s, strict=True)) if demand.since_s else {}
    return replace(demand, tasks=tuple(tasks), since_s=tuple(since[task] for task in tasks if task in since))


def footprint(task: Task, width_milli: int, catalogue: Catalogue, needs: Mapping[str, int] | None = None) -> Footprint:
    """What a task of a search takes; computed where the record does not say what it needs."""
    profile = catalogue.jobs[task.profile]
    cores = task.request_milli / MILLI
    if needs is None:
        needs = {MEMORY: task.memory_mib * _MIB, _PODS: 1, **dict(task.resources)}
    needs = {**needs, CPU: max(width_milli, task.request_milli, needs.get(CPU, 0))}
    effects = fixed(profile.pressure * cores), fixed(profile.sensitivity * min(1.0, cores)), 0
    return Footprint(tuple(needs.items()), effects, task.holds, task.joins)


def footprints(part: Part) -> Counter[tuple[Footprint, str]]:
    """The placements of a bulk part."""
    of_class = {}
    lasting = [not feature.get("of_round", False) for feature in part.network["features"]]
    for name, d in part.demands.items():
        effects = tuple(int(effect) for effect, lasts in zip(d["effects"], lasting, strict=True) if lasts)
        of_class[name] = Footprint(tuple(d["needs"].items()), effects, tuple(d["holds"]), tuple(d["joins"]))
    return Counter((of_class[part.class_of[p.task]], p.machine) for p in part.placements)
