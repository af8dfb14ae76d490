"""``flowsched simulate`` on a scenario of one machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from flowsched.cluster.learning import Learning
from flowsched_models.document import Document, InputError, Problem
from flowsched_models.output import make_folder, write_whole
from flowsched_models.quantity import number_or_nan, parse_words
from flowsched_simulator.commands.results_folder import tell_results
from flowsched_simulator.commands.run_progress import RunProgress
from flowsched_simulator.node.comparison import compare_on_node, node_result
from flowsched_simulator.node.policies import FLOW_NODE, NODE_POLICIES, check_node_policies, flow_node_settings
from flowsched_simulator.node.report.page import render_node_report
from flowsched_simulator.node.scenario import NodeScenario
from flowsched_simulator.node.scenario_file import read_node_scenario
from flowsched_simulator.node.scenario_form import LEAST_INTERVAL_S
from flowsched_simulator.node.simulation import NodeOptions, Noise
from flowsched_simulator.node.table import render_node_table
from flowsched_simulator.truth import Error
from flowsched_simulator.world import ErrorOf

NODE_ONLY = ("qps_interval", "load_seed", "noise")
"""Options that only these scenarios have."""
MOST_NOISE = 1.0


def simulate_on_node(
    document: Document,
    policies: tuple[str, ...],
    seed: int,
    folder: Callable[[str], Path | None],
    as_json: bool,
    *,
    model_error: Error,
    error_of: ErrorOf,
    learning: Learning | None,
    settings: tuple[str, ...],
    qps_interval: str | None,
    load_seed: int | None,
    noise: str | None,
    records: Path | None,
) -> list[tuple[str, str, str]]:
    """Run it, and say what came of it; policy, job and reason of jobs that never ended.

    The options are as typed. ``folder``: where results of a scenario go, by its name; None: nowhere. ``records``: the
    folder for the decisions of ``flow-node``. Raises :class:`InputError` before anything is written.
    """
    scenario = read_node_scenario(document)
    names = check_node_policies(policies or tuple(NODE_POLICIES))
    own = flow_node_settings(settings, names)
    if load_seed is not None:
        _check_spans(scenario)
    spread: Noise = "measured" if noise is None else deviation("--noise", noise, MOST_NOISE)
    options = NodeOptions(seed, load_seed, None, spread, model_error, error_of, learning)
    intervals_s = _intervals(qps_interval)
    if records is not None:
        if FLOW_NODE not in names:
            raise InputError.one("--records", f"are kept of {FLOW_NODE} only", f"add --policy {FLOW_NODE}")
        make_folder(records)
    out = folder(scenario.name)
    if out is not None:
        make_folder(out)
    refused: list[InputError] = []
    lines: list[str] = []
    if records is not None:
        options = replace(options, decision_sink=lambda decision: lines.append(json.dumps(decision, allow_nan=False)))
    with RunProgress() as progress:
        runs = compare_on_node(
            scenario,
            names,
            intervals_s,
            options=options,
            settings=own,
            report=progress.show,
            # Who names a policy wants it; of all that there are, those that can.
            left_out=None if policies else refused.append,
        )
    if not runs:
        raise InputError([problem for error in refused for problem in error.problems])
    notes = [f"left out: {p.key}: {p.message}" for error in refused for p in error.problems]
    notes += [f"{run.policy}: no deadline for {job}: {why}" for run in runs for job, why in run.refused.items()]
    for sentence in notes:
        click.echo(f"note: {sentence}", err=True)
    outcome = node_result(scenario, runs)
    tell_results(outcome, out, render_node_report, None if as_json else render_node_table, indent=None)
    if records is not None:
        write_whole(records / f"{FLOW_NODE}.jsonl", "".join(f"{line}\n" for line in lines))
    return [(run.policy, job.job, job.reason) for run in runs for job in run.unfinished]


def _intervals(text: str | None) -> tuple[float, ...]:
    """The seconds between load steps."""
    found: list[float] = []
    problems = []
    for word in parse_words(text):
        value = number_or_nan(word)
        if not LEAST_INTERVAL_S <= value <= 1e6:
            message = f"'{word}' is not a number of seconds from {LEAST_INTERVAL_S:g} to 1000000"
            problems.append(Problem("--qps-interval", None, "", message, "such as 10,5,1.75"))
        found.append(value)
    if text is not None and not found:
        problems.append(Problem("--qps-interval", None, "", "names no interval", "such as 10,5,1.75"))
    InputError.raise_any(problems)
    return tuple(dict.fromkeys(found))


def deviation(option: str, text: str, most: float) -> Noise:
    """A standard deviation, or the word for those that were measured."""
    if text == "measured":
        return "measured"
    sigma = number_or_nan(text)
    if not 0.0 <= sigma <= most:
        raise InputError.one(option, f"{text} is not a number from 0 to {most:g}", "or: measured")
    return sigma


def _check_spans(scenario: NodeScenario) -> None:
    InputError.raise_any(
        Problem(
            "--load-seed",
            None,
            "",
            f"the load of {service.name} has no range to draw from",
            f"add 'draw: {{min: 5K, max: 100K}}' to its load in {scenario.source}",
        )
        for service, load in zip(scenario.services, scenario.loads, strict=True)
        if load.span is None
    )
