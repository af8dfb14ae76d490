"""One scheduling round, readable aloud: compact, price, solve, improve, certify, decide, record."""

from __future__ import annotations

import time
from collections.abc import Callable

from flowsched.assignment import Assignment, Column, Newcomer
from flowsched.certificate import certify
from flowsched.chain import chain
from flowsched.compaction import compact
from flowsched.decision import Certificate, Decisions, Placement, Postponement
from flowsched.first_network import FirstSolution, solve_first
from flowsched.improvement import bisect, settle
from flowsched.outlook import Outlook
from flowsched.policies.flow import FlowPolicy
from flowsched.policies.policy import FORBIDDEN, Policy
from flowsched.record import build_record
from flowsched.reservation import Dues, settle_dues
from flowsched.search import Search
from flowsched.settings import Settings
from flowsched.snapshot import PlannedStart, Snapshot
from flowsched.solvers import Solver, make_solver
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
        view = compact(snapshot, self._hosts or HostFactory(snapshot.catalogue))
        stage("compact")
        outlook = Outlook(view)
        prices = self._policy.price(outlook)
        dues = settle_dues(view, outlook, prices, settings)
        search = Search(
            view,
            outlook,
            prices,
            self._solver,
            settings.slots,
            settings.pricings,
            dues.holds,
            dues.must_start,
        )
        stage("price")
        first = solve_first(view, prices, self._solver, settings.resolves, frozenset(dues.holds))
        search.solves += first.solves
        stage("solve")
        starts = self._starts(search, first, snapshot)
        goal_s: float | None = None
        if not view.tasks:
            plan = starts[0]
        elif settings.objective == "makespan":
            search, plan, goal_s = bisect(search, starts, settings)
        else:
            search, plan = settle(search, starts, settings)
        stage("improve")
        decided = _start_idle_machines(search, plan)
        placements = _placements(search, decided)
        postponements = _postponements(search, decided, dues)
        stage("read off")
        timings["decide"] = (lap - began) * 1e3
        certificate: Certificate | None = None
        if view.tasks:
            certificate = certify(search, plan, first, settings)
        stage("certify")
        record = None
        if self._keep_records:
            record = build_record(
                policy=self._policy.name,
                settings=settings,
                search=search,
                plan=plan,
                first=first,
                dues=dues,
                goal_s=goal_s,
                placements=placements,
                postponements=postponements,
                certificate=certificate,
                timings_ms=timings,
            )
        return Decisions(placements, postponements, dues.reservations, certificate, record, timings)

    def _starts(self, search: Search, first: FirstSolution, snapshot: Snapshot) -> list[Assignment]:
        """Plans to search from: the first network's, the chain, and the one that the last round carried over."""
        starts = [_mended(search, first.assignment)]
        if self._settings.starts > 1:
            starts.insert(0, chain(search))
        if snapshot.plan:
            starts.append(_mended(search, _carried_over(search, snapshot)))
        possible = [plan for plan in starts if search.total(plan) < FORBIDDEN]
        return possible or [
            Assignment([None] * len(search.view.tasks), search.view.class_of, len(search.view.machines))
        ]


def _mended(search: Search, plan: Assignment) -> Assignment:
    """A start that keeps to reservations and starts what must start: offenders take their best column instead."""
    plan = plan.copy()
    for machine in range(len(search.view.machines)):
        for task in plan.on(machine):
            if search.cost(plan, machine) == FORBIDDEN:
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


def _start_idle_machines(search: Search, plan: Assignment) -> Assignment:
    """An idle machine starts its first slot: nothing will complete there to wait for."""
    view = search.view
    decided = plan.copy()
    for m in range(len(view.machines)):
        group = view.groups[view.group_of[m]]
        tasks = decided.on(m)
        slots = {t: column.slot for t in tasks if (column := decided.columns[t]) is not None}
        if group.running or not slots or min(slots.values()) == 0:
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


