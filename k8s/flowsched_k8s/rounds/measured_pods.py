"""The measured part of a round: pods with a profile or a known run time, and groups that have such members, as the engine's
tasks and back.

``machines`` say what is free on every node and what relations count there, whatever takes it; the state of the pool says
what runs and when it will end. Both together are the snapshot of which the engine decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.cluster.decision import Decisions, Postponement
from flowsched.cluster.machine_rows import MachineRows
from flowsched.cluster.run_time_errors import RunTimeErrors
from flowsched.cluster.snapshot import Machine, RelationCount, Running, Snapshot, Task, devices_beside
from flowsched.gpu.devices import MachineGpus, TaskGpus
from flowsched.pricing.linear.policy import labels_of
from flowsched.relations.relation import Relation, RelationKind, TaskGroup
from flowsched.support.arrays import BoolArray, IntArray
from flowsched_k8s.causes import Cause
from flowsched_k8s.rounds.round_input import Chosen, ClassInput, Fate, Held, KeptBetween, RoundInput
from flowsched_k8s.rounds.why_not import group_waits, held_nodes, no_room, room
from flowsched_models.runtime import HostFactory

_MIB = 1 << 20
_OWN_FIELDS = ("cpu", "memory")
"""Resources that a machine and a task have a field for."""
_ROUNDED_UP = 1.0 + 1e-9
_ALL_WAIT = re.compile(r"group .*: (?P<number>\d+) of \d+ (?P<what>are here|could be placed)")
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
        given, machines = self.given, self.given.machines
        order = machines.order()
        free = machines.free[order]
        columns = {r: i for i, r in enumerate(machines.resources)}
        # Nothing is counted twice: what is a device here is no resource.
        largest = machines.allocatable[order]
        scarce = [r for r in scarce_resources(classes, free, largest, columns) if r not in given.gpus.resources]
        relations = _relations(classes, machines)
        keys = {r.key for r in relations} | {label for c in classes if c.task for label, _, _ in c.task.locality}
        keys |= set(() if given.model is None else labels_of(given.model))
        named = [r.name for r in relations]
        given_out = dict.fromkeys(given.gpus.nodes, 0)
        asked = self._asked(scarce, named, given_out)
        joined = [self._answered(_on_devices(r, r.task.gpus, given_out), scarce, named) for r in self.joined]
        offered = self._machines(scarce, keys, asked, joined)
        there = [after for _, after in asked] + joined
        devices = devices_beside(offered, there)
        pending = self._pending(classes, scarce, relations)
        waiting = {t.name for t in pending}
        return replace(
            given.cluster,
            now_s=given.now_s,
            round=given.number,
            machines=offered,
            running=given.running.beside(offered, devices, instead=asked, more=joined),
            pending=pending,
            plan=tuple(p for p in given.cluster.plan if p.task in waiting and machines.row(p.machine) is not None),
            reservations=tuple(
                r for r in given.cluster.reservations if r.task in waiting and machines.row(r.machine) is not None
            ),
            relations=tuple(relations),
            task_groups=self._groups(classes),
            relation_counts=self._counts(relations, there),
            gpu_demand=given.gpus.demand if given.gpus.nodes else (),
            run_time_errors=RunTimeErrors(),
            start_errors=given.start_errors,
            learnt_run_times=given.learnt,
        )

    @cached_property
    def _row_of(self) -> Mapping[str, int]:
        """Index of each node by name."""
        return {m.name: i for i, m in enumerate(self.given.cluster.machines)}

    def _machines(
        self,
        scarce: Sequence[str],
        keys: set[str],
        asked: Sequence[tuple[Running, Running]],
        joined: Sequence[Running],
    ) -> tuple[Machine, ...]:
        """The nodes; each offers what is free, and what those take that the snapshot lists."""
        given, machines, nodes = self.given, self.given.machines, self.given.cluster.machines
        free = machines.free[machines.rows_of([m.name for m in nodes])]
        columns = {r: i for i, r in enumerate(machines.resources)}

        def free_of(resource: str) -> IntArray:
            found: IntArray = free[:, columns[resource]] if resource in columns else np.zeros(len(nodes), np.int64)
            return found

        there = given.running.columns
        cpu, memory = (
            np.bincount(there.machine, amounts, len(nodes)).astype(np.int64)
            for amounts in (there.width_milli, there.memory_mib)
        )
        cpu += free_of("cpu")
        memory += free_of("memory") // _MIB
        for milli, mib, name in (
            *((s.width_milli, s.memory_mib, s.machine) for s in given.cluster.services),
            *((r.width_milli, r.task.memory_mib, r.machine) for r in joined),
        ):
            cpu[self._row_of[name]] += milli
            memory[self._row_of[name]] += mib
        facts = None
        if scarce or keys or given.gpus.nodes:
            amounts = {r: free_of(r).copy() for r in scarce}
            idle = {r: free_of(r) for r in given.gpus.resources}
            devices = dict.fromkeys(given.gpus.nodes, 0)
            for r in (*(after for _, after in asked), *joined):
                for resource, units in r.task.resources:
                    amounts[resource][self._row_of[r.machine]] += units
                if r.devices:
                    devices[r.machine] += len(r.devices)
            facts = []
            for i, node in enumerate(nodes):
                gpus, kind = None, given.gpus.nodes.get(node.name)
                # Less than nothing is free where a node has lost some that are in use: all that it has are taken then.
                if kind is not None and (count := max(0, int(idle[kind.resource][i])) + devices[node.name]):
                    gpus = MachineGpus(kind.model, count, kind.memory_mib)
                labels = sorted(machines.labels(node.name).items()) if keys else ()
                shown = tuple([(key, value) for key, value in labels if key in keys])
                facts.append((shown, tuple([(r, int(amounts[r][i])) for r in scarce]), gpus))
        return self._kept.offers(nodes, cpu, memory, facts)

    def _asked(
        self, scarce: Sequence[str], relations: Sequence[str], given_out: dict[str, int]
    ) -> list[tuple[Running, Running]]:
        """What runs and has anything of what this part's tasks may ask of it, beside the same with the answers.

        ``given_out``: how many devices of each node with GPUs have been given out, which this goes on to count.
        """
        given = self.given
        if not (scarce or relations or given.group_of or given.gpus.nodes):
            return []
        entries = given.running.entries
        with_devices = self._with_devices(entries, given_out)
        found = []
        for r in entries:
            answered = self._answered(with_devices.get(r.task.name, r), scarce, relations)
            if answered is not r:
                found.append((r, answered))
        kept = self._kept.running
        if len(kept) > 2 * len(entries):
            for uid in kept.keys() - {r.task.name for r in entries}:
                del kept[uid]
        return found

    def _answered(self, r: Running, scarce: Sequence[str], relations: Sequence[str]) -> Running:
        """A running pod with what is asked of it, resources, relations and its group; the same object as before if that is
        the same.
        """
        given, kept, uid = self.given, self._kept.running, r.task.name
        holds, joins = given.booked.relations_of(uid, relations)
        amounts = given.booked.needs_of(uid) if scarce else {}
        resources = tuple([(name, amounts[name]) for name in scarce if amounts.get(name)])
        asked = resources, holds, joins, given.group_of.get(uid)
        if asked == (r.task.resources, r.task.holds, r.task.joins, r.task.group):
            return r
        known = kept.get(uid)
        if known is None or known[0] is not r or known[1] != asked:
            task = replace(r.task, resources=resources, holds=holds, joins=joins, group=asked[3])
            known = kept[uid] = r, asked, replace(r, task=task)
        return known[2]

    def _with_devices(self, running: Sequence[Running], given_out: dict[str, int]) -> dict[str, Running]:
        """By uid: what runs on devices, with the first ones that are left; which ones it has is the kubelet's business."""
        given, found = self.given, dict[str, Running]()
        here = [r for r in running if r.machine in given.gpus.nodes]
        for r in sorted(here, key=lambda r: (r.machine, r.task.name)):
            count = given.booked.needs_of(r.task.name).get(given.gpus.nodes[r.machine].resource, 0)
            found[r.task.name] = _on_devices(r, TaskGpus(count) if count else r.task.gpus, given_out)
        return found

    def _counts(self, relations: Sequence[Relation], there: Sequence[Running]) -> tuple[RelationCount, ...]:
        """Members and holders that are not listed as running tasks. ``there``: those that may be listed as one of either."""
        machines = self.given.machines
        order = machines.order()
        names = machines.ordered_names
        at = {name: i for i, name in enumerate(names)} if relations else {}
        found = []
        for relation in relations:
            name = relation.name
            counts = machines.relation_store.topology_counts(name, order)
            members, holders = counts.members, counts.holders
            for r in there:
                members[at[r.machine]] -= name in r.task.joins
                holders[at[r.machine]] -= name in r.task.holds
            found += [
                RelationCount(names[i], name, int(members[i]), int(holders[i]))
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
        members = {uid for uid, name in given.group_of.items() if name == group}
        seen = sum(r.task.name in members for r in given.running.entries)
        return given.group_members.get(group, 0) - seen

    def _pending(
        self, classes: Sequence[ClassInput], scarce: Sequence[str], relations: Sequence[Relation]
    ) -> tuple[Task, ...]:
        given, machines = self.given, self.given.machines
        order = machines.order()
        names = np.array(machines.ordered_names, dtype=object)
        devices = {
            resource: np.array(
                [(gpus := given.gpus.nodes.get(n)) is not None and gpus.resource == resource for n in names.tolist()],
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
            open_ = c.allowed.copy()
            for name in {*self.closed, *held_nodes(given, c)}:
                if (row := machines.row(name)) is not None:
                    open_[row] = False
            open_ = open_[order]
            asked = [resource for resource in devices if c.needs.get(resource)]
            for resource in asked:
                open_ &= devices[resource]
            eligible = c.eligible[order]
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
                wishes=wished(c.preference[order]),
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
            book(self.given.booked, c, p.task, p.machine, p.width_milli)
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
        """With the members that this part does not see, and the minimum that the user has set."""
        counted = _ALL_WAIT.fullmatch(reason)
        group = next((g for g in self.given.groups if g.name == c.group), None)
        if counted is None or group is None:
            return reason
        number = int(counted["number"]) + self._unseen(group.name)
        return f"group {group.name}: {number} of {group.minimum} {counted['what']}"

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


def _on_devices(r: Running, wanted: TaskGpus | None, given_out: dict[str, int]) -> Running:
    if wanted is None:
        return r
    first = given_out[r.machine]
    given_out[r.machine] += wanted.count
    return replace(r, task=replace(r.task, gpus=wanted), devices=tuple(range(first, first + wanted.count)))


def _relations(classes: Sequence[ClassInput], machines: MachineRows) -> list[Relation]:
    """Relations that bind or count pods of some classes. Raises ``KeyError`` for one that was not declared."""
    found = []
    for name in sorted({name for c in classes for name in (*c.holds, *c.joins)}):
        relation = machines.relation_store.relation(name)
        if relation is None:
            raise KeyError(f"relation {name} was not declared")
        found.append(relation)
    return found


def book(booked: BookedTasks, c: ClassInput, uid: str, node: str, width_milli: int = 0) -> None:
    """Count a pod of a class where the round has put it, at its width if that is more than its request."""
    needs = {**c.needs, "cpu": max(width_milli, c.needs.get("cpu", 0))}
    booked.book(uid, node, needs, sensitivity=c.sensitivity, pressure=c.pressure, holds=c.holds, joins=c.joins)
