"""``flowsched simulate``: policies, or a given schedule, on a scenario."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import get_args

import click
from click.core import ParameterSource

from flowsched.cluster.learning import Learning
from flowsched.cluster.played_events import looks_like_events
from flowsched.commands.solver_options import SOLVER, TIME_LIMIT, TIME_LIMIT_HELP
from flowsched.commands.status_line import StepLine
from flowsched.disaggregation.registry import DISAGGREGATION_POLICIES
from flowsched_models.command_line import Seconds, StrictCommand
from flowsched_models.document import InputError, Problem
from flowsched_models.output import check_folder, default_folder
from flowsched_simulator.baselines.granting import variant_label
from flowsched_simulator.baselines.registry import BASELINES, variants_of
from flowsched_simulator.commands.results_folder import tell_results
from flowsched_simulator.commands.run_progress import RunProgress
from flowsched_simulator.commands.simulate_events import simulate_events
from flowsched_simulator.commands.simulate_isolation import simulate_isolation
from flowsched_simulator.commands.simulate_node import NODE_ONLY, deviation, simulate_on_node
from flowsched_simulator.comparison import compare, result
from flowsched_simulator.isolation import scenario_file as isolation_file
from flowsched_simulator.node import scenario_file as node_scenario_file
from flowsched_simulator.node.policies import NODE_POLICIES
from flowsched_simulator.plan_rules_form import apart
from flowsched_simulator.policies import (
    FLOW_PLAN,
    POLICIES,
    EngineOptions,
    check_devices,
    check_policies,
    engine_of,
)
from flowsched_simulator.record_folder import RecordFolder
from flowsched_simulator.replay import caveats, placed_services, replay
from flowsched_simulator.report.page import render_report
from flowsched_simulator.run import Run
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.scenario_file import BUNDLED, find_document, load_scenario, read_scenario
from flowsched_simulator.schedule_file import load_schedule
from flowsched_simulator.simulation import NO_LIMIT_S, Options
from flowsched_simulator.table import render_table
from flowsched_simulator.truth import MAX_SIGMA
from flowsched_simulator.world import ErrorOf

UNFINISHED = 3
"""Exit code when some job of some run never ended."""
_TOLD = 10
"""So many of these jobs have a line each."""


@click.command(
    cls=StrictCommand,
    short_help="Run a scenario under several policies and compare them.",
    epilog="Example: flowsched simulate parsec-memcached-2024 --policy flow --policy lpt --out out/try",
)
@click.argument("scenario", metavar="SCENARIO")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME",
    help="A policy; repeat for more. Default: all that `flowsched policies` lists without a note.",
)
@click.option(
    "--variant",
    metavar="NAME",
    help="What greedy rules grant, such as declared-shared or 4-own. Default: the best of eight; where something "
    "is drawn, by runs with other seeds.",
)
@click.option("--schedule", metavar="FILE", help="Replay a given schedule instead of asking a policy.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of arrivals, `random`, model error."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for report.html and result.json. Default: out/SCENARIO, and none with --json.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
@click.option(
    "--records",
    type=click.Path(path_type=Path),
    help="Folder for records: POLICY-NNNN.npz per round; on one machine flow-node.jsonl, a line per decision.",
)
@click.option("--keep-rounds", type=click.IntRange(1), metavar="N", help="Keep the last N records of each policy only.")
@click.option("--charge-scheduling-time", is_flag=True, help="Let the clock include the measured time of each round.")
@click.option(
    "--model-error",
    default="0",
    metavar="SIGMA",
    help="True run times differ from the models by a log-normal factor of each job; `measured`: as the profiles say.",
)
@click.option(
    "--error-of",
    type=click.Choice(get_args(ErrorOf)),
    default="job",
    show_default=True,
    help="What has a factor of its own with --model-error SIGMA.",
)
@click.option(
    "--learning",
    type=click.Choice(get_args(Learning)),
    show_default="on where run times may be off, or a job has a class",
    help="Whether completions teach how long others of their class run; `observe`: without using it.",
)
@click.option(
    "--max-time",
    type=Seconds(above_zero=True),
    default=NO_LIMIT_S,
    show_default="no end",
    help="Simulated time after which a run ends, whatever still runs.",
)
@click.option(
    "--round-interval",
    type=Seconds(),
    default=0.0,
    show_default="a round whenever something changed",
    help="Simulated seconds from one round to the next, at least.",
)
@click.option("--solver", type=SOLVER, default="ortools", show_default=True)
@click.option("--time-limit", type=TIME_LIMIT, help=TIME_LIMIT_HELP)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of `flow`; of `flow+plan` with plan. before its name, of another cost model or of `flow-node` with its "
    "name and a dot. Of the same setting the last counts.",
)
@click.option(
    "--qps-interval", metavar="S,S...", help="One machine: seconds between load steps, a run for each; 10,5,1.75."
)
@click.option("--load-seed", type=click.IntRange(0), metavar="N", help="One machine: draw the loads with this seed.")
@click.option(
    "--noise",
    metavar="SIGMA",
    help="One machine: standard deviation of the log of the noise on p95; 0 for none; `measured` (default): as the "
    "profiles say.",
)
@click.pass_context
def simulate(
    context: click.Context,
    scenario: str,
    policies: tuple[str, ...],
    variant: str | None,
    schedule: str | None,
    seed: int,
    out: Path | None,
    as_json: bool,
    records: Path | None,
    keep_rounds: int | None,
    charge_scheduling_time: bool,
    model_error: str,
    error_of: ErrorOf,
    learning: Learning | None,
    max_time: float,
    round_interval: float,
    solver: str,
    time_limit: float | None,
    settings: tuple[str, ...],
    qps_interval: str | None,
    load_seed: int | None,
    noise: str | None,
) -> None:
    """Run SCENARIO (a bundled name or a file) under several policies and compare them.

    Prints a table with a row per policy and writes a report that opens offline. Progress goes to stderr. A scenario of
    one machine (kind NodeScenario) is run by the controllers that `flowsched policies` lists as such, one of critical
    tasks (kind IsolationScenario) by ways of isolating them.

    SCENARIO may be a file of events that `flowsched run --events` recorded. Each of its rounds is then decided anew, and
    compared with the record (exit code 4: different), or with what --policy had decided.
    """
    error = deviation("--model-error", model_error, MAX_SIGMA)
    if error in (0.0, "measured"):
        message = f"has no meaning with --model-error {model_error}"
        _refuse(context, ("error_of",), message, "write --model-error 0.2, or leave it out")
    if looks_like_events(Path(scenario)):
        _refuse(context, _NOT_OF_EVENTS, f"has no meaning for events that were recorded, as in {scenario}")
        if not policies:
            _refuse(context, _OF_OTHERS, f"is for other policies: the rounds of {scenario} are decided as recorded")
        context.exit(simulate_events(Path(scenario), policies, seed, settings, solver, time_limit, as_json))
    document = find_document(scenario, BUNDLED, "scenario")
    kind = document.data.get("kind")

    def folder(name: str) -> Path | None:
        return None if out is None and as_json else out or default_folder(name, "scenario")

    if kind == node_scenario_file.KIND:
        _refuse(context, _CLUSTER_ONLY, f"has no meaning on one machine, and {document.source} is one")
        unfinished = simulate_on_node(
            document,
            policies,
            seed,
            folder,
            as_json,
            model_error=error,
            # There is one machine: what draws for a job draws for it there.
            error_of="job-and-machine" if error_of == "job" else error_of,
            learning=learning,
            settings=settings,
            qps_interval=qps_interval,
            load_seed=load_seed,
            noise=noise,
            records=records,
        )
        _end(unfinished)
        return
    if kind == isolation_file.KIND:
        _refuse(
            context,
            (*_CLUSTER_ONLY, *NODE_ONLY, "records", "settings", "model_error", "error_of", "learning"),
            f"has no meaning where tasks are isolated, as in {document.source}",
        )
        simulate_isolation(document, policies, seed, folder, as_json)
        return
    message = f"is for scenarios of one machine (kind {node_scenario_file.KIND}), and {document.source} is none"
    _refuse(context, NODE_ONLY, message)
    names = check_policies(_of_clusters(policies) or tuple(POLICIES))
    if variant is not None:
        variant_label(variant)
        if not any(name in BASELINES and len(variants_of(name)) > 1 for name in names):
            message = f"has no meaning for {', '.join(names)}: greedy rules have variants"
            raise InputError.one("--variant", message, "add one, such as --policy fcfs", key=variant)
    loaded = read_scenario(document)
    check_devices(names, loaded.tasks)
    if any(text.partition("=")[0].strip() == "objective" for text in settings):
        hint = f"change 'objective:' in {loaded.source}, or in a copy of it"
        raise InputError.one("--set", "a scenario has its own objective", hint, key="objective")
    options = Options(
        seed=seed,
        model_error=error,
        error_of=error_of,
        learning=learning,
        charge_scheduling_time=charge_scheduling_time,
        max_time_s=max_time,
        round_interval_s=round_interval,
    )
    if out is None and not as_json:
        out = default_folder(loaded.name, "scenario")
        if schedule is not None:
            out = out.with_name(f"{out.name}-schedule")
    if out is not None:
        check_folder(out)
    if schedule is not None:
        needless = {
            "--policy": policies,
            "--variant": variant,
            "--records": records,
            "--keep-rounds": keep_rounds,
            "--charge-scheduling-time": charge_scheduling_time,
            "--max-time": max_time != NO_LIMIT_S,
            "--round-interval": round_interval != 0.0,
            "--set": settings,
            "--solver": solver != "ortools",
            "--time-limit": time_limit is not None,
        }
        given = [option for option, value in needless.items() if value]
        if given:
            message = "a given schedule asks no policy: there is no round to set, record or charge"
            raise InputError.one("--schedule", message, f"leave out {', '.join(given)}")
        loaded, runs = _replayed(loaded, scenario, schedule, options)
    else:
        engine = replace(
            engine_of(names, settings),
            solver=solver,
            keep_records=records is not None,
            time_limit_s=time_limit,
        )
        _, plan = apart(settings)
        if plan and FLOW_PLAN not in names:
            raise InputError.one("--set", f"is for {FLOW_PLAN}", f"add --policy {FLOW_PLAN}", key=plan[0])
        if keep_rounds is not None and records is None:
            raise InputError.one("--keep-rounds", "is for records", "add --records FOLDER")
        runs = _compared(loaded, names, options, engine, records, keep_rounds, variant)
    outcome = result(loaded, runs)
    table = None if as_json else lambda told: render_table(told["table"])
    tell_results(outcome, out, render_report, table)
    for run in runs:
        if stopped := sum(r.stopped > 0 for r in run.rounds):
            text = f"note: {run.policy}: the time limit struck in {stopped} of {len(run.rounds)} rounds"
            click.echo(f"{text}: another run may differ", err=True)
    _end([(run.policy, job.name, job.reason) for run in runs for job in run.jobs if job.end_s is None])


def _end(unfinished: Sequence[tuple[str, str, str]]) -> None:
    """Say which jobs of which policy never ended, and why, of many the first; an exit code of its own if there is any."""
    for policy, job, reason in unfinished[:_TOLD]:
        click.echo(f"never ended: {policy}: {job}" + (f": {reason}" if reason else ""), err=True)
    if len(unfinished) > _TOLD:
        click.echo(f"never ended: … and {len(unfinished) - _TOLD} more", err=True)
    if unfinished:
        click.get_current_context().exit(UNFINISHED)


_NOT_OF_EVENTS = (
    "variant", "schedule", "out", "records", "keep_rounds", "charge_scheduling_time", "model_error", "learning", "max_time",
    "round_interval", *NODE_ONLY,
)  # fmt: skip
_OF_OTHERS = ("settings", "solver", "time_limit", "seed")
_CLUSTER_ONLY = (
    "variant",
    "schedule",
    "keep_rounds",
    "charge_scheduling_time",
    "max_time",
    "round_interval",
    "solver",
    "time_limit",
)


def _of_clusters(policies: tuple[str, ...]) -> tuple[str, ...]:
    """The same names; raises :class:`InputError` for controllers of one machine."""
    message = f"runs one machine: it is for scenarios of kind {node_scenario_file.KIND}"
    own = [name for name in policies if name in NODE_POLICIES]
    InputError.raise_any(Problem("--policy", None, name, message, "such as node-4core-dynamic") for name in own)
    return policies


def _refuse(context: click.Context, names: Iterable[str], message: str, help: str = "leave it out") -> None:
    """Raise :class:`InputError` for options of the other kind of scenario that were given."""
    given = [
        "--set" if name == "settings" else f"--{name.replace('_', '-')}"
        for name in names
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    InputError.raise_any(Problem(option, None, "", message, help) for option in given)


def _compared(
    scenario: Scenario,
    names: tuple[str, ...],
    options: Options,
    engine: EngineOptions,
    records: Path | None,
    keep_rounds: int | None,
    variant: str | None,
) -> tuple[Run, ...]:
    """One run per policy, their records on disk when it returns."""
    folder = None if records is None else RecordFolder(records, names, keep_rounds)
    if folder is not None and FLOW_PLAN in names:
        click.echo(f"note: {FLOW_PLAN} keeps no records: its rounds are read off a plan", err=True)
    if folder is not None and (silent := [name for name in names if name in DISAGGREGATION_POLICIES]):
        click.echo(f"note: there are no records of {', '.join(silent)}", err=True)
    with nullcontext() if folder is None else closing(folder):
        if folder is not None:
            options = replace(options, record_sink=folder.add)
        with RunProgress() as progress:
            runs = compare(scenario, names, options=options, engine=engine, report=progress.show, variant=variant)
        if folder is not None:
            with StepLine("writing the records that are left"):
                folder.finish()
            click.echo(f"records: {folder.count} in {records}", err=True)
    return runs


def _replayed(scenario: Scenario, asked: str, schedule: str, options: Options) -> tuple[Scenario, tuple[Run, ...]]:
    """The scenario as the schedule has it, and the one run. ``asked`` is how the user named the scenario."""
    plan = load_schedule(schedule, lambda name: scenario if name == scenario.name else load_scenario(name))
    same = plan.cluster in (scenario.name, asked) or Path(plan.cluster).resolve() == Path(asked).resolve()
    if not same:
        message = f"the schedule is for '{plan.cluster}', not for '{scenario.name}'"
        hint = f"run: flowsched simulate {plan.cluster} --schedule {schedule}"
        raise InputError.one(plan.source, message, hint, key="cluster")
    for sentence in caveats(scenario, plan, options.seed):
        click.echo(f"note: {sentence}", err=True)
    run = replay(scenario, plan, options)
    return replace(scenario, services=placed_services(scenario, plan)), (run,)
