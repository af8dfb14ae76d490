"""One scheduling round: compact, price, passes of min-cost flow, bounded improvement, extract, certify, record."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial

from flowsched.cluster.compaction import View
from flowsched.cluster.decision import Decisions, Postponement
from flowsched.cluster.knowledge import Knowledge
from flowsched.cluster.running_tasks import in_rows, with_rows
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot
from flowsched.pricing.arrival import Arrival, joined
from flowsched.pricing.flow_prices import FORBIDDEN, FlowPrices
from flowsched.pricing.forecast_cache import forecast_cache
from flowsched.records.record import COST_MODEL
from flowsched.round.assignment import Assignment, PlacementOption
from flowsched.round.candidates import look
from flowsched.round.demands import Levels
from flowsched.round.extract import placements, postponements
from flowsched.round.forecast_bound import certify_plan
from flowsched.round.forecast_changes import changed_decisions
from flowsched.round.improvement import improve, share_cores
from flowsched.round.machine_states import MachineStates
from flowsched.round.makespan import (
    WORTH_A_CHANGE,
    bound_s,
    is_unsure,
    list_scheduled,
    more_expected,
    sooner,
    soonest_chain,
    tighten,
)
from flowsched.round.options import Options
from flowsched.round.origin import Origin, PlanStage
from flowsched.round.passes import FEW_MACHINES, NONE, Deciding, Start, run_passes
from flowsched.round.repair import repair
from flowsched.round.round_model import Offered, RoundModel
from flowsched.round.round_record import RoundTrace, round_record
from flowsched.round.running_changes import ChangedDecisions
from flowsched.solvers import Solver, make_solver
from flowsched.solvers.limited import limited, take_stopped, unlimited
from flowsched.support.stage_timer import StageTimer
from flowsched_models.pace_table import PaceTable
from flowsched_models.runtime import HostFactory

_JUST_AFTER_S = 1e-3
"""A task is due once it has waited longer than the due age."""
_LONE_STARTS = 2
"""Where no more tasks start, each has the place that was cheapest for it: there is little to improve."""


class FlowScheduler:
    """The engine as a scheduler: one solver, the same settings in every round."""

    told = (Knowledge.RUN_TIMES, Knowledge.PROFILES, Knowledge.INTERFERENCE)

    def __init__(
        self,
        solver: Solver,
        settings: Settings | None = None,
        *,
        hosts: HostFactory | None = None,
        keep_records: bool = False,
        clock: Callable[[], float] = time.perf_counter,
        name: str = COST_MODEL,
    ) -> None:
        """``hosts`` may be shared with others that use the same profiles; ``clock`` only times stages. ``name``: what a
        policy with settings of its own is called.
        """
        self.name = name
        """The policy's name."""
        self._solver = solver
        self._settings = settings or Settings()
        self._hosts = hosts
        self._keep_records = keep_records
        self._clock = clock
        prepare()

    def decide(self, snapshot: Snapshot) -> Decisions:
        """One round."""
        timer, began, settings = StageTimer(self._clock), self._clock(), self._settings
        take_stopped(self._solver)
        # 1. Compact: equal tasks become classes, equal machines groups.
        timer.start("compact")
        snapshot = with_rows(_with_requests(with_rows(snapshot)))
        hosts = self._hosts_of(snapshot)
        view = look(snapshot, hosts, settings)
        # 2. Price: the forecasts of each option, and who is overdue or has to start together.
        timer.start("price")
        begun = begin_round(view, hosts, settings)
        # 3. Plan, level by level: overdue tasks and reservations, gangs, passes of min-cost flow, improvement.
        timer.start("passes")
        deciding, goal_s = make_plan(begun, self._solver, settings)
        # 4. Repair: no machine idles beside its plan, and no relation or gang is broken by what others were refused.
        timer.start("extract")
        model, demands, planned = deciding.model, deciding.demands, deciding.plan.copy()
        early = _never_idle(model, _start_idle_machines(model, planned))
        repaired = repair(model, early, demands.gangs)
        deciding.follow(early, repaired.plan)
        # 5. Extract: placements, and the reasons of those that wait.
        bound = placements(deciding)
        left = postponements(deciding, repaired.plan, demands.overdue, {**demands.gangs.reasons, **repaired.reasons})
        # 6. Change what runs: preempt and move, where settings let.
        timer.start("changes" if settings.changes_running else None)
        changes = changed_decisions(model, bound, left, demands.overdue, hosts, settings, goal_s)
        # 7. Outcome: certificate and record are made when they are asked for.
        timer.start(None)
        counts = _counts(begun, deciding, changes)
        timings = {**timer.ms, "decide": (self._clock() - began) * 1e3}
        certifier = partial(certify_plan, model, planned, deciding.plan.copy(), settings) if view.tasks else None
        stopped = take_stopped(self._solver)
        trace = RoundTrace(
            solver=unlimited(self._solver),
            settings=settings,
            snapshot=snapshot,
            deciding=deciding,
            planned=tuple(planned.options),
            gangs=demands.gangs,
            repairs=repaired.repairs,
            goal_s=goal_s,
            changes=changes,
            counts=counts,
            timings_ms=timings,
            stopped=stopped,
        )
        return Decisions(
            changes.placements,
            changes.postponements,
            tuple(r for r in changes.reservations if r.overdue),
            certifier,
            partial(round_record, trace) if self._keep_records else None,
            timings,
            stopped,
            counts,
            changes.preemptions,
            changes.moves,
            _look_again_s(snapshot, changes.postponements, settings),
        )

    def _hosts_of(self, snapshot: Snapshot) -> HostFactory:
        """Those of the snapshot's profiles, at the beginning of a round."""
        if self._hosts is None or self._hosts.catalogue is not snapshot.catalogue:
            self._hosts = HostFactory(snapshot.catalogue)
        self._hosts.attached(PaceTable).begin_round()
        return self._hosts


