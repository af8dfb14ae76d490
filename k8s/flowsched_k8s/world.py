"""The nodes of the pool as forecasts see them, with what is believed of the jobs that run there.

Nobody measures how far a job is: its progress is believed from its start and the models, and every start or end on a node
changes the belief about everybody there. After a restart it is rebuilt from the start times of what runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flowsched.cluster.cluster_state import BELIEF_CEILING, service_load
from flowsched.cluster.snapshot import MILLI, PlannedStart, Reservation, Running, Service, Task
from flowsched_k8s.cache import Cache, PodEntry
from flowsched_k8s.latency import choose_curve
from flowsched_k8s.neutral import DAY_SCALE
from flowsched_k8s.round_input import NodeView, World
from flowsched_models.catalogue import Catalogue
from flowsched_models.execution import Execution
from flowsched_models.neutral import NEUTRAL
from flowsched_models.runtime import HostFactory, Resident

_MIB = 1 << 20
_VISIBLE_MILLI = MILLI
"""A pod without a profile is a neighbour in forecasts from one core on; a smaller one only takes its request away."""


@dataclass
class _Belief:
    execution: Execution[str]
    members: dict[str, Resident]


class Beliefs:
    """How far measured jobs are, node by node."""

    def __init__(self, catalogue: Catalogue) -> None:
        """Nothing is believed before a node is asked for."""
        self._hosts = HostFactory(catalogue)
        self._known: dict[str, _Belief] = {}

    def use_catalogue(self, catalogue: Catalogue) -> None:
        """New profiles: beliefs are made anew from start times."""
        self._hosts = HostFactory(catalogue)
        self._known.clear()

    def forget(self, node: str) -> None:
        """A node is gone."""
        self._known.pop(node, None)

    def progress(
        self,
        node: str,
        machine_type: str,
        services: Sequence[Service],
        members: dict[str, tuple[Resident, float]],
        now_s: float,
    ) -> dict[str, float]:
        """Believed progress of a node's jobs (uid -> resident and when it started) at ``now_s``."""
        host = self._hosts.host(machine_type, [service_load(s) for s in services])
        residents = {uid: resident for uid, (resident, _) in members.items()}
        belief = self._known.get(node)
        if belief is not None and belief.execution.host is host and belief.members == residents:
            _advance(belief.execution, now_s)
            return {uid: belief.execution.progress(uid) for uid in members}
        before: dict[str, float] = {}
        if belief is not None:
            _advance(belief.execution, now_s)
            before = {uid: belief.execution.progress(uid) for uid in belief.members if uid in members}
        first = min((start for uid, (_, start) in members.items() if uid not in before), default=now_s)
        execution: Execution[str] = Execution(host, now_s if before else min(first, now_s), BELIEF_CEILING)
        for uid, (resident, start) in sorted(members.items(), key=lambda item: (item[1][1], item[0])):
            if uid in before:
                execution.start(uid, replace(resident, progress=before[uid]))
                continue
            _advance(execution, min(max(start, execution.now_s), now_s))
            execution.start(uid, resident)
        _advance(execution, now_s)
        self._known[node] = _Belief(execution, residents)
        return {uid: execution.progress(uid) for uid in members}


def _advance(execution: Execution[str], to_s: float) -> None:
    while execution.now_s < to_s:
        execution.advance(min(to_s, execution.next_event_s()))


