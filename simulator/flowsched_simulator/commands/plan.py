"""``flowsched plan``: the best plan that a search finds for a known set of jobs, and how far from optimal it can be."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from flowsched.cluster.decision import NO_BOUND, proves_nothing
from flowsched.cluster.snapshot import MILLI
from flowsched.planner.plan import LEVEL, Spread
from flowsched.planner.rules import PlanRules
from flowsched.planner.scope import outside
from flowsched.planner.search import Progress
from flowsched_models.command_line import Seconds, StrictCommand
from flowsched_models.document import InputError
from flowsched_models.document import Problem as Mistake
from flowsched_models.output import check_file, make_folder, write_whole
from flowsched_models.quantity import format_cores
from flowsched_models.text_table import ruled_table
from flowsched_simulator.plan_schedule import schedule_of, schedule_text
from flowsched_simulator.planning import Outcome, make_plan, snapshot_of
from flowsched_simulator.prediction import Range
from flowsched_simulator.prediction_text import VERSION, nominal_words, range_words
from flowsched_simulator.scenario_file import load_scenario

INTERRUPTED = 130
_PROGRESS_S = 1.0
_DRAWS, _ROBUST_DRAWS = 400, 64
"""As many as ``predict`` has; and as many as a search that looks at each plan with all of them can afford."""


@click.command(
    cls=StrictCommand,
    short_help="Plan all jobs of a scenario at once.",
    epilog="Example: flowsched plan parsec-memcached-2024 --weights free --out out/plan.yaml",
)
@click.argument("scenario", metavar="SCENARIO")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write the plan as a schedule file.")
@click.option(
    "--objective",
    type=click.Choice(["makespan", "completion"]),
    help="Last end, or sum of completion times. Default: the scenario's.",
)
@click.option("--cores", type=click.Choice(["shared", "exclusive"]), default="shared", show_default=True)
@click.option(
    "--weights",
    type=click.Choice(["equal", "widths", "free"]),
    default="widths",
    show_default=True,
    help="CPU weights: each job's narrowest width, any of its widths, or any weight.",
)
@click.option(
    "--robust", type=click.FloatRange(0.5, 0.99), metavar="Q", help="Plan for this quantile of the models' uncertainty."
)
@click.option(
    "--draws",
    type=click.IntRange(2, 10_000),
    help=f"Of the models' uncertainty, for all intervals and --robust.  [default: {_DRAWS}; --robust: {_ROBUST_DRAWS}]",
)
@click.option(
    "--time-limit", type=Seconds(above_zero=True), help="Search so long, such as 10s. The result is not reproducible."
)
@click.option("--evaluations", type=click.IntRange(0), help="Plans to look at. Default: by the size of the problem.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the search and of arrivals.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
@click.option("--quiet", is_flag=True, help="No progress.")
def plan(
    scenario: str,
    out: Path | None,
    objective: str | None,
    cores: str,
    weights: str,
    robust: float | None,
    draws: int | None,
    time_limit: float | None,
    evaluations: int | None,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Plan all jobs of SCENARIO (a bundled name or a file) at once, knowing all of them.

    Starts from a round of `flow` and searches placements, cores, threads, CPU weights and start order. Ctrl-C prints the
    best plan so far.
    """
    if evaluations is not None and time_limit is not None:
        message = "limits the search by time, and --evaluations by plans looked at"
        raise InputError.one("--time-limit", message, "give one of them")
    loaded = load_scenario(scenario)
    snapshot = snapshot_of(loaded, seed)
    help = "compare policies with: flowsched simulate"
    InputError.raise_any(Mistake(loaded.source, None, "", f"a plan would ignore {u}", help) for u in outside(snapshot))
    if out is not None:
        check_file(out)
        make_folder(out.parent)
    rules = PlanRules(
        objective=objective or loaded.objective.value,
        share_cores=cores == "shared",
        weights=weights,
        quantile=robust,
        draws=draws or (_DRAWS if robust is None else _ROBUST_DRAWS),
        evaluations=evaluations,
        time_limit_s=time_limit,
        seed=seed,
    )
    progress = _SearchProgress()
    outcome = make_plan(loaded, rules, None if quiet else progress.show)
    progress.end()
    if not outcome.plan.feasible:
        raise InputError.one(loaded.source, *_impossible(outcome))
    click.echo(json.dumps(to_json(outcome), allow_nan=False) if as_json else to_text(outcome))
    if out is not None:
        what = f"Plan for {loaded.name}: {rules.objective} {outcome.value_s:.2f} s as predicted"
        write_whole(out, schedule_text(schedule_of(loaded, outcome.plan, _name(out)), what))
        click.echo(f"schedule: {out}", err=True)
    if outcome.searched.interrupted:
        click.get_current_context().exit(INTERRUPTED)


def _name(out: Path) -> str:
    """One word that YAML takes as text."""
    word = re.sub(r"[^A-Za-z0-9_.-]+", "-", out.stem).strip("-.")
    return word if word[:1].isalpha() else f"plan-{word}".rstrip("-")


