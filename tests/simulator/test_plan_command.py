"""``flowsched plan`` and the policy ``flow+plan``: bars, replays, messages."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from flowsched.cli import flowsched
from flowsched.planner.rules import PlanRules
from flowsched_models.document import InputError
from flowsched_simulator import POLICIES, EngineOptions, Scenario, load_scenario, load_schedule, replay, simulate
from flowsched_simulator.plan_rules_form import apart, apply_plan_rules
from flowsched_simulator.plan_schedule import schedule_of
from flowsched_simulator.planning import make_plan
from flowsched_simulator.policies import check_policies
from flowsched_simulator.prediction import predict

A, C = "parsec-memcached-2024", "parsec-memcached-2024-c"
LITTLE = ("--evaluations", "2000", "--quiet")


@pytest.fixture(scope="module")
def published_s() -> float:
    return replay(load_scenario(A), load_schedule("group-048")).makespan_s


def some_of_poisson(count: int) -> Scenario:
    scenario = load_scenario("parsec-poisson")
    return replace(scenario, tasks=scenario.tasks[:count])


@functools.cache
def flow_s() -> float:
    return simulate(load_scenario(A), "flow").makespan_s


def run(*args: object) -> Result:
    return CliRunner().invoke(flowsched, [str(a) for a in args])


def planned(*args: object) -> dict[str, Any]:
    done = run("plan", *args, "--json", "--quiet")
    assert done.exit_code == 0, done.output
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize(
    ("rules", "most_a", "most_c"),
    [
        (PlanRules(evaluations=5000), 0.925, 0.89),
        (PlanRules(evaluations=7500, weights="free"), 0.91, 0.87),
        (PlanRules(evaluations=10_000, share_cores=False), 1.0, 1.0),
        (PlanRules(evaluations=10_000, share_cores=False, seed=2), 1.0, 1.0),
    ],
    ids=["shared", "free weights", "exclusive", "exclusive, another seed"],
)
def test_plans_reach_their_bars(rules: PlanRules, most_a: float, most_c: float, published_s: float) -> None:
    """Within a fraction of the evaluations that are usual."""
    for name, most in ((A, most_a), (C, most_c)):
        scenario = load_scenario(name)
        outcome = make_plan(scenario, rules)
        assert outcome.plan.makespan_s <= most * published_s
        assert outcome.bound.value_s <= outcome.plan.makespan_s
        run = replay(scenario, schedule_of(scenario, outcome.plan))
        assert run.makespan_s == pytest.approx(outcome.plan.makespan_s, abs=1e-6)
        assert run.slo_violation_ratio == 0.0
        assert all(p95 <= 0.95 * goal for _, p95, goal in outcome.plan.p95_us)


def test_a_robust_plan_and_its_prediction_agree_on_the_interval(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    result = planned(A, "--robust", "0.9", "--draws", "50", "--evaluations", "2000", "--seed", "3", "--out", path)
    predicted = predict(load_scenario(A), load_schedule(path), draws=50, seed=3)
    assert asdict(predicted.makespan_s) == pytest.approx(result["makespan_s"])
    wider = predict(load_scenario(A), load_schedule(path), draws=50, seed=3, level=0.8)
    assert result["quantile_s"] == pytest.approx(wider.makespan_s.high)
    ends = {job.task.job: asdict(job.end_s) for job in predicted.jobs}
    for task in result["tasks"]:
        assert ends[task["job"]] == pytest.approx(task["end_s"])


def test_a_plan_is_told_in_the_words_of_predict(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    said = run("plan", A, *LITTLE, "--out", path).stdout
    (ours,) = [line for line in said.splitlines() if line.startswith("makespan: ")]
    assert "Median [low, high]: 90 % of 400 draws" in said
    assert ours.endswith(" s if every profile were exact")
    assert ours.removeprefix("makespan: ") in run("predict", path).stdout
    few = run("plan", A, *LITTLE, "--draws", "30").stdout
    assert "90 % of 30 draws" in few


def test_where_jobs_come_later_the_start_is_what_flow_does_and_the_plan_is_no_worse() -> None:
    scenario = some_of_poisson(16)
    outcome = make_plan(scenario, PlanRules(objective="completion", evaluations=0))
    flow = simulate(scenario, "flow")
    assert outcome.played_s == pytest.approx(sum(j.end_s - j.submit_s for j in flow.jobs if j.end_s is not None))
    assert outcome.start.feasible
    assert outcome.start_s == pytest.approx(outcome.played_s, rel=0.02)
    assert outcome.value_s <= outcome.start_s
    assert outcome.better >= 0.0


def test_the_keys_of_json_are_documented() -> None:
    text = (Path(__file__).parent.parent.parent / "docs" / "planning.md").read_text()
    result = planned(A, "--evaluations", "50")
    assert (result["apiVersion"], result["kind"]) == ("flowsched/v1", "Plan")
    for key in {*result, *result["tasks"][0], *result["services"][0], *result["timings"]}:
        assert f"`{key}`" in text, key


def simulated(*args: object) -> tuple[dict[str, Any], str]:
    done = run("simulate", A, "--policy", "flow+plan", "--json", *args)
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)["table"]
    return row, done.stderr


def test_the_policy_takes_its_rules_from_settings() -> None:
    spans = {
        words: simulated("--set", "plan.evaluations=1500", *(f"--set={word}" for word in words))[0]["makespan_s"]
        for words in (("plan.weights=equal",), ("plan.weights=free",), ("plan.cores=exclusive",))
    }
    assert spans["plan.weights=free",] < spans["plan.weights=equal",] < spans["plan.cores=exclusive",]


def test_mistakes_in_rules_are_named_all_at_once() -> None:
    words = ("plan.weight=free", "plan.cores=own", "plan.evaluations=many", "plan.slo_margin=0", "plan.weights")
    with pytest.raises(InputError) as error:
        apply_plan_rules(PlanRules(), words)
    text = str(error.value)
    for part in (
        "did you mean 'plan.weights=free'",
        "none of shared, exclusive",
        "not a whole number",
        "0.001",
        "KEY=",
    ):
        assert part in text
    assert apply_plan_rules(PlanRules(), ("plan.slo-margin = 0.9",)).slo_margin == 0.9
    assert apart(("plan.cores=shared", "eps=2")) == (("eps=2",), ("plan.cores=shared",))
    with pytest.raises(InputError, match="add --policy flow"):
        flowsched.main(["simulate", A, "--policy", "fcfs", "--set", "plan.cores=shared"], standalone_mode=False)


def test_the_policy_keeps_no_records_and_says_so(tmp_path: Path) -> None:
    row, said = simulated("--set", "plan.evaluations=100", "--records", tmp_path / "records")
    assert row["makespan_s"] > 0.0
    assert "flow+plan keeps no records" in said
    assert "records: 0 in" in said


def test_the_policy_is_only_compared_when_asked_for() -> None:
    assert "flow+plan" not in POLICIES
    assert check_policies(("flow+plan",)) == ("flow+plan",)
    assert "only with --policy" in run("policies").stdout


@pytest.mark.parametrize(
    "options", [(), ("--weights", "free"), ("--cores", "exclusive"), ("--objective", "completion")]
)
def test_a_written_plan_replays_to_its_prediction(options: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "my plan.yaml"
    result = planned(A, *LITTLE, *options, "--out", path)
    replayed = replay(load_scenario(A), load_schedule(path))
    ends = {j.job: j.end_s for j in replayed.jobs}
    for task in result["tasks"]:
        assert ends[task["job"]] == pytest.approx(task["end_s"]["nominal"], abs=1e-6)
    done = run("simulate", A, "--schedule", path, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["table"][0]["makespan_s"] == pytest.approx(result["makespan_s"]["nominal"], abs=1e-6)


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        done = run("plan", A, *LITTLE, "--json", "--out", tmp_path / name / "plan.yaml")
        result = json.loads(done.stdout)
        assert result.pop("timings").keys() == {"search_s"}
        assert result["reproducible"]
        texts.append((json.dumps(result), (tmp_path / name / "plan.yaml").read_bytes()))
    assert texts[0] == texts[1]


def test_the_table_says_what_a_reader_needs() -> None:
    done = run("plan", A, *LITTLE)
    assert done.exit_code == 0, done.output
    for word in (
        "job",
        "machine",
        "threads",
        "weight",
        "lower bound",
        "gap",
        "makespan",
        "start from a round of flow",
        "2000 plans",
    ):
        assert word in done.stdout
    limited = run("plan", A, "--time-limit", "200ms", "--quiet")
    assert "another run may differ" in limited.stdout


def test_a_robust_plan_says_its_quantile() -> None:
    result = planned(A, "--robust", "0.9", "--draws", "8", "--evaluations", "2000")
    assert result["quantile_s"] > result["makespan_s"]["nominal"]
    assert result["bound_s"] <= result["quantile_s"]
    assert not any(s["peak_p95_us"] > s["slo_us"] for s in result["services"])


def test_what_cannot_be_planned_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no bundled scenario"):
        flowsched.main(["plan", "nowhere"], standalone_mode=False)
    with pytest.raises(InputError, match="give one of them"):
        flowsched.main(["plan", A, "--evaluations", "1", "--time-limit", "1s"], standalone_mode=False)
    gang = tmp_path / "gang.yaml"
    gang.write_text(
        "apiVersion: flowsched/v1\nkind: Scenario\nname: gang\nmachines: [{name: m, type: e2-standard-4}]\n"
        "task_groups: [{name: g, minimum: 2}]\n"
        "jobs: [{name: j, profile: vips, request: 1, copies: 2, group: g}]\n"
    )
    with pytest.raises(InputError, match="a plan would ignore task groups"):
        flowsched.main(["plan", str(gang)], standalone_mode=False)
    done = run("plan", A, "--time-limit", "soon")
    assert done.exit_code == 2
    assert "is not a time" in done.output


def carried_out(scenario: Scenario, rules: PlanRules, **options: Any) -> Any:
    return simulate(scenario, "flow+plan", engine=EngineOptions(plan=rules), **options)


@pytest.mark.parametrize("rules", [PlanRules(evaluations=1500), PlanRules(evaluations=1500, weights="free")])
def test_the_policy_carries_its_plan_out_to_the_letter(rules: PlanRules) -> None:
    scenario = load_scenario(A)
    run = carried_out(scenario, rules)
    assert run.slo_violation_ratio == 0.0
    assert run.makespan_s <= flow_s() + 2.0
    again = carried_out(scenario, rules)
    assert [(j.job, j.end_s) for j in run.jobs] == [(j.job, j.end_s) for j in again.jobs]


def test_the_policy_ends_every_job_of_an_open_system_and_under_model_error() -> None:
    from flowsched_simulator import Options

    small = PlanRules(evaluations=80)
    for scenario in (some_of_poisson(12), load_scenario(C)):
        for error in (0.0, 0.2):
            run = carried_out(scenario, small, options=Options(model_error=error, seed=1))
            assert all(j.end_s is not None for j in run.jobs)


def test_the_policy_leaves_what_plans_do_not_know_to_flow(tmp_path: Path) -> None:
    path = tmp_path / "gang.yaml"
    path.write_text(
        "apiVersion: flowsched/v1\nkind: Scenario\nname: gang\nmachines: [{name: m, type: e2-standard-4}]\n"
        "task_groups: [{name: g, minimum: 2}]\n"
        "jobs: [{name: j, profile: vips, request: 1, copies: 2, group: g}]\n"
    )
    scenario = load_scenario(path)
    ours, flows = carried_out(scenario, PlanRules()), simulate(scenario, "flow")
    assert [j.end_s for j in ours.jobs] == [j.end_s for j in flows.jobs]
