"""What completions are measured by: goals and weights of everybody, the penalty, and the utility."""

from __future__ import annotations

from flowsched.assignment import Newcomer
from flowsched.outlook import Outlook
from flowsched.settings import Settings
from flowsched.snapshot import Task
from flowsched.utility import penalty

REFERENCE_RUN_S = 60.0
"""Run time of a task whose penalty ``length_weight`` leaves alone; tasks without an end are priced as if they had it."""


class Goals:
    """Goals of one round. ``goal_s`` None: each task's own goal, counted from its submission."""

    def __init__(
        self, outlook: Outlook, settings: Settings, goal_s: float | None = None, like: Goals | None = None
    ) -> None:
        """``like``: goals of the same round that differ in ``goal_s`` only."""
        self._outlook = outlook
        self._settings = settings
        self._goal_s = goal_s
        view = outlook.view
        now = view.snapshot.now_s
        self.age = [now - c.task.submit_s for c in view.classes]
        self.elapsed = [0.0 if goal_s is not None else age for age in self.age]
        self.whole_run_s: list[float] = (
            [self._whole_run(c) for c in range(len(view.classes))] if like is None else like.whole_run_s
        )
        self.best_run_s = [
            REFERENCE_RUN_S if c.task.endless else self.whole_run_s[i] for i, c in enumerate(view.classes)
        ]
        self.tau = [
            goal_s if goal_s is not None else self._own_goal(c.task, self.best_run_s[i])
            for i, c in enumerate(view.classes)
        ]
        self.weight = [self._importance(c.task, self.best_run_s[i]) for i, c in enumerate(view.classes)]
        self._own_tau = [self._own_goal(c.task, self.best_run_s[i]) for i, c in enumerate(view.classes)]
        self.demand_utility = any(c.task.min_utility is not None for c in view.classes)
        # Distinct places only: clusters have many machines alike.
        self._places = list(dict.fromkeys((g.host, g.batch_cores) for g in view.groups if g.batch_cores))
        self.running = [self._running_goals(g) for g in range(len(view.groups))]

    def welcome(self, group: int, task_class: int) -> bool:
        """Whether a class breaks no p95 goal on a machine of the group that runs nothing else."""
        here = self._outlook.view.groups[group]
        peaks = self._outlook.lone_peak_p95_us(group, (Newcomer(task_class, 0, 1000),))
        return all(
            peak <= self._settings.slo_margin * service.slo_us
            for service, peak in zip(here.services, peaks, strict=True)
        )

    def penalty(self, newcomer: Newcomer, end_s: float) -> float:
        """What a newcomer's completion costs, ``end_s`` from now."""
        c = newcomer.task_class
        return self.weight[c] * self.g(self.elapsed[c] + end_s, self.tau[c])

    def g(self, phi_s: float, tau_s: float) -> float:
        """The penalty of a weight of 1."""
        return penalty(phi_s, tau_s, self._settings.eps, self._settings.beta)

    def utility(self, newcomer: Newcomer, end_s: float) -> float:
        """U = (tau - phi)/tau with the task's own goal, whatever the round's."""
        tau = self._own_tau[newcomer.task_class]
        return (tau - self.age[newcomer.task_class] - end_s) / tau

    def falls_short(self, newcomer: Newcomer, end_s: float) -> bool:
        """Whether a task that is not due yet would be of less use than it demands."""
        task = self._outlook.view.classes[newcomer.task_class].task
        if task.min_utility is None or self.age[newcomer.task_class] > self._settings.due_age_s:
            return False
        return self.utility(newcomer, end_s) < task.min_utility - 1e-12

    def _own_goal(self, task: Task, best_run_s: float) -> float:
        """What a task's completion is measured by, in seconds after its submission."""
        return self._settings.goal_factor * best_run_s if task.goal_s is None else task.goal_s

    def _importance(self, task: Task, best_run_s: float) -> float:
        weight: float = 2.0 ** max(-10, min(10, task.priority))
        if self._goal_s is None and not task.endless:
            weight *= (best_run_s / REFERENCE_RUN_S) ** self._settings.length_weight
        return weight

    def _whole_run(self, task_class: int) -> float:
        view = self._outlook.view
        task = view.classes[task_class].task
        times = [
            self._outlook.best_alone_s(g, task_class)
            for g in range(len(view.groups))
            if view.could_fit(task_class, g, task.widths_milli[0]) and self.welcome(g, task_class)
        ]
        if times:
            return min(times)
        return view.snapshot.catalogue.jobs[task.profile].work_s * task.scale

    def _running_goals(self, group: int) -> list[tuple[float, float, float]]:
        """(elapsed, goal, weight) of everything that runs on a group's machine."""
        view = self._outlook.view
        goals = []
        for running in view.groups[group].running:
            best_s = min(
                (self._outlook.task_alone_s(host, cores, running.task) for host, cores in self._places),
                default=REFERENCE_RUN_S,
            )
            weight = self._importance(running.task, best_s)
            if self._goal_s is not None:
                goals.append((0.0, self._goal_s, weight))
                continue
            elapsed = view.snapshot.now_s - running.task.submit_s
            goals.append((elapsed, self._own_goal(running.task, best_s), weight))
        return goals
