"""Jobs of one instant go by the order of their file, whatever they are called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import snapshot, task
from flowsched import load_snapshot, solve
from flowsched.cli import flowsched
from flowsched.cluster.snapshot_dump import dump_snapshot
from flowsched.pricing.linear.policies import COST_MODELS
from flowsched_models.document import InputError
from flowsched_simulator import Run, make_scenario, simulate
from flowsched_simulator.baselines.registry import BASELINES
from flowsched_simulator.experiment.copies import with_copies
from flowsched_simulator.workload import drawn_workload

BOX = {"name": "m", "type": "e2-standard-8"}
OWN = "declared-own"
WITHOUT_CHANCE = ["flow", *(n for n in (*BASELINES, *COST_MODELS) if not n.startswith(("gpu-", "topo-", "random")))]
STARTS_ALL = ("all-at-once",)


def run_of(jobs: Sequence[dict[str, Any]], policy: str) -> Run:
    variant = OWN if policy in BASELINES and BASELINES[policy].uses_granting else None
    return simulate(make_scenario([BOX], jobs), policy, variant=variant)


def order_of(run: Run) -> list[str]:
    return [job.name for job in sorted(run.jobs, key=lambda job: float(job.start_s or 0.0))]


@pytest.mark.parametrize("policy", [name for name in WITHOUT_CHANCE if name not in STARTS_ALL])
def test_equal_jobs_start_in_the_order_of_the_file(policy: str) -> None:
    names = ["9", "10", "100", "2", "1"]

    run = run_of([{"name": name, "request": 8, "runtime_s": 10} for name in names], policy)

    assert order_of(run) == names


@pytest.mark.parametrize("policy", ["fcfs", "easy", "flow", "shortest-job-first"])
def test_tasks_and_copies_go_by_their_numbers(policy: str) -> None:
    array = run_of([{"name": "a", "request": 8, "runtime_s": 10, "tasks": 11}], policy)
    copies = run_of([{"name": "a", "request": 8, "runtime_s": 10, "copies": 11}], policy)

    assert order_of(array) == [f"a/{k}" for k in range(1, 12)]
    assert order_of(copies) == [f"a-{k}" for k in range(1, 12)]


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "flow", "coco"])
def test_jobs_that_are_let_come_stand_where_the_file_has_them(policy: str) -> None:
    jobs = [
        {"name": "first", "request": 8, "runtime_s": 10},
        {"name": "b", "request": 8, "runtime_s": 10, "after": ["first"]},
        {"name": "a", "request": 8, "runtime_s": 10, "submit_s": 10},
        {"name": "0", "request": 8, "runtime_s": 10, "after": ["first"]},
    ]

    assert order_of(run_of(jobs, policy)) == ["first", "b", "a", "0"]


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(st.sampled_from((0, 0, 10, 20)), st.sampled_from((10, 20)), st.integers(1, 8)), min_size=2, max_size=9
    ),
    st.randoms(use_true_random=False),
    st.sampled_from(
        ("fcfs", "best-fit", "easy", "conservative", "sjf", "lpt", "srpt", "las", "tetris", "wfs", "random")
    ),
)
def test_names_decide_nothing(jobs: list[tuple[int, int, int]], chance: Any, policy: str) -> None:
    starts = []
    for shuffled in (False, True):
        names = [f"j{i}" for i in range(len(jobs))]
        if shuffled:
            chance.shuffle(names)
        asked = [
            {"name": name, "request": cores, "runtime_s": run, "submit_s": submit}
            for name, (submit, run, cores) in zip(names, jobs, strict=True)
        ]
        start = {job.name: job.start_s for job in run_of(asked, policy).jobs}
        starts.append([start[name] for name in names])

    assert starts[0] == starts[1]


def test_a_workload_that_was_drawn_keeps_its_numbers() -> None:
    late = {"name": "b", "request": 1, "runtime_s": 1, "submit_s": 5}
    once = drawn_workload(make_scenario([BOX], [late, {**late, "name": "a", "submit_s": 0}]), 0)

    assert [(t.name, t.number) for t in once.tasks] == [("a", 2), ("b", 1)]
    assert drawn_workload(once, 0).tasks == once.tasks
    assert [t.number for t in drawn_workload(with_copies(make_scenario([BOX], [late]), jobs=3), 0).tasks] == [1, 2, 3]


@pytest.mark.parametrize("policy", ["flow", "coco"])
def test_records_replay_and_solve_again_in_that_order(tmp_path: Path, policy: str) -> None:
    rows = "".join(f"{10 * (i // 4)},{name},{8 - i % 2},10\n" for i, name in enumerate(("9", "10", "100", "2", "1")))
    (tmp_path / "ties.csv").write_text("submit_s,name,request,runtime_s\n" + rows)
    file = tmp_path / "ties.yaml"
    file.write_text(
        "apiVersion: flowsched/v1\nkind: Scenario\nname: ties\nmachines:\n  - {name: m, type: e2-standard-8}\n"
        "arrivals: {file: ties.csv}\n"
    )

    def ran(*arguments: str) -> None:
        result = CliRunner().invoke(flowsched, arguments)
        assert result.exit_code == 0, result.output

    ran("simulate", str(file), "--policy", policy, "--records", str(tmp_path / "records"))
    records = sorted((tmp_path / "records").iterdir())

    assert len(records) >= 5
    for record in records:
        ran("replay", str(record))


def test_the_number_stands_in_snapshot_files(tmp_path: Path) -> None:
    """A second task of the same instant is first if its number is less; without numbers the names decide."""
    of = snapshot([task("a", number=2), task("b", number=1)])
    plain = dump_snapshot(of)

    assert [(t["name"], t.get("number")) for t in plain["pending"]] == [("b", 1), ("a", 2)]
    assert [t.name for t in sorted(of.pending, key=lambda t: t.arrival)] == ["b", "a"]
    assert "number" not in dump_snapshot(snapshot([task("a")]))["pending"][0]

    file = tmp_path / "snapshot.yaml"
    head = "apiVersion: flowsched/v1\nkind: Snapshot\nnow_s: 0\nmachines: [{name: m, type: e2-standard-8}]\npending:\n"
    file.write_text(head + "  - {name: a, profile: vips, request: 1, number: 7}\n")
    assert load_snapshot(file).pending[0].number == 7
    file.write_text(head + "  - {name: a, profile: vips, request: 1, number: -1}\n")
    with pytest.raises(InputError, match="number"):
        load_snapshot(file)


@pytest.mark.parametrize("policy", ["flow", "shortest-job-first", "coco", "quincy"])
def test_a_round_on_a_snapshot_goes_by_numbers(policy: str) -> None:
    waiting = [task(name, cores=4, widths_milli=(4000,), number=k) for k, name in enumerate("cab")]

    assert [p.task for p in solve(snapshot(waiting), policy=policy).placements] == ["c"]