def task_of(entry: PodEntry, resize: bool) -> Task:
    """A pod as the engine's task; without a profile it is as the neutral one, and runs until it is deleted.

    Its name is its uid, its job NAMESPACE/NAME, its priority is kept outside.
    """
    intent = entry.intent
    request = max(1, entry.request_milli)
    # A pod is admitted at its request, so only growing from there can be planned with.
    wider = {w for w in intent.widths_milli if w > request} if resize else set()
    return Task(
        name=entry.key.uid,
        job=str(entry.key),
        profile=intent.profile or NEUTRAL,
        scale=DAY_SCALE if intent.profile is None else intent.scale,
        request_milli=request,
        widths_milli=tuple(sorted({request, *wider})),
        memory_mib=-(-entry.needs.get("memory", 0) // _MIB),
        submit_s=entry.created_s,
        goal_s=intent.goal_s,
        threads=tuple(sorted(intent.threads)),
        min_utility=intent.min_utility,
        endless=intent.profile is None,
    )


@dataclass
class _Known:
    """A node as it was seen last; what is believed of its jobs changes without any event."""

    revision: int
    view: NodeView
    services: tuple[Service, ...]
    members: dict[str, tuple[Resident, float]]
    ends: bool
    """Whether anything that runs here ends by itself."""


class WorldBuilder:
    """The view of every node; kept until something happens on it."""

    def __init__(self, cache: Cache) -> None:
        """Nothing is looked at before a round asks."""
        self._cache = cache
        self._known: dict[str, _Known] = {}
        self.beliefs = Beliefs(cache.catalogue)

    def use_catalogue(self, catalogue: Catalogue) -> None:
        """New profiles: everything is looked at anew."""
        self.beliefs.use_catalogue(catalogue)
        self._known.clear()

    def forget(self, node: str) -> None:
        """A node is gone."""
        self.beliefs.forget(node)
        self._known.pop(node, None)

    def build(self, now_s: float, plan: tuple[PlannedStart, ...], reservations: tuple[Reservation, ...]) -> World:
        """All nodes of the pool, in the order of their names.

        Those that no waiting pod may use are there as well: domains of relations are counted over all nodes, and an
        exported snapshot has them, so that both decide on the same.
        """
        cache = self._cache
        order = cache.fleet.order()
        views = tuple(self._view(str(cache.fleet.names[row]), now_s) for row in order.tolist())
        needs = {r.task.name: cache.pods[r.task.name].needs for view in views for r in view.running}
        return World(order, views, needs, plan, reservations)

    def _view(self, name: str, now_s: float) -> NodeView:
        cache = self._cache
        known = self._known.get(name)
        if known is None or known.revision != cache.revision(name):
            known = self._known[name] = self._look(name, now_s)
        if not known.ends:
            return known.view
        progress = self.beliefs.progress(name, known.view.type, known.services, known.members, now_s)
        running = tuple(
            replace(r, progress=0.0 if r.task.endless else progress[r.task.name]) for r in known.view.running
        )
        return replace(known.view, running=running)

    def _look(self, name: str, now_s: float) -> _Known:
        cache = self._cache
        node = cache.nodes[name]
        services = tuple(node_services(cache, name))
        owned = {c for s in services for c in s.cores}
        open_cores = tuple(c for c in range(node.type.vcpus) if c not in owned)
        known = {s.name for s in services}
        members: dict[str, tuple[Resident, float]] = {}
        running = []
        for uid in sorted(node.pods):
            entry = cache.pods[uid]
            visible = entry.intent.profile is not None or entry.request_milli >= _VISIBLE_MILLI
            if uid in known or not (visible and open_cores and entry.request_milli):
                continue
            resident, task = _resident(entry, open_cores)
            # The clock of a node may be ahead.
            started = min(max(entry.started_s, entry.created_s), now_s)
            members[uid] = resident, started
            width = max(entry.width_milli, entry.request_milli)
            running.append(Running(task, name, width, resident.threads, resident.cores, started, started))
        view = NodeView(
            name,
            node.type.name,
            node.type.vcpus,
            services,
            tuple(running),
            sum(s.width_milli for s in services) + sum(r.width_milli for r in running),
            sum(s.memory_mib for s in services) + sum(r.task.memory_mib for r in running),
        )
        return _Known(cache.revision(name), view, services, members, any(not r.task.endless for r in running))


def _resident(entry: PodEntry, open_cores: tuple[int, ...]) -> tuple[Resident, Task]:
    cores = tuple(c for c in entry.cores if c in open_cores) or open_cores
    task = task_of(entry, resize=False)
    threads = max(1, entry.threads)
    if task.endless:
        threads = min(threads, len(cores))
    weight = max(entry.width_milli, entry.request_milli) / MILLI
    return Resident(task.profile, task.scale, threads, cores, weight, task.memory_mib), task


def node_services(cache: Cache, name: str) -> list[Service]:
    """Latency services on a node whose place was measured, with cores of their own."""
    node = cache.nodes[name]
    taken: set[int] = set()
    found = []
    for entry, wish in cache.services_on(name):
        curve = choose_curve(cache.catalogue.services[wish.profile], wish, (entry.threads,))
        curve = curve or choose_curve(cache.catalogue.services[wish.profile], wish)
        if curve is None:
            continue
        free = [c for c in range(node.type.vcpus) if c not in taken]
        cores = tuple(c for c in entry.cores if c in free)
        if len(cores) != wish.core_count:
            cores = tuple(free[: wish.core_count])
        if len(cores) != wish.core_count:
            continue
        taken.update(cores)
        found.append(
            Service(
                entry.key.uid,
                wish.profile,
                name,
                cores,
                curve.threads,
                max(entry.width_milli, entry.request_milli),
                -(-entry.needs.get("memory", 0) // _MIB),
                wish.qps,
                wish.slo_us,
                wish.client,
            )
        )
    return found
