"""``flowsched simulate`` on a scenario of critical tasks that are isolated from others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from flowsched_models.document import Document
from flowsched_models.output import make_folder
from flowsched_simulator.commands.results_folder import tell_results
from flowsched_simulator.isolation.comparison import run
from flowsched_simulator.isolation.page import render_report
from flowsched_simulator.isolation.policies import check_isolation_policies
from flowsched_simulator.isolation.scenario_file import read_isolation_scenario
from flowsched_simulator.isolation.table import render_table


def simulate_isolation(
    document: Document,
    policies: tuple[str, ...],
    seed: int,
    folder: Callable[[str], Path | None],
    as_json: bool,
) -> None:
    """Run it, and say what came of it. ``folder``: where results of a scenario go, by its name; None: nowhere.

    Raises :class:`flowsched_models.document.InputError` before anything is written.
    """
    scenario = read_isolation_scenario(document)
    names = check_isolation_policies(policies)
    out = folder(scenario.name)
    if out is not None:
        make_folder(out)
    outcome = run(scenario, names, seed, lambda line: click.echo(line, err=True))
    tell_results(outcome, out, render_report, None if as_json else render_table)
