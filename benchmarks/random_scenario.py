"""Random scenarios, seeded: clusters drawn from machine types, jobs drawn from the measured profiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowsched.cluster.snapshot import MILLI, Machine, Service, StartDelay, Task
from flowsched_models.catalogue import Catalogue
from flowsched_simulator.scenario import Arrivals, Objective, Scenario

MOST_DRAWS = 1000
"""Clusters drawn until one has a place for every job."""
WIDTHS_MILLI = (1000, 2000, 4000)


@dataclass(frozen=True)
class Recipe:
    """What to draw. Defaults are those of the published comparison."""

    machines: int = 10
    machine_types: tuple[str, ...] = ("n2d-highcpu-2", "n2d-highmem-4", "e2-standard-8")
    jobs: int = 60
    least_scale: float = 0.3
    most_scale: float = 3.0
    services: int = 2
    qps: float = 30_000.0
    slo_us: float = 1000.0
    client: str = "mcperf-30k"
    load: float = 0.8
    """Arriving work over the cluster's capacity."""


def random_scenario(catalogue: Catalogue, seed: int, recipe: Recipe | None = None) -> Scenario:
    """A scenario with Poisson arrivals. The same seed draws the same cluster and jobs at every load.

    Raises ``ValueError`` if the recipe's machine types leave some job without a place in every cluster that was drawn.
    """
    recipe = recipe or Recipe()
    rng = np.random.default_rng([seed, 7])
    tasks = _draw_tasks(catalogue, recipe, rng)
    for _ in range(MOST_DRAWS):
        machines = _draw_machines(catalogue, recipe, rng)
        services = _draw_services(machines, recipe, rng)
        room = {m.name: m.memory_mib - sum(s.memory_mib for s in services if s.machine == m.name) for m in machines}
        if all(any(t.memory_mib <= free for free in room.values()) for t in tasks):
            break
    else:
        largest = max(tasks, key=lambda t: t.memory_mib)
        raise ValueError(
            f"none of {MOST_DRAWS} clusters of {recipe.machines} machines had a place for {largest.name}, which needs "
            f"{largest.memory_mib} MiB; name larger machine types than {', '.join(recipe.machine_types)}"
        )
    taken = {(s.machine, c) for s in services for c in s.cores}
    batch_cores = {m.name: [c for c in range(m.vcpus) if (m.name, c) not in taken] for m in machines}
    work_s = float(np.mean([catalogue.jobs[t.profile].work_s * t.scale for t in tasks]))
    rate_per_s = recipe.load * _capacity(catalogue, machines, batch_cores) / work_s
    return Scenario(
        name=f"random-{seed}-{round(recipe.load * 100)}",
        description=f"{recipe.jobs} jobs at {recipe.load:.0%} of the capacity of {recipe.machines} machines, seed {seed}",
        catalogue=catalogue,
        machines=machines,
        services=services,
        tasks=tasks,
        objective=Objective.COMPLETION,
        arrivals=Arrivals("poisson", 60.0 * rate_per_s),
        start_delay=StartDelay(1.0, 3.0),
        source=f"random seed {seed}",
    )


def _draw_tasks(catalogue: Catalogue, recipe: Recipe, rng: np.random.Generator) -> tuple[Task, ...]:
    names = sorted(catalogue.jobs)
    drawn = rng.integers(len(names), size=recipe.jobs)
    scales = np.exp(rng.uniform(math.log(recipe.least_scale), math.log(recipe.most_scale), size=recipe.jobs))
    return tuple(
        Task(
            name=f"{names[k]}-{i + 1}",
            job=f"{names[k]}-{i + 1}",
            profile=names[k],
            scale=round(float(scale), 4),
            request_milli=MILLI if names[k] == "blackscholes" else 4 * MILLI,
            widths_milli=WIDTHS_MILLI,
            memory_mib=catalogue.jobs[names[k]].memory_mib,
            submit_s=0.0,
        )
        for i, (k, scale) in enumerate(zip(drawn.tolist(), scales.tolist(), strict=True))
    )


def _draw_machines(catalogue: Catalogue, recipe: Recipe, rng: np.random.Generator) -> tuple[Machine, ...]:
    kinds = [
        catalogue.machine_types[recipe.machine_types[k]]
        for k in rng.integers(len(recipe.machine_types), size=recipe.machines).tolist()
    ]
    return tuple(
        Machine(f"node-{i + 1:02d}-{t.vcpus}core", t.name, t.vcpus * MILLI, t.memory_mib, t.vcpus)
        for i, t in enumerate(kinds)
    )


def _draw_services(machines: Sequence[Machine], recipe: Recipe, rng: np.random.Generator) -> tuple[Service, ...]:
    hosts = rng.choice(len(machines), size=recipe.services, replace=False)
    return tuple(
        Service(
            name=f"memcached-{i + 1}",
            profile="memcached",
            machine=machines[m].name,
            cores=(0,),
            threads=1,
            width_milli=MILLI,
            memory_mib=512,
            qps=recipe.qps,
            slo_us=recipe.slo_us,
            client=recipe.client,
        )
        for i, m in enumerate(hosts.tolist())
    )


def _capacity(catalogue: Catalogue, machines: Sequence[Machine], batch_cores: dict[str, list[int]]) -> float:
    """Single-thread work per second (reference seconds) with every batch core busy, the mean over the job profiles.

    Siblings count with what SMT gives them; interference is left out.
    """
    total = 0.0
    for machine in machines:
        kind = catalogue.machine_types[machine.type]
        cores = set(batch_cores[machine.name])
        paired = sum(1 for a, b in kind.siblings if a in cores and b in cores) * 2
        for name, job in catalogue.jobs.items():
            effective = len(cores) - paired * (1.0 - job.smt_gain) / 2.0
            total += catalogue.speed(name, machine.type) * effective / len(catalogue.jobs)
    return total
