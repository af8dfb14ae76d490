"""The bundled scenario in other clothes: nothing about it may be hard-coded anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from flowsched_simulator import Scenario, load_scenario

NAMES = ("parsec-memcached-2024", "parsec-memcached-2024-c")


def variations() -> Iterator[tuple[str, Scenario]]:
    """(what was changed, scenario), for memcached on the 2-core and on the 8-core machine."""
    for name in NAMES:
        base = load_scenario(name)
        where = "memcached on " + base.services[0].machine.removeprefix("node-")[0]
        yield f"{where}: as bundled", base
        yield f"{where}: jobs shuffled", shuffled(base, 1)
        yield f"{where}: jobs renamed", renamed(base)
        for seed in range(10):
            yield f"{where}: times x 0.6 to 1.6, draw {seed}", scaled(base, seed)
        for count in (2, 3):
            yield f"{where}: {count} copies of everything", copied(base, count)


def shuffled(scenario: Scenario, seed: int) -> Scenario:
    """The same jobs in another order."""
    order = np.random.default_rng([seed, 11]).permutation(len(scenario.tasks))
    return replace(scenario, tasks=tuple(scenario.tasks[i] for i in order.tolist()))


def renamed(scenario: Scenario) -> Scenario:
    """The same jobs under names that say nothing, in reverse alphabetical order."""
    tasks = [
        replace(t, name=f"job-{chr(ord('z') - i)}", job=f"job-{chr(ord('z') - i)}")
        for i, t in enumerate(scenario.tasks)
    ]
    return replace(scenario, tasks=tuple(tasks))


def scaled(scenario: Scenario, seed: int) -> Scenario:
    """Every job's time multiplied by its own factor, log-uniform in 0.6 to 1.6."""
    factors = np.exp(np.random.default_rng([seed, 13]).uniform(np.log(0.6), np.log(1.6), size=len(scenario.tasks)))
    ordered = sorted(range(len(scenario.tasks)), key=lambda i: scenario.tasks[i].name)
    tasks = list(scenario.tasks)
    for i, factor in zip(ordered, factors.tolist(), strict=True):
        tasks[i] = replace(tasks[i], scale=factor)
    return replace(scenario, tasks=tuple(tasks))


def copied(scenario: Scenario, count: int) -> Scenario:
    """``count`` copies of every machine, service and job."""
    suffixes = [f"-{i + 1}" for i in range(count)]
    return replace(
        scenario,
        machines=tuple(replace(m, name=m.name + s) for s in suffixes for m in scenario.machines),
        services=tuple(replace(v, name=v.name + s, machine=v.machine + s) for s in suffixes for v in scenario.services),
        tasks=tuple(replace(t, name=t.name + s, job=t.job + s) for s in suffixes for t in scenario.tasks),
    )
