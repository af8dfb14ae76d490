"""Cost models in simulations: every one brings every job to its end, the same way each time, and never overcommits."""

from __future__ import annotations

import json
import sys
import types
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from builders import read_anew
from flowsched.cli import flowsched
from flowsched.pricing.linear.policies import COST_MODELS
from flowsched.pricing.linear.policies.trivial import TrivialPolicy
from flowsched.records.record_file import load_record
from flowsched_simulator import EngineOptions, load_scenario, simulate
from flowsched_simulator.policies import describe, is_cost_model
from flowsched_simulator.run import Run
from flowsched_simulator.scenario import Scenario

OURS = ("flow-network", "quincy", "load-spreading", "coco", "shortest-job-first", "trivial")
SOLVE = ("solve", "docs/examples/snapshot.yaml", "--policy")
PART_3, POISSON = "parsec-memcached-2024", "parsec-poisson"


def never_overcommitted(run: Run, scenario: Scenario) -> None:
    """At every start, the widths of all who run on the machine fit beside its services."""
    for machine in scenario.machines:
        services = [s for s in scenario.services if s.machine == machine.name]
        room = machine.cpu_milli - sum(s.width_milli for s in services)
        taken = {core for s in services for core in s.cores}
        here = [j for j in run.jobs if j.machine == machine.name]
        for job in here:
            assert not taken & set(job.cores)
            at = job.bound_s
            assert at is not None
            together = [j for j in here if j.bound_s is not None and j.bound_s <= at and (j.end_s or 0.0) > at]
            assert sum(j.width_milli for j in together) <= room


@pytest.mark.parametrize("policy", OURS)
def test_all_jobs_end_alike_each_time(policy: str) -> None:
    scenario = load_scenario(PART_3)
    first, second = (simulate(scenario, policy) for _ in range(2))
    assert all(job.end_s is not None for job in first.jobs)
    never_overcommitted(first, scenario)
    assert first.jobs == second.jobs
    assert first.latency == second.latency
    assert [r.certificate for r in first.rounds] == [r.certificate for r in second.rounds]
    assert first.policy == policy


@pytest.mark.parametrize("policy", ["flow-network", "load-spreading", "shortest-job-first"])
def test_jobs_that_come_and_go(policy: str) -> None:
    scenario = load_scenario(POISSON)
    run = simulate(scenario, policy)
    assert all(job.end_s is not None for job in run.jobs)
    never_overcommitted(run, scenario)
    assert len(run.rounds) > 10


def test_flow_keeps_the_service_within_its_goal() -> None:
    assert simulate(load_scenario(PART_3), "flow-network").slo_violation_ratio == 0.0


def test_they_are_listed_with_a_line_each() -> None:
    result = run("policies")
    assert result.exit_code == 0
    listed = {line.split("  ")[0]: line for line in result.output.splitlines()}
    assert set(OURS) <= set(listed)
    assert all(listed[name].endswith("; only with --policy") for name in OURS)
    assert "search" not in listed["flow-network"]


def test_flow_is_still_the_search() -> None:
    assert not is_cost_model("flow")
    assert is_cost_model("flow-network") and is_cost_model("coco")
    assert not is_cost_model("fcfs") and not is_cost_model("unknown")


def run(*args: str) -> Result:
    return CliRunner().invoke(flowsched, args)


def failure(*args: str) -> str:
    """What a user reads: the text of the one exception."""
    result = run(*args)
    assert result.exception is not None and not isinstance(result.exception, SystemExit), result.output
    return str(result.exception)


def test_simulate_compares_them_and_keeps_records(tmp_path: Path) -> None:
    result = run(
        "simulate", PART_3, "--policy", "load-spreading", "--policy", "coco", "--set", "coco.bucket=2",
        "--records", str(tmp_path / "records"), "--out", str(tmp_path / "out"),
    )  # fmt: skip
    assert result.exit_code == 0, result.exception
    assert "load-spreading" in result.output and "coco" in result.output
    names = sorted(p.name for p in (tmp_path / "records").iterdir())
    assert names == ["coco-0000.npz", "load-spreading-0000.npz"]
    record = load_record(tmp_path / "records" / "coco-0000.npz")
    assert record["parts"][0]["features"][0]["bucket"] == 2.0
    assert run("replay", str(tmp_path / "records" / "coco-0000.npz")).exit_code == 0


