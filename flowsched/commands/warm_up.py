"""``flowsched warm-up``: compiles what would otherwise be compiled by the first command that needs it."""

from __future__ import annotations

import click

from flowsched_models.command_line import StrictCommand
from flowsched_models.compiled import tell_of_compiling


@click.command(
    "warm-up",
    cls=StrictCommand,
    short_help="Compile the models and the rounds ahead of the first use.",
    epilog="Example: flowsched warm-up",
)
def warm_up() -> None:
    """Compile the models and the rounds once, a minute of CPU, before a command has to wait for it.

    What is compiled is kept in ~/.cache/flowsched, or in $XDG_CACHE_HOME/flowsched. Where all of it is there already, this
    takes seconds.
    """
    # Only what this command needs takes time to import.
    from flowsched.round import scheduler
    from flowsched.round.linear import preparation

    tell_of_compiling(lambda: click.echo("compiling once, a minute of CPU …", err=True))
    scheduler.prepare()
    scheduler.prepare_gpus()
    preparation.prepare()
    click.echo("everything is compiled")
