"""``flowsched policies``: who can place tasks."""

from __future__ import annotations

import click

from flowsched_simulator.policies import ON_REQUEST, POLICIES, network_policies


@click.command(epilog="Example: flowsched policies", context_settings={"help_option_names": ["-h", "--help"]})
def policies() -> None:
    """List the policies that can be compared, a line each; those of other packages too."""
    asked_for = {**ON_REQUEST, **network_policies()}
    everybody = {**POLICIES, **{name: f"{text}; only with --policy" for name, text in asked_for.items()}}
    width = max(len(name) for name in everybody)
    for name, text in everybody.items():
        click.echo(f"{name.ljust(width)}  {text}")
