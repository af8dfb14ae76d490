"""Workloads with every job time scaled by 0.6 to 1.6: `flow` against FCFS, LPT, and the best plan that a long search finds.

With 1, 2 and 3 copies of every machine and job; and with model error, against a policy that knows the true times.

    python -m benchmarks.scaled_workloads --quick
    python -m benchmarks.scaled_workloads --seeds 0,100
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.machine import describe_machine
from benchmarks.variations import NAMES, copied, scaled
from flowsched.planner import PlanRules
from flowsched_models.runtime import HostFactory
from flowsched_simulator import Options, Scenario, load_scenario, simulate
from flowsched_simulator.planning import make_plan
from flowsched_simulator.policies import EngineOptions, schedulers
from flowsched_simulator.simulation import Simulation
from flowsched_simulator.world import ModelError, RunTimeError

RESULTS = Path(__file__).parent / "results"
BASELINES = ("fcfs", "lpt")
FOUR_CORES = "request 4, own cores"
"""The variant of a baseline that gives every job four cores of its own, or all of a smaller machine."""
MARGIN = {NAMES[0]: 15.0, NAMES[1]: 30.0}
"""Least mean margin of `flow` below the better of FCFS and LPT with four cores for every job, per cent."""
BEYOND = {1: (5.0, 12.0), 2: (6.0, None), 3: (6.0, None)}
"""By copies: how far `flow` may be above the best plan in the mean and at worst, per cent."""
ROUND_MS = {1: 50.0, 3: 500.0}
"""By copies: how long the slowest round may take."""
ERROR, ERROR_ABOVE = 0.2, 7.0
"""Model error, and how far `flow` may then be above the policy that knows, per cent in the mean."""


@dataclass(frozen=True)
class Case:
    """One workload."""

    name: str
    copies: int
    seed: int
    plans: int
    """Searches for the best plan; 0 for none."""
    effort: int
    """Times the default number of evaluations."""

    def scenario(self) -> Scenario:
        """The bundled scenario, copied and scaled."""
        base = load_scenario(self.name)
        return scaled(copied(base, self.copies) if self.copies > 1 else base, self.seed)


@click.command()
@click.option("--seeds", default="0", show_default=True, help="Seed sets, by their first seed: ten workloads each.")
@click.option("--workloads", default=10, show_default=True, help="Workloads of a seed set.")
@click.option("--copies", default="1,2,3", show_default=True)
@click.option("--plans", default=3, show_default=True, help="Searches for the best plan, with seeds of their own.")
@click.option("--effort", default=3, show_default=True, help="Evaluations of a search, times the default of `plan`.")
@click.option("--quick", is_flag=True, help="Three workloads, 1 copy, one short search each; keeps nothing.")
@click.option("--processes", type=int, help="Default: one for each core. Rounds are timed best with 1.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON instead of tables.")
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(
    seeds: str,
    workloads: int,
    copies: str,
    plans: int,
    effort: int,
    quick: bool,
    processes: int | None,
    as_json: bool,
    keep: bool,
) -> None:
    """Measure and print tables."""
    every = cases([0], 3, [1], 1, 1) if quick else cases(_numbers(seeds), workloads, _numbers(copies), plans, effort)
    with multiprocessing.Pool(processes) as pool:
        rows = pool.map(measure, every, chunksize=1)
        pairs = pool.map(with_error, [case for case in every if case.copies == 1], chunksize=1)
    errors = [row for pair in pairs for row in pair]
    outcome = {"rows": rows, "errors": errors, "machine": describe_machine()}
    text = table(rows) + "\n\n" + error_table(errors) + "\n" + machine_line(describe_machine())
    if keep and not quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "scaled_workloads.json").write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "scaled_workloads.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(json.dumps(outcome) if as_json else text)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def cases(seeds: Sequence[int], workloads: int, copies: Sequence[int], plans: int, effort: int) -> list[Case]:
    """All workloads, for memcached on both machines."""
    return [
        Case(name, count, seed + k, plans, effort)
        for name in NAMES
        for count in copies
        for seed in seeds
        for k in range(workloads)
    ]


@dataclass(frozen=True)
class JobError:
    """A log-normal factor for each job, the same on every machine: job times that are believed wrongly."""

    sigma: float
    seed: int
    by_machine = False

    def factor(self, task: str, machine: str) -> float:
        """Run time of a task relative to the models, wherever it runs."""
        del machine
        return ModelError(self.sigma, self.seed).factor(task, "")


ERRORS: dict[str, Callable[[float, int], RunTimeError]] = {"job": JobError, "job and machine": ModelError}
"""What a factor belongs to."""


def measure(case: Case) -> dict[str, Any]:
    """One workload: makespans of the policies and of the best plan, and the slowest round of `flow`."""
    scenario = case.scenario()
    flow = simulate(scenario, "flow")
    found = [
        make_plan(scenario, replace(PlanRules(), seed=seed, evaluations=_effort(case, scenario))).plan.makespan_s
        for seed in range(case.plans)
    ]
    return {
        "scenario": case.name,
        "copies": case.copies,
        "seed": case.seed,
        "flow_s": flow.makespan_s,
        "over_slo": flow.slo_violation_ratio,
        "slowest_round_ms": max(r.solve_ms for r in flow.rounds),
        "plan_s": min(found) if found else None,
        **{f"{name}_s": best_of(scenario, name) for name in BASELINES},
        **{f"{name}_four_s": best_of(scenario, name, FOUR_CORES) for name in BASELINES},
    }


def best_of(scenario: Scenario, policy: str, only: str | None = None) -> float:
    """Makespan of a baseline in its best variant for this very scenario, or in one variant."""
    hosts = HostFactory(scenario.catalogue)
    found = [
        Simulation(scenario, scheduler, hosts=hosts).run().makespan_s
        for label, scheduler in schedulers(policy, scenario, 0, EngineOptions(), hosts)
        if only is None or label == only
    ]
    return min(found)


def _effort(case: Case, scenario: Scenario) -> int:
    return 6000 * len(scenario.tasks) * case.effort


def with_error(case: Case) -> list[dict[str, Any]]:
    """`flow` where run times differ from its models, and where it is told the true ones."""
    scenario = case.scenario()
    rows = []
    for kind, error in ERRORS.items():
        factors = error(ERROR, case.seed)
        believes = simulate(scenario, "flow", options=Options(seed=case.seed, model_error=factors))
        knows = simulate(told(scenario, factors), "flow")
        times = {"believes_s": believes.makespan_s, "knows_s": knows.makespan_s}
        rows.append({"scenario": case.name, "seed": case.seed, "factor": kind, **times})
    return rows


def told(scenario: Scenario, error: RunTimeError) -> Scenario:
    """A scenario whose models carry the error that a run meets.

    Every job gets a profile of its own, with a speed for every machine, and every machine a type of its own.
    """
    catalogue = scenario.catalogue
    types = {m.name: f"{m.type} of {m.name}" for m in scenario.machines}
    machine_types = dict(catalogue.machine_types)
    for m in scenario.machines:
        machine_types[types[m.name]] = replace(catalogue.machine_types[m.type], name=types[m.name])
    jobs = dict(catalogue.jobs)
    tasks = []
    for task in scenario.tasks:
        own = f"{task.profile} of {task.name}"
        profile = catalogue.jobs[task.profile]
        speed = {
            types[m.name]: catalogue.speed(task.profile, m.type) / error.factor(task.name, m.name)
            for m in scenario.machines
        }
        jobs[own] = replace(profile, name=own, speed=speed)
        tasks.append(replace(task, profile=own))
    services = {
        name: replace(
            profile,
            latency_factor=_by_own_type(profile.latency_factor, scenario, types),
            capacity_factor=_by_own_type(profile.capacity_factor, scenario, types),
        )
        for name, profile in catalogue.services.items()
    }
    return replace(
        scenario,
        catalogue=replace(catalogue, jobs=jobs, machine_types=machine_types, services=services),
        machines=tuple(replace(m, type=types[m.name]) for m in scenario.machines),
        tasks=tuple(tasks),
    )


def _by_own_type(factors: Any, scenario: Scenario, types: dict[str, str]) -> dict[str, float]:
    return {**factors, **{types[m.name]: factors[m.type] for m in scenario.machines if m.type in factors}}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each scenario and number of copies, the bars beside what was reached."""
    lines = [
        f"{'':33} below FCFS and LPT, 4 cores    best variants   above the best plan",
        f"{'scenario':26} {'copies':>6} {'n':>3} {'wins':>6} {'mean %':>6} {'bar':>4} {'wins':>7} {'mean %':>6} "
        f"{'mean %':>8} {'bar':>4} {'worst %':>7} {'bar':>4} {'over SLO':>8} {'slowest round ms':>16} {'bar':>4}",
    ]
    for name, copies, group in _groups(rows, ("scenario", "copies")):
        flow = np.array([r["flow_s"] for r in group])
        four, best = (np.array([min(r[f"{b}{end}"] for b in BASELINES) for r in group]) for end in ("_four_s", "_s"))
        plans = [(r["flow_s"] / r["plan_s"] - 1.0) * 100.0 for r in group if r["plan_s"] is not None]
        mean_bar, worst_bar = BEYOND.get(copies, (None, None))
        lines.append(
            f"{name:26} {copies:6} {len(group):3} {_wins(flow, four):>6} {_margin(flow, four):6.1f} "
            f"{_bar(MARGIN.get(name) if copies == 1 else None)} {_wins(flow, best):>7} {_margin(flow, best):6.1f} "
            f"{_figure(plans, np.mean):>8} {_bar(mean_bar)} {_figure(plans, np.max):>7} {_bar(worst_bar)} "
            f"{sum(r['over_slo'] > 0.0 for r in group):8} {max(r['slowest_round_ms'] for r in group):16.0f} "
            f"{_bar(ROUND_MS.get(copies))}"
        )
    return "\n".join(lines)


