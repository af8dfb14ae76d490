"""How long tasks of a class run on one machine relative to their forecasts, learnt from those that have completed there."""

from __future__ import annotations

import re
from dataclasses import dataclass

from flowsched.cluster.learnt_run_times import NOTHING_LEARNT, LearntRunTime, LearntRunTimes
from flowsched.node.node import NodeTask

LEAST_RUN_S = 5.0
"""Shorter runs teach nothing: starting a program, and ticks, are a large part of them."""
_NUMBER = re.compile(r"-[0-9]+\Z")


def run_class_of(name: str) -> str:
    """The class of a task that says none: its name without the number of a copy."""
    return _NUMBER.sub("", name)


@dataclass
class NodeLearner:
    """Of one machine, whose type never changes."""

    machine_type: str
    learnt: LearntRunTimes = NOTHING_LEARNT

    def learn(self, task: NodeTask, done: float, run_s: float) -> None:
        """A task has completed that ran for ``done`` times its forecast, in ``run_s`` seconds."""
        if task.run_class and done > 0.0 and run_s >= LEAST_RUN_S:
            self.learnt = self.learnt.with_end(task.run_class, self.machine_type, done)

    def expected(self, task: NodeTask) -> LearntRunTime | None:
        """What decisions expect of a task; None where nothing is known of its class, and where they do without."""
        return self.learnt.of(task.run_class, self.machine_type)

    def shown(self, task: NodeTask) -> LearntRunTime | None:
        """The same whether or not decisions use it."""
        return self.learnt.shown(task.run_class, self.machine_type) if task.run_class else None

    def latest(self, most: int) -> dict[str, LearntRunTime]:
        """By class what is known of it on this machine, used or not; of more than ``most`` those that completed last."""
        here = [entry for entry in self.learnt.classes if entry.machine_type == self.machine_type]
        kept = sorted(sorted(here, key=lambda entry: -entry.last)[:most])
        found = ((entry.run_class, self.learnt.shown(entry.run_class, self.machine_type)) for entry in kept)
        return {run_class: learnt for run_class, learnt in found if learnt is not None}
