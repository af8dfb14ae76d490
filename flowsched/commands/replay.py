"""``flowsched replay``: is a round's record what its input makes?"""

from __future__ import annotations

import json
from pathlib import Path

import click

from flowsched.inspector.consistency import told_as_damage
from flowsched.inspector.replay import replay as replay_record
from flowsched.inspector.source import open_record
from flowsched.records.record import RECORD_VERSION
from flowsched_models.command_line import StrictCommand
from flowsched_models.text_table import printable

DIFFERENT = 4
"""Exit code where decisions differ."""


@click.command(
    cls=StrictCommand,
    short_help="Solve a recorded round again and compare the decisions.",
    epilog="Example: flowsched replay out/round.json",
)
@click.argument("record", type=click.Path(path_type=Path), metavar="RECORD")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def replay(record: Path, as_json: bool) -> int:
    """Solve the round of RECORD (a file) again and say whether the decisions are the same, byte for byte.

    Everything but timings is compared. Exit code 0: the same; 4: different, with the first values that differ.
    """
    recorded = open_record(record)
    with told_as_damage(recorded):
        outcome = replay_record(recorded)
        if as_json:
            text = json.dumps({"apiVersion": RECORD_VERSION, "kind": "Replay", **outcome.plain()}, allow_nan=False)
        else:
            text = "\n".join(map(printable, outcome.lines()))
    click.echo(text)
    return 0 if outcome.same else DIFFERENT