def _wins(flow: Any, other: Any) -> str:
    return f"{int((flow < other).sum())}/{len(flow)}"


def _margin(flow: Any, other: Any) -> float:
    return float(np.mean(100.0 * (1.0 - flow / other)))


def error_table(rows: Sequence[dict[str, Any]]) -> str:
    """How far `flow` is above the policy that knows, with model error."""
    lines = [
        f"{'scenario':26} {'model error':>11} {'factor of each':>16} {'n':>3} {'above who knows %':>17} "
        f"{'bar':>4} {'worst %':>8}"
    ]
    for name, kind, group in _groups(rows, ("scenario", "factor")):
        above = [(r["believes_s"] / r["knows_s"] - 1.0) * 100.0 for r in group]
        lines.append(
            f"{name:26} {ERROR:11.0%} {kind:>16} {len(group):3} {np.mean(above):17.1f} {_bar(ERROR_ABOVE)}"
            f" {max(above):8.1f}"
        )
    return "\n".join(lines)


def machine_line(machine: dict[str, str | int]) -> str:
    """What it was measured on."""
    return f"measured on: {machine['processor']}, {machine['cores']} cores, Python {machine['python']}"


def _groups(rows: Sequence[dict[str, Any]], keys: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    for values in dict.fromkeys(tuple(r[k] for k in keys) for r in rows):
        yield *values, [r for r in rows if tuple(r[k] for k in keys) == values]


def _bar(value: float | None) -> str:
    return f"{'-' if value is None else f'{value:g}':>4}"


def _figure(values: Sequence[float], of: Callable[[Sequence[float]], Any]) -> str:
    return f"{float(of(values)):.1f}" if values else "-"


if __name__ == "__main__":
    main()