def test_solve_takes_them() -> None:
    result = run("solve", "docs/examples/snapshot.yaml", "--policy", "coco", "--exact")
    assert result.exit_code == 0, result.exception
    assert "certificate (exact)" in result.output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("simulate", PART_3, "--policy", "cocoo"), "--policy: cocoo: there is no such policy; did you mean 'coco'?"),
        (("solve", "docs/examples/snapshot.yaml", "--policy", "cocoo"), "did you mean 'coco'?"),
        (("solve", "docs/examples/snapshot.yaml", "--policy", "fcfs"), "that one is for simulate"),
        (("solve", "docs/examples/snapshot.yaml", "--exact"), "flow is proved by CP-SAT by itself"),
        (
            ("solve", "docs/examples/snapshot.yaml", "--policy", "coco", "--exact", "--set", "exact_tasks=2"),
            "--exact: is for rounds of at most 2 tasks, and 3 wait; raise that with --set exact_tasks=N",
        ),
        (
            ("solve", "docs/examples/snapshot.yaml", "--policy", "coco", "--objective", "makespan"),
            "--objective: is for flow only",
        ),
        (
            ("simulate", PART_3, "--policy", "coco", "--set", "coco.bukket=2"),
            "the policy 'coco' has no setting 'bukket'",
        ),
        (("simulate", PART_3, "--policy", "coco", "--set", "coco.bucket=-1"), "--set: coco.bucket is -1; give"),
        (("simulate", PART_3, "--policy", "coco", "--set", "trivial.place=2"), "trivial.place: is for trivial"),
        (
            ("simulate", PART_3, "--policy", "coco", "--set", "slots=1"),
            "slots: not read by coco; what is read: due_age_s,",
        ),
        (
            ("simulate", PART_3, "--policy", "coco", "--policy", "lpt", "--set", "slo_margin=1"),
            "slo_margin: not read by coco or lpt; what is read: due_age_s, aging_crosses_priority, drain, preemption,",
        ),
        (("simulate", PART_3, "--policy", "lpt", "--set", "slots=1"), "slots: not read by lpt; settings of flow need"),
        (
            ("simulate", PART_3, "--policy", "coco", "--set", "bucket=1"),
            "did you mean 'coco.bucket=1'? (known: due_age_s,",
        ),
        (("simulate", PART_3, "--policy", "flow", "--set", "flow.waiting=1"), "did you mean 'flow-network.waiting=1'"),
        (("simulate", PART_3, "--policy", "flow+plan", "--set", "evaluation=1"), "did you mean 'plan.evaluations=1'?"),
        (("simulate", PART_3, "--policy", "flow+plan", "--set", "plan.zzz=1"), "'plan.zzz'; known: plan.weights, "),
        (
            ("simulate", PART_3, "--policy", "cocoo", "--set", "coco.bucket=1"),
            "--policy: cocoo: there is no such policy",
        ),
        (
            (*SOLVE, "coco", "--set", "objective=makespan", "--set", "pricings=1"),
            "objective, pricings: not read by coco;",
        ),
        ((*SOLVE, "coco", "--set", "exact_tasks=1"), "; exact_tasks is read with --exact"),
        ((*SOLVE, "coco", "--policy", "coco"), "--policy: a round has one policy, and 2 are given: coco, coco;"),
        ((*SOLVE, "coco", "--set", "trivial.place=2"), "--set: trivial.place: is for trivial; add --policy trivial"),
        (("policies", "cocoo"), "NAME: cocoo: there is no such policy; did you mean 'coco'?"),
    ],
)
def test_mistakes_are_one_sentence(args: tuple[str, ...], message: str) -> None:
    text = failure(*args)
    assert message in text
    assert len(text.splitlines()) == 1


def test_settings_that_all_rounds_heed() -> None:
    result = run("simulate", PART_3, "--policy", "trivial", "--set", "due_age_s=5", "--json")
    assert result.exit_code == 0, result.exception


def test_a_setting_that_one_of_them_reads_is_fine() -> None:
    three = ("--policy", "coco", "--policy", "flow-network", "--policy", "lpt")
    result = run("simulate", PART_3, *three, "--set", "slo_margin=0.9", "--json")
    assert result.exit_code == 0, result.exception
    result = run(*SOLVE, "coco", "--set", "coco.bucket=-1", "--set", "coco.bucket=2", "--set", "due_age_s=5")
    assert result.exit_code == 0, result.exception


def test_one_policy_described() -> None:
    text = run("policies", "flow-network").output
    assert text.startswith("flow-network: Least slow-down")
    assert "source: flowsched.pricing.linear.policies.flow:FlowCostModel, of flowsched\n" in text
    assert "  flow-network.waiting             inf\n" in text
    assert "  plan.cores              shared\n" in run("policies", "flow+plan").output
    assert run("policies", "lpt").output.endswith("settings: none\n")