def _look_again_s(snapshot: Snapshot, left: Sequence[Postponement], settings: Settings) -> float | None:
    """When the first of the tasks that wait for more utility is due, and takes what there is."""
    waiting = {p.task for p in left}
    demanding = (t for t in snapshot.pending if t.min_utility is not None and t.name in waiting)
    due_s = (t.submit_s + settings.due_age_s + _JUST_AFTER_S for t in demanding)
    return min((at for at in due_s if at > snapshot.now_s), default=None)


@dataclass
class Work:
    """How much a round did for all plans that it made, those that it did not keep included."""

    forecasts: int = 0
    solves: int = 0
    contested: int = 0
    lone: int = 0
    improved: int = 0
    cut_short: int = 0

    def add(self, deciding: Deciding) -> None:
        """Count a plan that is made."""
        self.forecasts = deciding.model.forecasts.made
        self.solves += deciding.solves
        self.contested += deciding.contested
        self.lone += deciding.lone
        self.improved += deciding.improved
        self.cut_short += deciding.options.cut_short

    @property
    def counts(self) -> dict[str, int]:
        """The same by name."""
        return asdict(self)


@dataclass(frozen=True)
class BegunRound:
    """What a round knows before its first pass."""

    model: RoundModel
    """Without what overdue tasks and gangs ask."""
    levels: Levels
    work: Work = field(default_factory=Work)


def begin_round(view: View, hosts: HostFactory, settings: Settings) -> BegunRound:
    """Prices with each task's own goal, and who is overdue or has to start together."""
    forecasts = forecast_cache(view, settings, hosts)
    model = RoundModel(view, forecasts, FlowPrices(forecasts, settings), settings.slots)
    return BegunRound(model, Levels(model, settings))


