"""Prices of the cost model ``flow``: completion goals and latency headroom, valued on forecasts of measured models.

The cost of a machine is the sum of the weighted penalties of all completions there and the price of the headroom that its
services use. The price of a placement is the exact change of that cost: what the arriving task's own completion costs, what
it does to all others, and what it takes of a service's headroom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowsched.cluster.compaction import View
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import MILLI
from flowsched.pricing.arrival import Arrival, Colocation
from flowsched.pricing.forecast_arrays import (
    ELAPSED_S,
    IMPORTANCE,
    JOB_NUMBERS,
    LATEST_S,
    LONG_RUNNING,
    MOST_USED,
    ArrivalSets,
    MachineForecasts,
    MachineJobs,
    OneMachine,
    PriceSettings,
)
from flowsched.pricing.forecast_cache import Forecast, ForecastCache
from flowsched.pricing.forecast_kernel import base_costs, colocation_costs
from flowsched.pricing.goals import Goals
from flowsched.pricing.spread_prices import SPREADING, SpreadPrices
from flowsched.pricing.utility import penalties
from flowsched.pricing.variants import VariantBuilder
from flowsched.support.arrays import FloatArray
from flowsched_models.kernel import RunResult

FORBIDDEN = float("inf")
PREFERENCE = "preference"
"""The term of wishes that are not met."""
_SLOWEST = 4.0
"""No machine and no neighbours make a task more than so many times slower than one core of its best machine."""


@dataclass(frozen=True)
class Base:
    """Machines of groups with what runs there now: arrays by group, rows as the kernels take them."""

    there: MachineJobs
    """By group: the tasks that run there."""
    cost: FloatArray
    """[groups]"""
    peak_us: FloatArray
    """[groups, S] highest p95 of each service."""
    settled_us: FloatArray
    """[groups, S] p95 of each service beside those tasks alone that run without an end."""
    ends_s: FloatArray
    """[groups, most running] completions, seconds from now."""
    completions_s: FloatArray
    """[groups, starts - 1] when the k-th task ends; infinity for fewer."""
    drained_s: FloatArray
    """[groups] when the last task that has an end has ended."""


class FlowPrices:
    """Prices of one round. ``goal_s`` None: each task's own goal, counted from its submission."""

    def __init__(
        self, forecasts: ForecastCache, settings: Settings, goal_s: float | None = None, like: FlowPrices | None = None
    ) -> None:
        """Work out goals and variants; nothing is forecast yet. ``like``: prices that differ in the goal only."""
        self.forecasts = forecasts
        self.settings = settings
        self.goal_s = goal_s
        view = forecasts.view
        self.goals: Goals = Goals(forecasts, settings, goal_s, None if like is None else like.goals)
        self.price_settings: PriceSettings = price_settings_of(settings, view.snapshot.start_delay.after_waiting_s)
        """Settings as the kernels take them."""
        most = max((len(g.services) for g in view.groups), default=0)
        self.slo_us: FloatArray = np.full(
            (len(view.groups), max(1, most, forecasts.table.memory.services.shape[1])), np.inf
        )
        """[groups, S] p95 goal of each service."""
        for g, group in enumerate(view.groups):
            if group.services:
                self.slo_us[g, : len(group.services)] = [s.slo_us for s in group.services]
        self.base = self._base()
        """The groups' machines as they run now."""
        self.class_goals: FloatArray = np.array(
            [
                (self.goals.elapsed[c], self.goals.tau[c], self.goals.weight[c], self.goals.latest_s(c))
                for c in range(len(view.classes))
            ]
        ).reshape(-1, 4)
        """[classes] ELAPSED_S, GOAL_S, IMPORTANCE, LATEST_S."""
        self.shapes: dict[int, int]
        if like is None:
            self.shapes = {g: i for i, g in enumerate(view.shapes)}
            self.type_of, self.rows, self.variants = VariantBuilder(forecasts, self.goals, settings).build()
        else:
            self.shapes, self.type_of, self.rows, self.variants = like.shapes, like.type_of, like.rows, like.variants
        self.wishes: FloatArray = self._wishes_of(view) if like is None else like.wishes
        """[classes, groups] what a task would rather not pay there: its wishes that the group's machines do not meet."""
        self._wished = bool(self.wishes.any())
        self._added = self._wished and not settings.wishes_multiply
        self.spread: SpreadPrices | None
        if like is None:
            self.spread = SpreadPrices(view) if any(c.task.counted for c in view.classes) else None
        else:
            self.spread = like.spread
        self.gpus = forecasts.gpus
        self._cost: list[dict[Colocation, float]] = [{} for _ in view.groups]
        # Forecasts know no goal, where no job's completion is too late to be of use.
        self._forecast: list[dict[Colocation, Forecast]] = [{} for _ in view.groups] if like is None else like._forecast
        self._some_stay = any(g.endless for g in view.groups)
        self._plain = not self._some_stay and not any(
            c.task.endless or c.task.min_utility is not None for c in view.classes
        )
        self._waiting: dict[int, dict[str, float]] = {}

    def with_goal(self, goal_s: float) -> FlowPrices:
        """The same prices with one goal for all, ``goal_s`` from now."""
        return FlowPrices(self.forecasts, self.settings, goal_s, self)

    def variant(self, group: int, arrival: Arrival) -> int:
        """The row of an arrival's variant on a group's machines; -1 where it has none."""
        rows = self.rows[self.type_of[arrival.task_class], self.shapes[self.forecasts.view.shape_of[group]]].tolist()
        wanted = (arrival.width_milli, arrival.shared)
        return next((v for v in rows if v >= 0 and self.variants.ways[v] == wanted), -1)

    def machine_cost(self, group: int, colocation: Colocation) -> float:
        """Cost of a machine of a group once these tasks have joined it; ``FORBIDDEN`` where they must not."""
        cost = self._cost[group].get(colocation)
        return self.machine_costs(group, (colocation,))[0] if cost is None else cost

    def machine_costs(self, group: int, colocations: Sequence[Colocation]) -> list[float]:
        """The same of many co-locations, forecast together."""
        known = self._cost[group]
        new = list(dict.fromkeys(c for c in colocations if c not in known))
        if new and self._plain:
            forecasts = self._forecast[group]
            for colocation in new:
                forecast = forecasts.get(colocation)
                if forecast is not None:
                    known[colocation] = self._sum(group, colocation, forecast)
            new = [c for c in new if c not in known]
        if new:
            self._learn(group, new)
        return [known[c] for c in colocations]

    def learn(
        self,
        group: int,
        colocation: Colocation,
        cost: float,
        ends_s: Sequence[float],
        bound_s: Sequence[float],
        peak_us: Sequence[float],
    ) -> None:
        """Take over what was forecast elsewhere of a machine, with its running tasks first; nothing if they may not meet."""
        if colocation not in self._cost[group] and self.forecasts.possible(group, colocation):
            cost = cost + self._of_place(group, colocation) if self._keeps_goals(group, peak_us) else FORBIDDEN
            self._keep(group, colocation, cost, ends_s, bound_s, peak_us)

    def forecast(self, group: int, colocation: Colocation) -> Forecast | None:
        """What is predicted for a machine once these tasks have joined it; None if they do not fit or may not meet."""
        self.machine_cost(group, colocation)
        return self._forecast[group].get(colocation)

    def machine_terms(self, group: int, colocation: Colocation, member: int) -> Mapping[str, float]:
        """What the ``member``-th arriving task of a co-location adds to its machine's cost: own run time undisturbed,
        interference suffered, interference caused, wait for its start, SLO headroom, wishes that are not met, spreading, and
        the value of GPUs.

        Tasks of later starts that could not come without it, as they wait for its end, are left out of the sum.
        """
        arrival = colocation[member]
        others = colocation[:member] + colocation[member + 1 :]
        with_it = self.forecast(group, colocation)
        without = self.forecast(group, others)
        if with_it is None:
            return {}
        if without is None or self.machine_cost(group, others) == FORBIDDEN:
            earlier = tuple(a for a in colocation if a.start_after <= arrival.start_after)
            if earlier == colocation:
                return {}
            return self.machine_terms(group, earlier, earlier.index(arrival))
        total = self.machine_cost(group, colocation) - self.machine_cost(group, others)
        own = self.goals.penalty(arrival, with_it.arrivals_s[member])
        alone_s = self.goals.reference_run_s(group, arrival.task_class)
        if arrival.shared:
            alone_s *= self.forecasts.undisturbed_s(group, arrival) / self.forecasts.best_left_s(
                group, arrival.task_class
            )
        begin = self.forecasts.delay_s(arrival.task_class, arrival.start_after)
        undisturbed = self.goals.penalty(arrival, begin + alone_s)
        delayed = self.goals.penalty(arrival, with_it.starts_s[member] + begin + alone_s)
        headroom = self._headroom(group, with_it.peak_p95_us) - self._headroom(group, without.peak_p95_us)
        unmet = self._unmet(group, (arrival,))
        apart = 0.0 if self.spread is None else self.spread.cost(colocation) - self.spread.cost(others)
        lost = 0.0 if self.gpus is None else self.gpus.cost(group, colocation) - self.gpus.cost(group, others)
        terms = {
            "run_time": undisturbed,
            "wait_for_slot": delayed - undisturbed,
            "interference_suffered": own - delayed,
            "interference_caused": total - own - headroom - unmet - apart - lost,
            "slo_headroom": headroom,
            **({PREFERENCE: unmet} if unmet else {}),
            **({SPREADING: apart} if apart else {}),
            **({} if self.gpus is None else {self.gpus.term: lost}),
        }
        # Differences of equal sums leave a few bits that mean nothing.
        return {name: value if abs(value) > 1e-12 else 0.0 for name, value in terms.items()}

    def waiting_cost(self, task_class: int) -> float:
        """Equation 13: the penalty of starting when the backlog is worked off and a machine has drained, plus W.

        The expected further wait is not one round: with nothing running yet that would make waiting for the widest
        machine look cheap to every task at once. A task that waits *for* something has an option with a later start. With
        one goal for all, waiting is dearer than any place. Wishes and spreading choose among places and are no reason to
        wait.
        """
        return sum(self.waiting_terms(task_class).values())

    def waiting_terms(self, task_class: int) -> Mapping[str, float]:
        """Penalty and W, the wish that would cost most, the most that spreading may cost, and the dearest GPUs."""
        found = self._waiting.get(task_class)
        if found is None:
            found = self._waiting[task_class] = self._price_waiting(task_class)
        return found

    def least_cost(self, group: int, task_class: int) -> float:
        """Its own penalty with the cores that it may use to itself from now on; nothing is ever faster.

        What it does to the others is left out: it is not below what they are bound to cost (``resident_least_cost``).
        """
        delay = min(self.forecasts.delay_s(task_class, 0), self.forecasts.delay_s(task_class, 1))
        least = self.forecasts.least_alone_s(group, task_class) / self.forecasts.best_left_s(group, task_class)
        end = delay + self.goals.reference_run_s(group, task_class) * min(1.0, least)
        return self.goals.penalty(Arrival(task_class, 0, 0), end)

    def resident_least_cost(self, group: int) -> float:
        """Every running task alone on its cores from now on, and the headroom that idle services use."""
        here = self.forecasts.view.groups[group]
        total = self._headroom(group, here.host.rates(()).p95_us)
        for running, resident, left_s, (elapsed, tau, weight) in zip(
            here.running,
            here.residents,
            self.forecasts.residents_alone_s(group),
            self.goals.of_running(group),
            strict=True,
        ):
            if running.task.endless:
                total += weight * self._slowness(1.0)
                continue
            total += weight * self.goals.g(elapsed + resident.ready_s + left_s, tau)
        return total

    def welcome(self, group: int, task_class: int) -> bool:
        """Whether a class breaks no p95 goal on a machine of the group that runs nothing else."""
        return self.goals.welcome(group, task_class)

    def makespan_s(self, group: int, colocation: Colocation) -> float:
        """Last predicted completion on a machine, in seconds from now."""
        found = self.forecast(group, colocation)
        if found is None or self.machine_cost(group, colocation) == FORBIDDEN:
            return FORBIDDEN
        here = self.forecasts.view.groups[group]
        classes = self.forecasts.view.classes
        ends = [end for r, end in zip(here.running, found.residents_s, strict=True) if not r.task.endless]
        ends += [
            end for a, end in zip(colocation, found.arrivals_s, strict=True) if not classes[a.task_class].task.endless
        ]
        return max(ends, default=0.0)

    def utility(self, group: int, colocation: Colocation, member: int) -> float | None:
        """U = (tau - phi)/tau with the task's own goal tau, phi counted from its submission; None where it cannot be."""
        found = self.forecast(group, colocation)
        return None if found is None else self.goals.utility(colocation[member], found.arrivals_s[member])

    def _sum(self, group: int, colocation: Colocation, forecast: Forecast) -> float:
        """Cost of a machine whose forecast is known already, from prices with another goal."""
        if colocation and not self._keeps_goals(group, forecast.peak_p95_us):
            return FORBIDDEN
        total = self._headroom(group, forecast.peak_p95_us) + self._of_place(group, colocation)
        for end, (elapsed, tau, weight) in zip(forecast.residents_s, self.goals.of_running(group), strict=True):
            total += weight * self.goals.g(elapsed + end, tau)
        for arrival, end in zip(colocation, forecast.arrivals_s, strict=True):
            total += self.goals.penalty(arrival, end)
        return total

    def _keeps_goals(self, group: int, peak_us: Sequence[float]) -> bool:
        """Whether tasks may arrive at a machine where services' p95 rises so far.

        A p95 above its goal that running tasks cause is no leave to come: they end, and later than predicted where a
        forecast errs. Only what lasts, beside tasks without an end, is not held against those who arrive.
        """
        services = self.forecasts.view.groups[group].services
        return not any(
            peak > self.settings.slo_margin * service.slo_us and peak > settled + 1e-9
            for service, peak, settled in zip(services, peak_us, self.base.settled_us[group], strict=False)
        )

    def _base(self) -> Base:
        view, forecasts = self.forecasts.view, self.forecasts
        groups = view.groups
        count = np.diff(forecasts.first)
        most = int(count.max(initial=0))
        jobs = np.zeros((len(groups), most, JOB_NUMBERS))
        kinds = np.zeros((len(groups), most), np.int64)
        row = np.repeat(np.arange(len(groups)), count)
        place = np.arange(len(row)) - forecasts.first[row]
        if len(row):
            jobs[row, place] = forecasts.running_jobs
            jobs[row, place, ELAPSED_S : IMPORTANCE + 1] = self.goals.running
            kinds[row, place] = forecasts.running_kinds
        jobs[:, :, LATEST_S] = np.inf
        known = MachineForecasts(
            np.zeros(len(groups)),
            np.zeros(self.slo_us.shape),
            np.full((len(groups), most), -np.inf),
            np.zeros((len(groups), most)),
            np.full((len(groups), max(1, self.settings.slots - 1)), np.inf),
        )
        cores = np.array([g.free_milli / MILLI for g in groups], np.float64)
        memory = np.array([float(g.free_memory_mib) for g in groups], np.float64)
        start_after = np.zeros((len(groups), most), np.int64)
        there = MachineJobs(forecasts.hosts, count, jobs, kinds, start_after, cores, memory, self.slo_us)
        every = np.arange(len(groups), dtype=np.int64)
        base_costs(forecasts.table.memory, every, there, self.price_settings, known)
        forecasts.made += len(groups)
        ending = np.where(jobs[:, :, LONG_RUNNING] == 0.0, known.ends, 0.0)
        drained = np.maximum(ending.max(axis=1, initial=0.0), 0.0)
        settled = self._settled_us(there)
        return Base(there, known.cost, known.peak, settled, known.ends, known.completions, drained)

    def _settled_us(self, there: MachineJobs) -> FloatArray:
        """[groups, S] p95 of each service beside the tasks that run without an end."""
        groups, most = there.kinds.shape
        stay = (there.jobs[:, :, LONG_RUNNING] != 0.0) & (np.arange(most) < there.size[:, None])
        order = np.argsort(~stay, axis=1, kind="stable")
        staying = there._replace(
            size=stay.sum(axis=1),
            jobs=np.take_along_axis(there.jobs, order[:, :, None], axis=1),
            kinds=np.take_along_axis(there.kinds, order, axis=1),
            free_cores=np.zeros(groups),
            free_memory=np.zeros(groups),
        )
        room, settled = np.zeros(there.kinds.shape), np.zeros(self.slo_us.shape)
        into = MachineForecasts(np.zeros(groups), settled, room, room.copy(), np.zeros((groups, 0)))
        serving = np.flatnonzero(np.isfinite(self.slo_us).any(axis=1))
        base_costs(self.forecasts.table.memory, serving, staying, self.price_settings, into)
        return settled

    def _learn(self, group: int, new: Sequence[Colocation]) -> None:
        forecasts, costs = self.forecasts, self._cost[group]
        first, variants, after, class_of = [0], [], [], []
        asked = []
        variant_of = {a: self.variant(group, a) for a in {a for colocation in new for a in colocation}}
        for colocation in new:
            if not colocation:
                base, n = self.base, self.base.there.size[group]
                self._keep(
                    group,
                    (),
                    float(base.cost[group]),
                    base.ends_s[group, :n].tolist(),
                    (),
                    base.peak_us[group].tolist(),
                )
                continue
            costs[colocation] = FORBIDDEN
            rows = [variant_of[a] for a in colocation]
            if min(rows) < 0 or not forecasts.possible(group, colocation):
                continue
            asked.append(colocation)
            variants += rows
            after += [a.start_after for a in colocation]
            class_of += [a.task_class for a in colocation]
            first.append(len(variants))
        if not asked:
            return
        here = forecasts.view.groups[group]
        there = len(here.there.rows)
        most = there + max(len(c) for c in asked)
        cost, peak = np.zeros(len(asked)), np.zeros((len(asked), self.slo_us.shape[1]))
        results = RunResult(np.zeros((len(asked), most)), np.zeros((len(asked), most)), peak)
        machine = OneMachine(
            int(forecasts.hosts[group]),
            self.base.there.jobs[group, :there],
            forecasts.kinds(group),
            np.zeros(there, np.int64),
            here.free_milli / MILLI,
            float(here.free_memory_mib),
            self.slo_us[group],
        )
        sets = ArrivalSets(
            np.array(first, np.int64),
            np.array(variants, np.int64),
            np.array(after, np.int64),
            self.class_goals[class_of].reshape(-1, 4),
        )
        colocation_costs(
            forecasts.table.memory,
            machine,
            self.base.settled_us[group],
            sets,
            self.variants.arrays,
            self.price_settings,
            cost,
            results,
        )
        forecasts.made += len(asked)
        found = zip(asked, cost.tolist(), *(each.tolist() for each in results), strict=True)
        for colocation, total, ends_s, bound_s, peak_us in found:
            total += self._of_place(group, colocation)
            end = there + len(colocation)
            self._keep(group, colocation, total, ends_s[:end], bound_s[:end], peak_us)

    def _keep(
        self,
        group: int,
        colocation: Colocation,
        cost: float,
        ends_s: Sequence[float],
        bound_s: Sequence[float],
        peak_us: Sequence[float],
    ) -> None:
        self._cost[group][colocation] = cost
        there = len(ends_s) - len(colocation)
        if max(ends_s, default=0.0) < np.inf and max(bound_s[there:], default=0.0) < np.inf:
            services = len(self.forecasts.view.groups[group].services)
            self._forecast[group][colocation] = Forecast(
                tuple(ends_s[:there]), tuple(ends_s[there:]), tuple(bound_s[there:]), tuple(peak_us[:services])
            )

    def _of_place(self, group: int, colocation: Colocation) -> float:
        """What arriving tasks cost whatever runs there: wishes that are not met, spreading, and the value of GPUs."""
        apart = 0.0 if self.spread is None else self.spread.cost(colocation)
        return (
            self._unmet(group, colocation) + apart + (0.0 if self.gpus is None else self.gpus.cost(group, colocation))
        )

    def _wishes_of(self, view: View) -> FloatArray:
        """[classes, groups] prices of wishes: as they stand, or times what completing alone there costs."""
        found = _wishes(view)
        if self.settings.wishes_multiply:
            for c, g in zip(*np.nonzero(found), strict=True):
                alone_s = self.goals.reference_run_s(int(g), int(c))
                if np.isfinite(alone_s):
                    found[c, g] *= self.goals.penalty(Arrival(int(c), 0, 0), alone_s)
        return found

    def _unmet(self, group: int, colocation: Colocation) -> float:
        """What the arriving tasks' wishes that a group does not meet cost."""
        return sum(float(self.wishes[a.task_class, group]) for a in colocation) if self._wished else 0.0

    def _slowness(self, factor: float) -> float:
        """Penalty of a running long-running task that is so many times slower than alone, whatever its length."""
        return self.settings.eps * factor / self.settings.goal_factor

    def _headroom(self, group: int, p95_us: Sequence[float]) -> float:
        price = 0.0
        for service, p95 in zip(self.forecasts.view.groups[group].services, p95_us, strict=True):
            used = min(MOST_USED, p95 / service.slo_us)
            price += self.settings.headroom_weight * used / (1.0 - used)
        return price

    @cached_property
    def _later_ends(self) -> tuple[FloatArray, FloatArray]:
        """[classes] least seconds after which a task is done that waits, infinity where it can be nowhere, and what it then
        does to long-running tasks there: it starts once the backlog is worked off and a machine has drained.
        """
        view, forecasts = self.forecasts.view, self.forecasts
        shapes = len(view.shapes)
        alone = np.full((len(view.classes), shapes + 1), np.inf)
        alone[:, :shapes] = self.goals.alone_s
        caused = np.zeros(alone.shape)
        for c, cls in enumerate(view.classes):
            if self._some_stay or cls.task.endless:
                for s, g in enumerate(view.shapes):
                    if np.isfinite(alone[c, s]):
                        alone[c, s], caused[c, s] = self._run_for_good(g, c, cls.task.widths_milli[0])
        # Of machines of one shape the one that has drained first is the best.
        drained = np.full(shapes + 1, np.inf)
        np.minimum.at(drained, [self.shapes[g] for g in view.shape_of], self.base.drained_s)
        backlog = np.full((len(view.classes), 1), max(forecasts.backlog_s, self.settings.round_period_s))
        if self.gpus is not None:
            asks = [c for c in range(len(view.classes)) if self.gpus.asks(c)]
            backlog[asks] = np.maximum(backlog[asks], forecasts.gpu_backlog_s)
        ends = np.maximum(drained, backlog) + view.snapshot.start_delay.after_waiting_s + alone
        elapsed, tau, weight, _ = self.class_goals.T[:, :, None]
        cost = weight * penalties(elapsed + ends, tau, self.settings.eps, self.settings.beta) + caused
        best = np.arange(len(cost)), cost.argmin(axis=1)
        return ends[best], caused[best]

    def _run_for_good(self, group: int, task_class: int, width_milli: int) -> tuple[float, float]:
        """Run time beside the long-running tasks of a group's machines, and what it costs them."""
        alone_s = self.goals.reference_run_s(group, task_class)
        running = self.forecasts.view.groups[group].running
        if not any(r.task.endless for r in running):
            return alone_s, 0.0
        before, _ = self.forecasts.slowdowns_for_good(group, ())
        after, (own,) = self.forecasts.slowdowns_for_good(group, (Arrival(task_class, 0, width_milli),))
        weights = [w for r, (_, _, w) in zip(running, self.goals.of_running(group), strict=True) if r.task.endless]
        caused = sum(
            w * (self._slowness(a) - self._slowness(b)) for w, a, b in zip(weights, after, before, strict=True)
        )
        return alone_s * own, caused

    def _price_waiting(self, task_class: int) -> dict[str, float]:
        task = self.forecasts.view.classes[task_class].task
        age = max(0.0, self.forecasts.view.snapshot.age_s(task))
        due = self.settings.due_age_s
        grown = (min(1.0, age / due) if self.settings.waiting_bounded else age / due) if due > 0.0 else 1.0
        growth = self.settings.waiting_weight * grown
        worst = float(self.wishes[task_class].max(initial=0.0)) if self._added else 0.0
        unmet = {PREFERENCE: worst} if worst else {}
        if self.spread is not None and self.spread.waiting[task_class]:
            unmet[SPREADING] = float(self.spread.waiting[task_class])
        if self.gpus is not None:
            unmet[self.gpus.term] = float(self.gpus.waiting[task_class])
        if self.goal_s is not None:
            dearer, weights = self._above_any_place
            own = self.goals.weight[task_class] / max(weights, 1e-12)
            return {"completion_if_postponed": dearer * (1.0 + own), "waiting": growth, **unmet}
        end_s, caused = (float(found[task_class]) for found in self._later_ends)
        if end_s == FORBIDDEN:
            end_s, caused = self.goals.best_run_s[task_class], 0.0
        return {
            "completion_if_postponed": self.goals.penalty(Arrival(task_class, 0, 0), end_s) + caused,
            "waiting": growth,
            **unmet,
        }

    @cached_property
    def _above_any_place(self) -> tuple[float, float]:
        """A cost that no plan of the round exceeds: all work one piece after the other, and every task that late; and the
        sum of all weights.

        A task that is left waiting spoils a makespan whatever else is gained.
        """
        view, forecasts = self.forecasts.view, self.forecasts
        cores = sum(group.machine.vcpus * group.size for group in view.groups)
        if view.candidates is not None:
            cores = max(cores, view.candidates.batch_cores)
        delays = view.snapshot.start_delay.after_waiting_s * (1 + len(view.tasks))
        last_s = forecasts.backlog_s * max(1, cores) * _SLOWEST + float(self.base.drained_s.max(initial=0.0)) + delays
        weights = sum(self.goals.weight[c] * len(cls.members) for c, cls in enumerate(view.classes))
        weights += sum(w * g.size for i, g in enumerate(view.groups) for _, _, w in self.goals.of_running(i))
        dearest = self.wishes.max(axis=1, initial=0.0) + (0.0 if self.gpus is None else self.gpus.worst)
        if self.spread is not None:
            dearest = dearest + self.spread.waiting
        wishes = float((dearest * [len(c.members) for c in view.classes]).sum())
        return 1.0 + weights * self.goals.g(last_s, self.goal_s or 1.0) + wishes, weights


def price_settings_of(settings: Settings, start_delay_s: float) -> PriceSettings:
    """Settings as the kernels take them, all of them floats: others would be compiled once more."""
    return PriceSettings(
        float(settings.eps),
        float(settings.beta),
        float(settings.headroom_weight),
        float(settings.slo_margin),
        float(settings.goal_factor),
        float(start_delay_s),
    )


def _wishes(view: View) -> FloatArray:
    found = np.zeros((len(view.classes), len(view.groups)))
    for c, cls in enumerate(view.classes):
        if cls.task.wishes:
            costs = dict(cls.task.wishes)
            found[c] = [costs.get(group.machine.name, 0.0) for group in view.groups]
    return found