def _placements(search: Search, plan: Assignment) -> tuple[Placement, ...]:
    view = search.view
    placements = []
    for task, column in enumerate(plan.columns):
        if column is None or column.slot > 0:
            continue
        g = view.group_of[column.machine]
        company = plan.company(column.machine)
        c = view.class_of[task]
        member = company.index((c, 0, column.width_milli))
        terms = search.prices.machine_terms(g, company, member)
        placements.append(
            Placement(
                view.tasks[task].name,
                view.machines[column.machine].name,
                column.width_milli,
                search.outlook.threads(g, c),
                view.groups[g].batch_cores,
                sum(terms.values()),
                terms,
            )
        )
    return tuple(placements)


def _postponements(search: Search, plan: Assignment, dues: Dues) -> tuple[Postponement, ...]:
    view = search.view
    now = view.snapshot.now_s
    reserved = {r.task: r for r in dues.reservations}
    postponements = []
    for t, column in enumerate(plan.columns):
        task = view.tasks[t]
        waited = now - task.submit_s
        if column is not None and column.slot == 0:
            continue
        if column is not None:
            machine = view.machines[column.machine].name
            planned = PlannedStart(task.name, machine, column.slot, column.width_milli)
            g = view.group_of[column.machine]
            company = plan.company(column.machine)
            member = company.index((view.class_of[t], column.slot, column.width_milli))
            prospect = search.outlook.prospect(g, company)
            start = f" (in about {prospect.starts_s[member]:.0f} s)" if prospect is not None else ""
            count = "the next completion" if column.slot == 1 else f"{column.slot} completions"
            terms = search.prices.machine_terms(g, company, member)
            postponements.append(
                Postponement(
                    task.name,
                    f"waits for {count} on {machine}{start}: starting now anywhere costs more",
                    waited,
                    sum(terms.values()),
                    terms,
                    planned,
                )
            )
            continue
        terms = search.prices.waiting_terms(view.class_of[t])
        postponements.append(
            Postponement(
                task.name,
                _why_unscheduled(search, t, reserved.get(task.name)),
                waited,
                sum(terms.values()),
                terms,
            )
        )
    return tuple(postponements)


def _why_unscheduled(search: Search, task: int, reservation: object) -> str:
    """The first sentence an operator needs: no machine at all, none with room, or none worth it now."""
    view = search.view
    wanted = view.tasks[task]
    c = view.class_of[task]
    width = wanted.widths_milli[0]
    if reservation is not None:
        return f"is due and {getattr(reservation, 'machine', '')} is reserved for it, predicted to be free at {getattr(reservation, 'start_s', 0.0):.0f} s"
    allowed = [g for g, group in enumerate(view.groups) if view.allowed(c, group.members[0])]
    if not allowed:
        return "none of the machines that it may run on is in the cluster"
    large = [
        g
        for g in allowed
        if width <= view.groups[g].machine.cpu_milli - sum(s.width_milli for s in view.groups[g].services)
        and wanted.memory_mib <= view.groups[g].machine.memory_mib - sum(s.memory_mib for s in view.groups[g].services)
    ]
    if not large:
        return f"needs {width / 1000:g} cores and {wanted.memory_mib} MiB on one machine; no machine is that large"
    roomy = [
        g for g in large if view.groups[g].free_milli >= width and view.groups[g].free_memory_mib >= wanted.memory_mib
    ]
    if not roomy:
        most = max(large, key=lambda g: (view.groups[g].free_milli, -g))
        group = view.groups[most]
        return (
            f"needs {width / 1000:g} cores and {wanted.memory_mib} MiB on one machine; the emptiest, "
            f"{group.machine.name}, has {group.free_milli / 1000:g} cores and {group.free_memory_mib} MiB free"
        )
    if all(search.prices.machine_cost(g, (Newcomer(c, 0, width),)) == FORBIDDEN for g in roomy):
        return "every machine with room has a latency service whose p95 goal it would break"
    return "waiting costs less than any machine with room"


def solve(snapshot: Snapshot, *, settings: Settings | None = None, solver: str = "ortools") -> Decisions:
    """One round of the ``flow`` policy on a snapshot, with its record.

    Raises ``KeyError`` for a solver that there is not (``flowsched.solvers.SOLVERS`` has the names).
    """
    settings = settings or Settings()
    scheduler = FlowScheduler(FlowPolicy(settings), make_solver(solver), settings, keep_records=True)
    return scheduler.decide(snapshot)
