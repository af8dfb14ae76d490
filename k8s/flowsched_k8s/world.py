"""The machines that may matter to measured pods, as the engine's search sees them, with what is believed of their jobs.

Nobody measures how far a job is: its progress is believed from its start and the models, and every start or end on a node
changes the belief about everybody there. After a restart it is rebuilt from the start times of what runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import BELIEF_CEILING, service_load
from flowsched.snapshot import MILLI, Machine, PlannedStart, Reservation, Running, Service, Task
from flowsched_k8s.cache import Cache, PodEntry
from flowsched_k8s.latency import choose_curve
from flowsched_k8s.neutral import DAY_SCALE
from flowsched_k8s.planning import SearchWorld
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

    @property
    def hosts(self) -> HostFactory:
        """Hosts whose rates are remembered."""
        return self._hosts

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
    """A pod with a measured job profile as the engine's task. Its name is its uid, its priority is kept outside."""
    intent = entry.intent
    request = max(1, entry.request_milli)
    # A pod is admitted at its request, so only growing from there can be planned with.
    wider = {w for w in intent.widths_milli if w > request} if resize else set()
    return Task(
        name=entry.key.uid,
        job=entry.key.uid,
        profile=intent.profile or NEUTRAL,
        scale=intent.scale,
        request_milli=request,
        widths_milli=tuple(sorted({request, *wider})),
        memory_mib=-(-entry.needs.get("memory", 0) // _MIB),
        submit_s=entry.created_s,
        goal_s=intent.goal_s,
        threads=tuple(sorted(intent.threads)),
        min_utility=intent.min_utility,
    )


def build_world(
    cache: Cache,
    beliefs: Beliefs,
    rows: NDArray[np.intp],
    now_s: float,
    plan: tuple[PlannedStart, ...],
    reservations: tuple[Reservation, ...],
) -> SearchWorld:
    """The search's view of some nodes (rows of the fleet)."""
    machines: list[Machine] = []
    services: list[Service] = []
    running: list[Running] = []
    for row in rows.tolist():
        name = cache.fleet.names[row]
        if name is None or name not in cache.nodes:
            continue
        machine, here, runs = _machine(cache, beliefs, name, now_s)
        machines.append(machine)
        services += here
        running += runs
    return SearchWorld(tuple(machines), tuple(services), tuple(running), plan, reservations)


def _machine(cache: Cache, beliefs: Beliefs, name: str, now_s: float) -> tuple[Machine, list[Service], list[Running]]:
    node = cache.nodes[name]
    services = node_services(cache, name)
    owned = {c for s in services for c in s.cores}
    open_cores = tuple(c for c in range(node.type.vcpus) if c not in owned)
    cpu = node.allocatable.get("cpu", 0)
    memory = node.allocatable.get("memory", 0)
    known = {s.name for s in services}
    members: dict[str, tuple[Resident, float]] = {}
    tasks: dict[str, Task] = {}
    for uid in sorted(node.pods):
        entry = cache.pods[uid]
        if uid in known:
            continue
        measured = entry.intent.profile is not None
        if open_cores and entry.request_milli and (measured or entry.request_milli >= _VISIBLE_MILLI):
            resident, task = _resident(entry, open_cores)
            members[uid] = resident, max(entry.started_s, entry.created_s)
            tasks[uid] = task
        else:
            cpu -= max(entry.width_milli, entry.request_milli)
            memory -= entry.needs.get("memory", 0)
    progress = beliefs.progress(name, node.type.name, services, members, now_s)
    running = []
    for uid, (resident, started) in members.items():
        entry = cache.pods[uid]
        running.append(
            Running(
                tasks[uid],
                name,
                max(entry.width_milli, entry.request_milli),
                resident.threads,
                resident.cores,
                min(started, now_s),
                min(started, now_s),
                0.0 if tasks[uid].endless else progress[uid],
            )
        )
    machine = Machine(name, node.type.name, cpu, memory // _MIB, node.type.vcpus)
    return machine, services, running


def _resident(entry: PodEntry, open_cores: tuple[int, ...]) -> tuple[Resident, Task]:
    cores = tuple(c for c in entry.cores if c in open_cores) or open_cores
    task = task_of(entry, resize=False)
    threads = max(1, entry.threads)
    if entry.intent.profile is None:
        task = replace(task, scale=DAY_SCALE, endless=True)
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
