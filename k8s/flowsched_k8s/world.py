"""The nodes of the pool as forecasts see them, with what is estimated of the jobs that run there.

The progress of a job is not measured: it is estimated from its start and the models, and every start or end on a node
changes the estimates of all jobs there. After a restart it is rebuilt from the start times of what runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from flowsched.cluster.cluster_state import service_load
from flowsched.cluster.snapshot import MILLI, PlannedStart, Reservation, Running, Service, Task
from flowsched.scale.cluster_checks import MOST_MILLI
from flowsched_k8s.cache import Cache
from flowsched_k8s.entries import PodEntry
from flowsched_k8s.latency import choose_curve
from flowsched_k8s.neutral import DAY_SCALE
from flowsched_k8s.round_input import NodeView, World
from flowsched_models.catalogue import Catalogue
from flowsched_models.execution import Execution
from flowsched_models.neutral import NEUTRAL
from flowsched_models.runtime import Host, HostFactory, Resident

_MIB = 1 << 20
_VISIBLE_MILLI = MILLI
"""A pod without a profile is a neighbour in forecasts from one core on; a smaller one only takes its request away."""


@dataclass
class _Estimate:
    execution: Execution[str]
    members: dict[str, Resident]


class ProgressEstimates:
    """How far measured jobs are, node by node."""

    def __init__(self, catalogue: Catalogue) -> None:
        """Nothing is estimated before a node is asked for."""
        self._hosts = HostFactory(catalogue)
        self._known: dict[str, _Estimate] = {}

    def use_catalogue(self, catalogue: Catalogue) -> None:
        """New profiles: estimates are made anew from start times."""
        self._hosts = HostFactory(catalogue)
        self._known.clear()

    def forget(self, node: str) -> None:
        """A node is gone."""
        self._known.pop(node, None)

    def progress(self, known: KnownNode, now_s: float) -> dict[str, float]:
        """Believed progress of a node's jobs at ``now_s``, by uid."""
        members = known.members
        host = self._host(known.view)
        residents = {uid: resident for uid, (resident, _) in members.items()}
        estimate = self._known.get(known.view.name)
        if estimate is not None and estimate.execution.host is host and estimate.members == residents:
            _advance(estimate.execution, now_s)
            return {uid: estimate.execution.progress(uid) for uid in members}
        before: dict[str, float] = {}
        if estimate is not None:
            _advance(estimate.execution, now_s)
            before = {uid: estimate.execution.progress(uid) for uid in estimate.members if uid in members}
        first = min((start for uid, (_, start) in members.items() if uid not in before), default=now_s)
        execution: Execution[str] = Execution(host, now_s if before else min(first, now_s), ends=False)
        for uid, (resident, start) in sorted(members.items(), key=lambda item: (item[1][1], item[0])):
            if uid in before:
                execution.start(uid, replace(resident, progress=before[uid]))
                continue
            _advance(execution, min(max(start, execution.now_s), now_s))
            execution.start(uid, resident)
        _advance(execution, now_s)
        self._known[known.view.name] = _Estimate(execution, residents)
        return {uid: execution.progress(uid) for uid in members}

    @property
    def any(self) -> bool:
        """Whether anything is estimated of any node."""
        return bool(self._known)

    def resume(self, known: KnownNode, progress: Mapping[str, float], now_s: float) -> None:
        """Believe this progress of a node's jobs at ``now_s``, however it came about."""
        execution: Execution[str] = Execution(self._host(known.view), now_s, ends=False)
        residents = {uid: resident for uid, (resident, _) in known.members.items()}
        for uid in sorted(residents):
            execution.start(uid, replace(residents[uid], progress=progress[uid]))
        self._known[known.view.name] = _Estimate(execution, residents)

    def _host(self, view: NodeView) -> Host:
        return self._hosts.host(view.type, [service_load(s) for s in view.services])


def _advance(execution: Execution[str], to_s: float) -> None:
    while execution.now_s < to_s:
        execution.advance(min(to_s, execution.next_event_s()))


def task_of(entry: PodEntry, resize: bool, least_milli: int = 1) -> Task:
    """A pod as the engine's task; without a profile it is as the neutral one, and runs until it is deleted.

    Its name is its uid, its job NAMESPACE/NAME, its priority is kept outside. ``least_milli``: the least CPU that it is
    taken to ask for; forecasts know no program that takes none.
    """
    intent = entry.intent
    request = max(least_milli, entry.request_milli)
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
        run_s=intent.run_s,
        interference_class=intent.interference_class,
        input_mb=intent.input_mb,
        locality=intent.locality,
    )


