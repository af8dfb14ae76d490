"""``flowsched explain``: why a task is where it is, or why it waits."""

from __future__ import annotations

import json
from pathlib import Path

import click

from flowsched.inspector.consistency import told_as_damage
from flowsched.inspector.explanation import explain as explain_task
from flowsched.inspector.source import open_live, open_record, refuse_overwriting
from flowsched.records.record_file import write_record
from flowsched_models.command_line import StrictCommand
from flowsched_models.document import InputError
from flowsched_models.output import check_file
from flowsched_models.text_table import printable


@click.command(
    cls=StrictCommand,
    short_help="Say why a task is where it is, or why it waits.",
    epilog="Examples: flowsched explain out/round.json ferret; flowsched explain --live pod/shop/cart-7",
)
@click.argument("record", required=False, type=click.Path(path_type=Path), metavar="[RECORD]")
@click.argument("task", required=False, metavar="[TASK]")
@click.option("--live", metavar="pod/NAMESPACE/NAME", help="Ask the running scheduler about a pod instead of a file.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="With --live: how to reach the cluster.")
@click.option("--config", type=click.Path(path_type=Path), help="With --live: the scheduler's configuration file.")
@click.option("--save", type=click.Path(path_type=Path, dir_okay=False), help="With --live: keep the record in a file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of sentences.")
def explain(
    record: Path | None,
    task: str | None,
    live: str | None,
    kubeconfig: Path | None,
    config: Path | None,
    save: Path | None,
    as_json: bool,
) -> None:
    """Say why TASK of the round in RECORD (a file) is where it is, or why it waits, in sentences with numbers.

    With --live there is neither RECORD nor TASK: the record of the running scheduler is fetched.
    """
    if live is not None:
        if record is not None:
            raise _misused("--live takes the place of RECORD and TASK", "leave them out")
        if save is not None:
            refuse_overwriting({"--save": save}, [path for path in (kubeconfig, config) if path is not None])
            check_file(save)
        recorded, found = open_live(live, kubeconfig, config)
        name = found or live
        if save is not None:
            write_record(recorded.plain, save)
            click.echo(f"record: {save}", err=True)
    else:
        if kubeconfig is not None or config is not None or save is not None:
            raise _misused("--kubeconfig, --config and --save belong to --live", "add --live pod/NAMESPACE/NAME")
        if record is None or task is None:
            example = "flowsched explain out/round.json ferret"
            raise _misused("RECORD and TASK are needed, or --live pod/NAMESPACE/NAME", f"for example {example}")
        recorded, name = open_record(record), task
    with told_as_damage(recorded):
        explanation = explain_task(recorded, name)
        if as_json:
            text = json.dumps(explanation.plain(), allow_nan=False, indent=1)
        else:
            text = "\n".join(map(printable, explanation.lines()))
    click.echo(text)


def _misused(message: str, help: str) -> InputError:
    return InputError.one("explain", message, help)
