"""Small clusters in the domain's words, and random ones for properties."""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import strategies as st

from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import MILLI, Machine, Running, Service, Snapshot, Task
from flowsched.relations.relation import MACHINE, Relation, RelationKind, TaskGroup
from flowsched.round.scheduler import FlowScheduler
from flowsched.solvers import make_solver
from flowsched.support.registry import Registry
from flowsched_models.catalogue import Catalogue
from flowsched_models.machine import MachineType
from flowsched_models.profile import JobProfile, PhaseOrder
from flowsched_models.service import LatencyCurve, ServiceProfile

T = TypeVar("T")

SMALL = MachineType("small", vcpus=4, memory_mib=16_000)
"""Four physical cores of the reference speed."""
LARGE = MachineType("large", vcpus=8, memory_mib=32_000, speed=1.25, bandwidth=0.8, smt=True)
"""Four physical cores with two hardware threads each, faster than the reference: k and k + 4 are siblings."""

SCALING = JobProfile(
    name="scaling",
    work_s=100.0,
    serial_fraction=0.0,
    phase_order=PhaseOrder.MIXED,
    smt_gain=0.5,
    sensitivity=0.1,
    pressure=0.1,
    memory_mib=1000,
)
"""Uses every core it gets."""
SERIAL = JobProfile(
    name="serial",
    work_s=60.0,
    serial_fraction=0.5,
    phase_order=PhaseOrder.SERIAL_FIRST,
    smt_gain=0.2,
    sensitivity=0.05,
    pressure=0.02,
    memory_mib=500,
)
"""Half of its work comes first and uses one core only."""
HUNGRY = JobProfile(
    name="hungry",
    work_s=200.0,
    serial_fraction=0.1,
    phase_order=PhaseOrder.MIXED,
    smt_gain=0.0,
    sensitivity=0.6,
    pressure=0.4,
    memory_mib=6000,
    threads_power_of_two=True,
)
"""Needs much memory, disturbs others and is disturbed; accepts 1, 2, 4, ... threads."""

CACHE = ServiceProfile(
    name="cache",
    curves=(
        LatencyCurve(
            threads=1,
            cores=1,
            a_us=200.0,
            b_us=200.0,
            q0=20_000.0,
            qcap=50_000.0,
            psat_us=3000.0,
            w=2000.0,
            max_measured_qps=45_000.0,
        ),
        LatencyCurve(
            threads=2,
            cores=2,
            a_us=200.0,
            b_us=150.0,
            q0=40_000.0,
            qcap=95_000.0,
            psat_us=3000.0,
            w=3000.0,
            max_measured_qps=88_000.0,
        ),
    ),
    clients={"plain": 1.0},
    cpu_per_kqps=0.018,
    pressure=0.05,
    sensitivity=0.3,
    sharing_slope=1.0,
    sharing_capacity=0.8,
)
"""A latency service that keeps its p95 below 1 ms at up to 45 thousand queries per second and core."""


def catalogue(
    jobs: Iterable[JobProfile] = (SCALING, SERIAL, HUNGRY),
    services: Iterable[ServiceProfile] = (CACHE,),
    machine_types: Iterable[MachineType] = (SMALL, LARGE),
) -> Catalogue:
    """Three jobs, one service, two machine types, unless told otherwise."""
    return Catalogue(
        jobs={p.name: p for p in jobs},
        services={p.name: p for p in services},
        machine_types={t.name: t for t in machine_types},
    )


CATALOGUE = catalogue()


def machine(name: str = "m1", type: MachineType = SMALL, **changes: Any) -> Machine:
    """A machine whose tasks may request all that its type has."""
    values: dict[str, Any] = {
        "cpu_milli": type.vcpus * MILLI,
        "memory_mib": type.memory_mib,
        "vcpus": type.vcpus,
    }
    return Machine(name=name, type=type.name, **(values | changes))


def machines(count: int, type: MachineType = SMALL) -> tuple[Machine, ...]:
    """Machines of one type, named m1, m2, ..."""
    return tuple(machine(f"m{k}", type) for k in range(1, count + 1))


