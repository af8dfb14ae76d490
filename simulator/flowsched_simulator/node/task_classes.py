"""Classes of the jobs on one machine, from whose completions run times are learnt, and whether that is on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from flowsched.cluster.learning import Learning
from flowsched.node import NodeLearner, NodeTask
from flowsched.node.node_learner import run_class_of
from flowsched_simulator.node.scenario import NodeScenario
from flowsched_simulator.run_classes import learnt_at_first
from flowsched_simulator.truth import Error


def class_of(task: NodeTask) -> str:
    """The class of a job: its own, else its name without the number of a copy."""
    return task.run_class or run_class_of(task.name)


def chosen_learning(scenario: NodeScenario, model_error: Error) -> Learning:
    """On where run times may differ from what controllers are told, or where a class is given; else off."""
    return "on" if model_error != 0.0 or any(task.run_class for task in scenario.tasks) else "off"


def with_classes(scenario: NodeScenario) -> NodeScenario:
    """With the class of every job; none for a job that is alone in its class, unless it is given."""
    members = Counter(map(class_of, scenario.tasks))

    def classed(task: NodeTask) -> NodeTask:
        run_class = class_of(task)
        return replace(task, run_class=run_class) if members[run_class] > 1 else task

    return replace(scenario, tasks=tuple(map(classed, scenario.tasks)))


def learner_of(scenario: NodeScenario, learning: Learning) -> NodeLearner | None:
    """What a run begins with; None where nothing is learnt."""
    return None if learning == "off" else NodeLearner(scenario.machine_type, learnt_at_first(learning))