def _with_requests(snapshot: Snapshot) -> Snapshot:
    """Every task with a request: forecasts know no program that takes no CPU."""
    pending, running = snapshot.pending, snapshot.running
    if all(t.widths_milli[0] for t in pending) and in_rows(snapshot).columns.width_milli.all():
        return snapshot
    return replace(
        snapshot,
        pending=tuple(t.at_least(1) for t in pending),
        running=tuple(replace(r, task=r.task.at_least(1), width_milli=max(1, r.width_milli)) for r in running),
    )


def make_plan(begun: BegunRound, solver: Solver, settings: Settings) -> tuple[Deciding, float | None]:
    """The plan of a round, and the goal that its prices ended with."""
    model = begun.model
    if settings.objective != "makespan" or not model.view.tasks:
        return _plan_levels(begun, model, solver, settings, None), None
    by_goal: dict[float, FlowPrices] = {}

    def plan_from(
        start: Start | None,
        goal_s: float,
        offered: Offered = Offered.NARROWEST,
        *,
        starts: int = model.starts,
        moves: bool = True,
    ) -> Deciding:
        if goal_s not in by_goal:
            by_goal[goal_s] = model.prices.with_goal(goal_s)
        priced = replace(model, prices=by_goal[goal_s], offered=offered, starts=starts)
        return _plan_levels(begun, priced, solver, settings, start, moves)

    bound = max(bound_s(model), 1e-3)
    more = more_expected(model.view.snapshot)
    many = len(model.view.tasks) > settings.improved_tasks
    if not (more or begun.levels.gangs) and is_unsure(model.view.snapshot):
        listed = Start.of_stage(list_scheduled(model), PlanStage.LIST_SCHEDULING)
        return plan_from(listed, bound, moves=False, starts=1 if many else model.starts), bound
    if many and not more:
        # Whole plans of so many tasks cost more than they tell: what has room starts, the most work first.
        return plan_from(None, bound, starts=1), bound
    carried = carried_over(model)
    if carried is not None and not more and _is_whole(model, carried.plan):
        return tighten(plan_from(carried, bound, moves=False), plan_from, (), settings, bound)
    first = _plan_levels(begun, model, solver, settings, None)
    if many:
        return first, None
    whole = plan_from(first.as_start, bound, moves=False)
    if more:
        left, end_s = whole.model.finish(whole.plan)
        wanted = left, end_s * (1.0 - WORTH_A_CHANGE)
        if sooner((0, bound), wanted):
            better = carried is not None and sooner(model.finish(carried.plan), (left, end_s))
            start = plan_from(carried, bound, moves=False) if better else whole
            found = tighten(start, plan_from, (), settings, bound)
            if sooner(found[0].model.finish(found[0].plan), wanted):
                return found
        return first, None
    starts = [first.as_start]
    if not begun.levels.gangs and not first.model.must_start:
        plain = model.view.snapshot.waits_plain
        chain = list_scheduled(model) if plain else soonest_chain(model, _most_work_first(model))
        starts.append(Start.of_stage(chain, PlanStage.LIST_SCHEDULING))
    if carried is not None:
        starts.append(carried)
    return tighten(whole, plan_from, starts, settings, bound)


def _is_whole(model: RoundModel, plan: Assignment) -> bool:
    """Whether a plan has a place for every task that could have one, and an end."""
    left, end_s = model.finish(plan)
    return left == 0 and end_s < FORBIDDEN


