"""``flowsched whatif``: a round with something changed, solved again, and what that makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from flowsched.commands.inspect import page_of
from flowsched.inspector.change import parse_changes
from flowsched.inspector.consistency import told_as_damage
from flowsched.inspector.difference import SHOWN, difference
from flowsched.inspector.source import open_record, refuse_overwriting
from flowsched.inspector.whatif import what_if
from flowsched.records.record import RECORD_VERSION
from flowsched.records.record_file import write_record
from flowsched.solvers import SOLVERS
from flowsched_models.command_line import StrictCommand
from flowsched_models.output import check_file, make_folder, write_whole
from flowsched_models.text_table import printable


@click.command(
    cls=StrictCommand,
    short_help="Change the input of a recorded round and solve it again.",
    epilog="Example: flowsched whatif out/round.json --drain node-a --add-machine n2d-highcpu-4:spare",
)
@click.argument("record", type=click.Path(path_type=Path), metavar="RECORD")
@click.option("--drain", multiple=True, metavar="MACHINE", help="Take a machine away; what ran there waits again.")
@click.option(
    "--add-machine",
    multiple=True,
    metavar="TYPE[:NAME]",
    help="Add an empty machine of a type, or like the machine of that name.",
)
@click.option("--without", multiple=True, metavar="TASK", help="Forget a task, whether it waits or runs.")
@click.option("--width", multiple=True, metavar="TASK=CORES", help="Give a waiting task one width: 8, 0.5, 1500m.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="A setting; repeat for more.")
@click.option("--solver", metavar="NAME", help=f"Another solver: {', '.join(SOLVERS)}.")
@click.option(
    "--record", "out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="File for the new record."
)
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="File for both side by side."
)
@click.option("--all", "everything", is_flag=True, help=f"Print every task, not the first {SHOWN} of a kind.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def whatif(
    record: Path,
    drain: tuple[str, ...],
    add_machine: tuple[str, ...],
    without: tuple[str, ...],
    width: tuple[str, ...],
    assignments: tuple[str, ...],
    solver: str | None,
    out: Path | None,
    html: Path | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Change the input of RECORD's round, solve it again and print what differs.

    Options may be repeated and put together. Tasks are named as in the record, on Kubernetes also NAMESPACE/NAME.
    Nothing is written to any cluster.
    """
    recorded = open_record(record)
    refuse_overwriting({o: p for o, p in (("--record", out), ("--html", html)) if p is not None}, [record])
    with told_as_damage(recorded):
        changes = parse_changes(
            recorded,
            drain=drain,
            add_machine=add_machine,
            without=without,
            width=width,
            settings=assignments,
            solver=solver,
        )
        for path in (out, html):
            if path is not None:
                check_file(path)
        after = what_if(recorded, changes)
        told = difference(recorded, after)
        notes = list(after.plain["what_if"]["notes"])
        made = changes.lines(recorded)
        if as_json:
            data = {"changes": made, "notes": notes, "difference": told.plain()}
            text = json.dumps({"apiVersion": RECORD_VERSION, "kind": "WhatIf", **data}, allow_nan=False)
        else:
            lines = [f"what if: {text}" for text in made or ("nothing is changed",)]
            lines += [f"note: {note}" for note in notes]
            text = "\n".join(map(printable, [*lines, *told.lines(None if everything else SHOWN)]))
        page = None if html is None else page_of([recorded], [after])
        click.echo(text)
        if out is not None:
            write_record(after.plain, out)
        if html is not None and page is not None:
            make_folder(html.parent)
            write_whole(html, page)
    for what, path in (("record", out), ("page", html)):
        if path is not None:
            click.echo(f"{what}: {path}", err=True)
