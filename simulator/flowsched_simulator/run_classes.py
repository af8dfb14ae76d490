"""Classes of the tasks of a scenario, from whose completions run times are learnt, and whether that is on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from flowsched.cluster.learning import Learning
from flowsched.cluster.learnt_run_times import NOTHING_LEARNT, LearntRunTimes
from flowsched.cluster.snapshot import Task
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.truth import Error


def chosen_learning(scenario: Scenario, model_error: Error) -> Learning:
    """On where run times may differ from what policies are told, or where a class is given; else off."""
    off = scenario.run_time_factors, scenario.true_profiles, scenario.estimate_error, scenario.sensitivity_error
    differs = model_error != 0.0 or any(off) or scenario.stragglers is not None
    return "on" if differs or any(task.run_class for task in scenario.tasks) else "off"


def with_classes(scenario: Scenario, learning: Learning) -> Scenario:
    """The scenario of a run with the class of every task; none for a task that is alone in its class, unless it is given."""
    if learning == "off":
        tasks = (replace(task, run_class="") if task.run_class else task for task in scenario.tasks)
        return replace(scenario, tasks=tuple(tasks))
    members = Counter(scenario.class_of(task) for task in scenario.tasks)

    def classed(task: Task) -> Task:
        run_class = scenario.class_of(task)
        return replace(task, run_class=run_class) if not task.run_class and members[run_class] > 1 else task

    return replace(scenario, tasks=tuple(map(classed, scenario.tasks)))


def learnt_at_first(learning: Learning) -> LearntRunTimes:
    """What a run begins with."""
    return replace(NOTHING_LEARNT, applied=False) if learning == "observe" else NOTHING_LEARNT
