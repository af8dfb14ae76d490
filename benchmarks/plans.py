"""Plans: what the search reaches against the published plan and the bound, when, and how fast it looks at plans.

python -m benchmarks.plans
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.machine import describe_machine
from benchmarks.variations import NAMES
from flowsched.planner.draft import make_draft
from flowsched.planner.evaluation import Evaluator
from flowsched.planner.moves import Neighbourhood
from flowsched.planner.objective import Objective
from flowsched.planner.problem import problem_of
from flowsched.planner.random_buffer import RandomBuffer
from flowsched.planner.result import read_plan
from flowsched.planner.rules import PlanRules
from flowsched.planner.search import Progress
from flowsched.planner.start import greedy_start
from flowsched_simulator import Scenario, load_scenario, load_schedule, replay
from flowsched_simulator.plan_schedule import schedule_of
from flowsched_simulator.planning import make_plan, snapshot_of

RESULTS = Path(__file__).parent / "results"
RULES = {
    "shared, equal weights": PlanRules(weights="equal"),
    "shared, widths": PlanRules(),
    "shared, free weights": PlanRules(weights="free"),
    "exclusive": PlanRules(share_cores=False),
}
BARS = {
    "shared, equal weights": (0.925, 0.89),
    "shared, widths": (0.925, 0.89),
    "shared, free weights": (0.91, 0.87),
    "exclusive": (1.0, 1.0),
}
"""Most that the makespan may be of the published plan's, with memcached on the small and on the large machine."""
BAR_S = 10.0
"""The search is to reach its bar within so many seconds."""
MOST_US = 1000.0
"""One evaluation of a plan takes at most so long."""


class Trace:
    """Watches a search: when it first had a plan that good."""

    def __init__(self, bar_s: float) -> None:
        """``bar_s``: the makespan to wait for."""
        self._bar_s = bar_s
        self.reached: tuple[int, float] | None = None
        """Evaluations and seconds."""

    def show(self, progress: Progress) -> None:
        """Note the moment."""
        if self.reached is None and progress.best_s <= self._bar_s:
            self.reached = progress.evaluations, progress.seconds


@click.command()
@click.option("--seeds", default=5, show_default=True, help="Searches of each case.")
@click.option("--json", "as_json", is_flag=True)
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(seeds: int, as_json: bool, keep: bool) -> None:
    """Measure and print tables."""
    published = replay(load_scenario(NAMES[0]), load_schedule("group-048")).makespan_s
    make_plan(load_scenario(NAMES[0]), PlanRules(evaluations=100))  # what is compiled once is compiled now
    outcome = {
        "published_s": published,
        "rows": [
            measure(load_scenario(name), kind, replace(rules, seed=seed), published, bar)
            for kind, rules in RULES.items()
            for name, bar in zip(NAMES, BARS[kind], strict=True)
            for seed in range(seeds)
        ],
        "evaluation_us": {name: evaluation_us(load_scenario(name)) for name in NAMES},
        "machine": describe_machine(),
    }
    text = table(outcome)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "plans.json").write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "plans.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(json.dumps(outcome) if as_json else text)


def measure(scenario: Scenario, kind: str, rules: PlanRules, published_s: float, bar: float) -> dict[str, Any]:
    """One search; its plan replayed in the simulator."""
    trace = Trace(bar * published_s)
    outcome = make_plan(scenario, rules, trace.show)
    run = replay(scenario, schedule_of(scenario, outcome.plan))
    # The last look may have been before the last improvement.
    if trace.reached is None and outcome.plan.makespan_s <= bar * published_s:
        trace.reached = outcome.searched.evaluations, outcome.searched.seconds
    return {
        "scenario": scenario.name,
        "kind": kind,
        "seed": rules.seed,
        "makespan_s": run.makespan_s,
        "ratio": run.makespan_s / published_s,
        "bar": bar,
        "over_slo": run.slo_violation_ratio,
        "worst_p95_share": max((p95 / goal for _, p95, goal in outcome.plan.p95_us), default=0.0),
        "bound_s": outcome.bound.value_s,
        "gap": outcome.gap,
        "reached_evaluations": None if trace.reached is None else trace.reached[0],
        "reached_s": None if trace.reached is None else trace.reached[1],
        "evaluations": outcome.searched.evaluations,
        "seconds": outcome.searched.seconds,
    }


