"""The jobs of a scenario as a seed has them: which ones come, and when they are submitted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from flowsched.cluster.snapshot import Task
from flowsched_models.uncertainty import factors as drawn_factors
from flowsched_models.uncertainty import normals
from flowsched_simulator.arrivals import ALL_AT_ONCE, Arrivals, arrival_times, drawn_from
from flowsched_simulator.scenario import Scenario


def drawn_workload(scenario: Scenario, seed: int) -> Scenario:
    """The scenario with its jobs at fixed times, in the order of submission, and with the estimates that policies get.

    Arrivals that draw jobs repeat those of the scenario: ``web-1``, ``web-2`` and so on, each with tasks and a gang of its
    own. Other random arrivals keep the listed order and draw the times.
    """
    return _estimated(_arrived(scenario, seed), seed)


def _estimated(scenario: Scenario, seed: int) -> Scenario:
    """Estimates of run times off by what is drawn for each task, and the true ones as they were."""
    if not scenario.estimate_error:
        return scenario
    tasks, factors = [], {}
    for task in scenario.tasks:
        (off,) = drawn_factors(scenario.estimate_error, normals(seed, "estimate", task.name, 1)).tolist()
        tasks.append(replace(task, scale=min(task.scale * off, _most_scale(scenario, task))))
        factors[task.name] = scenario.run_time_factors.get(task.name, 1.0) * task.scale / tasks[-1].scale
    return replace(scenario, tasks=tuple(tasks), run_time_factors=factors, estimate_error=0.0)


def _most_scale(scenario: Scenario, task: Task) -> float:
    """The most that policies are told of a task: with a given run time no more than its walltime, which they know."""
    walltime_s, profile = scenario.terms_of(task.job).walltime_s, scenario.catalogue.jobs[task.profile]
    if walltime_s is None or not profile.has_given_run_time:
        return math.inf
    return max(walltime_s / profile.work_s, task.scale)


def _arrived(scenario: Scenario, seed: int) -> Scenario:
    if not scenario.arrivals.drawn:
        return replace(scenario, tasks=_in_order(scenario.tasks))
    drawn = scenario if scenario.arrivals.jobs is None else _mixed(scenario, scenario.arrivals.jobs, seed)
    jobs = _by_job(drawn.tasks).values()
    times = arrival_times(scenario.arrivals, len(jobs), seed)
    tasks = [replace(task, submit_s=float(at)) for job, at in zip(jobs, times, strict=True) for task in job]
    return replace(drawn, tasks=_in_order(tasks), arrivals=Arrivals(ALL_AT_ONCE))


def workload(scenario: Scenario, seed: int) -> tuple[Task, ...]:
    """The tasks of :func:`drawn_workload`."""
    return drawn_workload(scenario, seed).tasks


def _by_job(tasks: Sequence[Task]) -> dict[str, list[Task]]:
    found: dict[str, list[Task]] = {}
    for task in tasks:
        found.setdefault(task.job, []).append(task)
    return found


def _in_order(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """By submission, then as listed, which is what their numbers say; those of a workload that was drawn before stay."""
    order = sorted(range(len(tasks)), key=lambda i: (tasks[i].submit_s, i))
    return tuple(tasks[i] if tasks[i].number else tasks[i].numbered(i + 1) for i in order)


def _mixed(scenario: Scenario, count: int, seed: int) -> Scenario:
    """So many jobs, drawn from those of the scenario by their weights."""
    jobs = _by_job(scenario.tasks)
    names = list(jobs)
    groups = {group.name: group for group in scenario.task_groups}
    times: Counter[str] = Counter()
    tasks, terms, factors, profiles, own_groups, classes = [], {}, {}, {}, [], {}
    for index in drawn_from([scenario.arrivals.mix.get(name, 1.0) for name in names], count, seed):
        job = names[index]
        times[job] += 1
        name = f"{job}-{times[job]}"
        classes[name] = scenario.classes.get(job, job)
        own = job in scenario.barriers
        if own:
            own_groups.append(replace(groups[job], name=name))
        if job in scenario.job_terms:
            terms[name] = scenario.job_terms[job]
        for task in jobs[job]:
            copy = replace(
                task,
                name=name + task.name.removeprefix(job),
                job=name,
                group=name if own else task.group,
                gpus_for=name if task.gpus_for else "",
            )
            tasks.append(copy)
            if task.name in scenario.run_time_factors:
                factors[copy.name] = scenario.run_time_factors[task.name]
            if task.name in scenario.true_profiles:
                profiles[copy.name] = scenario.true_profiles[task.name]
    shared = tuple(group for group in scenario.task_groups if group.name not in scenario.barriers)
    return replace(
        scenario,
        tasks=tuple(tasks),
        job_terms=terms,
        run_time_factors=factors,
        true_profiles=profiles,
        classes=classes,
        task_groups=(*shared, *own_groups),
        barriers=frozenset(group.name for group in own_groups),
    )
