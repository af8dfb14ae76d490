"""The nodes of the pool as forecasts see them, with what is estimated of the jobs that run there.

The progress of a job is not measured: it is estimated from its start and the models, and every start or end on a node
changes the estimates of all jobs there. After a restart it is rebuilt from the start times of what runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from flowsched.cluster.cluster_state import service_load
from flowsched.cluster.snapshot import PlannedStart, Reservation, Running, Service, Task
from flowsched.scale.cluster_checks import MOST_MILLI
from flowsched.support.arrays import IntArray
from flowsched_k8s.cache import Cache
from flowsched_k8s.learning.learner import Course
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.pods.run_times import LEAST_MILLI, forecast_run_s
from flowsched_k8s.rounds.neutral import DAY_SCALE, given_run_time
from flowsched_k8s.rounds.round_input import NodeView, World
from flowsched_k8s.services.latency import choose_curve
from flowsched_models.catalogue import Catalogue
from flowsched_models.estimated_executions import EstimatedExecutions, Progress
from flowsched_models.neutral import NEUTRAL
from flowsched_models.runtime import Host, HostFactory, Resident

_MIB = 1 << 20


@dataclass
class _Members:
    """What is estimated together on a node."""

    host: Host
    residents: dict[str, Resident]
    """By uid."""
    began_s: dict[str, float]
    """When the estimate of each began, by uid."""


class ProgressEstimates:
    """How far measured jobs are, on all nodes. A look takes time for the nodes on which something happened."""

    def __init__(self, catalogue: Catalogue) -> None:
        """Nothing is estimated before a node is put there."""
        self._hosts = HostFactory(catalogue)
        self._known: dict[str, _Members] = {}
        self._executions: EstimatedExecutions[tuple[str, str]] = EstimatedExecutions()
        """Jobs by (node, uid): a pod may be seen on another node before it is seen to be gone from the first."""

    def use_catalogue(self, catalogue: Catalogue) -> None:
        """New profiles: estimates are made anew from start times."""
        now_s = self._executions.now_s
        self._hosts = HostFactory(catalogue)
        self._known.clear()
        self._executions = EstimatedExecutions(now_s)

    def forget(self, node: str) -> None:
        """A node is gone, or nothing there ends by itself."""
        if self._known.pop(node, None) is not None:
            self._executions.remove(node)

    def put(self, view: NodeView, now_s: float) -> NodeView:
        """A node is like this from now on; with the rows of what runs there. Jobs that stay go on from where they are."""
        if all(r.task.endless for r in view.running):
            self.forget(view.name)
            return view
        self._executions.advance(now_s)
        node, known = view.name, self._known.get(view.name)
        host = self._hosts.host(view.type, [service_load(s) for s in view.services])
        now = _Members(host, _residents(view), {r.task.name: r.start_s for r in view.running})
        if known is None or known.residents.keys().isdisjoint(now.residents):
            self.forget(node)
            began = [(r.start_s, (node, r.task.name), now.residents[r.task.name]) for r in view.running]
            self._executions.add(node, now.host, began)
        else:
            now.began_s = {uid: known.began_s.get(uid, now_s) for uid in now.residents}
            if (known.host, known.residents) != (now.host, now.residents):
                self._change(node, known, now, now_s)
        self._known[node] = now
        return self._numbered(view)

    def resume(self, view: NodeView, progress: Mapping[str, float], now_s: float) -> NodeView:
        """Believe this progress of a node's jobs, by uid, from now on, however it came about; with their rows."""
        view = self.put(view, now_s)
        known = self._known[view.name]
        self._executions.remove(view.name)
        self._executions.add(view.name, known.host)
        for uid, resident in known.residents.items():
            self._executions.start(view.name, (view.name, uid), replace(resident, progress=progress[uid]))
        return self._numbered(view)

    def progress(self, now_s: float) -> Progress:
        """How far all jobs are, by row."""
        self._executions.advance(now_s)
        return self._executions.progress()

    def course(self, node: str, uid: str, now_s: float) -> Course | None:
        """What is estimated of a job there; None for one of which nothing is. It changes nothing."""
        known = self._known.get(node)
        if known is None or uid not in known.residents:
            return None
        now_s = max(now_s, self._executions.now_s)
        progress = self._executions.seen(node, (node, uid), now_s)
        return Course(known.host, known.residents[uid], progress, now_s - known.began_s[uid])

    def _change(self, node: str, known: _Members, now: _Members, now_s: float) -> None:
        """Jobs that are gone, new or given other cores, or a machine of another kind with the jobs that were there."""
        same = known.host is now.host
        stays = {uid for uid, resident in known.residents.items() if same and now.residents.get(uid) == resident}
        done = {uid: self._executions.stop(node, (node, uid)) for uid in known.residents if uid not in stays}
        if not same:
            self._executions.remove(node)
            self._executions.add(node, now.host)
        for uid, resident in now.residents.items():
            if uid in stays:
                continue
            progress, before = done.get(uid, 0.0), known.residents.get(uid)
            if before is not None and before.profile != resident.profile:
                # How long it runs has become known since it began: it has done what takes so long, with nothing beside it.
                alone_s = now.host.alone_s(resident.profile, resident.threads, resident.cores, resident.scale)
                progress = max(0.0, now_s - now.began_s[uid]) / alone_s
            self._executions.start(node, (node, uid), replace(resident, progress=progress))

    def _numbered(self, view: NodeView) -> NodeView:
        return replace(view, rows=tuple([self._executions.row((view.name, r.task.name)) for r in view.running]))


