"""A live cluster as a snapshot for ``solve`` and ``simulate``: read once, nothing written."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import yaml

from flowsched.cluster.snapshot import Snapshot, Task
from flowsched.cluster.snapshot_dump import dump_snapshot
from flowsched_k8s.api.access import Access
from flowsched_k8s.api.client import Connection
from flowsched_k8s.api.reflector import Reflector
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.configuration.profiles_file import ProfilesFile, first_profiles
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.queue import Place
from flowsched_k8s.rounds.measured_pods import MeasuredPods
from flowsched_k8s.rounds.occupied_nodes import task_of
from flowsched_k8s.state import SchedulerState
from flowsched_k8s.watched import watched


async def export_snapshot(configuration: Configuration, access: Access) -> tuple[str, list[str]]:
    """The snapshot as YAML, and remarks about what it leaves out.

    Raises :class:`InputError` for profiles that are wrong, ``ApiError`` and ``UnreachableError`` for a cluster that does
    not answer.
    """
    profiles = ProfilesFile(configuration.profiles_file) if configuration.profiles_file else None
    state = SchedulerState(configuration, first_profiles(profiles))
    async with Connection(access) as connection:
        now_s = time.time()
        for kind in watched(configuration):
            reflector: Reflector[Any] = Reflector(
                connection, kind.path, kind.type, lambda batch: state.observe(batch, now_s), selectors=kind.selectors
            )
            await reflector.list_once(required=kind.name in ("nodes", "pods"))
    snapshot, remarks = snapshot_of(state, time.time())
    return yaml.safe_dump(dump_snapshot(snapshot), sort_keys=False, allow_unicode=True), remarks


def snapshot_of(state: SchedulerState, now_s: float) -> tuple[Snapshot, list[str]]:
    """The state's cluster with readable names, times counted from the oldest pod; and what it leaves out.

    Pods with profiles or known run times, and groups that have such members, are exactly what the next round would decide on
    at forecast prices; the others, which rounds place at linear prices, are there as tasks of the neutral profile without an
    end. With a cost model beside ``flow`` every pod is exactly what the next round would decide on.
    """
    cache = state.cache
    remarks: list[str] = []
    waiting = []
    for entry in sorted(cache.pods.values(), key=lambda e: (-e.priority, e.order)):
        if entry.key in state.queue:
            cache.wants(entry)
            waiting.append(entry)
    taking_part = []
    for entry in sorted(waiting, key=lambda e: e.key):
        problem = _left_out(state, entry)
        if problem is None:
            taking_part.append(entry.key)
        else:
            remarks.append(f"{entry.key} is left out: {problem}")
    given = state.round_input([e for e in waiting if e.key in set(taking_part)], now_s)
    # With a cost model beside flow all of them are tasks already.
    tasks = [c if c.task is not None else replace(c, task=task_of(cache.pods[c.uids[0]], False)) for c in given.classes]
    if not given.cluster.machines:
        given = replace(given, cluster=state.inputs.occupied.look(now_s))
    # A round may be decided in another thread meanwhile: what rounds keep is that one's.
    given = replace(given, number=state.rounds + 1, kept=None)
    snapshot = MeasuredPods(given).snapshot(tasks)
    foreign = sum(1 for e in cache.pods.values() if not e.place and e.key not in state.queue)
    if foreign:
        remarks.append(f"{foreign} waiting pods of other schedulers are left out")
    if cache.others:
        remarks.append(f"{len(cache.others)} nodes outside of the pool are left out")
    return _readable(state, snapshot), remarks


def _left_out(state: SchedulerState, entry: PodEntry) -> str | None:
    if entry.intent.service is not None:
        return "a latency service has a fixed place in a snapshot, and this one has none yet"
    if state.queue.place(entry.key) is Place.GATED:
        return "it has scheduling gates"
    return state.cache.wants(entry).problem


def _readable(state: SchedulerState, snapshot: Snapshot) -> Snapshot:
    """Names as people know them; whole seconds are taken off all moments, so that no difference of two changes."""
    cache = state.cache
    origin = float(math.floor(min([snapshot.now_s, *(e.created_s for e in cache.pods.values() if e.created_s)])))
    title = {uid: str(e.key) for uid, e in cache.pods.items()}

    def task(t: Task, **changed: Any) -> Task:
        return replace(t, name=title[t.name], job=title[t.name], submit_s=t.submit_s - origin, **changed)

    return replace(
        snapshot,
        now_s=snapshot.now_s - origin,
        services=tuple(replace(s, name=title[s.name]) for s in snapshot.services),
        running=tuple(
            replace(
                r,
                task=task(r.task, priority=cache.pods[r.task.name].priority),
                bound_s=r.bound_s - origin,
                start_s=r.start_s - origin,
            )
            for r in snapshot.running
        ),
        pending=tuple(task(t) for t in snapshot.pending),
        plan=tuple(
            replace(p, task=title[p.task], start_s=_since(p.start_s, origin), end_s=_since(p.end_s, origin))
            for p in snapshot.plan
        ),
        reservations=tuple(replace(r, task=title[r.task], start_s=r.start_s - origin) for r in snapshot.reservations),
    )


def _since(moment_s: float | None, origin: float) -> float | None:
    return None if moment_s is None else moment_s - origin
