#!/usr/bin/env python3
"""Write into the chart's values.schema.json what the two configuration files may hold.

What the chart itself takes stays as it stands there. Run it after a change of a configuration: a test compares.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flowsched.commands.schema import json_schema

FILE = Path(__file__).parent / "chart" / "values.schema.json"
REFERENCE = "#/$defs/"
LEFT_OUT = ("$schema", "$defs", "default", "examples", "format", "title")
"""Of schemas: what checks nothing."""


def written() -> dict[str, Any]:
    """The schema as it should be: the file's, with the configurations as they are now."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    definitions: dict[str, Any] = {}
    values = found["properties"]
    config = _embedded("FlowSchedulerConfiguration", definitions)
    # The chart's roles and its Service are made from these.
    config["required"] = ["apiVersion", "kind", "profiles"]
    config["properties"]["profiles"]["minItems"] = 1
    values["config"] = config
    agent = _embedded("NodeAgent", definitions)
    agent["required"] = ["apiVersion", "kind"]
    values["agent"]["properties"]["config"] = agent
    return {**found, "definitions": definitions}


def _embedded(kind: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a configuration file; what it refers to goes to ``definitions``, under names of its own."""
    schema = json_schema(kind)
    for name, part in schema.get("$defs", {}).items():
        definitions[f"{kind}.{name}"] = _plain(part, kind)
    found = _plain(schema, kind)
    assert isinstance(found, dict), "a schema is a mapping"
    return found


def _plain(part: Any, kind: str) -> Any:
    """A part of a schema as draft 7 has it, which all versions of Helm read."""
    if isinstance(part, list):
        return [_plain(item, kind) for item in part]
    if not isinstance(part, Mapping):
        return part
    found: dict[str, Any] = {}
    for key, value in part.items():
        if key == "properties":
            found[key] = {name: _plain(property_, kind) for name, property_ in value.items()}
        elif key == "$ref":
            found[key] = f"#/definitions/{kind}.{value.removeprefix(REFERENCE)}"
        elif key not in LEFT_OUT:
            found[key] = _plain(value, kind)
    return found


if __name__ == "__main__":
    FILE.write_text(json.dumps(written(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
