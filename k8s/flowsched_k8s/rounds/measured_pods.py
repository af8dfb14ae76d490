"""The measured part of a round: pods with a profile or a known run time, and groups that have such members, as the engine's
tasks and back.

The fleet says what is free on every node and what relations count there, whatever takes it; the world says what runs and
when it will end. Both together are the snapshot of which the engine decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.decision import Decisions, Postponement
from flowsched.cluster.fleet import Fleet
from flowsched.cluster.run_time_errors import RunTimeErrors
from flowsched.cluster.snapshot import Machine, RelationCount, Running, Snapshot, Task
from flowsched.gpu.devices import MachineGpus, TaskGpus
from flowsched.pricing.linear.policy import labels_of
from flowsched.relations.relation import Relation, RelationKind, TaskGroup
from flowsched.support.arrays import BoolArray, IntArray
from flowsched_k8s.queue import Cause
from flowsched_k8s.rounds.round_input import Chosen, ClassInput, Fate, Held, KeptBetween, RoundInput
from flowsched_k8s.rounds.why_not import group_waits, held_node, no_room, room
from flowsched_models.runtime import HostFactory

_MIB = 1 << 20
_OWN_FIELDS = ("cpu", "memory")
"""Resources that a machine and a task have a field for."""
_ROUNDED_UP = 1.0 + 1e-9
_ALL_WAIT = re.compile(r"task group .*: (?P<number>\d+) of \d+ (?P<what>are there|could start now); all wait")
"""What the engine says of a group that does not start."""


@dataclass
class MeasuredPods:
    """What the measured parts of one round have decided so far."""

    given: RoundInput
    joined: list[Running] = field(default_factory=list)
    """Pods that this round has placed, as its later parts see them."""
    closed: set[str] = field(default_factory=set)
    """Nodes on which a higher priority has planned a later start or a reservation; lower ones leave them alone."""

    @cached_property
    def _kept(self) -> KeptBetween:
        """What rounds keep; nothing that lasts for a round that remembers nothing of others."""
        return self.given.kept or KeptBetween(HostFactory(self.given.catalogue))

    # In

    def snapshot(self, classes: Sequence[ClassInput]) -> Snapshot:
        """What the engine decides on, for the pods of some classes. Tasks are named by uid, jobs NAMESPACE/NAME."""
        given, world, fleet = self.given, self.given.world, self.given.fleet
        free = fleet.free()[world.rows]
        columns = {r: i for i, r in enumerate(fleet.resources)}
        # Nothing is counted twice: what is a device here is no resource.
        largest = fleet.allocatable()[world.rows]
        scarce = [r for r in scarce_resources(classes, free, largest, columns) if r not in given.gpus.resources]
        relations = _relations(classes, fleet)
        keys = {r.key for r in relations} | {label for c in classes if c.task for label, _, _ in c.task.locality}
        keys |= set(() if given.model is None else labels_of(given.model))
        running = self._running(scarce, [r.name for r in relations])
        names = {n.name for n in world.nodes}
        pending = self._pending(classes, scarce, relations)
        waiting = {t.name for t in pending}
        return Snapshot(
            now_s=given.now_s,
            catalogue=given.catalogue,
            machines=self._machines(free, columns, scarce, keys, running),
            services=self._kept.same_services(world.services),
            running=running,
            pending=pending,
            plan=tuple(p for p in world.plan if p.task in waiting and p.machine in names),
            reservations=tuple(r for r in world.reservations if r.task in waiting and r.machine in names),
            round=given.number,
            relations=tuple(relations),
            task_groups=self._groups(classes),
            relation_counts=self._counts(relations, running),
            gpu_demand=given.gpus.demand if given.gpus.nodes else (),
            run_time_errors=RunTimeErrors(),
            start_errors=given.start_errors,
            learnt_run_times=given.learnt,
        )

    def _machines(
        self,
        free: IntArray,
        columns: Mapping[str, int],
        scarce: Sequence[str],
        keys: set[str],
        running: Sequence[Running],
    ) -> tuple[Machine, ...]:
        """The nodes; each offers what is free, and what those take that the snapshot lists."""
        world, fleet = self.given.world, self.given.fleet
        nothing = np.zeros(len(world.rows), np.int64)
        cpu = nothing + world.cpu_milli
        memory = nothing + world.memory_mib
        if "cpu" in columns:
            cpu += free[:, columns["cpu"]]
        if "memory" in columns:
            memory += free[:, columns["memory"]] // _MIB
        amounts = {r: free[:, columns[r]].copy() if r in columns else nothing.copy() for r in scarce}
        for r in self.joined:
            cpu[world.row_of[r.machine]] += r.width_milli
            memory[world.row_of[r.machine]] += r.task.memory_mib
        for r in running if scarce else ():
            for resource, units in r.task.resources:
                amounts[resource][world.row_of[r.machine]] += units
        gpus_of = self.given.gpus.nodes
        given_out = dict.fromkeys(gpus_of, 0)
        for r in running if gpus_of else ():
            given_out[r.machine] = given_out.get(r.machine, 0) + len(r.devices)
        kept = self._kept
        machines = []
        sizes = zip(world.nodes, cpu.tolist(), memory.tolist(), strict=True)
        for i, (n, milli, mib) in enumerate(sizes):
            labels = sorted(fleet.labels(n.name).items()) if keys else ()
            gpus, kind = None, gpus_of.get(n.name)
            if kind is not None:
                # Less than nothing is free where a node has lost some that are in use: all that it has are taken then.
                idle = max(0, int(free[i, columns[kind.resource]])) if kind.resource in columns else 0
                if count := idle + given_out[n.name]:
                    gpus = MachineGpus(kind.model, count, kind.memory_mib)
            shown = tuple([(key, value) for key, value in labels if key in keys])
            offered = tuple([(r, int(amounts[r][i])) for r in scarce])
            machines.append(kept.machine((n.name, n.type, milli, mib, n.vcpus, shown, offered, gpus)))
        return kept.same_machines(machines)

    def _running(self, scarce: Sequence[str], relations: Sequence[str]) -> tuple[Running, ...]:
        """What runs, with what this part's tasks may ask of it: resources, devices, relations, groups."""
        given = self.given
        found = self._with_devices((*given.world.there, *self.joined))
        done = [*given.world.done, *(r.progress for r in self.joined)]
        if scarce or relations or given.group_of:
            found = self._rich(found, scarce, relations)
        return tuple([r.at(progress) for r, progress in zip(found, done, strict=True)])

    def _rich(self, found: tuple[Running, ...], scarce: Sequence[str], relations: Sequence[str]) -> tuple[Running, ...]:
        """Running pods with what is asked of them; those that were asked the same before are the same objects."""
        given, needs = self.given, self.given.world.needs
        kept = self._kept.running
        rich = []
        for r in found:
            uid = r.task.name
            took = needs.get(uid)
            holds, joins = given.fleet.relations_of(uid, relations)
            amounts = dict(r.task.resources) if took is None else took
            resources = tuple([(name, amounts[name]) for name in scarce if amounts.get(name)])
            asked = resources, holds, joins, given.group_of.get(uid)
            known = kept.get(uid)
            if known is not None and known[0] is r and known[1] == asked:
                rich.append(known[2])
                continue
            task = replace(r.task, resources=resources, holds=holds, joins=joins, group=asked[3])
            rich.append(r if task == r.task else replace(r, task=task))
            kept[uid] = r, asked, rich[-1]
        if len(kept) > 2 * len(found):
            for uid in kept.keys() - {r.task.name for r in found}:
                del kept[uid]
        return tuple(rich)

    def _with_devices(self, running: tuple[Running, ...]) -> tuple[Running, ...]:
        """What runs on devices has the first ones that are left; which ones it has is the kubelet's business."""
        world, gpus_of = self.given.world, self.given.gpus.nodes
        if not gpus_of:
            return running
        given_out = dict.fromkeys(gpus_of, 0)
        found = []
        for r in running:
            gpus, wanted = gpus_of.get(r.machine), r.task.gpus
            if gpus is not None and (count := world.needs.get(r.task.name, {}).get(gpus.resource, 0)):
                wanted = TaskGpus(count)
            if wanted is None:
                found.append(r)
                continue
            first = given_out[r.machine]
            given_out[r.machine] += wanted.count
            devices = tuple(range(first, given_out[r.machine]))
            found.append(replace(r, task=replace(r.task, gpus=wanted), devices=devices))
        return tuple(found)

    def _counts(self, relations: Sequence[Relation], running: Sequence[Running]) -> tuple[RelationCount, ...]:
        """Members and holders that are not listed as running tasks."""
        world, fleet = self.given.world, self.given.fleet
        found = []
        for relation in relations:
            name = relation.name
            counts = fleet.topology_counts(name, world.rows)
            members, holders = counts.members, counts.holders
            for r in running:
                at = world.row_of[r.machine]
                members[at] -= name in r.task.joins
                holders[at] -= name in r.task.holds
            found += [
                RelationCount(world.nodes[i].name, name, int(members[i]), int(holders[i]))
                for i in np.flatnonzero((members != 0) | (holders != 0)).tolist()
            ]
        return tuple(found)

    def _groups(self, classes: Sequence[ClassInput]) -> tuple[TaskGroup, ...]:
        """Groups with their minimum, less the members that are placed and that forecasts do not see."""
        named = {c.group for c in classes if c.group is not None}
        return tuple(
            replace(g, minimum=max(0, g.minimum - self._unseen(g.name))) for g in self.given.groups if g.name in named
        )

    def _unseen(self, group: str) -> int:
        """Placed members of a group that are not among the running tasks."""
        given = self.given
        seen = sum(given.group_of.get(r.task.name) == group for r in given.world.there)
        return given.group_members.get(group, 0) - seen

    def _pending(
        self, classes: Sequence[ClassInput], scarce: Sequence[str], relations: Sequence[Relation]
    ) -> tuple[Task, ...]:
        given, world = self.given, self.given.world
        names = np.array([n.name for n in world.nodes], dtype=object)
        devices = {
            resource: np.array(
                [(gpus := given.gpus.nodes.get(n.name)) is not None and gpus.resource == resource for n in world.nodes],
                np.bool_,
            )
            for resource in given.gpus.resources
        }
        spreads = {r.name for r in relations if r.kind is RelationKind.SPREAD}
        lists: dict[bytes, tuple[str, ...]] = {}

        def listed(mask: BoolArray) -> tuple[str, ...]:
            key = mask.tobytes()
            if key not in lists:
                lists[key] = tuple(names[mask].tolist())
            return lists[key]

        def wished(costs: NDArray[np.float64]) -> tuple[tuple[str, float], ...]:
            there = np.flatnonzero(np.isfinite(costs) & (costs != 0.0))
            return tuple(zip(names[there].tolist(), costs[there].tolist(), strict=True))

        pending = []
        for c in classes:
            assert c.task is not None, "only classes whose pods are tasks"
            open_ = c.allowed[world.rows].copy()
            for name in world.row_of.keys() & {*self.closed, held_node(given, c)}:
                open_[world.row_of[name]] = False
            asked = [resource for resource in devices if c.needs.get(resource)]
            for resource in asked:
                open_ &= devices[resource]
            eligible = c.eligible[world.rows]
            compared = not spreads.isdisjoint(c.holds) and not np.array_equal(eligible, open_)
            task = replace(
                c.task,
                priority=c.priority,
                machines=None if open_.all() else listed(open_),
                spread_over=listed(eligible) if compared else None,
                resources=tuple((r, c.needs[r]) for r in scarce if c.needs.get(r)),
                holds=c.holds,
                joins=c.joins,
                group=c.group,
                wishes=wished(c.preference[world.rows]),
                counted=c.counted,
                gpus=TaskGpus(c.needs[asked[0]], models=c.gpu_models) if asked else None,
            )
            for uid, since in zip(c.uids, c.since_s, strict=True):
                pending.append(
                    replace(
                        task,
                        name=uid,
                        job=given.titles.get(uid, uid),
                        submit_s=min(since, given.now_s),
                        rounds_waited=given.rounds_waited.get(uid, 0),
                    )
                )
        return tuple(pending)

    # Out

    def join(self, task: Task, machine: str, now_s: float) -> None:
        """A pod that a cost model has placed, and that is booked, runs there for the parts that follow."""
        self.joined.append(Running(task, machine, task.widths_milli[0], 1, (), now_s, now_s))

    def take(self, decisions: Decisions, snapshot: Snapshot, by_uid: Mapping[str, ClassInput]) -> list[Chosen]:
        """Book what the engine has placed, and remember what the parts that follow must leave alone."""
        tasks = {t.name: t for t in snapshot.pending}
        chosen = []
        for p in decisions.placements:
            c = by_uid[p.task]
            book(self.given.fleet, c, p.task, p.machine, p.width_milli)
            place = p.machine, p.width_milli, p.threads, p.cores
            self.joined.append(Running(tasks[p.task], *place, snapshot.now_s, snapshot.now_s, devices=p.devices))
            found = Chosen(p.task, p.machine, p.cost, p.terms, holds=c.holds, joins=c.joins)
            if c.measured:  # A member of a group without a profile has no measured width and no measured threads.
                found = replace(found, width_milli=p.width_milli, threads=p.threads, cores=p.cores)
            chosen.append(found)
        self.closed |= {w.planned.machine for w in decisions.postponements if w.planned is not None}
        self.closed |= {r.machine for r in decisions.reservations}
        return chosen

    def held(self, decisions: Decisions, by_uid: Mapping[str, ClassInput]) -> list[Held]:
        """Why the others wait."""
        incomplete = self._incomplete(decisions, by_uid)
        found = []
        together: dict[tuple[str, str], list[Postponement]] = {}
        for w in decisions.postponements:
            c = by_uid[w.task]
            if c.group in incomplete:
                together.setdefault((c.name, w.reason), []).append(w)
            elif room(self.given, c).any():
                numbers = f"waiting costs {w.cost:.2f}, waited {w.waited_s:.0f} s"
                text = f"postponed: {w.reason} ({numbers})"
                found.append(Held((w.task,), Fate.POSTPONED, text, frozenset({Cause.PROFILE})))
            else:
                found.append(no_room(self.given, c, (w.task,)))
        for (_, reason), waiting in together.items():
            uids = tuple(w.task for w in waiting)
            c = by_uid[uids[0]]
            found.append(group_waits(self.given, c, uids, self._group_text(c, reason)))
        return found

    def _group_text(self, c: ClassInput, reason: str) -> str:
        """The same words as for groups at linear prices: operators look for them."""
        counted = _ALL_WAIT.fullmatch(reason)
        group = next((g for g in self.given.groups if g.name == c.group), None)
        if counted is None or group is None:
            return reason
        number = int(counted["number"]) + self._unseen(group.name)
        there = "are here" if counted["what"] == "are there" else "could be placed"
        return f"group {group.name}: {number} of {group.minimum} {there}"

    def _incomplete(self, decisions: Decisions, by_uid: Mapping[str, ClassInput]) -> set[str | None]:
        """Groups that have too few members even with those that this part has placed."""
        given = self.given
        placed = [by_uid[p.task].group for p in decisions.placements]
        return {g.name for g in given.groups if given.group_members.get(g.name, 0) + placed.count(g.name) < g.minimum}