def _plan_levels(
    begun: BegunRound,
    model: RoundModel,
    solver: Solver,
    settings: Settings,
    start: Start | None,
    moves: bool = True,
) -> Deciding:
    """Levels one after the other, each with its passes and its improvement; ``start``: options to begin with, and what
    chose them. ``moves``: whether the improvement changes what passes and start have.
    """
    view = model.view
    states = MachineStates(model.prices)
    empty = Assignment([None] * len(view.tasks), view.class_of, len(view.machines))
    deciding = Deciding(
        model,
        Options(states, model.starts, settings.pricings, model.offered),
        solver,
        empty,
        view.domain_counts.copy(),
        begun.levels.nothing(),
        [] if start is None else list(start.passes),
    )
    fixed: frozenset[int] = frozenset()
    first: frozenset[int] = frozenset()
    for level in begun.levels.order:
        demands = begun.levels.settle(level, deciding.plan, deciding.demands)
        if demands is not deciding.demands:
            deciding.demands, deciding.model = demands, demands.on(model)
            fixed |= _book_seed(deciding, fixed)
        if level == float("inf"):
            first = deciding.model.must_start
            tasks = sorted(first - fixed)
        else:
            left = enumerate(view.tasks)
            tasks = [t for t, task in left if task.priority == level and t not in first and t not in fixed]
        if not tasks:
            continue
        if start is not None:
            _book_start(deciding, start, tasks)
        run_passes(deciding, [t for t in tasks if deciding.plan.options[t] is None], settings.pass_share)
        starting = sum((o := deciding.plan.options[t]) is not None and o.start_after == 0 for t in tasks)
        few = len(view.machines) <= FEW_MACHINES or model.prices.goal_s is not None or settings.assign == NONE
        if moves and len(tasks) <= settings.improved_tasks and (few or starting > _LONE_STARTS):
            movable = [t for t in tasks if t not in deciding.model.barred]
            deciding.improved += improve(deciding, movable, settings.improvement_forecasts)
        if model.prices.goal_s is None:
            share_cores(deciding, tasks)
        deciding.close_level()
    begun.work.add(deciding)
    return deciding


def _book_seed(deciding: Deciding, booked: frozenset[int]) -> frozenset[int]:
    """Members of gangs, and of an overdue gang, start where they were found to fit together; those that do so now."""
    gangs = deciding.demands.gangs
    members = {t for gang in gangs.all for t in gang.members} & deciding.model.must_start
    for t in sorted(members - booked):
        option = None if gangs.seed is None else gangs.seed.options[t]
        if option is not None:
            deciding.book(t, option)
            deciding.origins[t] = Origin(PlanStage.GANG)
    return frozenset(members)


def _book_start(deciding: Deciding, start: Start, tasks: Sequence[int]) -> None:
    """Take over the options that a plan has for some tasks, as far as they can be together."""
    model = deciding.model
    for t in tasks:
        option = start.plan.options[t]
        if option is None or t in model.barred or (option.start_after > 0 and t in model.must_start):
            continue
        if model.refused(deciding.plan, t, option.machine):
            continue
        deciding.book(t, option)
        if model.cost(deciding.plan, option.machine) == float("inf"):
            deciding.book(t, None)
        else:
            deciding.origins[t] = start.origins[t]


def carried_over(model: RoundModel) -> Start | None:
    """The plan that the last round left, as far as its tasks and machines are there; None where there is none.

    A task whose turn has come and that does not fit beside those before it starts after the next completion.
    """
    view = model.view
    if not view.snapshot.plan:
        return None
    machine_of = {m.name: i for i, m in enumerate(view.machines)}
    planned = {p.task: p for p in view.snapshot.plan if p.machine in machine_of}
    plan = Assignment([None] * len(view.tasks), view.class_of, len(view.machines))
    for t, task in enumerate(view.tasks):
        p = planned.get(task.name)
        if p is None or t in model.barred:
            continue
        machine = machine_of[p.machine]
        option = PlacementOption(machine, min(p.slot, max(0, model.starts - 1)), p.width_milli)
        if option.start_after == 0:
            arrivals = [a for a in plan.colocation(machine) if a.start_after == 0]
            together = joined(tuple(arrivals), Arrival(view.class_of[t], 0, option.width_milli))
            if not model.forecasts.possible(view.group_of[machine], together):
                option = option._replace(start_after=1)
        if not model.refused(plan, t, machine):
            plan.move(t, option)
    return Start.of_stage(plan, PlanStage.CARRIED)


