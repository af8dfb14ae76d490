"""``flowsched workload``: jobs as a seed draws them, written down."""

from __future__ import annotations

from pathlib import Path

import click

from flowsched_models.command_line import StrictCommand, StrictGroup
from flowsched_models.document import InputError, read_document
from flowsched_models.output import check_file
from flowsched_models.text_table import counted
from flowsched_simulator.scenario_file import BUNDLED, KIND, find_file, read_with_entries, source_of
from flowsched_simulator.workload_file import csv_text, workload_rows, write_scenario, write_workload


@click.group(cls=StrictGroup)
def workload() -> None:
    """Write the jobs of a scenario as a seed draws them."""


@workload.command(
    cls=StrictCommand,
    short_help="Draw the jobs of a scenario and write an arrivals file.",
    epilog="Example: flowsched workload generate parsec-poisson --seed 7 --out arrivals.csv",
)
@click.argument("scenario", metavar="SCENARIO")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the arrivals.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The arrivals file: Parquet if its name ends in .parquet, else CSV. Default: CSV on stdout.",
)
@click.option(
    "--scenario",
    "scenario_out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write SCENARIO with that file in place of its jobs.",
)
def generate(scenario: str, seed: int, out: Path | None, scenario_out: Path | None) -> None:
    """Draw the jobs of SCENARIO (a bundled name or a file) and write them as an arrivals file.

    A scenario that reads the file (arrivals: {file: ...}, no jobs) runs as SCENARIO does with the same seed.
    """
    if scenario_out is not None and out is None:
        raise InputError.one("--scenario", "names a scenario of an arrivals file", "add --out FILE")
    path = find_file(scenario, BUNDLED, "scenario", KIND)
    if scenario_out is not None and scenario_out.resolve() == path.resolve():
        raise InputError.one("--scenario", f"would replace {path} itself", "name another file")
    document = read_document(path, source_of(path, BUNDLED))
    loaded, entries = read_with_entries(document)
    for file in (out, scenario_out):
        if file is not None:
            check_file(file, makes_folder=False)
    rows = workload_rows(loaded, entries, seed)
    if out is None:
        click.echo(csv_text(rows), nl=False)
        return
    write_workload(out, rows)
    if scenario_out is not None:
        write_scenario(scenario_out, document, out)
    last_s = max(row["submit_s"] for row in rows)
    click.echo(f"{out}: {counted(len(rows), 'job')}, submitted until {last_s:.1f} s", err=True)
