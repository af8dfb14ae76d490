"""From the cache to a round's input: pods folded into classes, with what every class may and would cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.cluster.learnt_run_times import NOTHING_LEARNT
from flowsched.cluster.snapshot import PlannedStart, Reservation, Snapshot
from flowsched.cluster.start_errors import NO_START_ERRORS, StartErrors
from flowsched_k8s.cache import Cache
from flowsched_k8s.configuration.cost_model import make_model
from flowsched_k8s.groups.gangs import Gangs, group_name
from flowsched_k8s.groups.group_domains import GroupTopology, within_domains
from flowsched_k8s.groups.pod_groups import GroupRef, GroupSpec
from flowsched_k8s.names import CLAIM_IN_USE, TOO_MANY_VOLUMES
from flowsched_k8s.pods.affinity import SPREAD_WEIGHT, SoftTerm
from flowsched_k8s.pods.entries import PodEntry, Wants
from flowsched_k8s.pods.run_times import forecast_run_s
from flowsched_k8s.pods.spreading import (
    HOST_SKEW,
    OF_FORECASTS,
    SpreadWish,
    counts_of,
    default_wishes,
    divided,
    per_pod,
)
from flowsched_k8s.pods.verdicts import VerdictCache, Verdicts
from flowsched_k8s.rounds.held_nodes import HeldNodes
from flowsched_k8s.rounds.occupied_nodes import OccupiedNodes, task_of
from flowsched_k8s.rounds.round_input import ClassInput, KeptBetween, Nominee, RoundInput
from flowsched_k8s.services.latency import ServiceWish, choose_curve
from flowsched_models.machine import MachineType
from flowsched_models.neutral import NEUTRAL
from flowsched_models.runtime import HostFactory

MANY_RELATIONS = 64
"""Of a pod: from here on those are left out of a round that cannot matter there;"""
MANY_KINDS = 64
"""and with more kinds of pods than these."""
Roles = tuple[tuple[str, ...], tuple[str, ...]]
"""Relations that pods hold, and those that they join."""

Counts = Mapping[str, int]
"""Numbers of the counts that kinds of pods have in a round, by uid of their workload and by relation."""


@dataclass(frozen=True, eq=False)
class _Alike:
    """Pods of a class that have one workload and, where it matters, run the same images."""

    wants: Wants
    pull: NDArray[np.float64] | None
    """[rows] what nodes without the images cost; None where that is the same everywhere."""
    members: list[int]
    """By position in the class."""


class InputBuilder:
    """Makes rounds' inputs; remembers verdicts, and what runs on nodes, between them."""

    def __init__(self, cache: Cache, gangs: Gangs) -> None:
        """Nothing is asked before a round needs it."""
        self._cache = cache
        self._gangs = gangs
        self._verdicts = VerdictCache()
        self.occupied = OccupiedNodes(cache)
        self._model = make_model(cache.configuration.cost_model)
        self._kept: KeptBetween | None = None
        self._mirror = BookedTasks()
        """What was booked when the last round began, and whatever the round made of it."""
        self._careful: set[GroupRef] = set()
        """Gangs of which placements did not hold, until their next round."""

    def settle(self) -> None:
        """Bring nodes into the order of their names, with all that goes by their rows."""
        before = self._cache.settle()
        if before is not None:
            self._verdicts.move(before)

    def build(
        self,
        entries: Sequence[PodEntry],
        now: float,
        *,
        number: int,
        plan: tuple[PlannedStart, ...] = (),
        reservations: tuple[Reservation, ...] = (),
        held_nodes: HeldNodes | None = None,
        start_errors: StartErrors = NO_START_ERRORS,
        keep_record: bool = False,
        rounds_waited: Mapping[str, int] | None = None,
        passed_over: Mapping[str, frozenset[str]] | None = None,
        everything: bool = False,
        at_once: bool = False,
    ) -> RoundInput:
        """A round's input. ``entries`` in the order in which they are served; ``rounds_waited`` by uid, for the record.

        ``passed_over``: by uid, nodes without room for a pod that are not to be reserved for it.
        ``everything``: what runs is there even if no measured pod waits. ``at_once``: for the round that comes next, which
        is over before there is another one; what is booked is its own no longer. A quick one is decided before anything
        changes, and needs no copy.
        """
        cache = self._cache
        self.settle()
        nominees = self.nominees()
        wanted = [cache.wants(entry) for entry in entries]
        keys: dict[Hashable, int] = {}
        alike: list[Wants] = []
        kind_of: dict[int, int] = {}
        for wants in wanted:
            # Pods of a template share what they want.
            if id(wants) not in kind_of:
                kind = kind_of[id(wants)] = keys.setdefault(wants.class_key, len(keys))
                if kind == len(alike):
                    alike.append(wants)
        roles = self._roles(wanted, alike, nominees)
        first: dict[tuple[Hashable, Roles], int] = {}
        same = [first.setdefault((w.kind, r), i) for i, (w, r) in enumerate(zip(alike, roles, strict=True))]
        by_class: dict[tuple[int, bool, frozenset[str]], list[PodEntry]] = {}
        due_age_s = cache.configuration.engine.due_age_s
        none = frozenset[str]()
        group_priority: dict[GroupRef, int] = {}
        served = self._gangs.priorities(entries)
        for entry, wants in zip(entries, wanted, strict=True):
            # Once it is due, a pod takes what it would not take before, and a service cores that others do not pay for.
            due = entry.intent.min_utility is not None or wants.service is not None
            due = due and now - entry.waits_since_s > due_age_s
            over = passed_over.get(entry.key.uid, none) if passed_over else none
            by_class.setdefault((same[kind_of[id(wants)]], due, over), []).append(entry)
            ref = wants.group
            if ref is not None:
                group_priority[ref] = served[entry.key.uid]
        specs = {ref: spec for ref in group_priority if isinstance(spec := self._gangs.spec(ref), GroupSpec)}
        forecast = self._forecast_groups(entries) if group_priority else frozenset()
        firsts = [members[0] for members in by_class.values()]
        within = self._within_budget(firsts)
        forecast -= {cache.wants(first).group for first, early in zip(firsts, within, strict=True) if not early}
        wholes = [
            self._class(members, group_priority, forecast, over, roles[kind], now, early)
            for early, ((kind, _, over), members) in zip(within, by_class.items(), strict=True)
        ]
        self._careful -= group_priority.keys()
        kept = held_nodes if held_nodes is not None and held_nodes.has_room else None
        topologies = {group_name(ref): found for ref in specs if (found := self.topology(ref, kept)) is not None}
        if topologies:
            wholes = within_domains(cache.machines, wholes, topologies)
        parts = [self._alike(members) for members in by_class.values()]
        counts = self._counts(parts, wholes)
        classes = [
            part
            for members, alike, whole in zip(by_class.values(), parts, wholes, strict=True)
            for part in self._divided(members, alike, whole, counts[whole.task is not None])
        ]
        refs = sorted(group_priority, key=group_name)
        measured = any(c.task is not None for c in classes)
        if measured or everything:
            cluster = self.occupied.look(now, plan, reservations)
        else:
            cluster = Snapshot(now, cache.catalogue, ())
        model = self._model
        if self._kept is None or self._kept.hosts.catalogue is not cache.catalogue:
            self._kept = KeptBetween(HostFactory(cache.catalogue))
        placed = {group_name(ref): self._gangs.placed(ref) for ref in refs}
        given = RoundInput(
            number=number,
            now_s=now,
            booked=cache.booked,
            classes=tuple(classes),
            groups=tuple(self._gangs.task_group(ref) for ref in refs),
            group_members={name: len(uids) for name, uids in placed.items()},
            group_of={uid: name for name, uids in placed.items() for uid in uids},
            catalogue=cache.catalogue,
            cluster=cluster,
            settings=cache.configuration.engine,
            cost_model=cache.configuration.cost_model,
            model=model,
            kept=self._kept,
            nominated=nominees,
            held_nodes=held_nodes,
            titles={
                **{s.name: str(cache.pods[s.name].key) for s in cluster.services},
                **{e.key.uid: str(e.key) for e in entries},
            },
            rounds_waited=rounds_waited or {},
            gpus=cache.gpus.now(),
            keepers=dict(cache.services.keepers),
            start_errors=start_errors,
            learnt=cache.learnt if cache.learnt.applied else NOTHING_LEARNT,
            keep_record=keep_record,
        )
        if not at_once:
            return replace(given, booked=cache.booked.copy())
        if given.only_reads:
            return given
        self._mirror.catch_up(cache.booked)
        return replace(given, booked=self._mirror)

    def _roles(self, wanted: Sequence[Wants], kinds: Sequence[Wants], nominees: Sequence[Nominee]) -> list[Roles]:
        """What pods hold and join in a round, by kind. ``wanted`` by pod.

        Where one of them names many relations, or there are many kinds of them, those are left out that cannot refuse
        anything: of a kind that only keeps pods apart, with no pod on any node and no other one in the round. Pods that
        differ in nothing else are one class then.
        """
        many = any(len(w.holds) + len(w.joins) > MANY_RELATIONS for w in kinds)
        if not many and len(kinds) <= MANY_KINDS:
            return [(w.holds, w.joins) for w in kinds]
        machines, named = self._cache.machines, Counter[str]()
        for holds, joins in (*((w.holds, w.joins) for w in wanted), *((n.holds, n.joins) for n in nominees)):
            if holds or joins:
                named.update({*holds, *joins})

        def left(names: Sequence[str], soft: Sequence[SoftTerm]) -> tuple[str, ...]:
            if not names:
                return ()
            wished = {term.relation for term in soft}
            return tuple(
                name for name in names if named[name] > 1 or name in wished or machines.relation_store.refuses(name)
            )

        return [(left(w.holds, w.soft), left(w.joins, w.soft)) for w in kinds]

    def topology(self, ref: GroupRef, kept: HeldNodes | None = None) -> GroupTopology | None:
        """In which domains the pods of a group may be; None for one that may be anywhere. ``kept``: nodes with room for the
        unit that they are kept for.
        """
        spec = self._gangs.spec(ref)
        if not isinstance(spec, GroupSpec) or not spec.topology:
            return None
        there = [self._cache.machines.row(self._cache.pods[uid].place) for uid in self._gangs.placed(ref)]
        placed = tuple(row for row in there if row is not None)
        mine = kept.nodes if kept is not None and kept.group == group_name(ref) else ()
        rows = tuple(row for name in mine if (row := self._cache.machines.row(name)) is not None)
        return GroupTopology(spec.topology, max(1, spec.minimum - len(there)), placed, rows)

    def _forecast_groups(self, entries: Sequence[PodEntry]) -> frozenset[GroupRef]:
        """Groups that are placed at forecast prices: run times of members are known, and none must be priced otherwise."""
        measured: set[GroupRef] = set()
        other: set[GroupRef] = set()
        for entry in entries:
            wants = self._cache.wants(entry)
            if wants.group is not None:
                if entry.intent.profile is not None or forecast_run_s(entry) is not None:
                    measured.add(wants.group)
                if wants.service is not None or entry.request_milli <= 0:
                    other.add(wants.group)
        return frozenset(measured - other)

    def _within_budget(self, kinds: Sequence[PodEntry]) -> list[bool]:
        """Whether pods without a profile may be placed at forecast prices. ``kinds``: one pod of each, as they are served.

        The engine makes so many forecasts in a round; of more kinds than could have one for each of their candidates, the
        later ones go to linear prices, as if nothing were known of them. Measured pods come first.
        """
        engine, nodes = self._cache.configuration.engine, max(1, len(self._cache.nodes))
        left = engine.pricings // (min(nodes, engine.candidates) or nodes)
        left -= sum(entry.intent.profile is not None for entry in kinds)
        known = np.array([forecast_run_s(entry) is not None for entry in kinds], np.bool_)
        found: list[bool] = (~known | (np.cumsum(known) <= left)).tolist()
        return found

    def _class(
        self,
        members: Sequence[PodEntry],
        group_priority: Mapping[GroupRef, int],
        forecast: Collection[GroupRef],
        passed_over: frozenset[str],
        roles: Roles,
        now: float,
        within: bool,
    ) -> ClassInput:
        cache = self._cache
        first = members[0]
        wants = cache.wants(first)
        verdicts = self.verdicts(wants)
        rows = cache.machines.rows
        allowed, verdict, reasons = verdicts.passes[:rows], verdicts.reason[:rows], verdicts.reasons
        if cache.pod_wants.claim_users(first):
            allowed, verdict = np.zeros_like(allowed), np.where(verdict == 0, np.int16(len(reasons)), verdict)
            reasons = [*reasons, CLAIM_IN_USE]
        if (full := self.too_many_volumes(first)) is not None:
            allowed, verdict = allowed & ~full, np.where(full & (verdict == 0), np.int16(len(reasons)), verdict)
            reasons = [*reasons, TOO_MANY_VOLUMES]
        if shut := [row for name in passed_over if (row := cache.machines.row(name)) is not None]:
            allowed = allowed.copy()
            allowed[shut] = False
        preference = verdicts.preference[:rows]
        if wants.soft:
            preference = preference + self._sought(wants)
        goal = None
        if wants.service is not None:
            keeps = self._keeps_goal(wants.service, first, now)
            if (allowed & ~keeps).any():
                goal = cache.services.reach_of(wants.service, cache.columns.type_list, first.intent.threads)
            allowed = allowed & keeps
        sensitivity, pressure = cache.services.behaviour(first)
        gpus = cache.gpus.asked(first.needs)
        measured = first.intent.profile is not None and first.request_milli > 0
        run_s = forecast_run_s(first) if within else None
        alone = (measured and wants.service is None) or run_s is not None
        forecast_priced = alone if wants.group is None else wants.group in forecast
        needs = cache.machines.decisive(first.needs)
        if wants.shared and wants.group in self._careful:
            needs = {**needs, **cache.volumes.pod_volume_needs(first.pod)}
        task = None
        if self._model is not None:
            task = task_of(first, False, 0)
        elif forecast_priced:
            task = task_of(first, cache.configuration.features.resize, run_s=run_s)
        priority = first.priority if wants.group is None else group_priority[wants.group]
        return ClassInput(
            name=str(first.key),
            uids=tuple(e.key.uid for e in members),
            since_s=tuple(e.waits_since_s for e in members),
            goal=goal,
            priority=priority,
            needs=needs,
            allowed=allowed,
            verdict=verdict,
            reasons=reasons,
            eligible=verdicts.eligible[:rows],
            preference=preference,
            slowness=self._slowness(first) if measured and task is None else None,
            sensitivity=sensitivity,
            pressure=pressure,
            holds=roles[0],
            joins=roles[1],
            group=group_name(wants.group) if wants.group is not None else None,
            task=task,
            measured=measured,
            min_utility=first.intent.min_utility,
            service=wants.service is not None,
            gpu_models=() if gpus is None else cache.gpus.models(first.pod, gpus),
        )

    def verdicts(self, wants: Wants, most: int | None = None) -> Verdicts:
        """What the static filters of a kind of pod say of every node; of ``most`` more of them if that is given."""
        cache = self._cache
        return self._verdicts.ask(
            wants.filter, cache.nodes, cache.machines.names, cache.columns.versions, cache.columns.version, most
        )

    def unasked(self, wants: Wants) -> int:
        """How many nodes the static filters of a kind of pod would have to be asked about."""
        return self._verdicts.unasked(wants.filter, self._cache.columns.versions, self._cache.columns.version)

    def too_many_volumes(self, entry: PodEntry) -> NDArray[np.bool_] | None:
        """Nodes that do not take the volumes that a pod adds; None if that does not depend on what they have already.

        Pods of one round may together be too many for a node: what is booked last does not hold, and is tried again.
        """
        cache = self._cache
        wants = cache.wants(entry)
        if not wants.shared:
            return None
        where = {v: nodes for v, nodes in cache.volumes.where(entry.pod).items() if v in wants.shared}
        machines = cache.machines
        columns, free = {r: i for i, r in enumerate(machines.resources)}, machines.free
        full = np.zeros(machines.rows, np.bool_)
        for resource in cache.volumes.limits.needs(where):
            needed = np.full(machines.rows, entry.needs.get(resource, 0), np.int64)
            for volume, nodes in where.items():
                if resource in cache.volumes.limits.needs([volume]):
                    needed += 1
                    needed[[row for node in nodes if (row := machines.row(node)) is not None]] -= 1
            room = (
                free[: machines.rows, columns[resource]] if resource in columns else np.zeros(machines.rows, np.int64)
            )
            full |= (needed > 0) & (room < needed)
        return full

    def did_not_hold(self, group: GroupRef) -> None:
        """Placements of a gang did not, maybe because its members took each other's room for volumes.

        In its next round all their volumes count, so that each node gets as many as it takes.
        """
        self._careful = {g for g in self._careful if self._gangs.waiting(g)} | {group}

    def _sought(self, wants: Wants) -> NDArray[np.float64]:
        """Preferred pod affinity as a cost: a wish of weight 100 that fails costs 1."""
        machines = self._cache.machines
        cost = np.zeros(machines.rows)
        for term in wants.soft:
            if term.weight > 0:
                cost += term.weight / 100.0 * (machines.relation_store.members_around(term.relation) == 0)
        return cost

    def _alike(self, members: Sequence[PodEntry]) -> list[_Alike]:
        """Pods of a class by their workload and by the images that they run, where it matters who has these."""
        cache = self._cache
        rows = cache.machines.rows
        pulls: dict[tuple[str, ...], NDArray[np.float64] | None] = {}
        found: dict[tuple[str | None, tuple[str, ...]], _Alike] = {}
        last: Wants | None = None
        mine: list[int] = []
        for i, entry in enumerate(members):
            wants = cache.wants(entry)
            if wants is not last:  # mostly pods of one template come together
                last = wants
                if wants.images not in pulls:
                    pulls[wants.images] = cache.images.cost(wants.images, rows)
                pull = pulls[wants.images]
                key = (wants.workload, () if pull is None else wants.images)
                mine = found.setdefault(key, _Alike(wants, pull, [])).members
            mine.append(i)
        return list(found.values())

    def _counts(self, parts: Iterable[Sequence[_Alike]], wholes: Iterable[ClassInput]) -> tuple[Counts, Counts]:
        """The counts of pods that should not be on one node: of those at linear prices, and of measured ones."""
        cache = self._cache
        of_workload: tuple[Counter[str], Counter[str]] = Counter(), Counter()
        waiting: tuple[Counter[str], Counter[str]] = Counter(), Counter()
        per_node: dict[str, bool] = {}
        for alike, whole in zip(parts, wholes, strict=True):
            measured = whole.task is not None
            if measured and self._model is not None:
                continue  # its rounds have no counts
            for part in alike:
                if part.wants.workload is not None:
                    of_workload[measured][part.wants.workload] += len(part.members)
            wants = alike[0].wants
            for relation in dict.fromkeys(term.relation for term in wants.soft if term.weight < 0):
                if relation in wants.joins:
                    if relation not in per_node:
                        per_node[relation] = cache.machines.relation_store.topology_counts(relation).per_machine
                    waiting[measured][relation] += len(whole.uids) if per_node[relation] else 0

        # Two on a node are no more than the default allows, and only one more than if each had one to itself.
        for mine, pods in zip(waiting, of_workload, strict=True):
            mine.update({workload: count for workload, count in pods.items() if count >= HOST_SKEW})
        return counts_of(waiting[False]), counts_of(waiting[True], OF_FORECASTS)

    def _divided(
        self, members: Sequence[PodEntry], alike: Sequence[_Alike], whole: ClassInput, counts: Counts
    ) -> list[ClassInput]:
        """A class as its pods share the domains that they wish to be spread over, and by the images that they run.

        Pods that pay the same stay one class. ``counts``: what pods of some kinds mind on single nodes.
        """
        first = alike[0]
        plain = first.wants.workload is None and first.pull is None
        if len(alike) == 1 and plain and not any(term.weight < 0 for term in first.wants.soft):
            return [whole]
        paid: dict[object, tuple[NDArray[np.float64], tuple[tuple[int, float], ...], list[int]]] = {}
        room = np.where(whole.allowed, self._cache.machines.room_for(whole.needs, len(whole.uids)), 0)
        # What pods themselves prefer, and what is forecast for them, is worth more than what is guessed of neighbours.
        prefers = whole.preference[whole.allowed]
        gentle = whole.task is not None or bool((prefers != prefers[:1]).any())
        for part in alike:
            counted = _counted(part.wants, counts, gentle)
            wishes = self._spread_wishes(part.wants, whole.eligible, {} if gentle else counts)
            for which, shared in divided(wishes, room, len(part.members)):
                cost = shared if part.pull is None else shared + part.pull
                alone = paid.setdefault((cost.tobytes(), counted), (cost, counted, []))
                alone[2].extend(part.members[i] for i in which)
        return [
            replace(
                whole,
                name=str(members[min(which)].key),
                uids=tuple(whole.uids[i] for i in sorted(which)),
                since_s=tuple(whole.since_s[i] for i in sorted(which)),
                preference=whole.preference + cost,
                counted=counted,
            )
            for cost, counted, which in paid.values()
        ]

    def _spread_wishes(self, wants: Wants, eligible: NDArray[np.bool_], counts: Counts) -> list[SpreadWish]:
        """Preferred anti-affinity, spreads that may be broken, and those that Kubernetes adds. ``counts`` as for those
        of the round.
        """
        machines = self._cache.machines
        found = []
        for term in wants.soft:
            if term.weight < 0:
                topology = machines.relation_store.topology_counts(term.relation)
                weight = -term.weight / 100.0
                by_domain = topology.by_domain(topology.members)
                own = term.relation in wants.joins
                skew, nowhere = (1, 0.0) if term.skew is None else (term.skew, weight)
                found.append(
                    SpreadWish(
                        topology.domain,
                        by_domain,
                        weight,
                        skew,
                        nowhere,
                        own,
                        topology.per_machine,
                        own and term.relation in counts,
                    )
                )
        if wants.workload is not None:
            rows = self._cache.rows_of_workload(wants.workload)
            zones = self._cache.columns.zones[: machines.rows]
            found += default_wishes(rows, zones, eligible, SPREAD_WEIGHT / 100.0, wants.workload in counts)
        return found

    def _slowness(self, entry: PodEntry) -> NDArray[np.float64]:
        """Run time on each node over that on the fastest type there is, minus 1; threads and cores are left out."""
        cache = self._cache
        profile = entry.intent.profile or NEUTRAL
        speeds = np.array([cache.catalogue.speed(profile, t.name) for t in cache.columns.type_list] or [1.0])
        slow = speeds.max() / speeds - 1.0
        found: NDArray[np.float64] = slow[cache.columns.types[: cache.machines.rows]]
        return found

    def _keeps_goal(self, wish: ServiceWish, entry: PodEntry, now: float) -> NDArray[np.bool_]:
        """Nodes where a service would meet its p95 goal beside what is there, on cores of its own."""
        cache = self._cache
        claim = cache.services.claim(entry, now)
        machines = cache.machines
        caps = np.array([self._cap(wish, entry, t) for t in cache.columns.type_list] or [0.0])
        ok: NDArray[np.bool_] = machines.pressure() <= caps[cache.columns.types[: machines.rows]]
        for name, node in cache.nodes.items():
            row = machines.row(name)
            if row is not None and ok[row]:
                ok[row] = (
                    len(cache.services.free_cores(name, claim)) >= wish.core_count
                    if node.pods
                    else (node.type.vcpus >= wish.core_count)
                )
        return ok

    def _cap(self, wish: ServiceWish, entry: PodEntry, machine: MachineType) -> float:
        left = self._cache.services.headroom_of(wish, machine, entry.intent.threads)
        return float("inf") if left is None else left.pressure_cap

    def service_threads(self, wish: ServiceWish, entry: PodEntry) -> int:
        """Threads with which a service was measured to be fastest at its load."""
        curve = choose_curve(self._cache.catalogue.services[wish.profile], wish, entry.intent.threads)
        return curve.threads if curve is not None else wish.core_count

    # Preemption

    def nominees(self) -> tuple[Nominee, ...]:
        """Waiting pods that room is made for on a node of the pool."""
        cache = self._cache
        return tuple(
            self.nominee(entry, node)
            for uid, node in cache.nominated.items()
            if node in cache.nodes and not (entry := cache.pods[uid]).place
        )

    def nominee(self, entry: PodEntry, node: str) -> Nominee:
        """A waiting pod that room is made for on a node."""
        holds: tuple[str, ...] = ()
        joins: tuple[str, ...] = ()
        if entry.ours:  # relations of waiting pods of others are not known
            wants = self._cache.wants(entry)
            holds = wants.holds
            # It is not there yet: no pod may come for its sake.
            joins = tuple(name for name in wants.joins if not self._cache.declared.attracts(name))
        return Nominee(entry.key.uid, entry.priority, node, entry.needs, holds, joins)


def _counted(wants: Wants, counts: Counts, gentle: bool) -> tuple[tuple[int, float], ...]:
    """In which counts pods are, and what each that is there costs one more of them."""
    wishes = [(t.relation, -t.weight, t.skew or 1) for t in wants.soft if t.weight < 0 and t.relation in wants.joins]
    if wants.workload is not None:
        wishes.append((wants.workload, SPREAD_WEIGHT, HOST_SKEW))
    found: dict[int, float] = {}
    for kind, weight, skew in wishes:
        number = counts.get(kind)
        if number is not None:
            found[number] = found.get(number, 0.0) + per_pod(weight / 100.0, skew, gentle)
    return tuple(sorted(found.items()))
