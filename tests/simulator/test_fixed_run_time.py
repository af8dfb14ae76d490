"""Jobs with a given run time: as long on any number of cores, stretched by neighbours only with a profile."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from flowsched import load_snapshot, solve
from flowsched.records.record_file import write_record
from flowsched_models.document import InputError
from flowsched_simulator import EngineOptions, Options, Scenario, load_scenario, simulate

HEAD = "apiVersion: flowsched/v1\nkind: Scenario\nname: given\n"
ONE = HEAD + "machines: [{name: m, type: e2-standard-8}]\n"
POLICIES = (
    "flow",
    "fcfs",
    "best-fit",
    "lpt",
    "random",
    "all-at-once",
    "kube-default",
    "coco",
    "shortest-job-first",
    "flow+plan",
)


def scenario(tmp_path: Path, text: str) -> Scenario:
    path = tmp_path / "given.yaml"
    path.write_text(text)
    return load_scenario(path)


def ran(given: Scenario, policy: str, **options: object) -> dict[str, float]:
    run = simulate(given, policy, options=Options(**options))  # type: ignore[arg-type]
    return {j.job: j.end_s - j.start_s for j in run.jobs if j.end_s is not None and j.start_s is not None}


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        scenario(tmp_path, text)
    return [str(p).partition("given.yaml:")[2] or str(p) for p in caught.value.problems]


@pytest.mark.parametrize("policy", POLICIES)
def test_it_takes_so_long_under_every_policy_on_every_machine(tmp_path: Path, policy: str) -> None:
    given = scenario(
        tmp_path,
        HEAD
        + "machines: [{name: big, type: e2-standard-8}, {name: small, type: n2d-highcpu-2}]\n"
        + "jobs:\n  - {name: one, request: 1, runtime_s: 60, machines: [small]}\n"
        + "  - {name: wide, request: 4, widths: [2, 4, 8], runtime_s: 60, machines: [big]}\n"
        + "  - {name: any, request: 500m, runtime_s: 17.5}\n",
    )

    assert ran(given, policy) == pytest.approx({"one": 60.0, "wide": 60.0, "any": 17.5}, abs=1e-6)


def test_a_profile_on_top_is_stretched_by_neighbours_and_stretches_them(tmp_path: Path) -> None:
    jobs = "jobs:\n  - {name: alone, request: 2, PROFILE runtime_s: 100}\n"
    beside = jobs + "  - {name: other, request: 2, profile: canneal, runtime_s: 100}\n"
    texts = {
        name: ONE + text.replace("PROFILE", profile)
        for name, text, profile in (
            ("alone", jobs, "profile: canneal,"),
            ("beside", beside, "profile: canneal,"),
            ("immune", beside, ""),
        )
    }
    took = {name: ran(scenario(tmp_path, text), "all-at-once") for name, text in texts.items()}

    assert took["alone"]["alone"] == pytest.approx(100.0)
    assert took["beside"]["alone"] > 101.0 and took["beside"]["other"] > 101.0
    assert took["immune"] == pytest.approx({"alone": 100.0, "other": 100.0})


def test_policies_expect_the_estimate_and_machines_do_the_run_time(tmp_path: Path) -> None:
    """The longest job goes first by what is told, and each takes as long as it takes."""
    text = (
        HEAD
        + "machines: [{name: m, type: n2d-highcpu-2}]\njobs:\n"
        + "".join(
            f"  - {{name: {name}, request: 2, runtime_s: {true}, estimate_s: {told}}}\n"
            for name, true, told in (("a", 100, 10), ("b", 10, 100), ("c", 50, 50))
        )
    )
    given = scenario(tmp_path, text)

    run = simulate(given, "lpt")

    starts = {j.job: j.start_s for j in run.jobs}
    assert sorted(starts, key=lambda name: starts[name] or 0.0) == ["b", "c", "a"]
    assert ran(given, "lpt") == pytest.approx({"a": 100.0, "b": 10.0, "c": 50.0})
    assert {j.job: j.alone_s for j in run.jobs} == pytest.approx({"a": 100.0, "b": 10.0, "c": 50.0})
    assert given.run_time_factors == {"a": 10.0, "b": 0.1}


def test_the_forecasts_of_flow_know_it(tmp_path: Path) -> None:
    """Two jobs of 2 cores on 2 cores: the second is planned for when the first ends, as far as policies are told."""
    text = (
        HEAD
        + "machines: [{name: m, type: n2d-highcpu-2}]\njobs:\n"
        + "".join(
            f"  - {{name: {name}, request: 2, runtime_s: 30, estimate_s: {told}}}\n"
            for name, told in (("a", 40), ("b", 400))
        )
    )
    kept: list[dict[str, object]] = []
    options = Options(record_sink=lambda policy, number, recipe: kept.append(dict(recipe())))
    simulate(scenario(tmp_path, text), "flow", options=options, engine=EngineOptions(keep_records=True))
    write_record(kept[0], tmp_path / "round.json")

    snapshot = load_snapshot(tmp_path / "round.json")

    assert {t.name: (t.profile, t.scale) for t in snapshot.pending} == {"a": ("fixed:1s", 40), "b": ("fixed:1s", 400)}
    decisions = solve(snapshot)
    assert [p.task for p in decisions.placements] == ["a"]
    (waits,) = decisions.postponements
    assert waits.planned is not None and waits.planned.machine == "m"
    assert waits.planned.slot == 1, "when the first one ends"


def test_model_error_comes_on_top(tmp_path: Path) -> None:
    given = scenario(tmp_path, ONE + "jobs: [{name: a, request: 1, runtime_s: 60, estimate_s: 30}]\n")

    assert ran(given, "fcfs", model_error="measured")["a"] == pytest.approx(60.0, rel=0.1)
    assert ran(given, "fcfs", model_error=0.3)["a"] != pytest.approx(60.0, rel=0.01)


@pytest.mark.parametrize("error", [0.0, 0.5])
def test_flow_learns_from_ends_how_far_it_is_told_wrong(tmp_path: Path, error: float) -> None:
    jobs = "jobs: [{name: a, request: 2, runtime_s: 60, copies: 60}]\n"
    kept: list[dict[str, Any]] = []
    options = Options(model_error=error, record_sink=lambda policy, number, recipe: kept.append(dict(recipe())))
    simulate(scenario(tmp_path, ONE + jobs), "flow", options=options, engine=EngineOptions(keep_records=True))

    known = [part["snapshot"]["run_time_errors"] for record in kept for part in record["parts"]]
    assert known[0] == {"ends": 0, "log_squares": 0.0} and 50 < known[-1]["ends"] < 60
    assert math.sqrt(known[-1]["log_squares"] / known[-1]["ends"]) == pytest.approx(error, abs=0.1)


def test_a_file_of_arrivals_has_columns_for_it(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(
        "submit_s,name,request,runtime_s,estimate_s,profile\n0,a,1,60,,\n5,b,2,30,45,vips\n9,c,1,,,vips\n"
    )
    given = scenario(tmp_path, ONE + "arrivals: {file: trace.csv}\n")

    assert [(t.profile, t.scale) for t in given.tasks] == [("fixed:1s", 60), ("vips:1s", 45), ("vips", 1)]
    assert given.run_time_factors == {"b": 30 / 45}
    assert ran(given, "fcfs")["a"] == pytest.approx(60.0)


def test_a_file_of_run_times_needs_no_column_of_profiles(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("submit_s,name,request,runtime_s\n0,a,1,60\n1,b,1,\n")

    (problem,) = problems(tmp_path, ONE + "arrivals: {file: trace.csv}\n")

    assert problem.endswith("trace.csv:3: column 'profile': is missing; name a job profile, or give runtime_s")


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ("request: 1", "jobs[0].profile: is missing; name a job profile, or give runtime_s"),
        ("request: 1, runtime_s: -2", "jobs[0].runtime_s: must be at least 0, but is -2"),
        (
            "request: 1, profile: vips, estimate_s: 5",
            "jobs[0].estimate_s: is for jobs with runtime_s; add runtime_s, or leave estimate_s out",
        ),
        (
            "request: 1, runtime_s: 5, scale: 2",
            "jobs[0].scale: has no meaning beside runtime_s, the whole run time; leave it out",
        ),
        (
            "request: 1, profile: vps, runtime_s: 5",
            "jobs[0].profile: there is no job profile 'vps'; did you mean 'vips'?",
        ),
    ],
)
def test_what_is_missing_or_contradicts_is_named(tmp_path: Path, job: str, told: str) -> None:
    (problem,) = problems(tmp_path, ONE + f"jobs:\n  - {{name: a, {job}}}\n")

    assert problem.startswith(f"6: {told}")