def service(name: str = "cache-1", machine: str = "m1", cores: tuple[int, ...] = (0,), **changes: Any) -> Service:
    """A service on cores of its own, at half of what it can serve."""
    values: dict[str, Any] = {
        "profile": CACHE.name,
        "threads": len(cores),
        "width_milli": len(cores) * MILLI,
        "memory_mib": 1000,
        "qps": 25_000.0 * len(cores),
        "slo_us": 1000.0,
        "client": "plain",
    }
    return Service(name=name, machine=machine, cores=cores, **(values | changes))


def task(name: str = "t1", profile: JobProfile = SCALING, *, cores: float = 2, **changes: Any) -> Task:
    """A task whose user asked for so many cores; it could run at other widths too."""
    values: dict[str, Any] = {
        "job": name,
        "scale": 1.0,
        "request_milli": round(cores * MILLI),
        "widths_milli": (1000, 2000, 4000),
        "memory_mib": profile.memory_mib,
        "submit_s": 0.0,
    }
    return Task(name=name, profile=profile.name, **(values | changes))


def lasting(name: str, cores: int, seconds: float, at: float = 0.0, **changes: Any) -> Task:
    """A task that runs so long alone on its cores of a small machine, all of its work in parallel."""
    return task(name, SCALING, cores=cores, scale=seconds * cores / SCALING.work_s, submit_s=at, **changes)


