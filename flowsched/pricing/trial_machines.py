"""Machines as they would be with other tasks on them, priced like those of the round: what leaving or coming would cost."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from flowsched.cluster.compaction import compact, part_of
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Running, Snapshot, Task, by_machine
from flowsched.pricing.arrival import Arrival
from flowsched.pricing.flow_prices import FORBIDDEN, FlowPrices
from flowsched.pricing.forecast_cache import forecast_cache
from flowsched_models.runtime import HostFactory

_TINY = 1e-9


@dataclass(frozen=True)
class Trial:
    """A machine with other tasks than it has."""

    machine: str
    running: tuple[Running, ...]


class TrialMachines:
    """Prices of a snapshot's machines and of trials of them, all in one set of forecasts.

    Machines themselves are there too, so that goals, which depend on the best machine, are those of the round. One of each
    shape (:meth:`representatives`) is enough for that, where no waiting is priced.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        trials: Sequence[Trial],
        pending: Sequence[Task],
        hosts: HostFactory,
        settings: Settings,
        goal_s: float | None,
        only: Collection[str] | None = None,
    ) -> None:
        """``pending``: tasks that arrivals and waiting are priced for; their machines and their wishes hold for trials
        too. ``only``: names of the machines that are there themselves, all unless it is given.
        """
        if only is not None:
            snapshot = part_of(snapshot, {*only, *(trial.machine for trial in trials)})
        self._names = [f"{trial.machine}\n{i}" for i, trial in enumerate(trials)]
        machines = {m.name: m for m in snapshot.machines}
        services = by_machine(snapshot.services)
        twins = list(zip(self._names, trials, strict=True))
        of: dict[str, list[str]] = {}
        for name, trial in twins:
            of.setdefault(trial.machine, []).append(name)
        self.view = compact(
            replace(
                snapshot,
                machines=(*snapshot.machines, *(replace(machines[t.machine], name=name) for name, t in twins)),
                services=(
                    *snapshot.services,
                    *(replace(s, machine=name) for name, t in twins for s in services.get(t.machine, ())),
                ),
                running=(*snapshot.running, *(replace(r, machine=name) for name, t in twins for r in t.running)),
                pending=tuple(_with_trials(task, of) for task in pending),
                plan=(),
                reservations=(),
            ),
            hosts,
        )
        forecasts = forecast_cache(self.view, settings, hosts, trial=True)
        own = FlowPrices(forecasts, settings)
        self.prices = own if goal_s is None else own.with_goal(max(goal_s, 1e-3))
        self.group = {
            name: g
            for g, group in enumerate(self.view.groups)
            for name in (*(self.view.machines[i].name for i in group.members), *group.spares)
        }
        self._trial_names = frozenset(self._names)
        self._number = {task.name: i for i, task in enumerate(self.view.tasks)}

    def representatives(self, task: Task) -> list[str]:
        """A machine of each shape, of those that a task may run on and of the others."""
        listed = None if task.machines is None else frozenset(task.machines)
        found: dict[tuple[int, bool], str] = {}
        for name, g in self.group.items():
            if name not in self._trial_names:
                found.setdefault((self.view.shape_of[g], listed is None or name in listed), name)
        return list(found.values())

    def cost(self, machine: str) -> float:
        """Cost of a machine as it is."""
        return self.prices.machine_cost(self.group[machine], ())

    def trial_cost(self, trial: int) -> float:
        """Cost of a trial."""
        return self.cost(self._names[trial])

    def keeps_goals(self, trial: int, machine: str) -> bool:
        """Whether no service of a trial exceeds the share of its p95 goal that is allowed, nor what lasts there anyway."""
        g, before = self.group[self._names[trial]], self.group[machine]
        peaks, settled = self.prices.base.peak_us[g], self.prices.base.settled_us[before]
        allowed = self.prices.settings.slo_margin * self.prices.slo_us[g]
        return not bool(((peaks > allowed) & (peaks > settled + _TINY)).any())

    def waiting_cost(self, task: str) -> float:
        """What it costs to let a pending task wait."""
        return self.prices.waiting_cost(self.task_class(task))

    def task_class(self, task: str) -> int:
        """The class of a pending task."""
        return self.view.class_of[self._number[task]]

    def cheapest_arrival(self, trial: int, task: str) -> tuple[float, Arrival | None]:
        """The cheapest way in which a pending task may start on a trial at once, and the trial's cost with it."""
        g, c = self.trial_group(trial), self.task_class(task)
        arrivals = [Arrival(c, 0, width, shared) for width, shared in self.prices.forecasts.ways(g, c)]
        costs = self.prices.machine_costs(g, [(arrival,) for arrival in arrivals])
        best = min(range(len(costs)), key=lambda i: (costs[i], i), default=None)
        return (FORBIDDEN, None) if best is None or costs[best] == FORBIDDEN else (costs[best], arrivals[best])

    def trial_group(self, trial: int) -> int:
        """The group of a trial."""
        return self.group[self._names[trial]]


def _with_trials(task: Task, of: dict[str, list[str]]) -> Task:
    if task.wishes:
        wishes = (*task.wishes, *((name, cost) for m, cost in task.wishes for name in of.get(m, ())))
        task = replace(task, wishes=wishes)
    if task.machines is None:
        return task
    return replace(task, machines=(*task.machines, *(name for m in task.machines for name in of.get(m, ()))))
