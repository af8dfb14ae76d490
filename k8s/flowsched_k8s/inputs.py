"""From the cache to a round's input: who takes part, folded into classes, with what every class may and would cost."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.snapshot import PlannedStart, Reservation
from flowsched_k8s.cache import Cache, PodEntry, Wants
from flowsched_k8s.gangs import Gangs, group_name
from flowsched_k8s.latency import ServiceWish, choose_curve
from flowsched_k8s.pod_groups import GroupRef
from flowsched_k8s.queue import Cause, PodQueue, causes_of
from flowsched_k8s.recorder import histogram
from flowsched_k8s.round_input import ClassInput, RoundInput, World
from flowsched_k8s.verdicts import VerdictCache, Verdicts
from flowsched_k8s.world import WorldBuilder, task_of
from flowsched_models.machine import MachineType
from flowsched_models.neutral import NEUTRAL

Blocked = tuple[PodEntry, str, frozenset[Cause]]
MOST_QUESTIONS = 200_000
"""Of a pod's static filters to a node, in one round; about a second's work."""


class InputBuilder:
    """Makes rounds' inputs; remembers verdicts and views of nodes between them."""

    def __init__(self, cache: Cache, gangs: Gangs) -> None:
        """Nothing is asked before a round needs it."""
        self._cache = cache
        self._gangs = gangs
        self._verdicts = VerdictCache()
        self.worlds = WorldBuilder(cache)

    # Who takes part

    def sort(self, entries: Iterable[PodEntry], queue: PodQueue, now: float) -> tuple[list[PodEntry], list[Blocked]]:
        """Pods that take part in a round, and those that no node could take, with the reason.

        A group takes part whole: its members that waited elsewhere in the queue are fetched.
        """
        fit: list[PodEntry] = []
        blocked: list[Blocked] = []
        by_group: dict[GroupRef, list[PodEntry]] = {}
        entries = list(entries)
        for entry in entries:
            # A pod may declare a relation that counts one before it: all declare before any is read.
            self._cache.wants(entry)
        for entry in entries:
            wants = self._cache.wants(entry)
            if wants.problem is not None:
                blocked.append(self._blocked(entry, wants.problem, causes_of((wants.problem,))))
            elif wants.group is not None:
                by_group.setdefault(wants.group, []).append(entry)
            else:
                fit.append(entry)
        retry_s = self._cache.configuration.rounds.unschedulable_retry_s
        for ref, members in by_group.items():
            everybody = {e.key.uid: e for e in members}
            for other in self._gangs.waiting(ref):
                if other.key.uid not in everybody and queue.claim(other.key):
                    everybody[other.key.uid] = other
                    self._cache.wants(other)
            sound = []
            for entry in everybody.values():
                wants = self._cache.wants(entry)
                if wants.problem is not None:
                    blocked.append(self._blocked(entry, wants.problem, causes_of((wants.problem,))))
                else:
                    sound.append(entry)
            why = self._gangs.blocked(ref, now, retry_s)
            if why is None:
                fit += sound
            else:
                blocked += [self._blocked(e, why, frozenset({Cause.GROUP})) for e in sound]
        fit.sort(key=lambda e: (-e.priority, e.created_s, e.key))
        return fit, blocked

    def _blocked(self, entry: PodEntry, why: str, causes: frozenset[Cause]) -> Blocked:
        if Cause.OTHER in causes:
            causes = (causes - {Cause.OTHER}) | {Cause.UNSUPPORTED, Cause.VOLUMES}
        total = len(self._cache.nodes)
        # A group that is not complete is no fault of the nodes.
        waits = causes == {Cause.GROUP}
        return entry, histogram(total, {}, more=why) if waits else histogram(total, {}, whole=why), causes

    def affordable(self, entries: Sequence[PodEntry]) -> tuple[list[PodEntry], list[PodEntry]]:
        """Those whose static filters can be asked at once, and those whose turn is later. Groups stay whole.

        Asking holds up the event loop, and with it the renewal of the lease. The order in which pods are served is kept.
        """
        cache = self._cache
        asked: set[Hashable] = set()
        cost = 0
        cut = len(entries)
        for i, entry in enumerate(entries):
            static = cache.wants(entry).filter
            if static.key not in asked:
                asked.add(static.key)
                cost += self._verdicts.unasked(static, cache.versions)
                if cost > MOST_QUESTIONS and i:
                    cut = i
                    break
        begun = {g for e in entries[:cut] if (g := cache.wants(e).group) is not None}
        late = entries[cut:]
        return (
            [*entries[:cut], *(e for e in late if cache.wants(e).group in begun)],
            [e for e in late if cache.wants(e).group not in begun],
        )

    # The input

    def build(
        self,
        entries: Sequence[PodEntry],
        now: float,
        *,
        number: int,
        plan: tuple[PlannedStart, ...],
        reservations: tuple[Reservation, ...],
        held_node: tuple[str, str, int] | None,
        keep_record: bool,
        rounds_waited: Mapping[str, int] | None = None,
    ) -> RoundInput:
        """A round's input. ``entries`` in the order in which they are served; ``rounds_waited`` by uid, for the record."""
        cache = self._cache
        by_class: dict[object, list[PodEntry]] = {}
        due_age_s = cache.configuration.engine.due_age_s
        for entry in entries:
            # Once it is due, a pod takes what it would not take before.
            due = entry.intent.min_utility is not None and now - entry.waits_since_s > due_age_s
            by_class.setdefault((cache.wants(entry).class_key, due), []).append(entry)
        group_priority: dict[GroupRef, int] = {}
        for entry in entries:
            ref = cache.wants(entry).group
            if ref is not None:
                group_priority[ref] = max(group_priority.get(ref, entry.priority), entry.priority)
        forecast = self._forecast_groups(entries)
        classes = [self._class(members, group_priority, forecast) for members in by_class.values()]
        refs = sorted(group_priority, key=group_name)
        nominated = {
            uid: (waiting.priority, node, dict(waiting.needs))
            for uid, node in cache.nominated.items()
            if node in cache.nodes and not (waiting := cache.pods[uid]).place
        }
        measured = any(c.task is not None for c in classes)
        world = self.worlds.build(now, plan, reservations) if measured else World()
        placed = {group_name(ref): self._gangs.placed(ref) for ref in refs}
        beside = (*(s.name for s in world.services), *(r.task.name for r in world.running))
        return RoundInput(
            number=number,
            now_s=now,
            fleet=cache.fleet.copy(),
            classes=tuple(classes),
            groups=tuple(self._gangs.task_group(ref) for ref in refs),
            group_members={name: len(uids) for name, uids in placed.items()},
            group_of={uid: name for name, uids in placed.items() for uid in uids},
            catalogue=cache.catalogue,
            world=world,
            settings=cache.configuration.engine,
            nominated=nominated,
            held_node=held_node,
            titles={e.key.uid: str(e.key) for e in (*entries, *(cache.pods[uid] for uid in beside))},
            rounds_waited=rounds_waited or {},
            keep_record=keep_record,
        )

    def _forecast_groups(self, entries: Sequence[PodEntry]) -> frozenset[GroupRef]:
        """Groups that are placed at forecast prices: some members have profiles, and none has to be priced otherwise."""
        measured: set[GroupRef] = set()
        other: set[GroupRef] = set()
        for entry in entries:
            wants = self._cache.wants(entry)
            if wants.group is not None:
                if entry.intent.profile is not None:
                    measured.add(wants.group)
                if wants.service is not None or entry.request_milli <= 0:
                    other.add(wants.group)
        return frozenset(measured - other)

    def _class(
        self, members: Sequence[PodEntry], group_priority: Mapping[GroupRef, int], forecast: Collection[GroupRef]
    ) -> ClassInput:
        cache = self._cache
        first = members[0]
        wants = cache.wants(first)
        verdicts = self.verdicts(wants)
        rows = cache.fleet.rows
        allowed = verdicts.passes[:rows]
        preference = verdicts.preference[:rows] + self._soft(wants)
        if wants.service is not None:
            allowed = allowed & self._keeps_goal(wants.service, first)
        sensitivity, pressure = cache.behaviour(first)
        measured = first.intent.profile is not None and first.request_milli > 0
        forecast_priced = measured and wants.service is None if wants.group is None else wants.group in forecast
        priority = first.priority if wants.group is None else group_priority[wants.group]
        return ClassInput(
            name=str(first.key),
            uids=tuple(e.key.uid for e in members),
            since_s=tuple(e.waits_since_s for e in members),
            priority=priority,
            needs=first.needs,
            allowed=allowed,
            verdict=verdicts.reason[:rows],
            reasons=verdicts.reasons,
            eligible=verdicts.eligible[:rows],
            preference=preference,
            slowness=self._slowness(first) if measured else None,
            sensitivity=sensitivity,
            pressure=pressure,
            holds=wants.holds,
            joins=wants.joins,
            group=group_name(wants.group) if wants.group is not None else None,
            task=task_of(first, cache.configuration.features.resize) if forecast_priced else None,
            measured=measured,
            min_utility=first.intent.min_utility,
            service=wants.service is not None,
        )

    def verdicts(self, wants: Wants) -> Verdicts:
        """What the static filters of a kind of pod say of every node."""
        cache = self._cache
        return self._verdicts.ask(wants.filter, cache.nodes, cache.fleet.names, cache.versions)

    def verdicts_of(self, entry: PodEntry) -> Verdicts:
        """The same for one pod."""
        return self.verdicts(self._cache.wants(entry))

    def eligible(self, wants: Wants) -> NDArray[np.bool_]:
        """Nodes that a pod's spreads compare."""
        return self.verdicts(wants).eligible[: self._cache.fleet.rows]

    def _soft(self, wants: Wants) -> NDArray[np.float64]:
        """Preferred pod affinity and spreads that may be broken, as costs: a wish of weight 100 that fails costs 1."""
        fleet = self._cache.fleet
        cost = np.zeros(fleet.rows)
        for term in wants.soft:
            members = fleet.members(term.relation)
            if term.weight > 0:
                cost += term.weight / 100.0 * (members == 0)
            else:
                fullest = max(1, int(members.max(initial=0)))
                cost += -term.weight / 100.0 * members / fullest
        return cost

    def _slowness(self, entry: PodEntry) -> NDArray[np.float64]:
        """Run time on each node over that on the fastest type there is, minus 1; threads and cores are left out."""
        cache = self._cache
        profile = entry.intent.profile or NEUTRAL
        speeds = np.array([cache.catalogue.speed(profile, t.name) for t in cache.type_list] or [1.0])
        slow = speeds.max() / speeds - 1.0
        found: NDArray[np.float64] = slow[cache.types[: cache.fleet.rows]]
        return found

    def _keeps_goal(self, wish: ServiceWish, entry: PodEntry) -> NDArray[np.bool_]:
        """Nodes where a service would meet its p95 goal beside what is there, on cores of its own."""
        cache = self._cache
        fleet = cache.fleet
        caps = np.array([self._cap(wish, entry, t) for t in cache.type_list] or [0.0])
        ok: NDArray[np.bool_] = fleet.pressure() <= caps[cache.types[: fleet.rows]]
        for name, node in cache.nodes.items():
            row = fleet.row(name)
            if row is not None and ok[row]:
                ok[row] = (
                    len(cache.free_cores(name)) >= wish.core_count
                    if node.pods
                    else (node.type.vcpus >= wish.core_count)
                )
        return ok

    def _cap(self, wish: ServiceWish, entry: PodEntry, machine: MachineType) -> float:
        left = self._cache.headroom_of(wish, machine, entry.intent.threads)
        return float("inf") if left is None else left.pressure_cap

    def service_threads(self, wish: ServiceWish, entry: PodEntry) -> int:
        """Threads with which a service was measured to be fastest at its load."""
        curve = choose_curve(self._cache.catalogue.services[wish.profile], wish, entry.intent.threads)
        return curve.threads if curve is not None else wish.core_count

    # Preemption and due pods

    def nominate(self, entry: PodEntry, node: str) -> None:
        """Hold the room that victims leave for the pod that they leave it to."""
        self._cache.nominated[entry.key.uid] = node

    def drains_for(self, entry: PodEntry, node: str) -> bool:
        """Whether a node would take a pod once it is empty."""
        row = self._cache.fleet.row(node)
        return row is not None and bool(self._takes_empty(entry)[row])

    def _takes_empty(self, entry: PodEntry) -> NDArray[np.bool_]:
        fleet = self._cache.fleet
        able = self.verdicts_of(entry).passes[: fleet.rows] & fleet.alive
        columns = {r: i for i, r in enumerate(fleet.resources)}
        for resource, amount in entry.needs.items():
            if amount > 0:
                column = columns.get(resource)
                able = able & (False if column is None else fleet.allocatable()[:, column] >= amount)
        return able

    def drain_candidate(self, entry: PodEntry) -> str | None:
        """The node that a due pod fits on once it is empty, and that misses least of what it needs now."""
        fleet = self._cache.fleet
        able = self._takes_empty(entry)
        free = fleet.free()
        columns = {r: i for i, r in enumerate(fleet.resources)}
        missing = np.zeros(fleet.rows)
        for resource, amount in entry.needs.items():
            if amount > 0 and resource in columns:
                missing += np.maximum(0, amount - free[:, columns[resource]]) / amount
        best = [r for r in fleet.order().tolist() if able[r]]
        if not best:
            return None
        return min((float(missing[r]), str(fleet.names[r])) for r in best)[1]
