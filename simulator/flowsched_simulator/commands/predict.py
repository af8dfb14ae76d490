"""``flowsched predict``: what a given schedule will take, with intervals."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from flowsched_models.command_line import StrictCommand
from flowsched_models.document import InputError
from flowsched_models.text_table import printable
from flowsched_simulator.prediction import predict as predicted
from flowsched_simulator.prediction_text import lines, plain
from flowsched_simulator.replay import caveats
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.scenario_file import bundled_scenarios, load_scenario
from flowsched_simulator.schedule_file import load_schedule


@click.command(
    cls=StrictCommand,
    short_help="Predict run times, p95 and risks of a schedule.",
    epilog="Example: flowsched predict group-048 --level 80",
)
@click.argument("schedule", metavar="SCHEDULE")
@click.option("--scenario", metavar="SCENARIO", help="Machines, jobs and profiles.  [default: what the schedule names]")
@click.option(
    "--draws",
    type=click.IntRange(20, 100_000),
    default=400,
    show_default=True,
    help="Runs with machines and jobs that differ from the profiles as these say.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the draws, and of arrivals.")
@click.option(
    "--level",
    type=click.FloatRange(1.0, 99.9),
    default=90.0,
    show_default=True,
    metavar="PCT",
    help="Share of the draws inside each interval.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def predict(schedule: str, scenario: str | None, draws: int, seed: int, level: float, as_json: bool) -> None:
    """Predict run times, p95 and the risk of missing a goal for SCHEDULE (a bundled name or a file).

    Each value is the median of many runs in which jobs and machines differ from the profiles by the errors that these
    state; the interval holds as many of them as --level says.
    """
    given = None if scenario is None else load_scenario(scenario)
    plan = load_schedule(schedule, _named if given is None else lambda _: given)
    loaded = given or _named(plan.cluster)
    for sentence in caveats(loaded, plan, seed):
        click.echo(f"note: {sentence}", err=True)
    show = _on_terminal(draws) if sys.stderr.isatty() else None
    outcome = predicted(loaded, plan, draws=draws, seed=seed, level=level / 100.0, progress=show)
    if as_json:
        click.echo(json.dumps(plain(outcome), allow_nan=False))
        return
    for line in lines(outcome):
        click.echo(printable(line))


def _named(cluster: str | Path) -> Scenario:
    """The scenario that a schedule names. A name may be that of a file of the user's, which only the user knows."""
    try:
        return load_scenario(cluster)
    except InputError as error:
        if isinstance(cluster, Path) or str(cluster) in {name for name, _ in bundled_scenarios()}:
            raise
        help = "the schedule names it: give its file with --scenario FILE, or write the file's path as cluster"
        raise InputError([replace(p, help=help) for p in error.problems]) from None


def _on_terminal(draws: int) -> Callable[[int], None]:
    """A line that is written over, and gone at the end."""

    def show(done: int) -> None:
        line = f"{done} of {draws} draws"
        if done == draws:
            line = " " * len(line) + "\r"
        click.echo("\r" + line, err=True, nl=False)

    return show
