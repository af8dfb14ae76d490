"""Experiment files: what they mean, what is wrong in them, and the same from objects."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowsched_models.document import InputError
from flowsched_models.quantity import QuantityError
from flowsched_simulator import load_scenario, make_scenario, simulate
from flowsched_simulator.experiment import Contender, Experiment, load_experiment, make_case
from flowsched_simulator.experiment.copies import with_copies
from flowsched_simulator.experiment.offered_load import offered_load, with_load
from flowsched_simulator.experiment.plan import Plan
from flowsched_simulator.experiment.planned_run import PlannedRun
from flowsched_simulator.experiment.variation import varied
from flowsched_simulator.scenario_file import BUNDLED, read_document, read_scenario
from flowsched_simulator.workload import workload

HEAD = "apiVersion: flowsched/v1\nkind: Experiment\nname: study\n"
HOUSE = Path(__file__).parent.parent.parent


def plan_of(folder: Path, text: str) -> Plan:
    path = folder / "study.yaml"
    path.write_text(HEAD + text)
    return load_experiment(path).plan


def problems_of(folder: Path, text: str) -> list[str]:
    with pytest.raises(InputError) as error:
        plan_of(folder, text)
    return [str(each).replace(f"{folder}/", "") for each in error.value.problems]


def test_lists_make_a_case_for_each_combination_with_the_values_in_its_name(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path,
        "scenarios:\n"
        "  - parsec-poisson\n"
        "  - {scenario: parsec-poisson, name: p, load: [0.5, 1], model_error: [0, measured], machine_copies: 2}\n"
        "  - {scenario: parsec-poisson, name: q, change: {'services[memcached-1].qps': [20K, 40K], objective: makespan}}\n"
        "policies: [flow]\nseeds: [3, 7..9]\n",
    )
    assert [case.name for case in plan.cases] == [
        "parsec-poisson",
        "p load=0.5 model_error=0",
        "p load=0.5 model_error=measured",
        "p load=1 model_error=0",
        "p load=1 model_error=measured",
        "q qps=20K",
        "q qps=40K",
    ]
    assert plan.seeds == (3, 7, 8, 9)
    assert plan.cases[1].load == pytest.approx(0.5) and len(plan.cases[1].scenario.machines) == 12
    assert plan.cases[-1].scenario.services[0].qps == 40_000
    assert plan.cases[-1].factors["services[memcached-1].qps"] == "40K"
    assert (plan.metric, plan.reference) == ("mean_completion_s", "flow")


def test_a_policy_takes_part_once_for_each_combination_of_the_settings_that_it_reads(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path,
        "scenarios: [parsec-poisson]\n"
        "policies: [flow, fcfs, {policy: flow, name: own, set: {slots: 3}}, {policy: lpt, variant: 4-own}]\n"
        "settings: {slots: [1, 2], due_age_s: 60}\nvariant: declared-shared\nreference: own\n",
    )
    assert [(each.label, each.settings) for each in plan.contenders] == [
        ("flow slots=1", ("slots=1", "due_age_s=60")),
        ("flow slots=2", ("slots=2", "due_age_s=60")),
        ("fcfs", ()),
        ("own", ("slots=3", "due_age_s=60")),
        ("lpt", ()),
    ]
    assert plan.contenders[2].only_variant == "declared request, shared cores"
    assert plan.contenders[4].only_variant == "request 4, own cores"
    assert plan.contenders[0].engine().settings.slots == 1


def test_all_mistakes_are_told_at_once_with_their_lines(tmp_path: Path) -> None:
    found = problems_of(
        tmp_path,
        "scenarios:\n"
        "  - parsec-poison\n"
        "  - {scenario: parsec-memcached-2024, load: 0.9}\n"
        "  - {scenario: parsec-poisson, lod: 0.9}\n"
        "  - {scenario: parsec-poisson, name: p, change: {'jobs[200].scale': 2}}\n"
        "  - {scenario: parsec-poisson, name: q, change: {'machines[0].type': x64}}\n"
        "policies: [flo, {policy: flow, name: f, set: {slotz: 3}}, {policy: lpt, variant: 5-own}]\n"
        "seeds: 30..1\n",
    )
    told = "\n".join(found)
    assert len(found) == 9
    assert (
        "study.yaml:5: scenarios[0]: there is no bundled scenario 'parsec-poison'; did you mean 'parsec-poisson'?"
        in told
    )
    assert "study.yaml:6: scenarios[1].load: cannot be set: all jobs arrive at once; give it arrivals over time" in told
    assert "study.yaml:7: scenarios[2].lod: there is no key 'lod' here; did you mean 'load'?" in told
    assert (
        "study.yaml:8: scenarios[3].change.jobs[200].scale: 'jobs[200].scale' leads nowhere: the list has 40 items"
        in told
    )
    assert "study.yaml:9: scenarios[4].change: in parsec-poisson.yaml (bundled), changed: machines[0].type:" in told
    assert "study.yaml:10: policies[0]: there is no such policy; did you mean 'flow'?" in told
    assert "policies[1].set.slotz: there is no setting 'slotz'; did you mean 'slots=3'?" in told
    assert "policies[2].variant: there is no such variant" in told
    assert "study.yaml:11: seeds: 30..1 is not a range of 1 to 100000 seeds; write 1..30" in told


def test_mistakes_of_a_scenario_come_with_those_of_the_entry_and_of_the_rest(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(
        "apiVersion: flowsched/v1\nkind: Scenario\nname: shop\n"
        "machines: [{name: m, type: x64}]\n"
        "jobs: [{name: j, runtime_s: 20s, request: 1}]\n"
    )
    found = problems_of(
        tmp_path,
        "scenarios:\n"
        "  - {scenario: shop.yaml, load: many}\n"
        "  - {scenario: nowhere, copies: 2}\n"
        "  - {scenario: shop.yaml, load: few, change: {'machines[0].type': n2d-highmem-4}}\n"
        "polices: [flow]\n"
        "metric: speed\n"
        "max_time_s: 2h\n",
    )
    assert [each.partition(";")[0] for each in found] == [
        "study.yaml:5: scenarios[0].load: must be a number, but is 'many'",
        "study.yaml:6: scenarios[1].copies: there is no key 'copies' here",
        "study.yaml:6: scenarios[1].scenario: there is no bundled scenario 'nowhere'",
        "study.yaml:7: scenarios[2].load: must be a number, but is 'few'",
        "study.yaml:8: polices: there is no key 'polices' here",
        "study.yaml:9: metric: there is no metric 'speed'",
        "study.yaml:10: max_time_s: must be a number, but is '2h'",
        "shop.yaml:4: machines[0].type: there is no machine type 'x64'",
        "shop.yaml:5: jobs[0].runtime_s: must be a number, but is '20s'",
    ]


def test_mistakes_of_a_policy_come_with_those_of_scenarios_and_reference(tmp_path: Path) -> None:
    found = problems_of(
        tmp_path,
        "scenarios: [nowhere]\npolicies: [{policy: flo, nam: f}, {policy: fcfs, set: [1]}, lpt, lpt]\nreference: lp\n",
    )
    assert [each.partition(";")[0] for each in found] == [
        "study.yaml:4: scenarios[0]: there is no bundled scenario 'nowhere'",
        "study.yaml:5: policies[0].nam: there is no key 'nam' here",
        "study.yaml:5: policies[1].set: must be a mapping of 'key: value' pairs, but is a list",
        "study.yaml:5: policies[0]: there is no such policy",
        "study.yaml:5: policies: the name 'lpt' stands twice",
    ]
    found = problems_of(tmp_path, "scenarios: [nowhere]\npolicies: [flow]\nreference: lp\nsettings: {slotz: 1}\n")
    assert [each.partition(";")[0] for each in found] == [
        "study.yaml:4: scenarios[0]: there is no bundled scenario 'nowhere'",
        "study.yaml:6: reference: no policy of this experiment is called 'lp'",
        "study.yaml:7: settings.slotz: no policy of this experiment reads this setting",
    ]


def test_an_experiment_of_nothing_is_refused(tmp_path: Path) -> None:
    words = ["scenarios: must not be empty; name one scenario at least", "policies: must not be empty; name one policy"]
    found = problems_of(tmp_path, "scenarios: []\npolicies: []\n")
    assert len(found) == 2 and all(part in each for part, each in zip(words, found, strict=True))
    with pytest.raises(InputError) as error:
        Experiment([], [])
    assert all(part in str(error.value) for part in words)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("settings: {nowhere: [1]}", "settings.nowhere: no policy of this experiment reads this setting"),
        ("settings: {slots: [99]}", "settings.slots: 99 is not a whole number from 1 to 16"),
        ("reference: lpt", "reference: no policy of this experiment is called 'lpt'; known: flow, fcfs"),
        ("metric: speed", "metric: there is no metric 'speed'"),
        ("seeds: [1, 1]", "seeds: a seed stands twice"),
        ("variant: best-of-all", "variant: there is no such variant; known: best, declared-own"),
    ],
)
def test_a_mistake_is_told_at_its_key(tmp_path: Path, text: str, message: str) -> None:
    found = problems_of(tmp_path, f"scenarios: [parsec-poisson]\npolicies: [flow, fcfs]\n{text}\n")
    assert any(message in each for each in found), found


def test_equal_names_are_refused(tmp_path: Path) -> None:
    found = problems_of(tmp_path, "scenarios: [parsec-poisson, parsec-poisson]\npolicies: [flow, flow]\n")
    assert [each.partition("; ")[0] for each in found] == [
        "study.yaml:4: scenarios: the name 'parsec-poisson' stands twice",
        "study.yaml:5: policies: the name 'flow' stands twice",
    ]


def test_the_examples_are_what_their_page_says() -> None:
    study = load_experiment(HOUSE / "docs/examples/flow-against-baselines.yaml").plan
    assert len(study.runs(study.seeds)) == 350
    assert {(len(c.scenario.machines), len(c.scenario.tasks)) for c in study.cases} == {(50, 500)}
    assert [round(c.load or 0.0, 9) for c in study.cases] == [0.9, 0.6, 1.1, 0.9, 0.9]
    assert [c.model_error for c in study.cases] == [0.0, 0.0, 0.0, 0.2, 0.5]
    assert len(load_experiment(HOUSE / "docs/examples/first-experiment.yaml").plan.cases) == 3
    wrong = load_experiment(HOUSE / "docs/examples/wrong-estimates.yaml").plan
    assert len(wrong.runs(wrong.seeds)) == 40 and [c.model_error for c in wrong.cases] == [0.2, 0.5]


@pytest.mark.parametrize("load", [0.3, 1.0, 2.5])
def test_a_load_is_reached_with_random_and_with_given_times(load: float) -> None:
    poisson = load_scenario("parsec-poisson")
    assert offered_load(with_load(poisson, load)) == pytest.approx(load)
    given = read_scenario(
        varied(
            read_document(BUNDLED / "parsec-poisson.yaml"),
            {"arrivals": "all-at-once", "jobs[vips-2].submit_s": 100, "jobs[vips-3].submit_s": 10},
        )
    )
    faster = with_load(given, load)
    assert offered_load(faster) == pytest.approx(load)
    assert next(t.submit_s for t in workload(faster, 1)) == 0.0
    assert [t.name for t in workload(faster, 1)][-2:] == ["vips-3", "vips-2"]


def test_the_load_of_drawn_jobs_goes_by_their_weights_and_counts_all_of_their_tasks() -> None:
    jobs = [
        {"name": "small", "request": 1, "runtime_s": 60, "mix": 3},
        {"name": "large", "request": 4, "runtime_s": 60, "tasks": 2},
    ]
    arrivals = {"poisson": {"rate_per_minute": 1, "jobs": 10}}
    made = make_scenario(machines=[{"type": "e2-standard-8"}], jobs=jobs, arrivals=arrivals)
    # Three jobs in four are 60 core-seconds, one is 480; one job a minute on eight cores.
    assert offered_load(made) == pytest.approx((3 * 60 + 480) / 4 / 60 / 8)


def test_copies_keep_the_load_per_machine_and_every_name_is_its_own() -> None:
    base = load_scenario("parsec-poisson")
    larger = with_copies(base, machines=3, jobs=2)
    assert (len(larger.machines), len(larger.services), len(larger.tasks)) == (18, 6, 80)
    for things in (larger.machines, larger.services, larger.tasks):
        assert len({each.name for each in things}) == len(things)
    assert offered_load(larger) == pytest.approx((offered_load(base) or 0.0) / 3)


def test_a_copy_of_a_job_has_tasks_a_barrier_and_terms_of_its_own() -> None:
    jobs = [
        {"name": "gang", "request": 2, "runtime_s": 60, "tasks": 6, "barrier": True, "deadline_s": 100},
        {"name": "next", "request": 1, "runtime_s": 10, "estimate_s": 5, "after": ["gang"]},
    ]
    base = make_scenario(machines=[{"type": "e2-standard-8", "copies": 2}], jobs=jobs)

    run = simulate(with_copies(base, jobs=2), "fcfs", variant="declared-own")

    starts = {gang: sorted({t.start_s for t in run.jobs if t.job == gang}) for gang in ("gang", "gang-2")}
    assert starts == {"gang": [0.0], "gang-2": [60.0]}, "one after the other as in the file, all six at once"
    outcomes = {o.job: o for o in run.outcomes}
    assert {job: o.missed for job, o in outcomes.items()} == {
        "gang": False,
        "next": None,
        "gang-2": True,
        "next-2": None,
    }
    ends = {"gang": 60.0, "next": 70.0, "gang-2": 120.0, "next-2": 130.0}
    assert {job: o.end_s for job, o in outcomes.items()} == ends


def test_copies_of_machines_change_no_job() -> None:
    jobs = [{"name": "gang", "request": 2, "runtime_s": 60, "tasks": 3, "barrier": True, "deadline_s": 100}]
    base = make_scenario(machines=[{"type": "e2-standard-8"}], jobs=jobs)
    larger = with_copies(base, machines=2)
    assert larger.tasks == base.tasks and larger.job_terms == base.job_terms
    assert larger.task_groups == base.task_groups and larger.barriers == base.barriers


def test_copies_of_jobs_that_are_drawn_are_more_of_them() -> None:
    arrivals = {"poisson": {"rate_per_minute": 6, "jobs": 10}}
    base = make_scenario(
        machines=[{"type": "e2-standard-8"}], jobs=[{"name": "j", "request": 1, "runtime_s": 6}], arrivals=arrivals
    )
    larger = with_copies(base, jobs=3)
    assert larger.arrivals.jobs == 30 and larger.tasks == base.tasks


@pytest.mark.parametrize("path", ["", "a..b", ".a", "a.", "jobs[", "jobs[x].scale", "machines.type"])
def test_paths_that_lead_nowhere_are_refused(path: str) -> None:
    with pytest.raises(QuantityError):
        varied(read_document(BUNDLED / "parsec-poisson.yaml"), {path: 1})


def test_a_variation_leaves_the_document_as_it_was() -> None:
    document = read_document(BUNDLED / "parsec-poisson.yaml")
    changed = varied(document, {"jobs[*].scale": 2, "start_delay.at_submission_s": 5})
    assert {job["scale"] for job in changed.data["jobs"]} == {2}
    assert changed.data["start_delay"]["at_submission_s"] == 5
    assert document.data["jobs"][0]["scale"] == 0.5


def test_what_decides_a_result_decides_the_digest_and_names_do_not() -> None:
    scenario = load_scenario("parsec-memcached-2024")
    flow = Contender("flow", "flow")
    run = PlannedRun(make_case(scenario), flow, 1)
    assert (
        PlannedRun(make_case(load_scenario("parsec-memcached-2024"), "renamed"), Contender("x", "flow"), 1).digest
        == run.digest
    )
    others = [
        PlannedRun(make_case(scenario), flow, 2),
        PlannedRun(make_case(scenario, model_error=0.1), flow, 1),
        PlannedRun(make_case(scenario, job_copies=2), flow, 1),
        PlannedRun(make_case(scenario), Contender("flow", "flow", ("slots=1",)), 1),
        PlannedRun(make_case(scenario), Contender("flow", "fcfs"), 1),
        PlannedRun(make_case(scenario), Contender("flow", "fcfs", variant="request 1, own cores"), 1),
        PlannedRun(make_case(scenario), flow, 1, max_time_s=10.0),
    ]
    assert len({run.digest, *(each.digest for each in others)}) == len(others) + 1


def test_an_experiment_of_objects_is_checked_as_a_file_is() -> None:
    with pytest.raises(InputError) as error:
        Experiment(["parsec-poisson", "nowhere"], ["flow", "fcf"], [1, 1], metric="speed")
    told = str(error.value)
    assert all(
        words in told for words in ("no bundled scenario 'nowhere'", "did you mean 'fcfs'?", "stands twice", "metric")
    )
    with pytest.raises(ValueError, match="model_error must be from 0 to 3"):
        make_case(load_scenario("parsec-poisson"), model_error=7.0)
