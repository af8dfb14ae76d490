"""One scheduling round, readable aloud: compact, price, solve, improve, certify, decide, record."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from flowsched import utility
from flowsched.assignment import Assignment, Column
from flowsched.certificate import certify
from flowsched.chain import chains
from flowsched.compaction import compact
from flowsched.decision import Certificate, Decisions
from flowsched.first_network import FirstSolution, solve_first
from flowsched.gang import Gangs, settle_gangs
from flowsched.improvement import settle, tighten
from flowsched.outlook import Outlook
from flowsched.policies.flow import FlowPolicy
from flowsched.policies.policy import FORBIDDEN, Policy
from flowsched.readout import placements, postponements
from flowsched.record import SearchAccount, round_record
from flowsched.repair import repair
from flowsched.reservation import settle_dues
from flowsched.search import Search
from flowsched.settings import Settings
from flowsched.snapshot import Snapshot
from flowsched.solvers import Solver, make_solver
from flowsched.solvers.limited import limited, take_stopped, unlimited
from flowsched_models import forecaster
from flowsched_models.runtime import HostFactory


class FlowScheduler:
    """The engine as a scheduler: one policy, one solver, the same settings in every round."""

    def __init__(
        self,
        policy: Policy,
        solver: Solver,
        settings: Settings | None = None,
        *,
        hosts: HostFactory | None = None,
        keep_records: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``hosts`` may be shared with others that use the same profiles; ``clock`` only times stages."""
        self._policy = policy
        self._solver = solver
        self._settings = settings or Settings()
        self._hosts = hosts
        self._keep_records = keep_records
        self._clock = clock
        prepare()

    @property
    def name(self) -> str:
        """The policy's name."""
        return self._policy.name

    def decide(self, snapshot: Snapshot) -> Decisions:
        """One round."""
        timings: dict[str, float] = {}
        began = lap = self._clock()

        def stage(name: str) -> None:
            nonlocal lap
            now = self._clock()
            timings[name] = (now - lap) * 1e3
            lap = now

        settings = self._settings
        take_stopped(self._solver)
        view = compact(snapshot, self._hosts or HostFactory(snapshot.catalogue))
        stage("compact")
        outlook = Outlook(view)
        prices = self._policy.price(outlook)
        dues = settle_dues(view, prices, settings)
        gangs = settle_gangs(view, prices, dues.must_start, dues.holds, dues.seed)
        search = Search(
            view,
            outlook,
            prices,
            self._solver,
            settings.slots,
            settings.pricings,
            dues.holds,
            dues.must_start | gangs.must_start,
            barred=gangs.barred,
        )
        stage("price")
        barred = frozenset(view.class_of[t] for t in gangs.barred)
        first = solve_first(view, prices, self._solver, settings.resolves, frozenset(dues.holds), barred)
        search.tally.solves += first.solves
        stage("solve")
        starts = self._starts(search, first, snapshot, gangs)
        goal_s: float | None = None
        if not view.tasks:
            plan = starts[0]
        elif settings.objective == "makespan":
            search, plan, goal_s = tighten(search, starts, settings)
        else:
            search, plan = settle(search, starts, settings)
        stage("improve")
        repaired = repair(search, _never_idle(search, _start_idle_machines(search, plan)), gangs)
        decided = repaired.plan
        bound = placements(search, decided)
        left = postponements(search, decided, dues, {**gangs.reasons, **repaired.reasons})
        stage("read off")
        timings["decide"] = (lap - began) * 1e3
        certificate: Certificate | None = None
        if view.tasks:
            certificate = certify(search, plan, first, settings)
        stage("certify")
        recipe = None
        stopped = take_stopped(self._solver)
        if self._keep_records:
            account = SearchAccount(
                policy=self._policy,
                solver=unlimited(self._solver),
                settings=settings,
                snapshot=snapshot,
                first=first,
                columns=tuple(plan.columns),
                holds=search.holds,
                must_start=search.must_start,
                barred=search.barred,
                widths=search.widths,
                shares=search.outlook.shares,
                gangs=gangs,
                repairs=repaired.repairs,
                goal_s=goal_s,
                placements=bound,
                postponements=left,
                reservations=dues.reservations,
                certificate=certificate,
                counts={"forecasts": search.outlook.forecasts, "solves": search.tally.solves},
                timings_ms=timings,
                stopped=stopped,
            )
            recipe = partial(round_record, account)
        return Decisions(bound, left, dues.reservations, certificate, recipe, timings, stopped)

    def _starts(self, search: Search, first: FirstSolution, snapshot: Snapshot, gangs: Gangs) -> list[Assignment]:
        """Plans to search from: the first network's, the chain, the one that the last round carried over, and the one in
        which task groups were found to fit.
        """
        starts = [_mended(search, first.assignment)]
        starts = [*chains(search, max(self._settings.starts - 1, min(1, len(search.must_start)))), *starts]
        if snapshot.plan:
            starts.append(_mended(search, _carried_over(search, snapshot)))
        if gangs.seed is not None:
            starts.append(gangs.seed)
        possible = [plan for plan in starts if search.total(plan) < FORBIDDEN]
        return possible or [
            Assignment([None] * len(search.view.tasks), search.view.class_of, len(search.view.machines))
        ]