@dataclass(frozen=True)
class KnownNode:
    """A node as it was seen last; what is estimated of its jobs changes without any event."""

    view: NodeView
    members: dict[str, tuple[Resident, float]]
    """By uid what runs here, and since when; empty where nothing is estimated of it."""
    ends: bool
    """Whether anything that runs here ends by itself, if progress is estimated at all."""

    @classmethod
    def of(cls, view: NodeView, estimated: bool = True) -> KnownNode:
        """All that follows from a view, which has no progress yet. ``estimated``: whether progress is estimated."""
        if not estimated or all(r.task.endless for r in view.running):
            return cls(view, {}, False)
        members = {
            r.task.name: (
                Resident(r.task.profile, r.task.scale, r.threads, r.cores, r.width_milli / MILLI, r.task.memory_mib),
                r.start_s,
            )
            for r in view.running
        }
        return cls(view, members, True)

    def at(self, now_s: float, estimates: ProgressEstimates) -> NodeView:
        """The view with what is estimated of its jobs at a moment."""
        if not self.ends:
            return self.view
        progress = estimates.progress(self, now_s)
        running = tuple(
            replace(r, progress=0.0 if r.task.endless else progress[r.task.name]) for r in self.view.running
        )
        return replace(self.view, running=running)


class WorldBuilder:
    """The view of every node; kept until something happens on it."""

    def __init__(self, cache: Cache) -> None:
        """Nothing is looked at before a round asks. With a cost model beside ``flow`` every pod is a task, and
        progress is not estimated.
        """
        self._cache = cache
        self._all_pods = not cache.configuration.cost_model.is_flow
        self._seen: dict[str, tuple[tuple[Any, ...], Running]] = {}
        """By uid what a pod was made of, and what it is; for whole clusters of tasks, few of which change."""
        self._known: dict[str, tuple[int, KnownNode]] = {}
        """With the node's revision as it was seen."""
        self.estimates = ProgressEstimates(cache.catalogue)

    def use_catalogue(self, catalogue: Catalogue) -> None:
        """New profiles: everything is looked at anew."""
        self.estimates.use_catalogue(catalogue)
        self._known.clear()
        self._seen.clear()

    def forget(self, node: str) -> None:
        """A node is gone."""
        self.estimates.forget(node)
        self._known.pop(node, None)

    def known(self, node: str) -> KnownNode:
        """A node as it was seen last. Raises ``KeyError`` for one that no round has looked at."""
        return self._known[node][1]

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
        revision = self._cache.revision(name)
        known = self._known.get(name)
        if known is None or known[0] != revision:
            known = self._known[name] = revision, self._look(name, now_s)
        return known[1].at(now_s, self.estimates)

    def _look(self, name: str, now_s: float) -> KnownNode:
        cache = self._cache
        node = cache.nodes[name]
        services = tuple(node_services(cache, name))
        owned = {c for s in services for c in s.cores}
        open_cores = tuple(c for c in range(node.type.vcpus) if c not in owned)
        known = {s.name for s in services}
        gpus = cache.gpus.of(name)
        running = []
        for uid in sorted(node.pods):
            entry = cache.pods[uid]
            visible = entry.intent.profile is not None or entry.request_milli >= _VISIBLE_MILLI
            visible = (visible and entry.request_milli > 0) or (
                gpus is not None and entry.needs.get(gpus.resource, 0) > 0
            )
            if uid in known or not open_cores or not (self._all_pods or visible):
                continue
            # The clock of a node may be ahead.
            started = min(max(entry.started_s, entry.created_s), now_s)
            running.append(self._runs(entry, name, open_cores, started))
        view = NodeView.of(name, node.type.name, node.type.vcpus, services, tuple(running))
        if len(self._seen) > 2 * len(cache.pods):
            self._seen = {uid: seen for uid, seen in self._seen.items() if uid in cache.pods}
        return KnownNode.of(view, estimated=not self._all_pods)

    def _runs(self, entry: PodEntry, node: str, open_cores: tuple[int, ...], started_s: float) -> Running:
        if not self._all_pods:
            return _running(entry, node, open_cores, started_s, 1)
        made_of = (entry.pod, entry.width_milli, entry.threads, entry.cores, node, open_cores, started_s)
        seen = self._seen.get(entry.key.uid)
        if seen is not None and seen[0][0] is entry.pod and seen[0][1:] == made_of[1:]:
            return seen[1]
        runs = _running(entry, node, open_cores, started_s, 0)
        self._seen[entry.key.uid] = made_of, runs
        return runs


def _running(entry: PodEntry, node: str, open_cores: tuple[int, ...], started_s: float, least_milli: int) -> Running:
    cores = tuple(c for c in entry.cores if c in open_cores) or open_cores
    task = task_of(entry, False, least_milli)
    threads = max(1, entry.threads)
    if task.endless:
        threads = min(threads, len(cores))
    width = max(entry.width_milli, task.request_milli)
    if width > MOST_MILLI:
        # A pod can be on a node whatever it asks for; that much no forecast can count.
        width = MOST_MILLI
        task = replace(task, request_milli=width, widths_milli=(width,))
    return Running(task, node, width, threads, cores, started_s, started_s)


def node_services(cache: Cache, name: str) -> list[Service]:
    """Latency services on a node whose place was measured, with cores of their own."""
    node = cache.nodes[name]
    taken: set[int] = set()
    found = []
    for entry, wish in cache.services.on(name):
        curve = choose_curve(cache.catalogue.services[wish.profile], wish, (entry.threads,))
        curve = curve or choose_curve(cache.catalogue.services[wish.profile], wish)
        if curve is None:
            continue
        free = [c for c in range(node.type.vcpus) if c not in taken]
        cores = tuple(c for c in entry.cores if c in free)[: wish.core_count]
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
