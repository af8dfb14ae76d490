"""How far each task is estimated to be: integrated from the run-time model, never beyond what its end will prove."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from flowsched.node.node import NodeTask
from flowsched.node.node_learner import NodeLearner
from flowsched_models.catalogue import Catalogue
from flowsched_models.profile import PhaseOrder
from flowsched_models.runtime import Stage

CEILING = 0.98
"""A task counts as done only when the operating system says so."""
MOST_STRETCHES = 2000
"""Of one task; of more, two that follow each other become one."""


class Pace(NamedTuple):
    """Progress of a task per second where it is now, with the neighbours that it has."""

    now: float
    """At the stage at which it is thought to be."""
    first: float
    """If it were in the phase that it begins with."""
    last: float
    """If it were in the phase that it ends with."""


STANDSTILL = Pace(0.0, 0.0, 0.0)
Stretch = tuple[float, float]
"""Progress that a task made for a while, if that was in its first phase, and if it was in its last one."""


def factor_of(stretches: Sequence[Stretch], serial: float) -> float:
    """Work of a task that has completed, relative to its forecast, of which a share ``serial`` comes first.

    The first phase ended where as much of its work was done before as of the last phase's after: at x with
    ``sum first[:x] / serial = sum last[x:] / (1 - serial)``, whatever the phase was thought to be meanwhile.
    """
    before, after = 0.0, math.fsum(last for _, last in stretches)
    if not 0.0 < serial < 1.0:
        return after if serial <= 0.0 else math.fsum(first for first, _ in stretches)
    for first, last in stretches:
        missing = after * serial - before * (1.0 - serial)
        gained = first * (1.0 - serial) + last * serial
        if gained >= missing:
            return (before + first * max(0.0, missing) / gained) / serial if gained > 0.0 else before / serial
        before, after = before + first, after - last
    return before / serial


@dataclass
class _TaskProgress:
    """What a task has done so far."""

    done: float = 0.0
    """Relative to its forecast: more than 1 where it runs for longer."""
    run_s: float = 0.0
    whole: bool = True
    """Whether all of it was counted."""
    pace: Pace = STANDSTILL
    """Of the last stretch."""
    stretches: list[Stretch] = field(default_factory=list)

    def add(self, pace: Pace, step_s: float) -> None:
        self.done += pace.now * step_s
        self.run_s += step_s
        first, last = pace.first * step_s, pace.last * step_s
        if self.stretches and pace[1:] == self.pace[1:]:
            before = self.stretches.pop()
            first, last = before[0] + first, before[1] + last
        self.pace = pace
        self.stretches.append((first, last))
        if len(self.stretches) > MOST_STRETCHES:
            pairs = zip(self.stretches[::2], [*self.stretches[1::2], (0.0, 0.0)], strict=False)
            self.stretches = [(a[0] + b[0], a[1] + b[1]) for a, b in pairs]


class ProgressBook:
    """Estimates by task. A task's work is as long as its forecast says, or as its class has taught a learner."""

    def __init__(self, catalogue: Catalogue, learner: NodeLearner | None = None) -> None:
        """No task has started."""
        self._catalogue = catalogue
        self._learner = learner
        self._work: dict[str, _TaskProgress] = {}

    def progress(self, task: NodeTask) -> float:
        """Share of the work that is estimated to be done."""
        work = self._work.get(task.name)
        return 0.0 if work is None else min(CEILING, work.done / self.length(task))

    def length(self, task: NodeTask) -> float:
        """All its work relative to its forecast, given what it has done: the median."""
        learnt = None if self._learner is None else self._learner.expected(task)
        if learnt is None:
            return 1.0
        work = self._work.get(task.name)
        return learnt.length(0.0 if work is None else work.done)

    def queued(self, task: NodeTask) -> None:
        """A task that was not started yet: all of its work will be seen."""
        self._work.setdefault(task.name, _TaskProgress())

    def add(self, task: NodeTask, pace: Pace, step_s: float) -> None:
        """A task has run for a while, and is thought to have come further by shares of its forecast."""
        work = self._work.setdefault(task.name, _TaskProgress(whole=False))
        work.add(pace, step_s)
        # It ran although it was given nothing: how far it came is not known.
        work.whole = work.whole and (pace.now > 0.0 or step_s == 0.0)

    def end(self, task: NodeTask) -> None:
        """A task has completed: others of its class will run for as long, relative to their forecasts."""
        work = self._work.pop(task.name, None)
        if work is not None and work.whole and self._learner is not None:
            self._learner.learn(task, factor_of(work.stretches, self.serial(task)), work.run_s)

    def serial(self, task: NodeTask) -> float:
        """Share of its work that comes first, on one core."""
        job = self._catalogue.jobs[task.profile]
        return job.serial_fraction if job.phase_order is PhaseOrder.SERIAL_FIRST else 0.0

    def forget_but(self, tasks: set[str]) -> None:
        """Keep these only."""
        for gone in set(self._work) - tasks:
            del self._work[gone]

    def stage(self, task: NodeTask) -> Stage:
        """What the task does now."""
        job = self._catalogue.jobs[task.profile]
        if job.phase_order is PhaseOrder.MIXED:
            return Stage.MIXED if job.serial_fraction > 0.0 else Stage.PARALLEL
        return Stage.SERIAL if self.progress(task) < job.serial_fraction - 1e-9 else Stage.PARALLEL

    def pieces(self, task: NodeTask) -> tuple[tuple[Stage, float], ...]:
        """What is left: stages in order, each with the shares of the forecast that it still has to make."""
        job = self._catalogue.jobs[task.profile]
        done, length = self.progress(task), self.length(task)
        if job.phase_order is PhaseOrder.SERIAL_FIRST and done < job.serial_fraction - 1e-9:
            return (
                (Stage.SERIAL, length * (job.serial_fraction - done)),
                (Stage.PARALLEL, length * (1.0 - job.serial_fraction)),
            )
        return ((self.stage(task), length * (1.0 - done)),)