def evaluation_us(scenario: Scenario, count: int = 1000) -> dict[str, float]:
    """Microseconds to evaluate a whole plan, every machine run forward, nothing remembered; and to replay it.

    Plans are those of a random walk from the greedy start; a replay only comes of one that can be carried out.
    """
    problem = problem_of(snapshot_of(scenario, 0), PlanRules())
    evaluator = Evaluator(problem)
    objective = Objective("makespan", None, len(problem.jobs))
    draft = make_draft(problem, evaluator, objective, greedy_start(problem, evaluator))
    moves = Neighbourhood(problem, RandomBuffer(np.random.default_rng(0)))
    times, replays = [], []
    while len(times) < count:
        change = moves.draw(draft)
        if change is None:
            continue
        parts = {s: evaluator.part(s, seats) for s, seats in change.items()}
        every = [parts.get(s, part) for s, part in enumerate(draft.parts)]
        draft.apply(change, parts, objective.cost(every))
        seats = [(s, seat) for s, here in enumerate(draft.seats) for seat in here]
        fresh = Evaluator(problem)
        began = time.perf_counter()
        make_draft(problem, fresh, objective, seats)
        times.append((time.perf_counter() - began) * 1e6)
        plan = read_plan(problem, draft)
        if plan.feasible and len(replays) < count // 10:
            schedule = schedule_of(scenario, plan)
            began = time.perf_counter()
            replay(scenario, schedule)
            replays.append((time.perf_counter() - began) * 1e6)
    return {
        "p50": float(np.percentile(times, 50)),
        "p99": float(np.percentile(times, 99)),
        "replay_p50": float(np.percentile(replays, 50)) if replays else float("nan"),
    }


def table(outcome: dict[str, Any]) -> str:
    """A line per search, then the time of an evaluation."""
    lines = [
        f"published plan of group 048, replayed: {outcome['published_s']:.2f} s; bars are to be reached within {BAR_S:g} s",
        "",
        f"{'scenario':26} {'plan':22} {'seed':>4} {'makespan s':>10} {'ratio':>6} {'bar':>6} {'bar after s':>11} "
        f"{'plans':>7} {'bound s':>8} {'gap %':>6} {'over SLO %':>10} {'p95/goal':>8} {'search s':>8} "
        f"{'plans':>7} {'us/plan':>7}",
    ]
    for r in outcome["rows"]:
        after = "never" if r["reached_s"] is None else f"{r['reached_s']:.1f}"
        plans = "-" if r["reached_evaluations"] is None else str(r["reached_evaluations"])
        lines.append(
            f"{r['scenario']:26} {r['kind']:22} {r['seed']:4} {r['makespan_s']:10.2f} {r['ratio']:6.3f} {r['bar']:6.3f} "
            f"{after:>11} {plans:>7} {r['bound_s']:8.2f} {100 * r['gap']:6.1f} {100 * r['over_slo']:10.1f} "
            f"{r['worst_p95_share']:8.2f} {r['seconds']:8.1f} {r['evaluations']:7} "
            f"{1e6 * r['seconds'] / max(1, r['evaluations']):7.0f}"
        )
    lines.append("")
    lines += [
        f"one evaluation of a whole plan of {name}, nothing remembered: median {t['p50']:.0f} us, p99 {t['p99']:.0f} us "
        f"(bar {MOST_US:.0f} us); its replay in the simulator: median {t['replay_p50']:.0f} us"
        for name, t in outcome["evaluation_us"].items()
    ]
    machine = outcome["machine"]
    lines.append(f"measured on: {machine['processor']}, {machine['cores']} cores, Python {machine['python']}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