def scarce_resources(
    classes: Sequence[ClassInput], free: IntArray, largest: IntArray, columns: Mapping[str, int]
) -> list[str]:
    """Resources besides CPU and memory that some node has too little of for all pods that ask for them and that its CPU,
    or its memory, has room for. ``free`` and ``largest``: [nodes, resources] what is free, and what there is in all.

    Nearly always CPU or memory runs out first; the engine need not count what cannot run out.
    """
    asking: dict[str, list[ClassInput]] = {}
    for c in classes:
        for resource, amount in c.needs.items():
            if resource not in _OWN_FIELDS and amount > 0:
                asking.setdefault(resource, []).append(c)
    nothing = np.zeros(len(free), np.int64)

    def column(of: IntArray, resource: str) -> IntArray:
        # No column: no node that was ever there had any of it.
        return of[:, columns[resource]] if resource in columns else nothing

    def runs_out(resource: str) -> bool:
        asked = asking[resource]
        most = nothing + float(sum(c.needs[resource] * len(c.uids) for c in asked))
        for field_ in _OWN_FIELDS:
            if least := min(c.needs.get(field_, 0) / c.needs[resource] for c in asked):
                # So much of the resource goes with all CPU, or memory, that the node has.
                most = np.minimum(most, column(largest, field_) / least)
        # A quotient may be rounded to below the whole number that it is.
        return bool((column(free, resource) < np.floor(most * _ROUNDED_UP)).any())

    return sorted(filter(runs_out, asking))


def _relations(classes: Sequence[ClassInput], fleet: Fleet) -> list[Relation]:
    """Relations that bind or count pods of some classes. Raises ``KeyError`` for one that was not declared."""
    found = []
    for name in sorted({name for c in classes for name in (*c.holds, *c.joins)}):
        relation = fleet.relation(name)
        if relation is None:
            raise KeyError(f"relation {name} was not declared")
        found.append(relation)
    return found


def book(fleet: Fleet, c: ClassInput, uid: str, node: str, width_milli: int = 0) -> None:
    """Count a pod of a class where the round has put it, at its width if that is more than its request."""
    needs = {**c.needs, "cpu": max(width_milli, c.needs.get("cpu", 0))}
    fleet.book(uid, node, needs, sensitivity=c.sensitivity, pressure=c.pressure, holds=c.holds, joins=c.joins)
