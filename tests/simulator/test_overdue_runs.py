"""Overdue tasks and gangs in whole runs, under every policy that reserves machines for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowsched.scale.policies.registry import COST_MODELS
from flowsched_simulator import load_scenario, simulate

RESERVING = ("flow", *COST_MODELS)

TWO_SWITCHES = """
machines:
  - {name: A1, type: e2-standard-4, labels: {sw: lone}}
  - {name: a1, type: e2-standard-4, labels: {sw: a}}
  - {name: a2, type: e2-standard-4, labels: {sw: a}}
  - {name: b1, type: e2-standard-4, labels: {sw: b}}
relations:
  - {name: one-switch, kind: together, key: sw}
task_groups:
  - {name: g, minimum: 2}
jobs:
  - {name: rA, request: 1, runtime_s: 900, machines: [A1]}
  - {name: ra1, request: 4, runtime_s: 700, machines: [a1]}
  - {name: rb1, request: 4, runtime_s: 710, machines: [b1]}
  - {name: ra2, request: 1, runtime_s: 2000, machines: [a2]}
  - {name: w, request: 4, runtime_s: 100, submit_s: 10, copies: 2, group: g, relations: [one-switch]}
  - {name: tick, request: 1, runtime_s: 10, submit_s: 650, machines: [A1]}
"""


def starts(text: str, folder: Path, policy: str) -> dict[str, tuple[float | None, str | None]]:
    """When each task started, in whole seconds, and where."""
    path = folder / "scenario.yaml"
    path.write_text(f"apiVersion: flowsched/v1\nkind: Scenario\nname: overdue\n{text}", encoding="utf-8")
    run = simulate(load_scenario(path), policy)
    return {j.name: (None if j.start_s is None else round(j.start_s, 3), j.machine) for j in run.jobs}


@pytest.mark.parametrize("policy", RESERVING)
def test_a_gang_of_one_switch_starts_once_a_switch_is_free(policy: str, tmp_path: Path) -> None:
    # The first two machines that are free are of two switches; what is reserved is two of one.
    found = starts(TWO_SWITCHES, tmp_path, policy)
    assert {found["w-1"], found["w-2"]} == {(2000.0, "a1"), (2000.0, "a2")}
