"""Overdue tasks and gangs in whole runs, under every policy that reserves machines for them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from flowsched.cluster.settings import Settings
from flowsched.pricing.linear.policies.registry import COST_MODELS
from flowsched_simulator import EngineOptions, Options, load_scenario, make_scenario, simulate

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


INVERSION = """
machines:
  - {name: m, type: e2-standard-4}
jobs:
  - {name: running, request: 1, runtime_s: 1000}
  - {name: low, request: 4, runtime_s: 100, submit_s: 5}
  - {name: high, request: 3, runtime_s: 500, submit_s: 700, priority: 10}
"""
MAKESPAN = f"objective: makespan{INVERSION}"
GANG = """
machines:
  - {name: m1, type: e2-standard-4}
  - {name: m2, type: e2-standard-4}
task_groups:
  - {name: g, minimum: 2}
jobs:
  - {name: r1, request: 1, runtime_s: 1000, machines: [m1]}
  - {name: r2, request: 1, runtime_s: 900, machines: [m2]}
  - {name: low, request: 4, runtime_s: 100, submit_s: 5, copies: 2, group: g}
  - {name: high, request: 3, runtime_s: 500, submit_s: 700, priority: 10, machines: [m1]}
"""
DEVICES = """
machines:
  - {name: m, type: e2-standard-4, gpus: {model: V100, count: 1}}
jobs:
  - {name: running, request: 1, gpus: {share: 500m}, runtime_s: 1000}
  - {name: low, request: 1, gpus: {count: 1}, runtime_s: 100, submit_s: 5}
  - {name: high, request: 1, gpus: {share: 500m}, runtime_s: 500, submit_s: 700, priority: 10}
"""


# Cost models know no shares of devices.
@pytest.mark.parametrize(
    ("text", "policy"), [*product((INVERSION, GANG), RESERVING), (DEVICES, "flow"), (MAKESPAN, "flow")]
)
def test_a_higher_level_takes_room_that_a_lower_one_has_reserved(text: str, policy: str, tmp_path: Path) -> None:
    found = starts(text, tmp_path, policy)
    assert found.pop("high")[0] == 700.0
    assert {at for name, (at, _) in found.items() if name.startswith("low")} == {1200.0}


@pytest.mark.parametrize(("first", "later", "taught"), [(5, 900, 800), (20, 400, 800), (100, 400, 10)])
def test_a_wide_task_is_not_kept_waiting_by_what_completions_taught(first: int, later: int, taught: int) -> None:
    """Narrow tasks are quick first, so that gaps seem short, and slow once that is learnt; wide ones are believed long."""
    narrow = [
        {"name": f"narrow-{k}", "request": 1, "runtime_s": first if k < 20 else later, "submit_s": 4.0 * k}
        | {"estimate_s": 100, "class": "narrow", "machines": ["m"]}
        for k in range(70)
    ]
    wide = {"request": 4, "estimate_s": 100, "class": "wide"}
    lessons = [{"name": f"lesson-{k}", **wide, "runtime_s": taught, "machines": ["own"]} for k in range(4)]
    waits = {"name": "waits", **wide, "runtime_s": 100, "submit_s": 50.0, "machines": ["m"]}
    machines = [{"name": name, "type": "e2-standard-4"} for name in ("m", "own")]
    scenario = make_scenario(machines=machines, jobs=[*narrow, *lessons, waits])
    rules = Settings(due_age_s=60.0, due_runs=1.0)
    run = simulate(scenario, "flow", options=Options(learning="on"), engine=EngineOptions(rules))
    (found,) = [job for job in run.jobs if job.job == "waits"]

    # Its own run time may be believed to be eight times as long; of those before it four may have waited still.
    bound_s = rules.overdue_age_s(8.0 * 100.0) + (4 + 5) * (later + 1.0)
    without_turn_s = 50 * later / 4
    assert found.start_s is not None and found.start_s - 50.0 <= bound_s < without_turn_s
    assert all(job.end_s is not None for job in run.jobs)