def to_json(outcome: Outcome) -> dict[str, Any]:
    """The result as plain data; ``docs/planning.md`` lists its keys. ``timings`` is all that differs between equal runs."""
    plan, rules = outcome.plan, outcome.rules
    return {
        "apiVersion": VERSION,
        "kind": "Plan",
        "scenario": outcome.scenario.name,
        "objective": rules.objective,
        "cores": "shared" if rules.share_cores else "exclusive",
        "weights": rules.weights,
        "robust": rules.quantile,
        "level": LEVEL,
        "draws": rules.draws,
        "seed": rules.seed,
        "tasks": [
            {
                "job": t.task,
                "machine": t.machine,
                "cores": list(t.cores),
                "threads": t.threads,
                "request": t.width_milli / MILLI,
                "after": t.after,
                "start_s": t.start_s,
                "end_s": asdict(_range(t.end_range_s, t.end_s)),
            }
            for t in plan.tasks
        ],
        "makespan_s": asdict(_range(plan.makespan_range_s, plan.makespan_s)),
        "completion_s": asdict(_range(plan.completion_range_s, plan.completion_s)),
        "quantile_s": plan.quantile_s,
        "services": [{"service": n, "peak_p95_us": p, "slo_us": goal} for n, p, goal in plan.p95_us],
        "bound_s": outcome.bound.value_s,
        "gap": outcome.gap,
        "start_s": outcome.start_s,
        "flow_s": outcome.played_s,
        "evaluations": outcome.searched.evaluations,
        "reproducible": outcome.reproducible,
        "timings": {"search_s": outcome.searched.seconds},
    }


def _range(spread: Spread | None, nominal: float) -> Range:
    if spread is None:
        return Range(nominal, nominal, nominal, nominal)
    return Range(spread.median, spread.low, spread.high, nominal)


def to_text(outcome: Outcome) -> str:
    """A table with a line per job in the order of machines and starts, and what there is to say about it."""
    plan, rules = outcome.plan, outcome.rules
    order = {m.name: i for i, m in enumerate(outcome.scenario.machines)}
    rows = [("job", "machine", "cores", "threads", "weight", "start", "end s", "")]
    for t in sorted(plan.tasks, key=lambda t: (order[t.machine], t.start_s, t.task)):
        start = f"at {t.start_s:.0f} s" if t.after is None else f"after {t.after}"
        end, interval = range_words(_range(t.end_range_s, t.end_s))
        weight = f"{t.width_milli / MILLI:g}"
        cores = format_cores(t.cores)
        rows.append((t.task, t.machine, cores, str(t.threads), weight, start, end, interval))
    drawn = f"{100.0 * LEVEL:g} % of {rules.draws} draws of the profiles' own errors (seed {rules.seed})"
    table = ruled_table(rows, left=(0, 1, 2, 5, 7))
    lines = [f"Median [low, high]: {drawn} lie between low and high", "", *table]
    values = (
        _range(plan.makespan_range_s, plan.makespan_s)
        if rules.objective == "makespan"
        else _range(plan.completion_range_s, plan.completion_s)
    )
    median, interval = range_words(values)
    told = f"{median} s {interval}".rstrip()
    lines += ["", f"{_noun(rules.objective)}: {told}; {nominal_words(values.nominal)} s if every profile were exact"]
    if rules.quantile is not None and plan.quantile_s is not None:
        lines.append(f"{100 * rules.quantile:g} % quantile over {rules.draws} draws: {plan.quantile_s:.2f} s")
    for name, p95, goal in plan.p95_us:
        lines.append(f"{name}: p95 at most {p95 / 1000:.2f} ms, goal {goal / 1000:g} ms")
    proof = "" if outcome.bound.solved else " (not solved to its end)"
    gap = NO_BOUND if proves_nothing(outcome.gap) else f"gap {100 * outcome.gap:.1f} %"
    lines.append(f"lower bound: {outcome.bound.value_s:.2f} s{proof}, {gap}")
    better = f"improved by {100.0 * outcome.better:.1f} %"
    if outcome.played_s is None:
        lines.append(f"start from a round of flow: {outcome.start_s:.2f} s, {better}")
    else:
        lines.append(f"start from what flow does as jobs arrive: {outcome.start_s:.2f} s, {better}")
        if abs(outcome.start_s - outcome.played_s) > 0.005 and rules.quantile is None:
            lines.append(
                f"flow itself: {outcome.played_s:.2f} s; it also starts jobs at moments that a plan cannot name, "
                "such as an end on another machine"
            )
    searched = outcome.searched
    lines.append(f"search: {searched.evaluations} plans in {searched.seconds:.1f} s, seed {rules.seed}")
    if searched.interrupted:
        lines.append("interrupted: the best plan so far; another run may differ")
    elif rules.time_limit_s is not None:
        lines.append("limited by time: another run may differ; --evaluations makes it reproducible")
    return "\n".join(lines)


def _noun(objective: str) -> str:
    return "makespan" if objective == "makespan" else "sum of completions"


def _impossible(outcome: Outcome) -> tuple[str, str]:
    broken = [f"p95 of {n} would reach {p / 1000:.2f} ms" for n, p, goal in outcome.plan.p95_us if p > goal]
    why = ", ".join(broken) if broken else "requests or memory do not fit"
    return f"no plan was found that can be carried out: {why}", "search longer with --evaluations, or add machines"


class _SearchProgress:
    """How far the search is, on stderr: written over on a terminal; elsewhere a line now and then."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._shown_s = 0.0
        self._width = 0

    def show(self, progress: Progress) -> None:
        every = _PROGRESS_S / 4 if self._terminal else 5 * _PROGRESS_S
        if progress.seconds < self._shown_s + every:
            return
        self._shown_s = progress.seconds
        of = f" of {progress.most}" if progress.most else ""
        line = f"{progress.evaluations}{of} plans, {progress.seconds:.0f} s, best {progress.best_s:.2f} s"
        if self._terminal:
            click.echo("\r" + line.ljust(self._width), err=True, nl=False)
            self._width = len(line)
        else:
            click.echo(line, err=True)

    def end(self) -> None:
        if self._terminal and self._width:
            click.echo("\r" + " " * self._width + "\r", err=True, nl=False)
