"""``flowsched policies``: who can place tasks."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterator
from typing import Any

import click

from flowsched.cluster.knowledge import knowledge_text
from flowsched_models.command_line import StrictCommand
from flowsched_models.document import InputError, name_help
from flowsched_models.picked_fields import picked
from flowsched_models.text_table import text_table
from flowsched_simulator.isolation import comparison as isolation
from flowsched_simulator.isolation.policies import SUMMARIES
from flowsched_simulator.node.policies import NODE_POLICIES, describe_node_policy
from flowsched_simulator.policies import OUR_PACKAGE, Description, all_policies, describe

_KINDS = {
    "search": "forecast prices: passes of min-cost flow over what each job changes on each machine",
    "baseline": "a greedy rule to compare with; it reads no settings",
    "controller": "a controller of one machine, for scenarios of kind NodeScenario",
    "isolation": "a way of isolating critical tasks, for scenarios of kind IsolationScenario",
    "network": "a cost model, for clusters of any size (docs/policies.md)",
    "disaggregation": "min-cost flow for jobs whose GPUs may be on other machines (docs/disaggregation.md)",
}


@click.command(
    cls=StrictCommand, short_help="List the policies that can be compared.", epilog="Example: flowsched policies coco"
)
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def policies(name: str | None, as_json: bool) -> None:
    """List the policies that can be compared, a line each; those of other packages, and the controllers of one machine too.

    With NAME, what there is to know about that one: settings with their defaults, and where it comes from.
    """
    if as_json:
        controllers = (describe_node_policy(each) for each in NODE_POLICIES)
        isolations = (_describe_isolation(each) for each in SUMMARIES)
        found = (*all_policies(), *controllers, *isolations) if name is None else (_described(name),)
        told = {"version": "flowsched/v1", "policies": [_plain(each) for each in found]}
        click.echo(json.dumps(told, allow_nan=False))
    elif name is not None:
        click.echo(render_description(_described(name)))
    else:
        listed = [
            *((each, text + ("; only with --policy" if each.on_request else "")) for each, text in _lines()),
            *((about, f"one machine: {about.summary}") for about in map(describe_node_policy, NODE_POLICIES)),
            *((about, f"isolation: {about.summary}") for about in map(_describe_isolation, SUMMARIES)),
        ]
        heads = ("policy", "is told", "")
        rows = [heads, *((about.name, _told(about), text) for about, text in listed)]
        for line in text_table(rows, left=(0, 1, 2), indent=""):
            click.echo(line)


def _lines() -> Iterator[tuple[Description, str]]:
    """Policies of clusters with a line about each; of other packages' it names the package."""
    for about in all_policies():
        foreign = about.package not in ("", OUR_PACKAGE)
        yield about, f"{about.summary}; of {about.package}" if foreign else about.summary


def _told(about: Description) -> str:
    """What a policy of clusters is told; controllers of one machine and ways of isolating read what they measure."""
    return knowledge_text(about.told) if about.kind in ("search", "baseline", "network", "disaggregation") else "-"


def _described(name: str) -> Description:
    """A policy of either kind. Raises :class:`InputError` if there is none."""
    if name in NODE_POLICIES:
        return describe_node_policy(name)
    if name in SUMMARIES:
        return _describe_isolation(name)
    try:
        return describe(name)
    except InputError as error:
        known = [each.name for each in all_policies()]
        if name in known:
            raise
        hint = name_help(name, [*known, *NODE_POLICIES, *SUMMARIES])
        raise InputError.one("NAME", "there is no such policy", hint, key=name) from error


def _describe_isolation(name: str) -> Description:
    place = f"{isolation.run.__module__}:{isolation.run.__name__}"
    return Description(name, "isolation", SUMMARIES[name], False, OUR_PACKAGE, place)


def render_description(about: Description) -> str:
    """A policy as text for a terminal."""
    lines = [f"{about.name}: {about.summary}", f"kind: {_KINDS[about.kind]}"]
    if _told(about) != "-":
        lines.append(f"is told: {_told(about)}")
    lines.append(f"source: {about.place}" + (f", of {about.package}" if about.package else ", of another package"))
    if about.settings:
        lines.append("settings, as --set takes them, with their defaults:")
        width = max(len(setting) for setting, _ in about.settings)
        lines += [f"  {setting.ljust(width)}  {_text(default)}" for setting, default in about.settings]
    else:
        lines.append("settings: none")
    return "\n".join(lines)


def _text(default: Any) -> str:
    if default is inspect.Parameter.empty:
        return "none: it must be given"
    return str(default).lower() if default is None or isinstance(default, bool) else str(_value(default))


def _plain(about: Description) -> dict[str, Any]:
    return {
        **picked(about, "name", "kind", "summary"),
        "only_with_policy": about.on_request,
        "package": about.package or None,
        "source": about.place,
        "told": None if about.told is None else [str(each) for each in about.told],
        "settings": [
            {"name": setting, "required": True}
            if default is inspect.Parameter.empty
            else {"name": setting, "required": False, "default": _value(default)}
            for setting, default in about.settings
        ],
    }


def _value(default: Any) -> Any:
    """A default as JSON has it: an infinite one as the text that ``--set`` takes."""
    if isinstance(default, float) and not math.isfinite(default):
        return str(default)
    if isinstance(default, tuple | list):
        return [_value(each) for each in default]
    return default if default is None or isinstance(default, bool | int | float | str) else str(default)
