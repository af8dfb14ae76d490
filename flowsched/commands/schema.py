"""``flowsched schema``: what files may hold, as JSON Schemas, with which an editor completes and checks them."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from typing import Any

import click

from flowsched_models.command_line import StrictCommand
from flowsched_models.document import InputError, name_help

GROUP = "flowsched.schemas"
"""Entry points: the kind of a file, and the type that says what it may hold."""


@click.command(
    cls=StrictCommand,
    short_help="Print the JSON Schema of a kind of file.",
    epilog="Example: flowsched schema Scenario > scenario.schema.json",
)
@click.argument("kind", required=False)
def schema(kind: str | None) -> None:
    """Print the JSON Schema of a kind of file, for an editor that completes and checks it.

    Without KIND, list the kinds: what files say as their kind.
    """
    if kind is None:
        click.echo("\n".join(kinds()))
    else:
        click.echo(json.dumps(json_schema(kind), indent=2, allow_nan=False))


def kinds() -> list[str]:
    """All kinds of files that have a schema."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def json_schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of a kind of file. Raises :class:`InputError` if there is none."""
    found = entry_points(group=GROUP, name=kind)
    if not found:
        raise InputError.one("KIND", "there is no such kind of file", name_help(kind, kinds()), key=kind)
    # Commands that print no schema do not wait for it.
    from pydantic import TypeAdapter

    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {**head, **TypeAdapter(next(iter(found)).load()).json_schema(), "title": f"flowsched {kind}"}
