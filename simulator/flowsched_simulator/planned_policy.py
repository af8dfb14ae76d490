"""The policy ``flow+plan``: the rounds of ``flow``, with a searched plan of everything that waits on top.

A round that finds nothing as planned (an arrival, an end off its prediction, another machine) asks ``flow``, improves its
decision and the plan so far by search, and keeps the result. The rounds after it bind what the plan starts, when it does.
"""

from __future__ import annotations

import time
from dataclasses import replace

from flowsched.cluster.decision import Decisions, Placement, Postponement, Scheduler
from flowsched.cluster.resource import covers, without
from flowsched.cluster.snapshot import Machine, PlannedStart, Service, Snapshot
from flowsched.planner.evaluation import Evaluator
from flowsched.planner.plan import PlannedTask
from flowsched.planner.problem import problem_of
from flowsched.planner.result import read_plan
from flowsched.planner.rules import PlanRules
from flowsched.planner.scope import outside
from flowsched.planner.search import default_evaluations, search_plan
from flowsched.planner.start import carried, from_flow, greedy_start
from flowsched.round.scheduler import FlowScheduler
from flowsched_models.runtime import HostFactory

NAME = "flow+plan"
_SHARE_AGAIN = 8
"""A plan that is made again has a start that was searched already: one in so many evaluations is enough."""
_TOLERANCE = 0.005
"""Of a run time: an end that is further off its prediction calls for a new plan."""
_AT_ONCE_S = 1e-6


class PlannedScheduler:
    """A scheduler around ``flow``; it serves one run, because it keeps its plan from round to round."""

    name = NAME
    told = FlowScheduler.told

    def __init__(self, flow: Scheduler, rules: PlanRules, hosts: HostFactory) -> None:
        """``hosts``: the rates of the scenario's machines."""
        self._flow = flow
        self._rules = rules
        self._hosts = hosts
        self._plan: dict[str, PlannedTask] = {}
        self._ended: set[str] = set()
        self._cluster: tuple[frozenset[Machine], frozenset[Service]] = (frozenset(), frozenset())
        self._sound = False
        self._stopped: tuple[str, ...] = ()

    def decide(self, snapshot: Snapshot) -> Decisions:
        """One round."""
        began = time.perf_counter()
        self._stopped = ()
        if outside(snapshot):
            return self._flow.decide(snapshot)
        if not self._as_planned(snapshot):
            fallback = self._make(snapshot)
            if fallback is not None:
                return fallback
        decisions = self._read_off(snapshot)
        if not decisions.placements and not snapshot.running:
            # Nothing runs, so nothing will end: whatever the plan waits for, it waits in vain.
            self._sound = False
            return self._flow.decide(snapshot)
        return replace(decisions, timings_ms={"decide": (time.perf_counter() - began) * 1e3}, stopped=self._stopped)

    def _as_planned(self, snapshot: Snapshot) -> bool:
        """Whether the plan knows all tasks and everything went as planned so far."""
        cluster = (frozenset(snapshot.machines), frozenset(snapshot.services))
        holds = self._sound and cluster == self._cluster
        self._cluster = cluster
        running = {r.task.name: r for r in snapshot.running}
        there = {*running, *(t.name for t in snapshot.pending)}
        for name, planned in self._plan.items():
            spare = _AT_ONCE_S + _TOLERANCE * (planned.end_s - planned.start_s)
            if name not in there and name not in self._ended:
                self._ended.add(name)
                holds = holds and abs(planned.end_s - snapshot.now_s) <= spare
            if name in running:
                holds = holds and running[name].machine == planned.machine
                holds = holds and planned.end_s >= snapshot.now_s - spare
        return holds and there <= self._plan.keys()

    def _make(self, snapshot: Snapshot) -> Decisions | None:
        """Make the plan anew; the decisions of flow where there can be none."""
        decisions = self._flow.decide(snapshot)
        self._stopped = decisions.stopped
        again = bool(self._plan)
        problem = problem_of(snapshot, self._rules, self._hosts)
        if again:
            most = default_evaluations(problem) if self._rules.evaluations is None else self._rules.evaluations
            problem = replace(problem, rules=replace(self._rules, evaluations=most // _SHARE_AGAIN))
        self._sound = False
        if any(not sites for sites in problem.sites_of):
            return decisions
        evaluator = Evaluator(problem)
        starts = [from_flow(problem, evaluator, decisions)]
        if again:
            starts.append(carried(problem, evaluator, self._plan.values()))
        starts.append(greedy_start(problem, evaluator))
        found = search_plan(problem, starts, clock=time.perf_counter, evaluator=evaluator)
        plan = read_plan(problem, found.draft)
        if not plan.feasible:
            return decisions
        self._plan = {task.task: task for task in plan.tasks}
        self._ended = set()
        self._sound = True
        return None

    def _read_off(self, snapshot: Snapshot) -> Decisions:
        """Bind what starts now, in the plan's order; say of the others what they wait for."""
        there = {r.task.name for r in snapshot.running} | {t.name for t in snapshot.pending}
        cpu, memory, resources = snapshot.free_milli(), snapshot.free_memory_mib(), snapshot.free_resources()
        bound, left = [], []
        for task in sorted(snapshot.pending, key=lambda t: (self._plan[t.name].bound_s, t.arrival)):
            planned = self._plan[task.name]
            m, waited = planned.machine, snapshot.now_s - task.submit_s
            if planned.after is not None and planned.after in there:
                wait = max(0.0, planned.bound_s - snapshot.now_s)
                reason = f"planned for {m} after {planned.after} ends (in about {wait:.0f} s)"
                left.append(Postponement(task.name, reason, waited, planned=self._slot(planned)))
            elif (
                planned.width_milli > cpu[m] or task.memory_mib > memory[m] or not covers(resources[m], task.resources)
            ):
                # Others ended in another order than predicted; the next round plans again.
                self._sound = False
                reason = f"planned for {m} now, which has no room yet: it did not go as predicted"
                left.append(Postponement(task.name, reason, waited, planned=self._slot(planned)))
            else:
                cpu[m] -= planned.width_milli
                memory[m] -= task.memory_mib
                resources[m] = without(resources[m], task.resources)
                bound.append(Placement(task.name, m, planned.width_milli, planned.threads, planned.cores))
        return Decisions(tuple(bound), tuple(left))

    def _slot(self, planned: PlannedTask) -> PlannedStart:
        """The completions on its machine that it waits for, as rounds of ``flow`` count them."""
        here = [p for p in self._plan.values() if p.machine == planned.machine and p.task not in self._ended]
        slot = sum(p.end_s <= planned.bound_s + _AT_ONCE_S for p in here if p.task != planned.task)
        return PlannedStart(planned.task, planned.machine, max(1, slot), planned.width_milli)
