"""``flowsched scenarios``: what there is to simulate."""

from __future__ import annotations

import click

from flowsched_models.command_line import StrictCommand
from flowsched_models.text_table import text_table
from flowsched_simulator.isolation import scenario_file as isolation_file
from flowsched_simulator.node import scenario_file as node_scenario_file
from flowsched_simulator.scenario_file import bundled_scenarios
from flowsched_simulator.schedule_file import bundled_schedules


@click.command(
    cls=StrictCommand, short_help="List the bundled scenarios and schedules.", epilog="Example: flowsched scenarios"
)
def scenarios() -> None:
    """List the bundled scenarios and the schedules to replay on them, a line each."""
    rows = [*bundled_scenarios(), *bundled_scenarios(node_scenario_file.KIND), *bundled_scenarios(isolation_file.KIND)]
    rows += [(f"--schedule {name}", text) for name, text in bundled_schedules()]
    for line in text_table(rows, left=(0, 1), indent=""):
        click.echo(line)
