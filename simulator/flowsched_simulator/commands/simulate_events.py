"""``flowsched simulate`` on events that a live cluster recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import astuple
from pathlib import Path

import click

from flowsched.cluster.decision import Scheduler
from flowsched.cluster.played_events import find_player
from flowsched.cluster.settings import Settings
from flowsched.cluster.settings_form import apply_settings
from flowsched.commands.replay import DIFFERENT
from flowsched.round.linear import choice
from flowsched_models.document import InputError, Problem
from flowsched_models.text_table import printable, text_table
from flowsched_simulator.node.policies import NODE_POLICIES
from flowsched_simulator.policies import (
    FLOW_PLAN,
    EngineOptions,
    check_policies,
    has_own_settings,
    readers,
    schedulers_with,
)

VERSION = "flowsched/v1"
_HEADS = ("policy", "rounds", "differ", "placed", "recorded", "same", "elsewhere", "only recorded", "only policy")
_TOLD = (
    "Of each round, what the policy had decided on the recorded state; what would have followed from that is not played. "
    "Counts are of pods in rounds."
)


def simulate_events(
    path: Path,
    policies: tuple[str, ...],
    seed: int,
    settings: tuple[str, ...],
    solver: str,
    time_limit_s: float | None,
    as_json: bool,
) -> int:
    """Say what the policies decide on them; the exit code. The options are as typed. Raises :class:`InputError`."""
    others = _others(_policies(policies), seed, settings, solver, time_limit_s) if policies else None
    played = find_player()(path, others)
    for note in played.notes:
        click.echo(f"note: {note}", err=True)
    if as_json:
        text = json.dumps({"apiVersion": VERSION, "kind": "PlayedEvents", **played.plain()}, allow_nan=False)
    elif others is None:
        text = printable(played.verdict())
    else:
        rows = [_HEADS, *(tuple(map(str, astuple(policy))) for policy in played.policies)]
        text = "\n".join([*map(printable, text_table(rows)), _TOLD])
    click.echo(text)
    return 0 if played.same else DIFFERENT


def _policies(asked: tuple[str, ...]) -> tuple[str, ...]:
    problems = [
        Problem("--policy", None, name, "runs one machine, and events are of a cluster")
        for name in asked
        if name in NODE_POLICIES
    ]
    if FLOW_PLAN in asked:
        message = "plans a whole run, and events have rounds that are decided one by one"
        problems.append(Problem("--policy", None, FLOW_PLAN, message, "flow decides round by round"))
    InputError.raise_any(problems)
    return check_policies(asked)


def _others(
    names: tuple[str, ...], seed: int, typed: tuple[str, ...], solver: str, time_limit_s: float | None
) -> Callable[[Settings], Mapping[str, Scheduler]]:
    own, network = choice.apart(typed, [name for name in names if has_own_settings(name)])
    known = readers(names, network)
    apply_settings(Settings(), own, readers=known)  # what is wrong with them is said before anything is read
    options = EngineOptions(solver=solver, time_limit_s=time_limit_s, network_settings=network)

    def made(recorded: Settings) -> Mapping[str, Scheduler]:
        settings = apply_settings(recorded, own, readers=known)
        return {
            f"{name} ({variant})" if variant else name: scheduler
            for name in names
            for variant, scheduler in schedulers_with(name, settings, seed, options, None)
        }

    return made
