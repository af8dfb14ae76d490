"""A live cluster as a snapshot for ``solve`` and ``simulate``: read once, nothing written."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import yaml

from flowsched.relation import Relation, TaskGroup
from flowsched.snapshot import Machine, Running, Service, Snapshot, Task
from flowsched.snapshot_file import dump_snapshot
from flowsched_k8s.api.access import Access
from flowsched_k8s.api.client import Connection
from flowsched_k8s.api.reflector import Reflector
from flowsched_k8s.cache import PodEntry
from flowsched_k8s.configuration import Configuration
from flowsched_k8s.gangs import group_name
from flowsched_k8s.neutral import DAY_SCALE
from flowsched_k8s.process import watched
from flowsched_k8s.profiles_file import ProfilesFile
from flowsched_k8s.state import SchedulerState
from flowsched_k8s.world import build_world, task_of
from flowsched_models.catalogue import Catalogue
from flowsched_models.profiles import load_catalogue


async def take_photograph(configuration: Configuration, access: Access) -> tuple[str, list[str]]:
    """The snapshot as YAML, and remarks about what it leaves out.

    Raises :class:`InputError` for profiles that are wrong, ``ApiError`` and ``UnreachableError`` for a cluster that does
    not answer.
    """
    found = ProfilesFile(configuration.profiles_file).poll() if configuration.profiles_file else None
    state = SchedulerState(configuration, found if isinstance(found, Catalogue) else load_catalogue())
    async with Connection(access) as connection:
        for kind in watched(configuration):
            reflector: Reflector[Any] = Reflector(
                connection,
                kind.path,
                kind.type,
                lambda batch: _observe(state, batch),
                selectors=kind.selectors,
            )
            await reflector.list_once(required=kind.name in ("nodes", "pods"))
    snapshot, remarks = snapshot_of(state, time.time())
    return yaml.safe_dump(dump_snapshot(snapshot), sort_keys=False, allow_unicode=True), remarks


def _observe(state: SchedulerState, batch: list[Any]) -> None:
    state.observe(batch, 0.0)


def snapshot_of(state: SchedulerState, now_s: float) -> tuple[Snapshot, list[str]]:
    """The state's cluster with readable names, times counted from the oldest pod; and what it leaves out."""
    cache = state.cache
    remarks: list[str] = []
    rows = np.array(cache.fleet.order(), dtype=np.intp)
    world = build_world(cache, state.inputs.beliefs, rows, now_s, (), ())
    origin = min([now_s, *(e.created_s for e in cache.pods.values() if e.created_s)])
    titles = {uid: str(e.key) for uid, e in cache.pods.items()}
    relations: dict[str, Relation] = {}
    groups: dict[str, TaskGroup] = {}
    pending = []
    for entry in sorted(cache.pods.values(), key=lambda e: e.key):
        if entry.key not in state.queue:
            continue
        task, problem = _pending(state, entry, origin, relations, groups)
        if problem is not None:
            remarks.append(f"{entry.key} is left out: {problem}")
        if task is not None:
            pending.append(task)
    known = relations.keys()
    running = tuple(_running(state, r, titles, origin, known) for r in world.running)
    foreign = sum(1 for e in cache.pods.values() if not e.place and e.key not in state.queue)
    if foreign:
        remarks.append(f"{foreign} waiting pods of other schedulers are left out")
    if cache.others:
        remarks.append(f"{len(cache.others)} nodes outside of the pool are left out")
    snapshot = Snapshot(
        now_s=now_s - origin,
        catalogue=cache.catalogue,
        machines=tuple(_machine(state, m) for m in world.machines),
        services=tuple(_renamed(s, titles) for s in world.services),
        running=running,
        pending=tuple(pending),
        relations=tuple(relations.values()),
        task_groups=tuple(groups.values()),
    )
    return snapshot, remarks


def _machine(state: SchedulerState, machine: Machine) -> Machine:
    node = state.cache.nodes[machine.name]
    labels = tuple(sorted((node.node.metadata.labels or {}).items()))
    return replace(machine, labels=labels)


def _renamed(service: Service, titles: dict[str, str]) -> Service:
    return replace(service, name=titles[service.name])


def _running(
    state: SchedulerState, running: Running, titles: dict[str, str], origin: float, known: Iterable[str]
) -> Running:
    entry = state.cache.pods[running.task.name]
    joins = tuple(name for name in known if state.cache.relations.matches(name, entry.pod))
    title = titles[running.task.name]
    task = replace(
        running.task,
        name=title,
        job=title,
        submit_s=running.task.submit_s - origin,
        joins=joins,
        priority=entry.priority,
    )
    return replace(running, task=task, bound_s=running.bound_s - origin, start_s=running.start_s - origin)


def _pending(
    state: SchedulerState,
    entry: PodEntry,
    origin: float,
    relations: dict[str, Relation],
    groups: dict[str, TaskGroup],
) -> tuple[Task | None, str | None]:
    cache = state.cache
    wants = cache.wants(entry)
    if wants.problem is not None:
        return None, wants.problem
    if entry.intent.service is not None:
        return None, "a latency service has a fixed place in a snapshot, and this one has none yet"
    passes = state.inputs.verdicts(wants).passes[: cache.fleet.rows]
    allowed = tuple(str(cache.fleet.names[r]) for r in cache.fleet.order().tolist() if passes[r])
    for name in (*wants.holds, *wants.joins):
        relation = cache.fleet.relation(name)
        if relation is not None:
            relations[name] = relation
    if wants.group is not None:
        groups.setdefault(group_name(wants.group), state.gangs.task_group(wants.group))
    task = task_of(entry, resize=cache.configuration.features.resize)
    if entry.intent.profile is None:
        task = replace(task, scale=DAY_SCALE, endless=True)
    task = replace(
        task,
        name=str(entry.key),
        job=str(entry.key),
        submit_s=entry.created_s - origin,
        machines=None if len(allowed) == len(cache.nodes) else allowed,
        holds=wants.holds,
        joins=wants.joins,
        group=group_name(wants.group) if wants.group is not None else None,
        priority=entry.priority,
    )
    return task, None
