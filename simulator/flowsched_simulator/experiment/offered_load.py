"""How much work arrives, relative to what the cluster can do; and a scenario with more or less of it."""

from __future__ import annotations

from dataclasses import replace

from flowsched.cluster.snapshot import MILLI, Task
from flowsched_simulator.scenario import Scenario

_SECONDS = 60.0
_LEAST_JOBS, _MOST_SHARE = 10, 0.5
"""Of so many jobs at least, none should be more than this share of the work that a load is about."""


def offered_load(scenario: Scenario) -> float | None:
    """Arriving work per second over batch cores; None where all jobs arrive at once.

    The work of a task is its run time on one thread of the reference machine type, ``work_s * scale`` of its profile, in
    core-seconds; with a given run time, that times the requested cores. A job has the work of all its tasks; where jobs are
    drawn, the mean is weighted as they are drawn. Batch cores are those that belong to no service;
    hyperthreads count as whole cores, and differences in speed do not count. 1 keeps all of them busy in the mean.
    """
    rate = _arrivals_per_s(scenario)
    cores = sum(len(each) for each in scenario.batch_cores().values())
    if rate is None or not cores:
        return None
    work_s = _work_of_jobs(scenario)
    mean_s = sum(work_s.values()) / sum(scenario.arrivals.mix.get(job, 1.0) for job in work_s)
    return rate * mean_s / cores


def load_note(scenario: Scenario) -> str:
    """What is odd about the load of a scenario: that one job is most of it. Empty where none is."""
    now = offered_load(scenario)
    work_s = _work_of_jobs(scenario)
    total_s = sum(work_s.values())
    if now is None or len(work_s) < _LEAST_JOBS or not total_s:
        return ""
    job = max(work_s, key=lambda name: work_s[name])
    share = work_s[job] / total_s
    if share <= _MOST_SHARE:
        return ""
    others = now * (1.0 - share)
    return f"job '{job}' is {share:.0%} of the work; without it the load would be {others:.2g}, not {now:.2g}"


def with_load(scenario: Scenario, load: float) -> Scenario:
    """The same jobs, arriving faster or more slowly. Raises ``ValueError`` where all arrive at once."""
    now = offered_load(scenario)
    if not now:
        raise ValueError("all jobs arrive at once")
    factor = load / now
    if scenario.arrivals.rate_per_minute:
        arrivals = replace(scenario.arrivals, rate_per_minute=scenario.arrivals.rate_per_minute * factor)
        return replace(scenario, arrivals=arrivals)
    first_s = min(task.submit_s for task in scenario.tasks)
    tasks = tuple(replace(task, submit_s=first_s + (task.submit_s - first_s) / factor) for task in scenario.tasks)
    return replace(scenario, tasks=tasks)


def _arrivals_per_s(scenario: Scenario) -> float | None:
    if scenario.arrivals.rate_per_minute:
        return scenario.arrivals.rate_per_minute / _SECONDS
    times = list({task.job: task.submit_s for task in scenario.tasks}.values())
    span_s = max(times, default=0.0) - min(times, default=0.0)
    return (len(times) - 1) / span_s if span_s > 0.0 else None


def _work_of_jobs(scenario: Scenario) -> dict[str, float]:
    """Core-seconds by job, times its weight where jobs are drawn."""
    found: dict[str, float] = {}
    for task in scenario.tasks:
        work_s = _work_s(scenario, task) * scenario.arrivals.mix.get(task.job, 1.0)
        found[task.job] = found.get(task.job, 0.0) + work_s
    return found


def _work_s(scenario: Scenario, task: Task) -> float:
    profile = scenario.catalogue.jobs[scenario.true_profiles.get(task.name, task.profile)]
    work_s = profile.work_s * task.scale * scenario.run_time_factors.get(task.name, 1.0)
    if not profile.has_given_run_time:
        return work_s
    return scenario.terms_of(task.job).at_most_s(work_s) * task.request_milli / MILLI
