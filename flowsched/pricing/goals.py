"""What completions are measured by: goals and importance of tasks, the penalty, and the utility."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from flowsched.cluster.settings import WORTH, Settings
from flowsched.cluster.snapshot import Task
from flowsched.cluster.tasks_there import TasksThere
from flowsched.gpu.devices import suits
from flowsched.pricing.arrival import Arrival
from flowsched.pricing.forecast_cache import ForecastCache
from flowsched.pricing.utility import penalty
from flowsched.support.arrays import FloatArray

REFERENCE_RUN_S = 60.0
"""Run time of a task whose penalty ``length_weight`` leaves alone; tasks without an end are priced as if they had it."""


class Goals:
    """Goals of one round. ``goal_s`` None: each task's own goal, counted from its submission."""

    def __init__(
        self, forecasts: ForecastCache, settings: Settings, goal_s: float | None = None, like: Goals | None = None
    ) -> None:
        """``like``: goals of the same round that differ in ``goal_s`` only."""
        self._forecasts = forecasts
        self._settings = settings
        self._goal_s = goal_s
        view = forecasts.view
        self.age = [view.snapshot.age_s(c.task) for c in view.classes]
        self.elapsed = [0.0 if goal_s is not None else age for age in self.age]
        self.alone_s: list[FloatArray]
        """By class, [shapes] run time alone on an empty machine; infinity where it cannot run or would break a p95 goal."""
        if like is None:
            known: dict[tuple[object, ...], FloatArray] = {}
            self.alone_s = []
            for c, cls in enumerate(view.classes):
                key = self._place_key(cls.task)
                if key not in known:
                    wanted = ("alone", settings.slo_margin, *key)
                    known[key] = forecasts.remembered(c, wanted, partial(self._alone, c))
                self.alone_s.append(known[key])
            self.whole_run_s = [self._whole_run(c) for c in range(len(view.classes))]
        else:
            self.alone_s, self.whole_run_s = like.alone_s, like.whole_run_s
        self.best_run_s = [
            REFERENCE_RUN_S if c.task.endless else self.whole_run_s[i] for i, c in enumerate(view.classes)
        ]
        self.tau = [
            goal_s if goal_s is not None else self._own_goal(c.task, self.best_run_s[i])
            for i, c in enumerate(view.classes)
        ]
        self.weight = [self._importance(c.task, self.best_run_s[i]) for i, c in enumerate(view.classes)]
        self._own_tau = [self._own_goal(c.task, self.best_run_s[i]) for i, c in enumerate(view.classes)]
        # Distinct places only: clusters have many machines alike.
        found = ((g.host, g.batch_cores, g.machine.gpus) for g in view.groups if g.batch_cores)
        self._places = list(dict.fromkeys(found))
        places = tuple((forecasts.table.host(host), cores, gpus) for host, cores, gpus in self._places)
        # Whether all that waits is plain says how much lengths count, too.
        rule = (settings.goal_factor, settings.length_weight, goal_s, view.snapshot.waits_plain)
        self._known_goals: dict[tuple[object, ...], tuple[float, float]] = forecasts.table.remembered(
            ("goals", rule, places), dict
        )
        self.running: FloatArray = self._running_goals()
        """[running, 3] (elapsed, goal, importance) of all that runs on a group's machine, group by group."""

    def of_running(self, group: int) -> list[list[float]]:
        """(elapsed, goal, importance) of all that runs on a group's machine."""
        first = self._forecasts.first
        found: list[list[float]] = self.running[first[group] : first[group + 1]].tolist()
        return found

    def welcome(self, group: int, task_class: int) -> bool:
        """Whether a class breaks no p95 goal on a machine of the group that runs nothing else."""
        here = self._forecasts.view.groups[group]
        peaks = self._forecasts.lone_peak_p95_us(group, Arrival(task_class, 0, 1000))
        return all(
            peak <= self._settings.slo_margin * service.slo_us
            for service, peak in zip(here.services, peaks, strict=True)
        )

    def reference_run_s(self, group: int, task_class: int) -> float:
        """Run time of what is left on the group's machines alone; for a long-running task, relative to its best place."""
        alone_s = self._forecasts.best_left_s(group, task_class)
        if not self._forecasts.view.classes[task_class].task.endless:
            return alone_s
        return REFERENCE_RUN_S * alone_s / self.whole_run_s[task_class]

    def penalty(self, arrival: Arrival, end_s: float) -> float:
        """What an arriving task's completion costs, ``end_s`` from now."""
        c = arrival.task_class
        return self.weight[c] * self.g(self.elapsed[c] + end_s, self.tau[c])

    def g(self, phi_s: float, tau_s: float) -> float:
        """The penalty of a weight of 1."""
        return penalty(phi_s, tau_s, self._settings.eps, self._settings.beta)

    def utility(self, arrival: Arrival, end_s: float) -> float:
        """U = (tau - phi)/tau with the task's own goal, whatever the round's."""
        tau = self._own_tau[arrival.task_class]
        return (tau - self.age[arrival.task_class] - end_s) / tau

    def latest_s(self, task_class: int) -> float:
        """The last completion, in seconds from now, that is of the use that a class demands; infinity where any is, and for
        one that is overdue.
        """
        task = self._forecasts.view.classes[task_class].task
        if self._settings.gpu_sets != WORTH and task.gpus is not None:
            return float("inf")  # what it demands is that of its devices
        if task.min_utility is None or self.age[task_class] > self._settings.due_age_s:
            return float("inf")
        return self._own_tau[task_class] * (1.0 - task.min_utility + 1e-12) - self.age[task_class]

    def left_s(self, task_class: int) -> float:
        """Run time of what is left of a class alone at its best place, as it is estimated."""
        view = self._forecasts.view
        task = view.classes[task_class].task
        estimate = view.snapshot.estimate(task, task.done)
        return (
            self.whole_run_s[task_class] * (1.0 - estimate.done) * estimate.scale / view.snapshot.expected_scale(task)
        )

    def known_run_s(self, task_class: int) -> float | None:
        """The run time that says when a class is overdue; None without a known end, or where more utility is waited for."""
        task = self._forecasts.view.classes[task_class].task
        return None if task.endless or task.min_utility is not None else self.whole_run_s[task_class]

    def _own_goal(self, task: Task, best_run_s: float) -> float:
        """What a task's completion is measured by, in seconds after its submission."""
        return self._settings.goal_factor * best_run_s if task.goal_s is None else task.goal_s

    def _importance(self, task: Task, best_run_s: float) -> float:
        weight = task.weight
        if self._goal_s is None and not task.endless:
            snapshot = self._forecasts.view.snapshot
            plain = snapshot.waits_plain and snapshot.catalogue.jobs[task.profile].is_plain
            weight *= (best_run_s / REFERENCE_RUN_S) ** self._settings.length_exponent(plain)
        return weight

    def _alone(self, task_class: int) -> FloatArray:
        view = self._forecasts.view
        width = view.classes[task_class].task.widths_milli[0]
        return np.array(
            [
                self._forecasts.best_alone_s(g, task_class)
                if view.could_fit(task_class, g, width) and self.welcome(g, task_class)
                else np.inf
                for g in view.shapes
            ]
        )

    def _whole_run(self, task_class: int) -> float:
        best = float(self.alone_s[task_class].min(initial=np.inf))
        if np.isfinite(best):
            return best
        task = self._forecasts.view.classes[task_class].task
        snapshot = self._forecasts.view.snapshot
        return snapshot.catalogue.jobs[task.profile].work_s * snapshot.expected_scale(task)

    def _running_goals(self) -> FloatArray:
        view = self._forecasts.view
        # What is learnt of a task's class changes its goal: equal factors have one number.
        learnt, number = view.snapshot.learnt_run_times, self._forecasts.table.number
        classes = dict.fromkeys(["", *(c for group in view.groups for c in group.there.run_classes)])
        factors = {c: number(("factors", learnt.factors(c))) for c in classes}
        goals = [np.zeros((0, 2))]
        for group in view.groups:
            if group.there.rows:
                depends = self._known_goals, *[factors[c] for c in group.there.run_classes]
                goals.append(group.there.kept("goals", depends, partial(self._goals_there, group.there, factors)))
        found: FloatArray = np.zeros((len(view.there.submit_s), 3))
        found[:, 1:] = np.concatenate(goals)
        if self._goal_s is None:
            # As of waiting tasks, in whole microseconds.
            found[:, 0] = [round(view.snapshot.now_s - at_s, 6) for at_s in view.there.submit_s.tolist()]
        return found

    def _goals_there(self, there: TasksThere, factors: Mapping[str, int]) -> FloatArray:
        """[tasks, 2] goal and importance of what runs on a machine. ``factors``: a number for those of each class."""
        known, found = self._known_goals, []
        for r, (content, run_class) in zip(there.tasks, there.goal_contents, strict=True):
            key = content, factors[run_class]
            if key not in known:
                known[key] = self._goal_and_importance(r.task)
            found.append(known[key])
        return np.array(found, np.float64)

    def _goal_and_importance(self, task: Task) -> tuple[float, float]:
        """Of a task that runs, whose best run time is that on any machine: it may have grown too wide for some since."""
        alone = (
            self._forecasts.task_alone_s(host, cores, task) * self._forecasts.gpu_slowdown(gpus, task)
            for host, cores, gpus in self._places
            if task.gpus is None or suits(gpus, task.gpus)
        )
        best_s = min(alone, default=REFERENCE_RUN_S)
        tau = self._own_goal(task, best_s) if self._goal_s is None else self._goal_s
        return tau, self._importance(task, best_s)

    def _place_key(self, task: Task) -> tuple[object, ...]:
        """What a task's run time alone, and where it fits, depend on."""
        return (
            task.profile,
            *self._forecasts.scales(task),
            task.threads,
            task.widths_milli[0],
            task.memory_mib,
            task.resources,
            task.gpus,
            task.machines,
        )
