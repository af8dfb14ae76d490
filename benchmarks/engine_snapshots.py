"""Single rounds of `benchmarks.engine`: measured pods on a half-busy cluster, and many tasks without an end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.engine_workloads import LEAST_SCALE, MOST_SCALE, SERVICES, START_DELAY, TYPES, WIDTHS
from flowsched.cluster.snapshot import MILLI, Machine, Running, Service, Snapshot, StartDelay, Task
from flowsched.relations.relation import MACHINE, Relation, RelationKind
from flowsched_models.catalogue import Catalogue
from flowsched_models.machine import MachineType
from flowsched_models.profile import JobProfile, PhaseOrder
from flowsched_models.profiles import load_catalogue

NOW_S = 100.0
BULK_CORES = (4, 8, 16)
SENSITIVITIES, PRESSURES = (0.5, 0.8, 1.1), (0.012, 0.024, 0.1)
BULK_WIDTHS_MILLI = (250, 500, 1000, 2000)


def pods(count: int, machines: int, seed: int, busy: float = 0.5) -> Snapshot:
    """``count`` measured pods that arrive at once. With more of them only pods are added: the cluster, and the pods that
    were there, stay the same.

    A share ``busy`` of the batch cores runs jobs of one core that are somewhere in their course.
    """
    catalogue = load_catalogue()
    names = sorted(catalogue.jobs)
    rng = np.random.default_rng([seed, machines, 16])
    cluster, services, running = [], [], []
    for i in range(machines):
        kind = catalogue.machine_types[TYPES[i % len(TYPES)]]
        machine = Machine(f"node-{i:03d}", kind.name, kind.vcpus * MILLI, kind.memory_mib, kind.vcpus)
        cluster.append(machine)
        free_mib = machine.memory_mib
        cores = tuple(range(kind.vcpus))
        if i < SERVICES:
            services.append(
                Service(
                    f"memcached-{i}", "memcached", machine.name, (0,), 1, MILLI, 512, 30_000.0, 1000.0, "mcperf-30k"
                )
            )
            cores, free_mib = cores[1:], free_mib - 512
        for k in range(int(rng.binomial(len(cores), busy))):
            task = _pod(rng, f"running-{i}-{k}", names, catalogue, -50.0)
            progress = float(rng.uniform(0.0, 0.9))
            if task.memory_mib <= free_mib:
                free_mib -= task.memory_mib
                threads = task.threads_on(len(cores), catalogue.jobs[task.profile])
                running.append(Running(task, machine.name, MILLI, threads, cores, -50.0, -49.0, progress))
    arrivals = np.random.default_rng([seed, machines, 17])
    waiting = tuple(_pod(arrivals, f"pod-{i:03d}", names, catalogue, NOW_S) for i in range(count))
    return Snapshot(
        NOW_S,
        catalogue,
        tuple(cluster),
        tuple(services),
        tuple(running),
        waiting,
        start_delay=StartDelay(**START_DELAY),
    )


def _pod(rng: np.random.Generator, name: str, profiles: list[str], catalogue: Catalogue, submit_s: float) -> Task:
    profile = profiles[int(rng.integers(len(profiles)))]
    scale = float(np.round(np.exp(rng.uniform(np.log(LEAST_SCALE), np.log(MOST_SCALE))), 4))
    widths = tuple(w * MILLI for w in WIDTHS)
    request = int(rng.choice(widths))
    return Task(name, name, profile, scale, request, widths, catalogue.jobs[profile].memory_mib, submit_s)


def one_per_machine(machines: int = 400, sets: int = 20, size: int = 360) -> Snapshot:
    """Sets of equal tasks, each set with at most one of its tasks on a machine: 7,200 tasks for 400 empty machines."""
    jobs = {"replica": _profile("replica", 0.8, 0.03)}
    cluster = _cluster(machines)
    waiting = [
        replace(_bulk_task(f"task-{c}-{i}", "replica", 250, 256), holds=(f"set-{c}",), joins=(f"set-{c}",))
        for c in range(sets)
        for i in range(size)
    ]
    relations = tuple(Relation(f"set-{c}", RelationKind.LIMIT, MACHINE) for c in range(sets))
    return Snapshot(NOW_S, _bulk_catalogue(jobs), cluster, (), (), tuple(waiting), relations=relations)


def tight(machines: int, tasks: int, classes: int) -> Snapshot:
    """Classes of different widths and profiles on machines of which 30 % are busy; a fifth of the classes may use half of
    the machines only.
    """
    jobs = {f"s{s}-p{p}": _profile(f"s{s}-p{p}", s, p) for s in SENSITIVITIES for p in PRESSURES}
    cluster = _cluster(machines)
    rng = np.random.default_rng([machines, tasks, classes])
    names = sorted(jobs)
    running = []
    for m in cluster:
        for k in range(int(rng.binomial(m.vcpus, 0.3))):
            task = _bulk_task(f"running-{m.name}-{k}", names[int(rng.integers(len(names)))], MILLI, 1024)
            running.append(Running(task, m.name, MILLI, 1, tuple(range(m.vcpus)), 0.0, 0.0))
    waiting = []
    for c in range(classes):
        # A memory of its own tells a class from others of the same width and profile.
        width, memory = int(rng.choice(BULK_WIDTHS_MILLI)), 256 * int(rng.integers(1, 8)) + c
        profile = names[int(rng.integers(len(names)))]
        allowed = tuple(m.name for m in cluster[::2]) if c % 5 == 0 else None
        waiting += [
            replace(_bulk_task(f"task-{c}-{i}", profile, width, memory), machines=allowed)
            for i in range(tasks // classes)
        ]
    return Snapshot(NOW_S, _bulk_catalogue(jobs), cluster, (), tuple(running), tuple(waiting))


def _cluster(machines: int) -> tuple[Machine, ...]:
    sizes = [BULK_CORES[i % len(BULK_CORES)] for i in range(machines)]
    return tuple(Machine(f"node-{i:05d}", f"plain-{n}", n * MILLI, n * 4096, n) for i, n in enumerate(sizes))


def _bulk_catalogue(jobs: dict[str, JobProfile]) -> Catalogue:
    types = {f"plain-{n}": MachineType(f"plain-{n}", n, n * 4096) for n in BULK_CORES}
    return Catalogue(jobs, {}, types, "made by benchmarks.engine")


def _profile(name: str, sensitivity: float, pressure: float) -> JobProfile:
    return JobProfile(name, 60.0, 0.0, PhaseOrder.MIXED, 1.0, sensitivity, pressure, 0)


def _bulk_task(name: str, profile: str, width_milli: int, memory_mib: int) -> Task:
    return Task(name, name, profile, 1.0, width_milli, (width_milli,), memory_mib, 0.0, threads=(1,), endless=True)