def _residents(view: NodeView) -> dict[str, Resident]:
    """What runs on a node by uid, as machines are put in motion with it; those first that started first."""
    there = sorted(view.running, key=lambda r: (r.start_s, r.task.name))
    return {r.task.name: _forecast(r) for r in there}


def _forecast(running: Running) -> Resident:
    """A task with its work as it was forecast at its start."""
    resident, factor = running.resident, running.factor
    return resident if factor == 1.0 else resident.at(resident.scale * factor, resident.progress, resident.ready_s)


def task_of(entry: PodEntry, resize: bool, least_milli: int = 1, run_s: float | None = None) -> Task:
    """A pod as the engine's task; without a profile it is as the neutral one, and runs until it is deleted, or ``run_s``.

    Its name is its uid, its job NAMESPACE/NAME, its priority is kept outside. ``least_milli``: the least CPU that it is
    taken to ask for; forecasts know no program that takes none.
    """
    intent = entry.intent
    request = max(least_milli, entry.request_milli)
    profile, scale = intent.profile or NEUTRAL, DAY_SCALE if intent.profile is None else intent.scale
    if run_s is not None:
        # It would take as long on more, and the seconds are its scale.
        profile, scale, resize = given_run_time(request), run_s, False
    # A pod is admitted at its request, so only growing from there can be planned with.
    wider = {w for w in intent.widths_milli if w > request} if resize else set()
    return Task(
        name=entry.key.uid,
        job=str(entry.key),
        profile=profile,
        scale=scale,
        request_milli=request,
        widths_milli=tuple(sorted({request, *wider})),
        memory_mib=-(-entry.needs.get("memory", 0) // _MIB),
        submit_s=entry.created_s,
        goal_s=intent.goal_s,
        threads=tuple(sorted(intent.threads)),
        min_utility=intent.min_utility,
        endless=intent.profile is None and run_s is None,
        run_s=intent.run_s,
        interference_class=intent.interference_class,
        input_mb=intent.input_mb,
        locality=intent.locality,
        run_class=entry.priced_class,
    )


class WorldBuilder:
    """The view of every node; kept until something happens on it."""

    def __init__(self, cache: Cache) -> None:
        """Nothing is looked at before a round asks. With a cost model beside ``flow`` every pod is a task, and
        progress is not estimated.
        """
        self._cache = cache
        self._all_pods = not cache.configuration.cost_model.is_flow
        self._seen: dict[str, tuple[tuple[Any, ...], Running]] = {}
        """By uid what a pod was made of, and what it is: of those on a node that changes few are others than before."""
        self._known: dict[str, NodeView] = {}
        self._revision = 0
        """Of the node that had changed last when they were looked at."""
        self._order: IntArray | None = None
        """Rows of the nodes as they were looked at."""
        self._views: list[NodeView] = []
        """Those of the nodes, in that order."""
        self._at: dict[str, int] = {}
        """Index of each there."""
        self._estimates = ProgressEstimates(cache.catalogue)

    def use_catalogue(self, catalogue: Catalogue) -> None:
        """New profiles: everything is looked at anew."""
        self._estimates.use_catalogue(catalogue)
        self._known.clear()
        self._seen.clear()
        self._order = None

    def forget(self, node: str) -> None:
        """A node is gone."""
        self._estimates.forget(node)
        self._known.pop(node, None)

    def known(self, node: str) -> NodeView:
        """A node as it was seen last. Raises ``KeyError`` for one that no round has looked at."""
        return self._known[node]

    def build(self, now_s: float, plan: tuple[PlannedStart, ...], reservations: tuple[Reservation, ...]) -> World:
        """All nodes of the pool, in the order of their names.

        Those that no waiting pod may use are there as well: domains of relations are counted over all nodes, and an
        exported snapshot has them, so that both decide on the same.
        """
        cache = self._cache
        for name in tuple(cache.changed_since(self._revision)):
            self._known.pop(name, None)
            if (at := self._at.get(name)) is not None and cache.fleet.order() is self._order:
                self._views[at] = self._view(name, now_s)
        self._revision = cache.last_revision
        if cache.fleet.order() is not self._order:
            self._order = cache.fleet.order()
            names = [str(cache.fleet.names[row]) for row in self._order.tolist()]
            self._views = [self._view(name, now_s) for name in names]
            self._at = {name: at for at, name in enumerate(names)}
        progress = None if self._all_pods else self._estimates.progress(now_s)
        return World(self._order, tuple(self._views), progress, plan, reservations)

    def resume(self, world: World, now_s: float) -> Iterator[tuple[str, Mapping[str, float]]]:
        """Let what is estimated go on as if it had no history: each node, and by uid the progress that it goes on from."""
        for view in world.nodes:
            if not view.rows or world.progress is None:
                continue
            done = world.progress.by_row
            progress = {r.task.name: float(done[row]) for r, row in zip(view.running, view.rows, strict=True)}
            resumed = self._estimates.resume(view, progress, now_s)
            self._known[view.name] = self._views[self._at[view.name]] = resumed
            yield view.name, progress

    def course(self, entry: PodEntry, now_s: float) -> Course | None:
        """What is estimated of a pod that is somewhere."""
        return self._estimates.course(entry.place, entry.key.uid, now_s)

    @property
    def estimates_any(self) -> bool:
        """Whether anything is estimated of any node."""
        return any(view.rows for view in self._views)

    def _view(self, name: str, now_s: float) -> NodeView:
        known = self._known.get(name)
        if known is None:
            known = self._look(name, now_s)
            if not self._all_pods:
                known = self._estimates.put(known, now_s)
            self._known[name] = known
        return known

    def _look(self, name: str, now_s: float) -> NodeView:
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
            visible = entry.intent.profile is not None or entry.request_milli >= LEAST_MILLI
            visible = (visible and entry.request_milli > 0) or (
                gpus is not None and entry.needs.get(gpus.resource, 0) > 0
            )
            if uid in known or not open_cores or not (self._all_pods or visible):
                continue
            # The clock of a node may be ahead.
            started = min(max(entry.started_s, entry.created_s), now_s)
            running.append(self._runs(entry, name, open_cores, started))
        if len(self._seen) > 2 * len(cache.pods):
            self._seen = {uid: seen for uid, seen in self._seen.items() if uid in cache.pods}
        needs = {r.task.name: cache.pods[r.task.name].needs for r in running}
        titles = {uid: str(cache.pods[uid].key) for uid in (*known, *needs)}
        return NodeView.of(name, node.type.name, node.type.vcpus, services, tuple(running), needs=needs, titles=titles)

    def _runs(self, entry: PodEntry, node: str, open_cores: tuple[int, ...], started_s: float) -> Running:
        run_s = None if self._all_pods else forecast_run_s(entry)
        made_of = (
            entry.pod,
            entry.width_milli,
            entry.threads,
            entry.cores,
            node,
            open_cores,
            started_s,
            run_s,
            entry.factor,
        )
        seen = self._seen.get(entry.key.uid)
        if seen is not None and seen[0][0] is entry.pod and seen[0][1:] == made_of[1:]:
            return seen[1]
        task = task_of(entry, False, 0 if self._all_pods else 1, run_s)
        runs = _running(entry, task, node, open_cores, started_s)
        self._seen[entry.key.uid] = made_of, runs
        return runs


def _running(entry: PodEntry, task: Task, node: str, open_cores: tuple[int, ...], started_s: float) -> Running:
    cores = tuple(c for c in entry.cores if c in open_cores) or open_cores
    threads = max(1, entry.threads)
    if task.endless:
        threads = min(threads, len(cores))
    width = max(entry.width_milli, task.request_milli)
    if width > MOST_MILLI:
        # A pod can be on a node whatever it asks for; that much no forecast can count.
        width = MOST_MILLI
        task = replace(task, request_milli=width, widths_milli=(width,))
    return Running(task, node, width, threads, cores, started_s, started_s, factor=entry.factor)


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
