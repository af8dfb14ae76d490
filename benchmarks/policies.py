"""Policy quality: `flow` against every baseline, on the bundled scenario in many clothes and on random scenarios.

Two presets, one table each; results are kept as JSON under benchmarks/results.

    python -m benchmarks.policies --preset bundled
    python -m benchmarks.policies --preset random
    python -m benchmarks.policies --preset random --policies flow --no-keep --json > after.json
    python -m benchmarks.policies --preset random --policies flow --no-keep --against before.json

The last two show what a change of the engine does: `before.json` was written by the tree before it. So they show what
learnt run times do where `before.json` was written with `--learning off` and the last command has `--learning on`: jobs with
one profile are then one class. Below the ratios stand the bars of such a change.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TextIO, get_args

import click
import numpy as np

from benchmarks.machine import describe_machine
from benchmarks.random_scenario import Recipe, random_scenario
from benchmarks.variations import NAMES, variations
from flowsched.cluster.learning import Learning
from flowsched.cluster.settings import Settings
from flowsched.support.arrays import FloatArray
from flowsched_models.profiles import load_catalogue
from flowsched_models.text_table import text_table
from flowsched_simulator import POLICIES, EngineOptions, Options, Run, load_scenario, load_schedule, replay, simulate
from flowsched_simulator.policies import check_policies
from flowsched_simulator.world import ErrorOf

RESULTS = Path(__file__).parent / "results"
BASELINES = tuple(name for name in POLICIES if name != "flow")
ENGINE = EngineOptions(Settings(exact_limit=0))
"""Without the CP-SAT certificate: it decides nothing, and would only take time."""
_EXACT_BARS = {"mean_completion_s": 1.01, "p95_completion_s": 1.02}
_ERROR_BARS = {"mean_completion_s": 1.0}
"""Most that mean ratios to before may be without a model error, and with one."""
METRICS = ("mean_completion_s", "p95_completion_s", "makespan_s", "slo_violation_percent")


class Cell(NamedTuple):
    """One random scenario, and what runs on it."""

    seed: int
    load: float
    model_error: float
    error_of: ErrorOf
    policies: tuple[str, ...]
    learning: Learning | None = None
    """On: jobs with one profile are a class. None: as `simulate` chooses, and each job is its own class."""


@click.command()
@click.option("--preset", type=click.Choice(["bundled", "random"]), default="bundled", show_default=True)
@click.option("--scenarios", default=20, show_default=True, help="Random scenarios per load and model error.")
@click.option("--loads", default="0.5,0.8,1.1", show_default=True)
@click.option("--model-errors", default="0,0.1,0.2,0.4", show_default=True)
@click.option("--error-of", type=click.Choice(get_args(ErrorOf)), default="job", show_default=True)
@click.option(
    "--learning", type=click.Choice(get_args(Learning)), help="Of the preset random: whether classes are learnt."
)
@click.option("--processes", type=click.IntRange(1), help="Of the preset random; as many as there are cores.")
@click.option("--policies", default=",".join(POLICIES), show_default=True, help="Of the preset random.")
@click.option("--against", type=click.File(), help="Also compare each policy with its kept --json of another tree.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON instead of a table.")
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(
    preset: str,
    scenarios: int,
    loads: str,
    model_errors: str,
    error_of: ErrorOf,
    learning: Learning | None,
    processes: int | None,
    policies: str,
    against: TextIO | None,
    as_json: bool,
    keep: bool,
) -> None:
    """Run one preset and print its table."""
    began = time.perf_counter()
    chosen = tuple(policies.split(","))
    check_policies(chosen, "--policies")
    if keep and {*chosen} != {*POLICIES}:
        raise click.UsageError("the kept results are of all policies; --policies with fewer needs --no-keep")
    if keep and learning is not None:
        raise click.UsageError("the kept results are those without --learning; with it they need --no-keep")
    before = None if against is None else json.load(against)
    if before is not None and before.get("error_of") != error_of:
        kind = before.get("error_of", "none")
        raise click.UsageError(f"--against is a file with --error-of {kind}, and this run has {error_of}")
    if preset == "bundled":
        outcome: dict[str, Any] = {"preset": preset, "rows": list(bundled())}
        text = bundled_table(outcome["rows"])
    else:
        cells = [
            Cell(seed, float(load), float(error), error_of, chosen, learning)
            for error in model_errors.split(",")
            for load in loads.split(",")
            for seed in range(scenarios)
        ]
        rows = list(at_random(cells, processes))
        outcome = {"preset": preset, "scenarios": scenarios, "error_of": error_of, "learning": learning, "rows": rows}
        text = random_table(outcome["rows"]) if {"flow", *BASELINES} <= {*chosen} else ""
        if before is not None:
            compared = (against_table(rows, before["rows"]), bars(rows, before["rows"]))
            text = "\n\n".join(filter(None, [text, *compared]))
    outcome["machine"] = describe_machine()
    outcome["seconds"] = round(time.perf_counter() - began, 1)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"policies-{preset}.json").write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
        (RESULTS / f"policies-{preset}.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(json.dumps(outcome) if as_json else text)


def bundled() -> Iterator[dict[str, Any]]:
    """One row per variation: makespan of `flow`, of each baseline, and ratios."""
    plan = replay(load_scenario(NAMES[0]), load_schedule("group-048"))
    yield {"what": "published plan of group 048, replayed", "makespan_s": {"schedule": plan.makespan_s}}
    with multiprocessing.Pool() as pool:
        yield from pool.imap(_bundled_row, range(len(list(variations()))))


def _bundled_row(index: int) -> dict[str, Any]:
    what, scenario = list(variations())[index]
    runs = {name: simulate(scenario, name, engine=ENGINE) for name in POLICIES}
    return {
        "what": what,
        "makespan_s": {name: run.makespan_s for name, run in runs.items()},
        "slo_violation_ratio": {name: run.slo_violation_ratio for name, run in runs.items()},
        "slowest_round_ms": max(r.solve_ms for r in runs["flow"].rounds),
    }


def bundled_table(rows: list[dict[str, Any]]) -> str:
    """Makespans in seconds; the last columns are `flow` against the published plan and the best baseline."""
    plan = rows[0]["makespan_s"]["schedule"]
    heads = ["scenario", *POLICIES, "flow/plan", "flow/best", "SLO viol. %", "slowest round ms"]
    lines = [heads]
    for row in rows[1:]:
        spans = row["makespan_s"]
        best = min(spans[name] for name in BASELINES)
        same_jobs = "times" not in row["what"] and "copies" not in row["what"]
        lines.append(
            [
                row["what"],
                *(f"{spans[name]:.1f}" for name in POLICIES),
                f"{spans['flow'] / plan:.3f}" if same_jobs else "-",
                f"{spans['flow'] / best:.3f}",
                f"{100 * row['slo_violation_ratio']['flow']:.1f}",
                f"{row['slowest_round_ms']:.0f}",
            ]
        )
    return f"published plan of group 048, replayed: {plan:.2f} s\n\n" + _aligned(lines)


def at_random(cells: list[Cell], processes: int | None = None) -> Iterator[dict[str, Any]]:
    """One row per scenario, load and model error, with the figures of every policy."""
    with multiprocessing.Pool(processes) as pool:
        for i, row in enumerate(pool.imap(_random_row, cells)):
            if sys.stderr.isatty():
                click.echo(f"\r{i + 1} of {len(cells)} scenarios", err=True, nl=False)
            yield row


def _random_row(cell: Cell) -> dict[str, Any]:
    scenario = random_scenario(load_catalogue(), cell.seed, Recipe(load=cell.load))
    if cell.learning is not None:
        scenario = replace(scenario, classes={task.job: task.profile for task in scenario.tasks})
    options = Options(seed=cell.seed, model_error=cell.model_error, error_of=cell.error_of, learning=cell.learning)
    figures = {name: _figures(simulate(scenario, name, options=options, engine=ENGINE)) for name in cell.policies}
    return {"seed": cell.seed, "load": cell.load, "model_error": cell.model_error, "figures": figures}


def _figures(run: Run) -> dict[str, float]:
    summary = run.summary()
    return {
        "mean_completion_s": summary["mean_completion_s"],
        "p95_completion_s": summary["p95_completion_s"],
        "makespan_s": summary["makespan_s"],
        "slo_violation_percent": 100.0 * summary["slo_violation_ratio"],
        "mean_slowdown": summary["mean_slowdown"],
        "slowest_round_ms": summary["timings"]["round_ms"]["p99"],
    }


def random_table(rows: list[dict[str, Any]]) -> str:
    """Paired differences of `flow` to each baseline in % of the baseline, mean [95 % interval], and who wins how often."""
    by_cell: dict[tuple[float, float], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_cell[row["model_error"], row["load"]].append(row["figures"])
    lines = [
        [
            "error",
            "load",
            "baseline",
            "mean completion",
            "wins",
            "p95 completion",
            "wins",
            "makespan",
            "wins",
            "SLO viol. %",
        ]
    ]
    for (error, load), figures in by_cell.items():
        for name in BASELINES:
            line = [f"{error:g}", f"{load:.0%}", name]
            for metric in METRICS[:3]:
                ours = np.array([f["flow"][metric] for f in figures])
                theirs = np.array([f[name][metric] for f in figures])
                mean, low, high = interval(100.0 * (ours - theirs) / theirs)
                line += [f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]", f"{int((ours < theirs).sum())}/{len(ours)}"]
            ours_slo = float(np.mean([f["flow"]["slo_violation_percent"] for f in figures]))
            theirs_slo = float(np.mean([f[name]["slo_violation_percent"] for f in figures]))
            line.append(f"{ours_slo:.2f} / {theirs_slo:.2f}")
            lines.append(line)
    return (
        "flow minus baseline in % of the baseline (less is better), mean [95 % bootstrap interval], wins of flow;\n"
        "SLO violations: flow / baseline\n\n" + _aligned(lines)
    )


def against_table(rows: list[dict[str, Any]], before: list[dict[str, Any]]) -> str:
    """By model error and policy: each figure as a ratio to that of other rows on the same scenario, mean and interval."""
    lines = [["error", "policy", "scenarios", "mean completion", "p95 completion", "makespan"]]
    for error in sorted({row["model_error"] for row in rows}):
        for name in rows[0]["figures"]:
            ratios = [_ratios(rows, before, error, name, metric) for metric in METRICS[:3]]
            if len(ratios[0]):
                cells = (f"{mean:.3f} [{low:.3f}, {high:.3f}]" for mean, low, high in map(interval, ratios))
                lines.append([f"{error:g}", name, str(len(ratios[0])), *cells])
    return "now over before (less is better), mean [95 % bootstrap interval]\n\n" + _aligned(lines)


def bars(rows: list[dict[str, Any]], before: list[dict[str, Any]]) -> str:
    """Whether `flow` with classes is as good as without: a line for each bar of mean ratios that apply to these rows."""
    lines = []
    for error in sorted({row["model_error"] for row in rows}):
        for metric, most in (_EXACT_BARS if error == 0.0 else _ERROR_BARS).items():
            ratios = _ratios(rows, before, error, "flow", metric)
            if len(ratios):
                mean = float(ratios.mean())
                verdict = "held" if mean <= most else "missed"
                lines.append(f"error {error:g}: {metric} {mean:.3f} of before, at most {most:g}: {verdict}")
    return "\n".join(lines)


def _ratios(
    rows: list[dict[str, Any]], before: list[dict[str, Any]], error: float, policy: str, metric: str
) -> FloatArray:
    """[scenarios that both have] a policy's figures now over those before."""
    same = ("seed", "load", "model_error")
    known = {tuple(row[key] for key in same): row["figures"] for row in before}
    found = [(r["figures"], known.get(tuple(r[k] for k in same), {})) for r in rows if r["model_error"] == error]
    pairs = [(now[policy], then[policy]) for now, then in found if policy in now and policy in then]
    return np.array([now[metric] / then[metric] for now, then in pairs], np.float64)


def interval(values: np.ndarray[Any, Any], draws: int = 10_000) -> tuple[float, float, float]:
    """Mean and its 95 % percentile-bootstrap interval, seeded."""
    rng = np.random.default_rng(0)
    means = values[rng.integers(len(values), size=(draws, len(values)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(values.mean()), float(low), float(high)


def _aligned(lines: list[list[str]]) -> str:
    return "\n".join(text_table(lines, left=range(len(lines[0])), indent=""))


if __name__ == "__main__":
    main()
