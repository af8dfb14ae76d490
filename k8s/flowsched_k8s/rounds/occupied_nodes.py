"""The nodes of the pool as forecasts see them, with what is estimated of the jobs that run there.

The cache says which nodes have changed; what they are like now is told to the same state that simulated clusters have. After
a restart estimates are made from the start times of what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from flowsched.cluster.occupied_machines import Course, OccupiedMachines
from flowsched.cluster.snapshot import Machine, PlannedStart, Reservation, Running, Service, Snapshot, Task
from flowsched.round.linear.cluster_checks import MOST_MILLI
from flowsched_k8s.cache import Cache
from flowsched_k8s.objects import Pod
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.pods.run_times import LEAST_MILLI, forecast_run_s
from flowsched_k8s.rounds.neutral import DAY_SCALE, given_run_time
from flowsched_k8s.services.latency import choose_curve
from flowsched_models.core_set import cores_but
from flowsched_models.neutral import NEUTRAL
from flowsched_models.runtime import HostFactory

_MIB = 1 << 20
_MOST_TOLD = 64
"""Pods of a node that changed; with more of them all are looked at."""
_BARE = Task("", "", "", 0.0, 0, (0,), 0, 0.0)


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
    wider = {w for w in intent.widths_milli if w > request} if resize else ()
    return _BARE.but(
        name=entry.key.uid,
        job=str(entry.key),
        profile=profile,
        scale=scale,
        request_milli=request,
        widths_milli=(request, *sorted(wider)),
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


class OccupiedNodes:
    """What runs on the nodes of the pool as forecasts see it, kept: a look takes time for the nodes that have changed."""

    def __init__(self, cache: Cache) -> None:
        """Nothing is looked at before a round asks. With a cost model beside ``flow`` every pod is a task, and
        progress is not estimated.
        """
        self._cache = cache
        self._all_pods = not cache.configuration.cost_model.is_flow
        self._seen: dict[str, tuple[Pod, tuple[Any, ...], Running | None]] = {}
        """By uid what a pod was made of, and what it is: of those on a node that changes few are others than before."""
        self._changed: dict[str, set[str] | None] = dict.fromkeys(cache.nodes)
        """Nodes that have changed since they were looked at, with uids of pods where these are all that has; else None."""
        self._ahead: dict[str, set[str]] = {}
        """By node, uids of pods that had not started, by its clock, when they were looked at."""
        cache.revisions.followers.append(self._note)
        self.followers: list[Callable[[float], None]] = []
        """Told of looks between rounds that have seen changes."""
        self._saw_changes = False
        """Whether the last look has seen any."""
        self.machines = self._none(0.0)
        """As they were when they were looked at; to read, and to resume."""

    def use_catalogue(self) -> None:
        """New profiles: everything is looked at anew, and estimates are made anew from start times."""
        self._seen.clear()
        self._changed |= dict.fromkeys(self._cache.nodes)
        self.machines = self._none(self.machines.now_s)

    def forget(self, node: str) -> None:
        """A node is gone."""
        self._changed.pop(node, None)
        self._ahead.pop(node, None)
        if node in self.machines:
            self.machines.remove(node)

    def look(
        self,
        now_s: float,
        plan: tuple[PlannedStart, ...] = (),
        reservations: tuple[Reservation, ...] = (),
    ) -> Snapshot:
        """All nodes of the pool with what runs there, for a round.

        Those that no waiting pod may use are there as well: domains of relations are counted over all nodes, and an
        exported snapshot has them, so that both decide on the same.
        """
        cache = self._cache
        self.machines.advance(now_s)
        changed, self._changed = self._changed, {}
        self._saw_changes = bool(changed)
        for name in sorted(changed):
            self._look_at(name, changed[name], now_s)
        if len(self._seen) > 2 * len(cache.pods):
            self._seen = {uid: seen for uid, seen in self._seen.items() if uid in cache.pods}
        return Snapshot(now_s, cache.catalogue, *self.machines.look(), plan=plan, reservations=reservations)

    def between_rounds(self, now_s: float) -> None:
        """The last look was not a round's. What had come or gone since the one before did so then, as far as estimates go:
        a file from which rounds are played again must tell it.
        """
        for follower in self.followers if self._saw_changes else ():
            follower(now_s)
        self._saw_changes = False

    def course(self, entry: PodEntry, now_s: float) -> Course | None:
        """What is estimated of a pod that is somewhere."""
        uid = entry.key.uid
        return self.machines.course(uid, now_s) if self.machines.machine_of(uid) == entry.place else None

    def _none(self, now_s: float) -> OccupiedMachines:
        catalogue = self._cache.catalogue
        return OccupiedMachines(catalogue, HostFactory(catalogue), now_s, estimating=not self._all_pods)

    def _note(self, node: str, uid: str | None) -> None:
        """Something of a node has changed, or one pod there."""
        if uid is None:
            self._changed[node] = None
        elif (uids := self._changed.setdefault(node, set())) is not None:
            uids.add(uid)
            if len(uids) > _MOST_TOLD:
                self._changed[node] = None

    def _look_at(self, name: str, uids: set[str] | None, now_s: float) -> None:
        """See what a node is like now; ``uids``: of pods that are all that has changed, where that is known."""
        cache = self._cache
        node, here = cache.nodes[name], self.machines.on(name) if name in self.machines else None
        gpus = cache.gpus.of(name)
        if uids is None or here is None or not uids.isdisjoint(node.services):
            uids, services = None, tuple(node_services(cache, name)) if node.services else ()
            machine = machine_of(name, node.type.name, node.type.vcpus, node.allocatable)
            if here is not None and here.machine == machine:
                machine = here.machine
        else:
            machine, services = here.machine, here.services
        open_cores = cores_but(machine.vcpus, {c for s in services for c in s.cores})
        known = {s.name for s in services}
        changed = None if uids is None else uids | self._ahead.get(name, set())
        running: dict[str, Running] = {}
        ahead = set()
        for uid in (node.pods if changed is None else changed & node.pods) if open_cores else ():
            if uid not in known:
                entry = cache.pods[uid]
                asks_gpus = gpus is not None and entry.needs.get(gpus.resource, 0) > 0
                runs = self._runs(entry, name, open_cores, now_s, asks_gpus)
                if runs is not None:
                    running[uid] = runs
                if max(entry.started_s, entry.created_s) > now_s:
                    ahead.add(uid)
        self._ahead.pop(name, None)
        if ahead:
            self._ahead[name] = ahead
        if changed is None:
            self.machines.see(machine, services, running.values())
        else:
            self.machines.change(name, running, changed - running.keys())

    def _runs(
        self, entry: PodEntry, node: str, open_cores: tuple[int, ...], now_s: float, asks_gpus: bool
    ) -> Running | None:
        """A pod as forecasts see it; None for one that they do not see."""
        pod, run_s = entry.pod, None if self._all_pods else forecast_run_s(entry)
        # The clock of a node may be ahead.
        started_s = min(max(entry.started_s, entry.created_s), now_s)
        grant = entry.width_milli, entry.threads, entry.cores
        made_of = (*grant, node, open_cores, started_s, run_s, entry.factor, asks_gpus)
        seen = self._seen.get(entry.key.uid)
        if seen is not None and seen[0] is pod and seen[1] == made_of:
            return seen[2]
        request = entry.request_milli
        visible = request >= LEAST_MILLI or (entry.intent.profile is not None and request > 0)
        runs = None
        if visible or asks_gpus or self._all_pods:
            task = task_of(entry, False, 0 if self._all_pods else 1, run_s)
            runs = _running(entry, task, node, open_cores, started_s)
        self._seen[entry.key.uid] = pod, made_of, runs
        return runs


def machine_of(name: str, type: str, vcpus: int, allocatable: Mapping[str, int]) -> Machine:
    """A node as the engine knows it, whatever is there: a round offers what is left of it."""
    return Machine(name, type, allocatable.get("cpu", 0), allocatable.get("memory", 0) // _MIB, vcpus)


def _running(entry: PodEntry, task: Task, node: str, open_cores: tuple[int, ...], started_s: float) -> Running:
    cores = open_cores
    if entry.cores != open_cores:
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