def _mended(search: Search, plan: Assignment) -> Assignment:
    """A start that keeps to reservations and starts what must start: offenders take their best column instead."""
    plan = plan.copy()
    for machine in range(len(search.view.machines)):
        for task in plan.on(machine):
            if search.cost(plan, machine) == FORBIDDEN or task in search.barred:
                plan.move(task, None)
    related = [t for t, column in enumerate(plan.columns) if column is not None and search.related(t)]
    orderly = search.in_order(plan, related, search.view.census.copy())
    for task in sorted(set(related) - set(orderly)):
        plan.move(task, None)
    for task, column in enumerate(plan.columns):
        if task in search.must_start and (column is None or column.slot > 0):
            plan.move(task, None)
            offers = [search.best_column(plan, task, m) for m in range(len(search.view.machines))]
            best = min(offers, key=lambda offer: offer[0], default=(FORBIDDEN, None))
            plan.move(task, best[1])
    return plan


def _carried_over(search: Search, snapshot: Snapshot) -> Assignment:
    view = search.view
    machine_of = {m.name: i for i, m in enumerate(view.machines)}
    planned = {p.task: p for p in snapshot.plan if p.machine in machine_of}
    columns: list[Column | None] = []
    for task in view.tasks:
        p = planned.get(task.name)
        columns.append(
            None if p is None else Column(machine_of[p.machine], min(p.slot, max(0, search.slots - 1)), p.width_milli)
        )
    plan = Assignment(columns, view.class_of, len(view.machines))
    for t, column in enumerate(columns):
        if column is None:
            offers = [search.best_column(plan, t, m) for m in range(len(view.machines))]
            best = min(offers, key=lambda offer: offer[0], default=(FORBIDDEN, None))
            if best[0] < search.waiting(t):
                plan.move(t, best[1])
    return plan


def _never_idle(search: Search, plan: Assignment) -> Assignment:
    """With nothing running anywhere there is nothing to wait for: if nobody would start, the cheapest one does."""
    starts_now = any(column is not None and column.slot == 0 for column in plan.columns)
    if starts_now or any(group.completes for group in search.view.groups):
        return plan
    now = replace(search, slots=1)
    offers = [
        (price - search.waiting(task), task, column)
        for task in range(len(plan.columns))
        for machine in range(len(search.view.machines))
        for price, column in [now.best_column(plan, task, machine)]
        if column is not None
    ]
    if not offers:
        return plan
    _, task, column = min(offers, key=lambda offer: offer[:2])
    plan = plan.copy()
    plan.move(task, column)
    return plan


def _start_idle_machines(search: Search, plan: Assignment) -> Assignment:
    """An idle machine starts its first slot: nothing will complete there to wait for."""
    view = search.view
    decided = plan.copy()
    for m in range(len(view.machines)):
        group = view.groups[view.group_of[m]]
        tasks = decided.on(m)
        slots = {t: column.slot for t in tasks if (column := decided.columns[t]) is not None}
        if group.completes or not slots or min(slots.values()) == 0:
            continue
        lowest = min(slots.values())
        for task in tasks:
            column = decided.columns[task]
            if column is None or column.slot != lowest:
                continue
            decided.move(task, column._replace(slot=0))
            if search.cost(decided, m) == FORBIDDEN:
                decided.move(task, column)
    return decided


def solve(
    snapshot: Snapshot,
    *,
    settings: Settings | None = None,
    solver: str = "ortools",
    time_limit_s: float | None = None,
    policy: str = FlowPolicy.name,
) -> Decisions:
    """One round on a snapshot, with its record. ``time_limit_s``: for each of the solver's answers. ``policy``: ``flow``, or
    a network policy.

    Raises ``KeyError`` for a solver that there is not (``flowsched.solvers.SOLVERS`` has the names), and
    :class:`InputError` for a policy that there is not, or that does not keep the snapshot's relations.
    """
    settings = settings or Settings()
    if policy != FlowPolicy.name:
        from flowsched.scale import choice  # compiled code of its own, which takes a while to load
        from flowsched.scale.scheduler import solve_network_round

        asked = choice.chosen(policy)
        return solve_network_round(snapshot, asked, settings=settings, solver=solver, time_limit_s=time_limit_s)
    chosen = limited(make_solver(solver), time_limit_s)
    scheduler = FlowScheduler(FlowPolicy(settings), chosen, settings, keep_records=True)
    return scheduler.decide(snapshot)


def prepare() -> None:
    """Load the compiled code that rounds need, or compile it (up to a minute, once), before somebody waits for a round."""
    forecaster.prepare()
    utility.prepare()
