"""``flowsched policies``: who can place tasks."""

from __future__ import annotations

import click

from flowsched_simulator.policies import POLICIES


@click.command(epilog="Example: flowsched policies", context_settings={"help_option_names": ["-h", "--help"]})
def policies() -> None:
    """List the policies that can be compared, a line each."""
    width = max(len(name) for name in POLICIES)
    for name, text in POLICIES.items():
        click.echo(f"{name.ljust(width)}  {text}")
