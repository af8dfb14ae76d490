"""JSON Schemas of files: whatever the program takes they take, and an editor sees what is wrong before the program does."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from flowsched import Settings, load_snapshot, solve
from flowsched.cli import flowsched
from flowsched.commands.schema import json_schema, kinds
from flowsched.records.record_file import record_json
from flowsched_models.document import InputError

HOUSE = Path(__file__).parent.parent


@cache
def checker(kind: str) -> Draft202012Validator:
    Draft202012Validator.check_schema(json_schema(kind))
    return Draft202012Validator(json_schema(kind))


def mistakes(kind: str, data: Any) -> list[str]:
    return [f"{list(error.absolute_path)}: {error.message}" for error in checker(kind).iter_errors(data)]


def documents(text: str) -> Iterator[Any]:
    """What is in a file, and in the files that a ConfigMap in it holds."""
    for data in yaml.safe_load_all(text):
        yield data
        if isinstance(data, dict) and data.get("kind") == "ConfigMap":
            for inner in data.get("data", {}).values():
                yield from yaml.safe_load_all(inner)


def ours() -> list[tuple[str, str, Any]]:
    """File, kind and data of every file of ours in the repository."""
    tracked = subprocess.run(["git", "ls-files"], cwd=HOUSE, capture_output=True, text=True, check=True).stdout.split()
    found = []
    for name in tracked:
        if name.endswith((".yaml", ".yml")) and "/chart/templates/" not in name:
            for data in documents((HOUSE / name).read_text("utf-8")):
                if isinstance(data, dict) and "flowsched" in str(data.get("apiVersion")) and data["kind"] in kinds():
                    found.append((name, data["kind"], data))
    return found


def test_every_file_of_ours_fits_its_schema() -> None:
    found = ours()
    assert {kind for _, kind, _ in found} == set(kinds()) - {"Record"}
    for name, kind, data in found:
        assert mistakes(kind, data) == [], name


@pytest.mark.parametrize("policy", ["flow", "flow-network"])
def test_records_in_json_fit_their_schema(policy: str) -> None:
    settings = Settings(exact_limit=0) if policy == "flow" else None
    record = solve(load_snapshot(HOUSE / "docs" / "examples" / "waiting.yaml"), policy=policy, settings=settings).record
    assert record is not None
    plain = json.loads(record_json(record))
    assert mistakes("Record", plain) == []
    plain["parts"][0]["first_network"]["heads"].append("x")
    del plain["parts"][0]["placements"]
    assert len(mistakes("Record", plain)) > 0


def test_every_key_of_a_record_is_documented() -> None:
    names = ("records", "files", "scenarios", "linear-rounds")
    pages = [(HOUSE / "docs" / f"{page}.md").read_text("utf-8") for page in names]
    quoted = {word for page in pages for code in re.findall("`([^`\n]+)`", page) for word in re.findall(r"\w+", code)}
    shapes = [json_schema("Record"), *json_schema("Record")["$defs"].values()]
    keys = {(shape["title"], key) for shape in shapes for key in shape.get("properties", ())}
    assert len(keys) > 200
    # What makes a class one, and settings, are the scheduler's own business.
    hidden = {"RecordedTaskClass", "RecordedRunningClass", "RecordedRoundSettings"}
    assert [(title, key) for title, key in sorted(keys) if key not in quoted and title not in hidden] == []


WRITTEN: dict[str, tuple[str, dict[str, Any]]] = {
    "durations of Kubernetes": ("FlowSchedulerConfiguration", {"leaderElection": {"leaseDuration": "15s"}}),
    "memory": ("FlowSchedulerConfiguration", {"events": {"maxSize": "256Mi"}}),
    "an address": ("FlowSchedulerConfiguration", {"server": {"health": ":8081"}}),
    "a cost model by its name": ("FlowSchedulerConfiguration", {"costModel": "coco"}),
    "a cost model with settings": ("FlowSchedulerConfiguration", {"costModel": {"name": "coco", "waiting": 500}}),
    "rates by cores": (
        "NodeAgent",
        {"services": [{"name": "m", "slo": {"p95": "1ms"}, "capacity": {"1": "25K", "2": 30000}, "cores": "0-3"}]},
    ),
    "no server": ("NodeAgent", {"server": "", "period": "100ms"}),
    "a share of a GPU": ("Snapshot", {"gpu_demand": [{"request": "500m", "memory": "2Gi", "gpus": {"share": "470m"}}]}),
    "places of services": (
        "Schedule", {"cluster": "lab", "tasks": [], "cache": {"machine": "small-1", "cores": "0", "threads": 1}},
    ),
    "single values": (
        "Experiment", {"scenarios": ["lab", {"scenario": "lab", "load": 0.9, "model_error": "measured"}], "seeds": "1..30"},
    ),
    "several values": (
        "Experiment", {"scenarios": [{"scenario": "lab", "load": [0.6, 0.9]}], "seeds": [1, "3..5"], "settings": {"a": 1}},
    ),
}  # fmt: skip
REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "a duration without its unit": ("FlowSchedulerConfiguration", {"leaderElection": {"leaseDuration": 15}}),
    "an unknown key": ("NodeAgent", {"pediod": "100ms"}),
    "memory without its unit": ("Snapshot", {"gpu_demand": [{"request": 1, "memory": 512}]}),
    "a service nowhere": ("Schedule", {"cluster": "lab", "tasks": [], "cache": {"cores": "0"}}),
    "no kind of arrivals": ("Scenario", {"arrivals": "at-random"}),
}
COMPLETE: dict[str, dict[str, Any]] = {
    "Snapshot": {"apiVersion": "flowsched/v1", "kind": "Snapshot", "now_s": 0, "machines": []},
    "Scenario": {"apiVersion": "flowsched/v1", "kind": "Scenario", "name": "lab", "machines": [{"type": "e2"}]},
    "Experiment": {"apiVersion": "flowsched/v1", "kind": "Experiment", "name": "x", "policies": ["flow"]},
}
"""What each of these files needs in any case."""


@pytest.mark.parametrize(("kind", "given"), WRITTEN.values(), ids=WRITTEN)
def test_values_are_taken_as_a_file_writes_them(kind: str, given: dict[str, Any]) -> None:
    assert mistakes(kind, {**COMPLETE.get(kind, {}), **given}) == []


@pytest.mark.parametrize(("kind", "given"), REFUSED.values(), ids=REFUSED)
def test_mistakes_are_seen(kind: str, given: dict[str, Any]) -> None:
    assert len(mistakes(kind, {**COMPLETE.get(kind, {}), **given})) == 1


def test_the_command_prints_one_schema_or_the_kinds() -> None:
    printed = json.loads(CliRunner().invoke(flowsched, ["schema", "Scenario"]).stdout)
    assert printed == json_schema("Scenario")
    assert printed["$schema"].endswith("2020-12/schema")
    assert {"apiVersion", "machines", "jobs", "arrivals"} <= set(printed["properties"])
    assert set(printed["required"]) == {"apiVersion", "kind", "name", "machines"}
    assert "qps_interval_s" in json_schema("NodeScenario")["properties"]
    assert CliRunner().invoke(flowsched, ["schema"]).stdout.split() == kinds()
    with pytest.raises(InputError, match="there is no such kind of file; did you mean 'Scenario'"):
        json_schema("Scenari")
