"""The ``flow`` policy: completion goals and latency headroom, valued on measured performance models."""

from __future__ import annotations

from collections.abc import Mapping

from flowsched.assignment import Company, Newcomer
from flowsched.outlook import Outlook, Prospect
from flowsched.policies.policy import FORBIDDEN
from flowsched.settings import Settings
from flowsched.utility import penalty

REFERENCE_RUN_S = 60.0
"""Run time of a task whose penalty ``length_weight`` leaves alone."""


class FlowPolicy:
    """Every task has a penalty on its predicted completion time; a machine's cost is the sum over all that is on it."""

    name = "flow"

    def __init__(self, settings: Settings | None = None) -> None:
        """Keep the settings."""
        self.settings = settings or Settings()

    def price(self, outlook: Outlook) -> FlowPrices:
        """Open a round."""
        return FlowPrices(outlook, self.settings)


class FlowPrices:
    """Prices of one round. ``goal_s`` None: each task's own goal, counted from its submission."""

    def __init__(self, outlook: Outlook, settings: Settings, goal_s: float | None = None) -> None:
        """Work out the goals; nothing is forecast yet."""
        self._outlook = outlook
        self._settings = settings
        self._goal_s = goal_s
        self._cost: dict[tuple[int, Company], float] = {}
        view = outlook.view
        now = view.snapshot.now_s
        self._elapsed = [0.0 if goal_s is not None else now - c.task.submit_s for c in view.classes]
        self._best_run_s = [self._best_run(c) for c in range(len(view.classes))]
        self._tau = [
            goal_s
            if goal_s is not None
            else (c.task.goal_s if c.task.goal_s is not None else settings.goal_factor * self._best_run_s[i])
            for i, c in enumerate(view.classes)
        ]
        self._weight = [self._importance(c.task.priority, self._best_run_s[i]) for i, c in enumerate(view.classes)]
        self._running = [self._running_goals(g) for g in range(len(view.groups))]
        self._waiting = [self._price_waiting(c) for c in range(len(view.classes))]

    def with_goal(self, goal_s: float) -> FlowPrices:
        """The same prices with one goal for all, ``goal_s`` from now."""
        return FlowPrices(self._outlook, self._settings, goal_s)

    def machine_cost(self, group: int, company: Company) -> float:
        """Penalties of all who are on the machine, plus the price of the headroom that is used."""
        key = (group, company)
        cost = self._cost.get(key)
        if cost is None:
            prospect = self._outlook.prospect(group, company)
            cost = FORBIDDEN if prospect is None else self._value(group, company, prospect)
            self._cost[key] = cost
        return cost

    def machine_terms(self, group: int, company: Company, member: int) -> Mapping[str, float]:
        """Own run time undisturbed, interference suffered, interference caused, wait for the slot, SLO headroom."""
        newcomer = company[member]
        others = company[:member] + company[member + 1 :]
        with_it = self._outlook.prospect(group, company)
        without = self._outlook.prospect(group, others)
        if with_it is None or without is None:
            return {}
        total = self.machine_cost(group, company) - self.machine_cost(group, others)
        own = self._penalty(newcomer, with_it.newcomers_s[member])
        alone_s = self._outlook.best_alone_s(group, newcomer.task_class)
        begin = self._outlook.delay_s(newcomer.task_class, newcomer.slot)
        undisturbed = self._penalty(newcomer, begin + alone_s)
        delayed = self._penalty(newcomer, with_it.starts_s[member] + begin + alone_s)
        headroom = self._headroom(group, with_it) - self._headroom(group, without)
        terms = {
            "run_time": undisturbed,
            "wait_for_slot": delayed - undisturbed,
            "interference_suffered": own - delayed,
            "interference_caused": total - own - headroom,
            "slo_headroom": headroom,
        }
        # Differences of equal sums leave a few bits that mean nothing.
        return {name: value if abs(value) > 1e-12 else 0.0 for name, value in terms.items()}

    def waiting_cost(self, task_class: int) -> float:
        """Equation 13: the penalty of starting when the backlog is worked off and a machine has drained, plus W.

        The expected further wait is not one round: with nothing running yet that would make waiting for the widest
        machine look cheap to everybody at once. A task that waits *for* something has a column of a later slot.
        """
        return sum(self._waiting[task_class].values())

    def waiting_terms(self, task_class: int) -> Mapping[str, float]:
        """Penalty and W."""
        return self._waiting[task_class]

    def least_cost(self, group: int, task_class: int) -> float:
        """Its own penalty with the machine's batch cores to itself from now on; nothing is ever faster.

        What it does to the others is left out: it is not below what they are bound to cost (``resident_least_cost``).
        """
        delay = min(self._outlook.delay_s(task_class, 0), self._outlook.delay_s(task_class, 1))
        end = delay + self._outlook.best_alone_s(group, task_class)
        return self._penalty(Newcomer(task_class, 0, 0), end)

    def resident_least_cost(self, group: int) -> float:
        """Every running task alone on its cores from now on, and the headroom that idle services use."""
        here = self._outlook.view.groups[group]
        total = self._headroom_of(group, here.host.rates(()).p95_us)
        for resident, (elapsed, tau, weight) in zip(here.residents, self._running[group], strict=True):
            left_s = here.host.alone_s(
                resident.profile, resident.threads, resident.cores, resident.scale, resident.progress
            )
            total += weight * self._g(elapsed + resident.ready_s + left_s, tau)
        return total

    def welcome(self, group: int, task_class: int) -> bool:
        """Whether a class breaks no p95 goal on a machine of the group that runs nothing else."""
        here = self._outlook.view.groups[group]
        peaks = self._outlook.lone_peak_p95_us(group, (Newcomer(task_class, 0, 1000),))
        return all(
            peak <= self._settings.slo_margin * service.slo_us
            for service, peak in zip(here.services, peaks, strict=True)
        )

    def makespan_s(self, group: int, company: Company) -> float:
        """Last predicted completion on a machine, in seconds from now."""
        prospect = self._outlook.prospect(group, company)
        if prospect is None:
            return FORBIDDEN
        return max((*prospect.residents_s, *prospect.newcomers_s), default=0.0)

    def _value(self, group: int, company: Company, prospect: Prospect) -> float:
        if company and self._breaks_a_goal(group, company, prospect):
            return FORBIDDEN
        total = self._headroom(group, prospect)
        for end, (elapsed, tau, weight) in zip(prospect.residents_s, self._running[group], strict=True):
            total += weight * self._g(elapsed + end, tau)
        for newcomer, end in zip(company, prospect.newcomers_s, strict=True):
            total += self._penalty(newcomer, end)
        return total

    def _breaks_a_goal(self, group: int, company: Company, prospect: Prospect) -> bool:
        """Whether a p95 goal is predicted to be broken by a company, and not by what runs there already."""
        here = self._outlook.view.groups[group]
        for k, service in enumerate(here.services):
            limit = self._settings.slo_margin * service.slo_us
            if prospect.peak_p95_us[k] <= limit:
                continue
            before = self._outlook.prospect(group, ())
            if before is None or prospect.peak_p95_us[k] > before.peak_p95_us[k] + 1e-9:
                return True
            if self._outlook.lone_peak_p95_us(group, company)[k] > limit:
                return True
        return False

    def _penalty(self, newcomer: Newcomer, end_s: float) -> float:
        c = newcomer.task_class
        return self._weight[c] * self._g(self._elapsed[c] + end_s, self._tau[c])

    def _g(self, phi_s: float, tau_s: float) -> float:
        return penalty(phi_s, tau_s, self._settings.eps, self._settings.beta)

    def _headroom(self, group: int, prospect: Prospect) -> float:
        return self._headroom_of(group, prospect.peak_p95_us)

    def _headroom_of(self, group: int, p95_us: tuple[float, ...]) -> float:
        price = 0.0
        for service, p95 in zip(self._outlook.view.groups[group].services, p95_us, strict=True):
            used = min(0.99, p95 / service.slo_us)
            price += self._settings.headroom_weight * used / (1.0 - used)
        return price

    def _importance(self, priority: int, best_run_s: float) -> float:
        weight: float = 2.0 ** max(-10, min(10, priority))
        if self._goal_s is None:
            weight *= (best_run_s / REFERENCE_RUN_S) ** self._settings.length_weight
        return weight

    def _best_run(self, task_class: int) -> float:
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
        for running, resident in zip(view.groups[group].running, view.groups[group].residents, strict=True):
            best_s = min(
                (
                    self._outlook.alone_s(g.host, g.batch_cores, resident.profile, resident.scale)
                    for g in view.groups
                    if g.batch_cores
                ),
                default=REFERENCE_RUN_S,
            )
            weight = self._importance(running.task.priority, best_s)
            if self._goal_s is not None:
                goals.append((0.0, self._goal_s, weight))
                continue
            elapsed = view.snapshot.now_s - running.task.submit_s
            tau = running.task.goal_s
            goals.append((elapsed, self._settings.goal_factor * best_s if tau is None else tau, weight))
        return goals

    def _expected_end(self, task_class: int) -> float:
        """When a task is done that starts once the backlog is worked off and a machine has drained."""
        view = self._outlook.view
        backlog_s = self._outlook.fluid_s()
        soonest = FORBIDDEN
        for g in range(len(view.groups)):
            width = view.classes[task_class].task.widths_milli[0]
            if not view.could_fit(task_class, g, width) or not self.welcome(g, task_class):
                continue
            empty = self._outlook.prospect(g, ())
            drained = max(empty.residents_s, default=0.0) if empty is not None else 0.0
            wait = max(drained, backlog_s, self._settings.round_period_s) + self._outlook.delay_s(task_class, 1)
            soonest = min(soonest, wait + self._outlook.best_alone_s(g, task_class))
        return self._best_run_s[task_class] if soonest == FORBIDDEN else soonest

    def _price_waiting(self, task_class: int) -> dict[str, float]:
        task = self._outlook.view.classes[task_class].task
        age = max(0.0, self._outlook.view.snapshot.now_s - task.submit_s)
        due = self._settings.due_age_s
        end = self._expected_end(task_class)
        return {
            "completion_if_postponed": self._penalty(Newcomer(task_class, 0, 0), end),
            "waiting": self._settings.waiting_weight * (min(1.0, age / due) if due > 0.0 else 1.0),
        }
