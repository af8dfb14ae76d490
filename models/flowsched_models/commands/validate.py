"""``flowsched validate``: what the profiles say, against what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import click

from flowsched_models.command_line import StrictCommand
from flowsched_models.document import InputError, Problem, name_help
from flowsched_models.measurements.executions import read_executions
from flowsched_models.measurements.load import TABLES, load_measurements
from flowsched_models.measurements.machines import machine_files
from flowsched_models.measurements.measurements import Measurements
from flowsched_models.output import check_file, write_whole
from flowsched_models.profiles import load_catalogue
from flowsched_models.text_table import printable
from flowsched_models.validation import Question
from flowsched_models.validation import validate as score
from flowsched_models.validation.limit import LIMITS, check_limits, read_percent
from flowsched_models.validation.part import Part
from flowsched_models.validation.plain import csv_text, plain
from flowsched_models.validation.text import lines

EXCEEDED = 1
"""Exit code where a limit is exceeded."""
OTHER_INPUTS = ("2021", "2022")
"""Years of the course whose jobs had other inputs than those that the bundled profiles are fitted to."""


@click.command(
    cls=StrictCommand,
    short_help="Score profiles against measured runs.",
    epilog="Example: flowsched validate data --years 2023,2024 --limit-median 6% --limit-p90 24% --limit-p95 12%",
)
@click.argument("data", type=click.Path(path_type=Path), metavar="DATA")
@click.option(
    "--profiles",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Profiles to score; they add to the bundled ones and replace those of the same name. Repeat for more.",
)
@click.option("--years", metavar="LIST", help="Groups of these years only, as 2023,2024.")
@click.option("--year", metavar="YEAR", help="The year of groups that do not tell theirs.")
@click.option("--group", "groups", multiple=True, metavar="NAME", help="This group only; repeat for more.")
@click.option("--job", "jobs", multiple=True, metavar="NAME", help="Executions of this job only; repeat for more.")
@click.option(
    "--client", metavar="NAME", help="The load client that measured p95.  [default: mcperf-30k, else the first]"
)
@click.option(
    "--without",
    "removed",
    multiple=True,
    metavar="PARTS",
    help=f"Compare with the model without a part, or without several (a,b): {', '.join(Part)}. Repeat for more columns.",
)
@click.option("--limit-median", metavar="PCT", help="Highest median error of run times.")
@click.option("--limit-p90", metavar="PCT", help="Highest 90th percentile of errors of run times.")
@click.option("--limit-makespan", metavar="PCT", help="Highest median error of makespans.")
@click.option("--limit-p95", metavar="PCT", help="Highest median error of services' p95.")
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), metavar="FILE", help="Write every scored value.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def validate(
    data: Path,
    profiles: tuple[Path, ...],
    years: str | None,
    year: str | None,
    groups: tuple[str, ...],
    jobs: tuple[str, ...],
    client: str | None,
    removed: tuple[str, ...],
    limit_median: str | None,
    limit_p90: str | None,
    limit_makespan: str | None,
    limit_p95: str | None,
    csv_file: Path | None,
    as_json: bool,
) -> int:
    """Score profiles against the measured runs in DATA, a folder of tables.

    Every run is played in the model: its jobs start when they started, and the model says when they end.

    Exit code 0: done; 1: a limit is exceeded.
    """
    given = dict(zip(LIMITS, (limit_median, limit_p90, limit_makespan, limit_p95), strict=True))
    asked = {option: read_percent(option, text) for option, text in given.items() if text is not None}
    if csv_file is not None:
        check_file(csv_file, makes_folder=False)
    question = Question(groups, jobs, client, tuple(_parts(text) for text in removed))
    catalogue = load_catalogue(extra=[*machine_files(data), *profiles])
    chosen = tuple(word.strip() for word in years.split(",")) if years is not None else ()
    measurements = load_measurements(data, year=year, years=chosen)
    if not measurements.runs:
        raise InputError([_no_runs(data, measurements)])
    known_years = sorted({y for g, y in measurements.years.items() if not groups or g in groups})
    if len(known_years) > 1 and not chosen and not groups:
        click.echo(f"note: years {', '.join(known_years)} are scored together; --years takes some of them", err=True)
    if not profiles and (other := [y for y in known_years if y in OTHER_INPUTS]):
        text = f"some jobs of {' and '.join(other)} had other inputs than the bundled profiles are for (see --years)"
        click.echo(f"note: {text}", err=True)
    validation = score(measurements, catalogue, question)
    if not validation.scores:
        reasons = [why for what, why, _ in validation.not_scored if what == "executions"] or ["no execution is left"]
        raise InputError(Problem(str(data), None, "", f"nothing can be scored: {why}", _help(why)) for why in reasons)
    limits = check_limits(validation, asked, str(data))
    if as_json:
        click.echo(json.dumps(plain(validation, limits, str(data)), allow_nan=False))
    else:
        for line in lines(validation, limits):
            click.echo(printable(line))
    if csv_file is not None:
        write_whole(csv_file, csv_text(validation))
    exceeded = [limit for limit in limits if limit.exceeded]
    for limit in exceeded:
        click.echo(str(limit), err=True)
    return EXCEEDED if exceeded else 0


def _no_runs(data: Path, measurements: Measurements) -> Problem:
    """Why there is nothing to play: no table of runs, none of these years, or all of them are left out."""
    names = next((known, alias) for known, (alias, reader) in TABLES.items() if reader is read_executions)
    if not any(found for name in names for found in (*data.glob(name), *data.glob(f"*/{name}"))):
        kinds = [
            kind
            for kind, found in (
                ("thread sweeps", measurements.thread_times),
                ("interference sweeps", measurements.interference_times),
                ("latency", measurements.latency_points or measurements.latency_interference),
            )
            if found
        ]
        there = f" ({', '.join(kinds)} only)" if kinds else ""
        message = f"there is no run to score, because there is no table {names[0]}{there}"
        return Problem(str(data), None, "", message, "flowsched measure writes it, unless with --no-sharing")
    why = [f for f in measurements.findings if f.consequence == "left out" and f.where.file.endswith(names)]
    hint = f"see what was left out: {why[0]}" if why else "no group that was asked for has runs"
    return Problem(str(data), None, "", "there is no run to score", hint)


def _help(why: str) -> str:
    """What helps where a profile is missing."""
    missing = ("has no profile", "is not in the profiles")
    return "name the file that flowsched calibrate wrote: --profiles FILE" if why.endswith(missing) else ""


def _parts(text: str) -> tuple[Part, ...]:
    names = [name.strip() for name in text.split(",")]
    InputError.raise_any(
        Problem("--without", None, "", f"there is no part '{name}' of the model", name_help(name, list(Part)))
        for name in names
        if name not in list(Part)
    )
    return tuple(Part(name) for name in dict.fromkeys(names))