def test_all_policies_as_json() -> None:
    result = run("policies", "--json")
    told = {each["name"]: each for each in json.loads(result.output)["policies"]}
    heading, *lines = run("policies").output.splitlines()
    assert heading.split()[0] == "policy"
    assert list(told) == [line.split()[0] for line in lines]
    assert {each["kind"] for each in told.values()} == {
        "search",
        "baseline",
        "network",
        "disaggregation",
        "controller",
        "isolation",
    }
    assert {"name": "flow-network.waiting", "required": False, "default": "inf"} in told["flow-network"]["settings"]
    assert {"name": "slots", "required": False, "default": 3} in told["flow"]["settings"]
    assert told["flow"]["only_with_policy"] is False and told["coco"]["only_with_policy"] is True
    (coco,) = json.loads(run("policies", "coco", "--json").output)["policies"]
    assert coco == told["coco"]


def test_the_documented_comparison_is_what_comes_out() -> None:
    page = Path("docs/policies.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip(" `") for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| `")
    ]
    shown = {row[0]: row[1:] for row in rows if len(row) == 7}
    assert set(shown) == {"flow", *OURS}
    for name in OURS:
        found = []
        for scenario in (PART_3, POISSON):
            done = simulate(load_scenario(scenario), name)
            ends = [job.completion_s for job in done.jobs if job.completion_s is not None]
            found += [done.makespan_s, sum(ends) / len(ends), 100 * done.slo_violation_ratio]
        assert [f"{number:.1f}" for number in found] == shown[name], name


def test_relations_and_task_groups_are_kept(tmp_path: Path) -> None:
    scenario = tmp_path / "apart.yaml"
    scenario.write_text(
        "apiVersion: flowsched/v1\nkind: Scenario\nname: apart\n"
        "machines:\n  - {name: m-1, type: e2-standard-4}\n  - {name: m-2, type: e2-standard-4}\n"
        "relations:\n  - {name: spread-out, kind: apart}\n"
        "task_groups:\n  - {name: pair, minimum: 2}\n"
        "jobs:\n"
        "  - {name: one, profile: vips, request: 2, relations: [spread-out]}\n"
        "  - {name: two, profile: vips, request: 2, relations: [spread-out]}\n"
        "  - {name: left, profile: vips, request: 2, group: pair}\n"
        "  - {name: right, profile: vips, request: 2, group: pair}\n",
        encoding="utf-8",
    )
    done = simulate(load_scenario(str(scenario)), "coco")
    jobs = {job.job: job for job in done.jobs}
    assert jobs["one"].machine != jobs["two"].machine
    assert {jobs[name].start_s for name in ("one", "two", "left", "right")} == {0.0}


# Policies of other packages


class Cheerful(TrivialPolicy):
    """Everywhere is lovely."""

    name = "cheerful"


class Faulty(TrivialPolicy):
    """Fails when it is asked."""

    name = "faulty"

    def price(self, task_class: Any, kinds: Any) -> Any:
        raise RuntimeError("no prices today")


@pytest.fixture
def outsiders(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("vendor_policies")
    module.Cheerful, module.Faulty = Cheerful, Faulty  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vendor_policies", module)
    found = [
        EntryPoint("cheerful", "vendor_policies:Cheerful", "flowsched.policies"),
        EntryPoint("faulty", "vendor_policies:Faulty", "flowsched.policies"),
        EntryPoint("gone", "vendor_missing_policies:Gone", "flowsched.policies"),
    ]
    monkeypatch.setattr("flowsched.support.registry.entry_points", lambda group: [e for e in found if e.group == group])
    monkeypatch.setitem(COST_MODELS.__dict__, "_places", read_anew(COST_MODELS)._places)


@pytest.mark.usefixtures("outsiders")
def test_policies_of_others_run_and_are_listed() -> None:
    assert describe("cheerful").summary.startswith("Everywhere is lovely")
    run_ = simulate(load_scenario(PART_3), "cheerful", engine=EngineOptions())
    assert run_.policy == "cheerful"
    assert all(job.end_s is not None for job in run_.jobs)


@pytest.mark.usefixtures("outsiders")
def test_a_broken_one_is_one_sentence_and_hides_no_other() -> None:
    listed = run("policies").output
    assert "cheerful" in listed and "cannot be loaded" in listed
    gone = run("policies", "gone").output
    assert "cannot be loaded" in gone and "vendor_missing_policies:Gone, of another package" in gone
    text = failure("simulate", PART_3, "--policy", "gone")
    assert "'gone' of another package cannot be loaded (ModuleNotFoundError" in text
    assert failure("simulate", PART_3, "--policy", "faulty") == (
        "--policy: faulty: fails to price class blackscholes (RuntimeError: no prices today)"
    )
