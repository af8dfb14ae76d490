"""Plans for scenarios: a round of ``flow``, the search, the bound."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from flowsched.cluster.decision import Placement
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot, Task
from flowsched.planner.bound import Bound, lower_bound
from flowsched.planner.draft import Draft
from flowsched.planner.evaluation import Evaluator, MachineOutcome
from flowsched.planner.objective import Objective as Costs
from flowsched.planner.plan import Plan
from flowsched.planner.problem import problem_of
from flowsched.planner.result import read_plan
from flowsched.planner.robust import Draws
from flowsched.planner.rules import PlanRules
from flowsched.planner.search import Progress, Searched, search_plan
from flowsched.planner.start import from_flow, from_played, greedy_start
from flowsched.round.scheduler import FlowScheduler
from flowsched.solvers import make_solver
from flowsched_models import document
from flowsched_models.catalogue import Catalogue
from flowsched_models.runtime import HostFactory
from flowsched_simulator.comparison import simulate
from flowsched_simulator.run import Run
from flowsched_simulator.scenario import Objective, Scenario
from flowsched_simulator.simulation import Options
from flowsched_simulator.workload import drawn_workload


@dataclass(frozen=True)
class Outcome:
    """A plan for a scenario, and how it was found."""

    scenario: Scenario
    rules: PlanRules
    plan: Plan
    start: Plan
    bound: Bound
    searched: Searched
    played_s: float | None = None
    """The objective of flow in the simulator, where jobs come later; None: the start is one round of flow."""

    @property
    def value_s(self) -> float:
        """The objective of the plan, or the quantile of it that was asked for."""
        return self._value(self.plan)

    @property
    def start_s(self) -> float:
        """The same of the start."""
        return self._value(self.start)

    @property
    def better(self) -> float:
        """How far the plan is below the start, relative to it: never less than 0."""
        return max(0.0, 1.0 - self.value_s / self.start_s) if self.start_s > 0.0 else 0.0

    def _value(self, plan: Plan) -> float:
        if plan.quantile_s is not None:
            return plan.quantile_s
        return plan.makespan_s if self.rules.objective == "makespan" else plan.completion_s

    @property
    def gap(self) -> float:
        """How far the value is above the bound, relative to it."""
        return self.value_s / self.bound.value_s - 1.0 if self.bound.value_s > 0.0 else 0.0

    @property
    def reproducible(self) -> bool:
        """Whether another run finds the same plan."""
        return self.rules.time_limit_s is None and not self.searched.interrupted


def snapshot_of(scenario: Scenario, seed: int) -> Snapshot:
    """The scenario before anything starts, all jobs known."""
    if any(terms.after for terms in scenario.job_terms.values()):
        message = "a plan cannot hold jobs back until others have ended"
        hint = "leave `after` out, or simulate instead"
        raise document.InputError.one(scenario.source, message, hint, key="after")
    for task in scenario.tasks:
        if scenario.terms_of(task.job).walltime_s is not None and not _lasts_as_told(scenario.catalogue, task):
            message = f"a plan does not know when {task.job} is killed, whose run time depends on its place"
            hint = "leave `walltime_s` out, give `runtime_s` without a profile, or simulate instead"
            raise document.InputError.one(scenario.source, message, hint, key="walltime_s")
    scenario = drawn_workload(scenario, seed)
    return Snapshot(
        now_s=0.0,
        catalogue=scenario.catalogue,
        machines=scenario.machines,
        services=scenario.services,
        pending=scenario.tasks,
        start_delay=scenario.start_delay,
        relations=scenario.relations,
        task_groups=scenario.task_groups,
        share_service_cores=scenario.share_service_cores,
    )


def _lasts_as_told(catalogue: Catalogue, task: Task) -> bool:
    """Whether the models give a task the run time that policies are told, wherever it runs: never beyond its walltime."""
    return catalogue.jobs[task.profile].is_undisturbed and task.gpus is None


def make_plan(scenario: Scenario, rules: PlanRules, report: Callable[[Progress], None] | None = None) -> Outcome:
    """Flow's round, the search, the bound. ``report`` is told how far the search is."""
    snapshot = snapshot_of(scenario, rules.seed)
    hosts = HostFactory(scenario.catalogue)
    problem = problem_of(snapshot, rules, hosts)
    evaluator = Evaluator(problem)
    settings = Settings(objective=rules.objective, slo_margin=rules.slo_margin, exact_limit=0)
    flow = FlowScheduler(make_solver("ortools"), settings, hosts=hosts)
    starts = [from_flow(problem, evaluator, flow.decide(snapshot)), greedy_start(problem, evaluator)]
    played_s = None
    if any(task.submit_s > 0.0 for task in snapshot.pending):
        # A round that is told of jobs that come later plans as if they were there: what flow does is play it.
        aim = replace(scenario, objective=Objective(rules.objective))
        run = simulate(aim, "flow", options=Options(seed=rules.seed), hosts=hosts)
        starts.insert(0, from_played(problem, evaluator, _played(run)))
        played_s = run.makespan_s if rules.objective == "makespan" else _completion_s(run)
    searched = search_plan(problem, starts, clock=time.perf_counter, report=report, evaluator=evaluator)
    draws = Draws(problem, rules.draws, rules.seed, rules.quantile or 0.5)
    value_s = Costs(rules.objective, rules.quantile, len(problem.jobs)).value_s
    chosen = _never_worse(searched, value_s)
    quantiles_s = [None if rules.quantile is None else value_s(draft.parts) for draft in (chosen, searched.start)]
    best = read_plan(problem, chosen, draws=draws, quantile_s=quantiles_s[0])
    start = read_plan(problem, searched.start, quantile_s=quantiles_s[1])
    bound = lower_bound(problem, draws if rules.quantile is not None else None)
    return Outcome(scenario, rules, best, start, bound, searched, played_s)


def _played(run: Run) -> list[tuple[float, Placement]]:
    """When and where jobs started in a run."""
    return [
        (j.bound_s, Placement(j.name, j.machine, j.width_milli, j.threads, j.cores))
        for j in run.jobs
        if j.machine is not None and j.bound_s is not None
    ]


def _completion_s(run: Run) -> float:
    return sum(j.completion_s for j in run.jobs if j.completion_s is not None)


def _never_worse(searched: Searched, value_s: Callable[[Sequence[MachineOutcome]], float]) -> Draft:
    """What was found, or the start: costs have a slope towards the other objective, which may be worth a little of this."""
    found, start = searched.draft, searched.start
    sound = all(part.violation == 0.0 for part in start.parts)
    return start if sound and value_s(start.parts) < value_s(found.parts) else found
