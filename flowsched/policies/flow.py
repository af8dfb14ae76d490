"""The ``flow`` policy: completion goals and latency headroom, valued on measured performance models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from flowsched.assignment import Company, Newcomer
from flowsched.outlook import Outlook
from flowsched.policies.goal import REFERENCE_RUN_S, Goals
from flowsched.policies.policy import FORBIDDEN
from flowsched.prospect import Prospect, Prospects
from flowsched.settings import Settings
from flowsched.utility import MOST_USED, FloatArray, sum_costs


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

    def __init__(
        self, outlook: Outlook, settings: Settings, goal_s: float | None = None, like: FlowPrices | None = None
    ) -> None:
        """Work out the goals; nothing is forecast yet. ``like``: prices that differ in the goal only."""
        self._outlook = outlook
        self._settings = settings
        self._goal_s = goal_s
        view = outlook.view
        self._cost: list[dict[Company, float]] = [{} for _ in view.groups]
        self._row: list[dict[Company, int]] = [{} for _ in view.groups]
        """The row of the way that is cheapest, where there is a choice."""
        self._end: list[dict[Company, float]] = [{} for _ in view.groups]
        self._goals: Goals = Goals(outlook, settings, goal_s, None if like is None else like._goals)
        # Where nobody stays for good, the least time after which a postponed task ends knows no goal.
        self._later_s: dict[int, float] = {} if like is None else like._later_s
        goals = self._goals
        self._by_class = np.array([*zip(goals.elapsed, goals.tau, goals.weight, strict=True)]).reshape(-1, 3)
        self._by_resident = [np.array(known).reshape(-1, 3) for known in goals.running]
        self._goals_us = [np.array([s.slo_us for s in g.services], np.float64) for g in view.groups]
        # Where every cost is a sum over what is forecast, many are summed in one call.
        plain = not self._goals.demand_utility and not any(c.task.endless for c in view.classes)
        self._plain = [plain and not g.endless for g in view.groups]
        self._waiting = [self._price_waiting(c) for c in range(len(view.classes))]

    def with_goal(self, goal_s: float) -> FlowPrices:
        """The same prices with one goal for all, ``goal_s`` from now."""
        return FlowPrices(self._outlook, self._settings, goal_s, self)

    def on(self, outlook: Outlook) -> FlowPrices:
        """The same prices of another outlook on the same round."""
        return FlowPrices(outlook, self._settings, self._goal_s)

    def machine_cost(self, group: int, company: Company) -> float:
        """Penalties of all who are on the machine, plus the price of the headroom that is used."""
        cost = self._cost[group].get(company)
        return self.machine_costs(group, (company,))[0] if cost is None else cost

    def machine_costs(self, group: int, companies: Sequence[Company]) -> list[float]:
        """The same of many companies, forecast and summed together."""
        known = self._cost[group]
        new = [c for c in companies if c not in known]
        if new:
            self._learn(group, list(dict.fromkeys(new)))
        return [known[c] for c in companies]

    def _learn(self, group: int, new: Sequence[Company]) -> None:
        known = self._cost[group]
        prospects, rows = self._outlook.rows(group, new)
        values = iter(self._values(group, new, prospects, rows))
        for company, ways in zip(new, rows, strict=True):
            best, chosen = FORBIDDEN, -1
            for row in ways:
                value = next(values)
                # The first way, with batch cores only, where no other one is cheaper.
                if value < best - 1e-12:
                    best, chosen = value, row
            known[company] = best
            if len(ways) > 1 and chosen >= 0:
                self._row[group][company] = chosen

    def prospect(self, group: int, company: Company) -> Prospect | None:
        """What is predicted for a company, its newcomers on the cores that cost least; None if it cannot be there."""
        prospects, (rows,) = self._outlook.rows(group, (company,))
        if not rows:
            return None
        if len(rows) > 1:
            self.machine_cost(group, company)
        return prospects.prospect(self._row[group].get(company, rows[0]))

    def machine_terms(self, group: int, company: Company, member: int) -> Mapping[str, float]:
        """Own run time undisturbed, interference suffered, interference caused, wait for the slot, SLO headroom.

        Those of later slots who could not come without the newcomer, as they wait for its end, are left out of the sum.
        """
        newcomer = company[member]
        others = company[:member] + company[member + 1 :]
        with_it = self.prospect(group, company)
        without = self.prospect(group, others)
        if with_it is None:
            return {}
        if without is None or self.machine_cost(group, others) == FORBIDDEN:
            earlier = tuple(n for n in company if n.slot <= newcomer.slot)
            if earlier == company:
                return {}
            return self.machine_terms(group, earlier, earlier.index(newcomer))
        total = self.machine_cost(group, company) - self.machine_cost(group, others)
        own = self._goals.penalty(newcomer, self._ends(group, company, with_it)[member])
        alone_s = self._alone_s(group, newcomer.task_class)
        if with_it.shared:
            alone_s *= self._outlook.undisturbed_s(group, newcomer, True) / self._outlook.best_alone_s(
                group, newcomer.task_class
            )
        begin = self._outlook.delay_s(newcomer.task_class, newcomer.slot)
        undisturbed = self._goals.penalty(newcomer, begin + alone_s)
        delayed = self._goals.penalty(newcomer, with_it.starts_s[member] + begin + alone_s)
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
        """Its own penalty with the cores that it may use to itself from now on; nothing is ever faster.

        What it does to the others is left out: it is not below what they are bound to cost (``resident_least_cost``).
        """
        delay = min(self._outlook.delay_s(task_class, 0), self._outlook.delay_s(task_class, 1))
        least = self._outlook.least_alone_s(group, task_class) / self._outlook.best_alone_s(group, task_class)
        end = delay + self._alone_s(group, task_class) * min(1.0, least)
        return self._goals.penalty(Newcomer(task_class, 0, 0), end)

    def resident_least_cost(self, group: int) -> float:
        """Every running task alone on its cores from now on, and the headroom that idle services use."""
        here = self._outlook.view.groups[group]
        total = self._headroom_of(group, here.host.rates(()).p95_us)
        host = self._outlook.bare_host(group) if self._outlook.may_share(group) else here.host
        for running, resident, (elapsed, tau, weight) in zip(
            here.running, here.residents, self._goals.running[group], strict=True
        ):
            if running.task.endless:
                total += weight * self._slowness(1.0)
                continue
            left_s = host.alone_s(resident.profile, resident.threads, resident.cores, resident.scale, resident.progress)
            total += weight * self._goals.g(elapsed + resident.ready_s + left_s, tau)
        return total

    def welcome(self, group: int, task_class: int) -> bool:
        """Whether a class breaks no p95 goal on a machine of the group that runs nothing else."""
        return self._goals.welcome(group, task_class)

    def makespan_s(self, group: int, company: Company) -> float:
        """Last predicted completion on a machine, in seconds from now."""
        found = self._end[group].get(company)
        if found is None:
            found = self._end[group][company] = self._last_end_s(group, company)
        return found

    def utility(self, group: int, company: Company, member: int) -> float | None:
        """U = (tau - phi)/tau with the task's own goal tau, phi counted from its submission."""
        prospect = self.prospect(group, company)
        if prospect is None:
            return None
        return self._goals.utility(company[member], self._ends(group, company, prospect)[member])

    def _last_end_s(self, group: int, company: Company) -> float:
        prospect = self.prospect(group, company)
        if prospect is None:
            return FORBIDDEN
        here = self._outlook.view.groups[group]
        classes = self._outlook.view.classes
        ends = [end for r, end in zip(here.running, prospect.residents_s, strict=True) if not r.task.endless]
        ends += [
            end for n, end in zip(company, prospect.newcomers_s, strict=True) if not classes[n.task_class].task.endless
        ]
        return max(ends, default=0.0)

    def _values(
        self, group: int, companies: Sequence[Company], prospects: Prospects, rows: Sequence[tuple[int, ...]]
    ) -> list[float]:
        """Cost of every row of every company, one after the other."""
        if not self._plain[group]:
            return [
                self._value(group, company, prospects.prospect(row))
                for company, ways in zip(companies, rows, strict=True)
                for row in ways
            ]
        settings = self._settings
        flat = [row for ways in rows for row in ways]
        costs: FloatArray = sum_costs(
            np.array(flat, np.int64),
            prospects.first,
            prospects.newcomers_s,
            prospects.classes,
            prospects.residents_s,
            prospects.peak_p95_us,
            self._by_class,
            self._by_resident[group],
            self._goals_us[group],
            settings.slo_margin,
            settings.eps,
            settings.beta,
            settings.headroom_weight,
        )
        values: list[float] = costs.tolist()
        if np.isnan(costs).any():
            owners = [company for company, ways in zip(companies, rows, strict=True) for _ in ways]
            for i in np.flatnonzero(np.isnan(costs)).tolist():
                values[i] = self._value(group, owners[i], prospects.prospect(flat[i]))
        return values

    def _value(self, group: int, company: Company, prospect: Prospect) -> float:
        if company and self._breaks_a_goal(group, company, prospect):
            return FORBIDDEN
        ends = self._ends(group, company, prospect)
        if self._goals.demand_utility and any(
            self._goals.falls_short(n, end) for n, end in zip(company, ends, strict=True)
        ):
            return FORBIDDEN
        here = self._outlook.view.groups[group]
        total = self._headroom(group, prospect)
        slower = self._outlook.slowdowns(group, company, prospect.shared)[0] if here.endless else ()
        for i, (end, (elapsed, tau, weight)) in enumerate(
            zip(prospect.residents_s, self._goals.running[group], strict=True)
        ):
            if here.running[i].task.endless:
                total += weight * self._slowness(slower[i])
            else:
                total += weight * self._goals.g(elapsed + end, tau)
        for newcomer, end in zip(company, ends, strict=True):
            total += self._goals.penalty(newcomer, end)
        return total

    def _ends(self, group: int, company: Company, prospect: Prospect) -> tuple[float, ...]:
        """When each newcomer is done; for one without an end, as if it had ``REFERENCE_RUN_S`` to run at its best place."""
        classes = self._outlook.view.classes
        if not any(classes[n.task_class].task.endless for n in company):
            return prospect.newcomers_s
        slower = self._outlook.slowdowns(group, company, prospect.shared)[1]
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
        return REFERENCE_RUN_S * alone_s / self._goals.whole_run_s[task_class]

    def _slowness(self, factor: float) -> float:
        """Penalty of a running task without an end that is so many times slower than alone, whatever its length."""
        return self._settings.eps * factor / self._settings.goal_factor

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
            if self._outlook.lone_peak_p95_us(group, company, prospect.shared)[k] > limit:
                return True
        return False

    def _headroom(self, group: int, prospect: Prospect) -> float:
        return self._headroom_of(group, prospect.peak_p95_us)

    def _headroom_of(self, group: int, p95_us: tuple[float, ...]) -> float:
        price = 0.0
        for service, p95 in zip(self._outlook.view.groups[group].services, p95_us, strict=True):
            used = min(MOST_USED, p95 / service.slo_us)
            price += self._settings.headroom_weight * used / (1.0 - used)
        return price

    def _price_later(self, task_class: int) -> float:
        """Penalty of a task that starts once the backlog is worked off and a machine has drained.

        Tasks without an end are there then too: what they do to it, and it to them, is not spared by waiting.
        """
        known = self._later_s.get(task_class)
        if known is not None:
            return self._goals.penalty(Newcomer(task_class, 0, 0), known)
        view = self._outlook.view
        backlog_s = self._outlook.fluid_s()
        least, least_s = FORBIDDEN, FORBIDDEN
        for g in range(len(view.groups)):
            width = view.classes[task_class].task.widths_milli[0]
            if not view.could_fit(task_class, g, width) or not self._goals.welcome(g, task_class):
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
                weights = [self._goals.running[g][i][2] for i, r in enumerate(view.groups[g].running) if r.task.endless]
                caused = sum(
                    w * (self._slowness(a) - self._slowness(b)) for w, a, b in zip(weights, after, before, strict=True)
                )
            least = min(least, self._goals.penalty(Newcomer(task_class, 0, 0), wait + alone_s) + caused)
            least_s = min(least_s, wait + alone_s)
        if least == FORBIDDEN:
            return self._goals.penalty(Newcomer(task_class, 0, 0), self._goals.best_run_s[task_class])
        if not any(group.endless for group in view.groups):
            self._later_s[task_class] = least_s
        return least

    def _price_waiting(self, task_class: int) -> dict[str, float]:
        task = self._outlook.view.classes[task_class].task
        age = max(0.0, self._outlook.view.snapshot.now_s - task.submit_s)
        due = self._settings.due_age_s
        return {
            "completion_if_postponed": self._price_later(task_class),
            "waiting": self._settings.waiting_weight * (min(1.0, age / due) if due > 0.0 else 1.0),
        }