def running(task: Task, machine: str = "m1", cores: tuple[int, ...] | None = None, **changes: Any) -> Running:
    """A task that runs since time 0 on as many cores as requested, unless it is given other ones."""
    mine = tuple(range(-(-task.request_milli // MILLI))) if cores is None else cores
    values: dict[str, Any] = {
        "width_milli": task.request_milli,
        "threads": (CATALOGUE.jobs.get(task.profile) or SINGLE).threads_for(len(mine)),
        "bound_s": 0.0,
        "start_s": 0.0,
    }
    return Running(task=task, machine=machine, cores=mine, **(values | changes))


def snapshot(pending: Iterable[Task] = (), machines: Iterable[Machine] | None = None, **changes: Any) -> Snapshot:
    """A moment of a cluster: one small, idle machine, unless told otherwise."""
    values: dict[str, Any] = {"now_s": 0.0, "catalogue": CATALOGUE}
    for name in ("services", "running", "plan"):
        if name in changes:
            changes[name] = tuple(changes[name])
    cluster = (machine(),) if machines is None else tuple(machines)
    return Snapshot(machines=cluster, pending=tuple(pending), **(values | changes))


@functools.lru_cache(maxsize=None, typed=True)
def any_of(*values: T) -> st.SearchStrategy[T]:
    """One of these values, which can be hashed. Made once: that takes several times as long as to draw from it."""
    return st.sampled_from(values)


@functools.cache
def some_of(values: tuple[T, ...], least: int = 0, most: int | None = None) -> st.SearchStrategy[tuple[T, ...]]:
    """Different ones of these values, in any order. Made once too."""
    return st.lists(st.sampled_from(values), min_size=least, max_size=most, unique=True).map(tuple)


_PROFILES = st.sampled_from((SCALING, SERIAL, HUNGRY))


def profiles() -> st.SearchStrategy[JobProfile]:
    """One of the catalogue's jobs."""
    return _PROFILES


@st.composite
def clusters(draw: st.DrawFn, max_machines: int = 3) -> tuple[tuple[Machine, ...], tuple[Service, ...]]:
    """Machines of both types, some with a little less than the type has, some with a service."""
    found, services = [], []
    for k in range(1, draw(st.integers(1, max_machines)) + 1):
        type = draw(any_of(SMALL, LARGE))
        reserved = draw(any_of(0, 0, 100, 1000))
        found.append(machine(f"m{k}", type, cpu_milli=type.vcpus * MILLI - reserved))
        cores = draw(any_of((), (), (0,), (1, 2), tuple(range(type.vcpus - 1))))
        if cores and len(cores) * MILLI <= found[-1].cpu_milli:
            services.append(service(f"cache-{k}", f"m{k}", cores, memory_mib=draw(any_of(100, 2000))))
    return tuple(found), tuple(services)


@functools.cache
def _two_in_three_none(names: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...] | None]:
    return st.one_of(st.none(), st.none(), some_of(names, 1))


@functools.cache
@st.composite
def tasks(draw: st.DrawFn, name: str, machine_names: tuple[str, ...], now_s: float = 0.0) -> Task:
    """A task of any profile and size, which may be bound to some machines, submitted until now."""
    profile = draw(profiles())
    return task(
        name,
        profile,
        scale=draw(any_of(0.5, 1.0, 3.0)),
        request_milli=draw(any_of(100, 500, 1000, 1500, 2000, 3000, 4000, 8000, 16_000)),
        memory_mib=draw(any_of(1, profile.memory_mib, 9000, 20_000, 40_000)),
        submit_s=draw(any_of(0.0, now_s / 2, now_s)),
        priority=draw(any_of(0, 0, 0, 5)),
        machines=draw(_two_in_three_none(machine_names)),
        wishes=draw(any_of((), (), ((machine_names[0], 0.3),), ((machine_names[-1], 2.0),))),
        counted=draw(any_of((), (), ((0, 0.25),), ((0, 0.5), (2, 0.1)))),
    )


@st.composite
def running_tasks(
    draw: st.DrawFn, machine: Machine, services: tuple[Service, ...], now_s: float, max_running: int = 3
) -> tuple[Running, ...]:
    """What may run on a machine without exceeding it: all on cores of their own, or all on shared ones."""
    here = [s for s in services if s.machine == machine.name]
    cores = [c for c in range(machine.vcpus) if all(c not in s.cores for s in here)]
    milli = machine.cpu_milli - sum(s.width_milli for s in here)
    memory = machine.memory_mib - sum(s.memory_mib for s in here)
    shared, found = draw(st.booleans()), []
    for k in range(draw(st.integers(0, max_running))):
        wanted = draw(tasks(f"{machine.name}-running-{k}", (machine.name,), now_s))
        mine = cores if shared else draw(st.permutations(cores))[: -(-wanted.request_milli // MILLI)]
        too_narrow = not mine or (not shared and len(mine) * MILLI < wanted.request_milli)
        if too_narrow or wanted.request_milli > milli or wanted.memory_mib > memory:
            continue
        milli, memory = milli - wanted.request_milli, memory - wanted.memory_mib
        cores = cores if shared else [c for c in cores if c not in mine]
        progress = draw(any_of(0.0, 0.25, 0.9))
        found.append(running(wanted, machine.name, tuple(sorted(mine)), progress=progress))
    return tuple(found)


@st.composite
def snapshots(draw: st.DrawFn, max_machines: int = 3, max_pending: int = 6, max_running: int = 3) -> Snapshot:
    """Any small cluster at any moment; nothing in it is overcommitted, nothing is in order."""
    found, services = draw(clusters(max_machines))
    now_s = draw(any_of(0.0, 30.0, 1000.0))
    names = tuple(m.name for m in found)
    count = draw(st.integers(0, max_pending))
    return snapshot(
        [draw(tasks(f"pending-{k}", names, now_s)) for k in draw(st.permutations(range(count)))],
        draw(st.permutations(found)),
        services=services,
        running=[r for m in found for r in draw(running_tasks(m, services, now_s, max_running))],
        now_s=now_s,
        round=draw(st.integers(0, 3)),
    )


SINGLE = JobProfile(
    name="single",
    work_s=20.0,
    serial_fraction=0.99,
    phase_order=PhaseOrder.SERIAL_FIRST,
    smt_gain=1.0,
    sensitivity=0.0,
    pressure=0.0,
    memory_mib=10,
)
"""Uses one core nearly all the time, and disturbs no other."""


@st.composite
def rounds(draw: st.DrawFn, max_machines: int = 3, max_pending: int = 4, max_running: int = 2) -> Snapshot:
    """A snapshot that a round can decide on: services where they were measured, some of them near their goal."""
    drawn = draw(snapshots(max_machines, max_pending, max_running))
    found = []
    for s in drawn.services:
        cores = s.cores[:2]
        load = draw(any_of(25_000.0, 46_500.0))
        changes: dict[str, Any] = {"memory_mib": s.memory_mib, "qps": load * len(cores)}
        found.append(service(s.name, s.machine, cores, **changes))
    return replace(drawn, services=tuple(found))


ZONES = ("a", "b", "c")


@st.composite
def relations(draw: st.DrawFn, name: str) -> Relation:
    """A relation of any kind, by machine or by zone."""
    kind, key = draw(st.sampled_from(RelationKind)), draw(any_of(MACHINE, "zone"))
    if kind is RelationKind.LIMIT:
        return Relation(name, kind, key, most=draw(st.integers(1, 3)))
    if kind is RelationKind.SPREAD:
        return Relation(name, kind, key, skew=draw(st.integers(1, 2)), min_domains=draw(any_of(0, 0, 2, 4)))
    return Relation(name, kind, key)


@st.composite
def bound_rounds(draw: st.DrawFn, max_machines: int = 4, max_pending: int = 6) -> Snapshot:
    """A round whose tasks ask for devices, are related, come in groups, limit their threads or have no end.

    What runs already may stand against the relations: they may be newer.
    """
    drawn = draw(rounds(max_machines, max_pending, 2))
    known = [draw(relations(f"relation-{k}")) for k in range(draw(st.integers(1, 3)))]
    groups = [TaskGroup(f"group-{k}", draw(st.integers(1, 4)), draw(any_of(None, 10.0))) for k in range(2)]
    names = some_of(tuple(r.name for r in known), most=2)

    def bound(t: Task, devices: int) -> Task:
        return replace(
            t,
            widths_milli=draw(any_of((1000,), (1000, 2000), (2000,))),
            memory_mib=min(t.memory_mib, 6000),
            resources=(("device", units),) if (units := draw(st.integers(0, devices))) else (),
            holds=draw(names),
            joins=draw(names),
            group=draw(any_of(None, "group-0", "group-0", "group-1")),
            threads=draw(any_of((), (), (2,), (1, 4))),
            min_utility=draw(any_of(None, None, 0.3)),
            endless=draw(any_of(False, False, False, True)),
        )

    found = []
    for m in drawn.machines:
        zone = draw(any_of(*ZONES, None))
        labels = () if zone is None else (("zone", zone),)
        found.append(replace(m, labels=labels, resources=draw(any_of((), (("device", 4),)))))
    devices = {m.name: 2 if m.resources else 0 for m in found}
    there = [
        replace(r, task=replace(bound(r.task, devices[r.machine]), memory_mib=r.task.memory_mib)) for r in drawn.running
    ]
    return replace(
        drawn,
        machines=tuple(found),
        running=tuple(there),
        pending=tuple(bound(t, 3) for t in drawn.pending),
        relations=tuple(known),
        task_groups=tuple(groups),
    )


Placed = tuple[Task, str]
"""A task and the name of its machine."""


def permits(
    relation: Relation, newcomer: Task, place: str, there: Iterable[Placed], machines: Iterable[Machine]
) -> bool:
    """What a relation says to one more task, read off its definition with no regard to speed."""
    domain = {m.name: m.name if relation.key == MACHINE else dict(m.labels).get(relation.key) for m in machines}
    here = domain[place]
    holds, joins = relation.name in newcomer.holds, relation.name in newcomer.joins
    members = [(t, domain[m], m) for t, m in there if relation.name in t.joins and domain[m] is not None]
    if here is None:
        return not (holds and relation.kind in (RelationKind.SPREAD, RelationKind.TOGETHER))
    around = sum(d == here for _, d, _ in members)
    if relation.kind is RelationKind.LIMIT:
        return not joins or around < relation.most
    if relation.kind is RelationKind.APART:
        holders = any(relation.name in t.holds and domain[m] == here for t, m in there)
        return not (holds and around) and not (joins and holders)
    if not holds:
        return True
    if relation.kind is RelationKind.TOGETHER:
        return around > 0 or (joins and not members)
    if relation.kind is RelationKind.SPREAD:
        eligible = {m for m in domain if newcomer.machines is None or m in newcomer.machines}
        level = {domain[m]: 0 for m in eligible if domain[m] is not None}
        for _, d, m in members:
            if m in eligible:
                level[d] += 1
        least = 0 if not level or len(level) < relation.min_domains else min(level.values())
        return level.get(here, 0) + joins - least <= relation.skew
    return True


def can_be_bound_in_some_order(
    relations: Iterable[Relation], there: Iterable[Placed], placed: Iterable[Placed], machines: Iterable[Machine]
) -> bool:
    """Whether tasks can be bound one after the other with every relation kept at every step."""
    known, now, left = list(relations), list(there), list(placed)
    cluster = list(machines)
    while left:
        let_in = [p for p in left if all(permits(r, *p, now, cluster) for r in known)]
        if not let_in:
            return False
        now.append(let_in[0])
        left.remove(let_in[0])
    return True


def in_another_order(snapshot: Snapshot, random: Random) -> Snapshot:
    """The same content in another order: what a snapshot says may come in any, but for the services of one machine."""

    def mixed(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(random.sample(list(values), len(values)))

    names = mixed([m.name for m in snapshot.machines])
    return replace(
        snapshot,
        machines=mixed(snapshot.machines),
        services=tuple(sorted(snapshot.services, key=lambda s: names.index(s.machine))),
        running=mixed(snapshot.running),
        pending=mixed(snapshot.pending),
        plan=mixed(snapshot.plan),
        reservations=mixed(snapshot.reservations),
        relations=mixed(snapshot.relations),
        task_groups=mixed(snapshot.task_groups),
        relation_counts=mixed(snapshot.relation_counts),
        gpu_demand=mixed(snapshot.gpu_demand),
    )


def flow_scheduler(solver: str = "ortools", *, clock: Any = time.perf_counter, **changes: Any) -> FlowScheduler:
    """The ``flow`` policy with these settings, keeping records."""
    chosen = Settings(**changes)
    return FlowScheduler(make_solver(solver), chosen, keep_records=True, clock=clock)


def crowd(count: int, waiting: int, seed: int, kinds: int = 5) -> Snapshot:
    """Many machines of two types, most of their cores busy with tasks somewhere in their course, and tasks that wait."""
    rng = np.random.default_rng([count, seed])
    cluster, there = [], []
    for i in range(count):
        here = machine(f"node-{i:04d}", LARGE if i % 3 == 0 else SMALL)
        cluster.append(here)
        left_mib = here.memory_mib
        for k in range(int(rng.binomial(here.vcpus, 0.6))):
            profile = (SCALING, SERIAL, HUNGRY)[int(rng.integers(3))]
            left_mib -= profile.memory_mib
            if left_mib < 0:
                break
            scale = round(float(rng.uniform(0.3, 3.0)), 3)
            one = task(f"there-{i}-{k}", profile, cores=1, scale=scale, submit_s=-90.0)
            cores = tuple(range(here.vcpus))
            progress = float(rng.uniform(0.0, 0.9))
            there.append(running(one, here.name, cores, bound_s=-50.0, start_s=-50.0, progress=progress))
    drawn = [
        task(
            f"kind-{k}",
            (SCALING, SERIAL, HUNGRY)[int(rng.integers(3))],
            cores=int(rng.choice((1, 2, 4))),
            scale=round(float(rng.uniform(0.3, 3.0)), 3),
        )
        for k in range(kinds)
    ]
    pending = [replace(drawn[t % kinds], name=f"task-{t:02d}", job=f"task-{t:02d}") for t in range(waiting)]
    return snapshot(pending, cluster, running=there)


def read_anew(registry: Registry) -> Registry:
    """A registry that has not yet looked at what other packages announce."""
    fresh = copy.copy(registry)
    fresh.__dict__.pop("_places", None)
    return fresh


def few_idle_rounds(most: int) -> Any:
    """A fixture of a file: simulated runs with a task that fits nowhere end after so many rounds in which nothing changes.
    Two hundred, ten seconds each, take most of the time of small runs.
    """

    @pytest.fixture(autouse=True, scope="module")
    def fewer() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("flowsched_simulator.simulation.IDLE_ROUNDS", most)
            yield

    return fewer
