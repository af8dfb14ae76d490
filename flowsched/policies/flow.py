"""The ``flow`` policy: completion goals and latency headroom, valued on measured performance models."""

from __future__ import annotations

from collections.abc import Mapping

from flowsched.assignment import Company, Newcomer
from flowsched.outlook import Outlook, Prospect
from flowsched.policies.policy import FORBIDDEN
from flowsched.settings import Settings
from flowsched.snapshot import Task
from flowsched.utility import penalty

REFERENCE_RUN_S = 60.0
"""Run time of a task whose penalty ``length_weight`` leaves alone; tasks without an end are priced as if they had it."""


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
        self._age = [now - c.task.submit_s for c in view.classes]
        self._elapsed = [0.0 if goal_s is not None else age for age in self._age]
        self._whole_run_s = [self._whole_run(c) for c in range(len(view.classes))]
        self._best_run_s = [
            REFERENCE_RUN_S if c.task.endless else self._whole_run_s[i] for i, c in enumerate(view.classes)
        ]
        self._tau = [
            goal_s if goal_s is not None else self._own_goal(c.task, self._best_run_s[i])
            for i, c in enumerate(view.classes)
        ]
        self._weight = [self._importance(c.task, self._best_run_s[i]) for i, c in enumerate(view.classes)]
        self._own_tau = [self._own_goal(c.task, self._best_run_s[i]) for i, c in enumerate(view.classes)]
        self._demands_utility = any(c.task.min_utility is not None for c in view.classes)
        # Distinct places only: clusters have many machines alike.
        self._places = list(dict.fromkeys((g.host, g.batch_cores) for g in view.groups if g.batch_cores))
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
        """Own run time undisturbed, interference suffered, interference caused, wait for the slot, SLO headroom.

        Those of later slots who could not come without the newcomer, as they wait for its end, are left out of the sum.
        """
        newcomer = company[member]
        others = company[:member] + company[member + 1 :]
        with_it = self._outlook.prospect(group, company)
        without = self._outlook.prospect(group, others)
        if with_it is None:
            return {}
        if without is None or self.machine_cost(group, others) == FORBIDDEN:
            earlier = tuple(n for n in company if n.slot <= newcomer.slot)
            if earlier == company:
                return {}
            return self.machine_terms(group, earlier, earlier.index(newcomer))
        total = self.machine_cost(group, company) - self.machine_cost(group, others)
        own = self._penalty(newcomer, self._ends(group, company, with_it)[member])
        alone_s = self._alone_s(group, newcomer.task_class)
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
        end = delay + self._alone_s(group, task_class)
        return self._penalty(Newcomer(task_class, 0, 0), end)

    def resident_least_cost(self, group: int) -> float:
        """Every running task alone on its cores from now on, and the headroom that idle services use."""
        here = self._outlook.view.groups[group]
        total = self._headroom_of(group, here.host.rates(()).p95_us)
        for running, resident, (elapsed, tau, weight) in zip(
            here.running, here.residents, self._running[group], strict=True
        ):
            if running.task.endless:
                total += weight * self._slowness(1.0)
                continue
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
        here = self._outlook.view.groups[group]
        classes = self._outlook.view.classes
        ends = [end for r, end in zip(here.running, prospect.residents_s, strict=True) if not r.task.endless]
        ends += [
            end for n, end in zip(company, prospect.newcomers_s, strict=True) if not classes[n.task_class].task.endless
        ]
        return max(ends, default=0.0)

    def utility(self, group: int, company: Company, member: int) -> float | None:
        """U = (tau - phi)/tau with the task's own goal tau, phi counted from its submission."""
        prospect = self._outlook.prospect(group, company)
        if prospect is None:
            return None
        return self._utility(company[member], self._ends(group, company, prospect)[member])

    def _value(self, group: int, company: Company, prospect: Prospect) -> float:
        if company and self._breaks_a_goal(group, company, prospect):
            return FORBIDDEN
        ends = self._ends(group, company, prospect)
        if self._demands_utility and any(self._falls_short(n, end) for n, end in zip(company, ends, strict=True)):
            return FORBIDDEN
        here = self._outlook.view.groups[group]
        total = self._headroom(group, prospect)
        slower = self._outlook.slowdowns(group, company)[0] if here.endless else ()
        for i, (end, (elapsed, tau, weight)) in enumerate(zip(prospect.residents_s, self._running[group], strict=True)):
            if here.running[i].task.endless:
                total += weight * self._slowness(slower[i])
            else:
                total += weight * self._g(elapsed + end, tau)
        for newcomer, end in zip(company, ends, strict=True):
            total += self._penalty(newcomer, end)
        return total

    def _ends(self, group: int, company: Company, prospect: Prospect) -> tuple[float, ...]:
        """When each newcomer is done; for one without an end, as if it had ``REFERENCE_RUN_S`` to run at its best place."""
        classes = self._outlook.view.classes
        if not any(classes[n.task_class].task.endless for n in company):
            return prospect.newcomers_s
        slower = self._outlook.slowdowns(group, company)[1]
        return tuple(
            start + self._outlook.delay_s(n.task_class, n.slot) + self._alone_s(group, n.task_class) * factor
            if classes[n.task_class].task.endless
            else end
            for n, end, start, factor in zip(company, prospect.newcomers_s, prospect.starts_s, slower, strict=True)
        )

    def _alone_s(self, group: int, task_class: int) -> float:
        """Run time on the group's machines alone; for a task without an end, relative to its best place."""
        alone_s = self._outlook.best_alone_s(group, task_class)
        if not self._outlook.view.classes[task_class].task.endless:
            return alone_s
        return REFERENCE_RUN_S * alone_s / self._whole_run_s[task_class]

    def _slowness(self, factor: float) -> float:
        """Penalty of a running task without an end that is so many times slower than alone, whatever its length."""
        return self._settings.eps * factor / self._settings.goal_factor

    def _utility(self, newcomer: Newcomer, end_s: float) -> float:
        tau = self._own_tau[newcomer.task_class]
        return (tau - self._age[newcomer.task_class] - end_s) / tau

    def _falls_short(self, newcomer: Newcomer, end_s: float) -> bool:
        """Whether a task that is not due yet would be of less use than it demands."""
        task = self._outlook.view.classes[newcomer.task_class].task
        if task.min_utility is None or self._age[newcomer.task_class] > self._settings.due_age_s:
            return False
        return self._utility(newcomer, end_s) < task.min_utility - 1e-12

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

    def _price_later(self, task_class: int) -> float:
        """Penalty of a task that starts once the backlog is worked off and a machine has drained.

        Tasks without an end are there then too: what they do to it, and it to them, is not spared by waiting.
        """
        view = self._outlook.view
        backlog_s = self._outlook.fluid_s()
        least = FORBIDDEN
        for g in range(len(view.groups)):
            width = view.classes[task_class].task.widths_milli[0]
            if not view.could_fit(task_class, g, width) or not self.welcome(g, task_class):
                continue
            empty = self._outlook.prospect(g, ())
            ends = () if empty is None else zip(view.groups[g].running, empty.residents_s, strict=True)
            drained = max((end for r, end in ends if not r.task.endless), default=0.0)
            wait = max(drained, backlog_s, self._settings.round_period_s) + self._outlook.delay_s(task_class, 1)
            alone_s, caused = self._alone_s(g, task_class), 0.0
            if view.groups[g].endless:
                newcomer = Newcomer(task_class, 0, width)
                before, _ = self._outlook.slowdowns_for_good(g, ())
                after, (own,) = self._outlook.slowdowns_for_good(g, (newcomer,))
                alone_s *= own
                weights = [self._running[g][i][2] for i, r in enumerate(view.groups[g].running) if r.task.endless]
                caused = sum(
                    w * (self._slowness(a) - self._slowness(b)) for w, a, b in zip(weights, after, before, strict=True)
                )
            least = min(least, self._penalty(Newcomer(task_class, 0, 0), wait + alone_s) + caused)
        if least == FORBIDDEN:
            return self._penalty(Newcomer(task_class, 0, 0), self._best_run_s[task_class])
        return least

    def _price_waiting(self, task_class: int) -> dict[str, float]:
        task = self._outlook.view.classes[task_class].task
        age = max(0.0, self._outlook.view.snapshot.now_s - task.submit_s)
        due = self._settings.due_age_s
        return {
            "completion_if_postponed": self._price_later(task_class),
            "waiting": self._settings.waiting_weight * (min(1.0, age / due) if due > 0.0 else 1.0),
        }
