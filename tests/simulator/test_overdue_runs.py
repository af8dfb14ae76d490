"""Overdue tasks and gangs in whole runs, under every policy that reserves machines for them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from flowsched.cluster.settings import Settings
from flowsched.pricing.linear.policies.registry import COST_MODELS
from flowsched_simulator import EngineOptions, Options, Run, load_scenario, make_scenario, simulate

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


def due_run(
    policy: str, jobs: list[dict[str, object]], relation: dict[str, object], copies: int, cores: int = 2
) -> tuple[Run, float]:
    """A run beside a stream that lasts 750 s, and by when those who wait (``w``) start by the bound: overdue after 60 s, and
    of those before them none waits still.
    """
    kind, names = f"e2-standard-{cores}", ("a1", "a2", "b1", "b2", "z1")
    machines = [{"name": name, "type": kind, "labels": {"sw": name[0]}} for name in names]
    groups = [{"name": "g", "minimum": copies}] if copies > 1 else []
    member = {"group": "g"} if groups else {}
    waits = {"name": "w", "runtime_s": 50, "submit_s": 100.5, "copies": copies, **member}
    changed = [waits | job if job.get("name", "w") == "w" else job for job in jobs]
    scenario = make_scenario(machines=machines, jobs=changed, relations=[relation], task_groups=groups)
    rules = Settings(due_age_s=60.0, due_runs=0.0, exact_limit=0)
    run = simulate(scenario, policy, engine=EngineOptions(rules))
    longest_s = max(job.end_s - job.start_s for job in run.jobs if job.start_s is not None and job.end_s is not None)
    return run, 100.5 + 60.0 + 5 * (longest_s + 1.0)


def stream(longest_s: int, step_s: float, machines: list[str], **more: object) -> list[dict[str, object]]:
    return [
        {"name": f"{machines[0]}-{k:03d}", "request": 1, "runtime_s": longest_s - 3 * (k % 5), "submit_s": step_s * k}
        | {"machines": machines, **more}
        for k in range(int(750 / step_s))
    ]


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("key", ["machine", "sw"])
@pytest.mark.parametrize("policy", RESERVING)
def test_exclusive_tasks_start_beside_a_stream_that_never_leaves_their_domain(
    policy: str, key: str, copies: int
) -> None:
    # There is room all the time: it is the relation that refuses them, in every domain, until what runs there has ended.
    busy = stream(90, 12.5, ["a1", "a2", "b1", "b2"], joins=["alone"])
    alone = {"request": 1, "holds": ["alone"], "machines": ["a1", "a2", "b1", "b2"]}
    run, bound_s = due_run(policy, [*busy, alone], {"name": "alone", "kind": "apart", "key": key}, copies)
    assert all(job.start_s is not None and job.start_s <= bound_s for job in run.jobs if job.name.startswith("w"))
    assert bound_s < 650.0 < max(job.start_s or 0.0 for job in run.jobs)


@pytest.mark.parametrize("policy", ["flow", "coco"])
def test_a_gang_of_one_switch_is_not_reserved_a_machine_that_has_no_other_beside_it(policy: str) -> None:
    # The machine that is soonest free is the only one of its switch.
    quick = stream(20, 15.0, ["z1"])
    busy = stream(110, 6.2, ["a1", "a2", "b1", "b2"])
    gang = {"request": 4, "relations": ["one-switch"]}
    relation = {"name": "one-switch", "kind": "together", "key": "sw"}
    run, bound_s = due_run(policy, [*quick, *busy, gang], relation, 2, cores=4)
    assert all(job.start_s is not None and job.start_s <= bound_s for job in run.jobs if job.name.startswith("w"))
    assert bound_s < 720.0 < max(job.start_s or 0.0 for job in run.jobs)
