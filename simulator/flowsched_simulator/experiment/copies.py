"""A scenario with several copies of its machines, or of its jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from flowsched.cluster.snapshot import Task
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.scenario_size import check_size

V = TypeVar("V")


def with_copies(scenario: Scenario, machines: int = 1, jobs: int = 1) -> Scenario:
    """So many copies of every machine with its services, and of every job; copies beyond the first get ``-2``, ``-3``, ...

    A copy of a job has tasks, a barrier and a deadline of its own, and comes after the same copies of others. Task groups
    that several jobs share take their copies in too, and relations hold between all copies. Jobs that are bound to machines
    by name may run on their copies too. Where arrivals are random, the rate stays: more jobs make a longer run. Where these
    draw a number of jobs, they draw so many times as many. Copies of a job with a time of its own are submitted together.
    """
    arrivals = scenario.arrivals
    check_size(scenario.source or scenario.name, len(scenario.machines) * machines, len(scenario.tasks) * jobs)
    if arrivals.jobs is not None:
        arrivals, jobs = replace(arrivals, jobs=arrivals.jobs * jobs), 1
    names = {m.name: [_copy(m.name, k) for k in range(machines)] for m in scenario.machines}
    barriers = scenario.barriers
    tasks = []
    for k in range(jobs):
        for task in scenario.tasks:
            allowed = None if task.machines is None else tuple(c for name in task.machines for c in names[name])
            group = task.group if task.group is None or task.group not in barriers else _copy(task.group, k)
            job = _copy(task.job, k)
            name = job + task.name.removeprefix(task.job)
            gpus_for = job if task.gpus_for else ""
            tasks.append(replace(task, name=name, job=job, machines=allowed, group=group, gpus_for=gpus_for))
    return replace(
        scenario,
        machines=tuple(replace(m, name=_copy(m.name, k)) for k in range(machines) for m in scenario.machines),
        services=tuple(
            replace(s, name=_copy(s.name, k), machine=_copy(s.machine, k))
            for k in range(machines)
            for s in scenario.services
        ),
        tasks=tuple(tasks),
        task_groups=tuple(
            group if k == 0 else replace(group, name=_copy(group.name, k))
            for k in range(jobs)
            for group in scenario.task_groups
            if k == 0 or group.name in barriers
        ),
        barriers=frozenset(_copy(name, k) for k in range(jobs) for name in barriers),
        job_terms={
            _copy(name, k): replace(terms, after=tuple(_copy(other, k) for other in terms.after))
            for k in range(jobs)
            for name, terms in scenario.job_terms.items()
        },
        arrivals=arrivals,
        run_time_factors=_of_copies(scenario.run_time_factors, scenario.tasks * jobs, tasks),
        true_profiles=_of_copies(scenario.true_profiles, scenario.tasks * jobs, tasks),
        classes={
            copied.job: scenario.classes.get(task.job, task.job)
            for copied, task in zip(tasks, scenario.tasks * jobs, strict=True)
            if jobs > 1 or task.job in scenario.classes
        },
    )


def _of_copies(known: Mapping[str, V], tasks: Sequence[Task], copies: Sequence[Task]) -> dict[str, V]:
    """What is known of some tasks, by the names of their copies."""
    return {copied.name: known[task.name] for copied, task in zip(copies, tasks, strict=True) if task.name in known}


def _copy(name: str, number: int) -> str:
    return name if number == 0 else f"{name}-{number + 1}"
