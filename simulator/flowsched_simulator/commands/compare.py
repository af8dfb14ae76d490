"""``flowsched compare``: paired differences between two sweeps, or between policies of one."""

from __future__ import annotations

import json
from pathlib import Path

import click

from flowsched_models.command_line import StrictCommand
from flowsched_models.document import InputError


@click.command(
    cls=StrictCommand,
    short_help="Compare two sweeps, or the policies of one.",
    epilog="Example: flowsched compare out/first --policy flow --policy fcfs",
)
@click.argument("sweeps", metavar="SWEEP [REFERENCE]", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME",
    help="Of one sweep: what is compared; the last one is the reference. Of two: only these policies.",
)
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="A figure of runs; repeat for more.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def compare(sweeps: tuple[Path, ...], policies: tuple[str, ...], metrics: tuple[str, ...], as_json: bool) -> None:
    """Compare SWEEP with REFERENCE (two folders of `flowsched sweep`), or the policies of one SWEEP.

    Prints paired differences over the same seeds, with 95 % intervals, and a sentence about each of the metric that decides:
    which is better by how much, or that it is not decided.
    """
    from flowsched_simulator.experiment.comparison_text import comparisons_text
    from flowsched_simulator.experiment.results import comparison_frame, load_results
    from flowsched_simulator.experiment.sweep_comparison import compare_sweeps, differing_scenarios

    if len(sweeps) > 2:
        raise InputError.one("SWEEP", f"compares one or two sweeps, got {len(sweeps)}", "give two folders")
    loaded = [load_results(folder) for folder in sweeps]
    own = loaded[0]
    wanted = metrics or own.shown_metrics()
    if len(loaded) == 2:
        for case in differing_scenarios(*loaded):
            text = f"note: the scenario of {case} differs between both sweeps: equal seeds do not mean equal jobs"
            click.echo(text, err=True)
        found = compare_sweeps(own, loaded[1], wanted, policies)
    else:
        if len(policies) == 1:
            others = [each for each in (own.reference, *own.policies) if each != policies[0]]
            known = policies[0] in own.policies and bool(others)
            help = (
                f"add the one to compare it with, such as --policy {others[0]}" if known else "this sweep has no other"
            )
            raise InputError.one("--policy", "is alone", help, key=policies[0])
        reference = policies[-1] if policies else own.reference
        found = [each for metric in wanted for each in own.comparisons(reference, metric, policies[:-1] or None)]
    if as_json:
        rows = json.loads(comparison_frame(found).to_json(orient="records"))
        for row, each in zip(rows, found, strict=True):
            row["sentence"] = each.sentence()
        click.echo(json.dumps({"version": "flowsched/v1", "comparisons": rows}, allow_nan=False))
    else:
        click.echo(comparisons_text(found, metrics or (own.metric,)))