def _most_work_first(model: RoundModel) -> list[int]:
    snapshot, tasks = model.view.snapshot, model.view.tasks
    work_s = [snapshot.catalogue.jobs[t.profile].work_s * snapshot.expected_scale(t) for t in tasks]
    return sorted(range(len(tasks)), key=lambda t: (-tasks[t].priority, -work_s[t], t))


def _counts(begun: BegunRound, deciding: Deciding, changes: ChangedDecisions) -> dict[str, int]:
    """What a round did, and how many of the tasks that start each stage decided; that of networks is always there."""
    number = {task.name: t for t, task in enumerate(deciding.model.view.tasks)}
    found = Counter(deciding.origins[number[p.task]].stage for p in changes.placements if p.task not in changes.let_in)
    return {
        **begun.work.counts,
        "passes": len(deciding.passes),
        **({"untried": deciding.untried} if deciding.untried else {}),
        **{f"decided_by_{stage}": found[stage] for stage in PlanStage if stage is PlanStage.NETWORK or found[stage]},
        **changes.counts,
    }


def _never_idle(model: RoundModel, plan: Assignment) -> Assignment:
    """With nothing running anywhere there is nothing to wait for: if no task would start, the cheapest one does."""
    starts_now = any(option is not None and option.start_after == 0 for option in plan.options)
    if starts_now or model.view.completes:
        return plan
    now = replace(model, starts=1)
    offers = [
        (price - model.waiting(task), task, option)
        for task in range(len(plan.options))
        for machine in range(len(model.view.machines))
        for price, option in [now.best_option(plan, task, machine)]
        if option is not None
    ]
    if not offers:
        return plan
    _, task, option = min(offers, key=lambda offer: offer[:2])
    plan = plan.copy()
    plan.move(task, option)
    return plan


def _start_idle_machines(model: RoundModel, plan: Assignment) -> Assignment:
    """An idle machine starts its first planned tasks: nothing will complete there to wait for."""
    view = model.view
    decided = plan.copy()
    for m in decided.arrived():
        group = view.groups[view.group_of[m]]
        tasks = decided.on(m)
        after = {t: option.start_after for t in tasks if (option := decided.options[t]) is not None}
        if group.completes or not after or min(after.values()) == 0:
            continue
        lowest = min(after.values())
        for task in tasks:
            option = decided.options[task]
            if option is None or option.start_after != lowest:
                continue
            decided.move(task, option._replace(start_after=0))
            if model.cost(decided, m) == float("inf"):
                decided.move(task, option)
    return decided


def solve(
    snapshot: Snapshot,
    *,
    settings: Settings | None = None,
    solver: str = "ortools",
    time_limit_s: float | None = None,
    policy: str = COST_MODEL,
) -> Decisions:
    """One round on a snapshot, with its record. ``time_limit_s``: for each of the solver's answers. ``policy``: ``flow``, or
    a cost model.

    Raises ``KeyError`` for a solver that there is not (``flowsched.solvers.SOLVERS`` has the names), and
    :class:`InputError` for a policy that there is not, or that does not keep the snapshot's relations.
    """
    settings = settings or Settings()
    if policy != COST_MODEL:
        from flowsched.round.linear import choice  # compiled code of its own, which takes a while to load
        from flowsched.round.linear.network_scheduler import solve_network_round

        asked = choice.chosen(policy)
        return solve_network_round(snapshot, asked, settings=settings, solver=solver, time_limit_s=time_limit_s)
    chosen = limited(make_solver(solver), time_limit_s)
    return FlowScheduler(chosen, settings, keep_records=True).decide(snapshot)


def prepare() -> None:
    """Load the compiled code that rounds need, or compile it (up to a minute, once), before a round waits for it."""
    from flowsched.round.warm_up import warm_up

    warm_up()


def prepare_gpus() -> None:
    """The same for what rounds need only where machines have GPUs."""
    from flowsched.round.warm_up import warm_up_gpus

    warm_up_gpus()
