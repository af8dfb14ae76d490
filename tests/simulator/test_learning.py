"""Classes in scenarios, truths that can be learnt, and what a run learns of them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from click.testing import CliRunner

from flowsched.cli import flowsched
from flowsched.cluster.decision import Decisions, Scheduler
from flowsched.cluster.learnt_run_times import LearntRunTimes
from flowsched.cluster.snapshot import Snapshot
from flowsched_models.document import InputError, parse_document
from flowsched_models.runtime import HostFactory
from flowsched_simulator import Options, Run, simulate
from flowsched_simulator.drawn import drawn_parts
from flowsched_simulator.experiment.copies import with_copies
from flowsched_simulator.policies import EngineOptions, schedulers
from flowsched_simulator.run_classes import chosen_learning, with_classes
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.scenario_file import load_scenario, read_scenario
from flowsched_simulator.simulation import Simulation
from flowsched_simulator.workload import drawn_workload
from flowsched_simulator.world import ErrorOf, ModelError

HEAD = "apiVersion: flowsched/v1\nkind: Scenario\nname: classes\n"
MACHINES = "machines:\n  - {type: e2-standard-8, copies: 2}\n  - {type: n2d-highmem-4, copies: 2}\n"
JOBS = """\
jobs:
  - {name: encode, profile: vips, request: 2, copies: 12}
  - {name: index, profile: dedup, request: 2, copies: 8, scale: 2}
  - {name: once, profile: canneal, request: 1}
"""
SPREAD = "arrivals: {poisson: {rate_per_minute: 4}}\n"


def read(text: str) -> Scenario:
    return read_scenario(parse_document(text, "classes.yaml"))


COPIES = read(HEAD + MACHINES + SPREAD + JOBS)


class Watched:
    """A policy, and the snapshots on which it decided."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.name, self.scheduler = scheduler.name, scheduler
        self.seen: list[Snapshot] = []

    def decide(self, snapshot: Snapshot) -> Decisions:
        self.seen.append(snapshot)
        return self.scheduler.decide(snapshot)


def watched(scenario: Scenario, options: Options, policy: str = "flow") -> tuple[Run, list[Snapshot]]:
    hosts = HostFactory(scenario.catalogue)
    ((_, scheduler),) = list(schedulers(policy, scenario, options.seed, EngineOptions(), hosts))[:1]
    seen = Watched(scheduler)
    return Simulation(scenario, seen, options, hosts=hosts).run(), seen.seen


def test_copies_are_of_one_class_and_what_is_alone_has_none_unless_it_is_given() -> None:
    def classes(scenario: Scenario) -> dict[str, str]:
        return {t.name: t.run_class for t in with_classes(scenario, "on").tasks}

    found = classes(COPIES)
    assert {found[f"encode-{k}"] for k in range(1, 13)} == {"encode"}
    assert {found[f"index-{k}"] for k in range(1, 9)} == {"index"} and found["once"] == ""
    given = classes(read(HEAD + MACHINES + JOBS.replace("copies: 8", "copies: 8, class: encode")))
    assert given["index-1"] == given["encode-1"] == "encode"
    assert set(classes(with_copies(COPIES, jobs=2)).values()) == {"encode", "index", "once"}


def test_a_class_may_be_given_and_jobs_that_are_drawn_keep_it() -> None:
    jobs = "jobs:\n  - {name: a, profile: vips, request: 1, class: night}\n  - {name: b, profile: vips, request: 1}\n"
    listed = read(HEAD + MACHINES + jobs)
    assert {t.name: t.run_class for t in with_classes(listed, "on").tasks} == {"a": "night", "b": ""}
    drawn = drawn_workload(read(HEAD + MACHINES + "arrivals: {poisson: {rate_per_minute: 6, jobs: 20}}\n" + jobs), 3)
    found = {t.name: t.run_class for t in with_classes(drawn, "on").tasks}
    assert len(found) == 20 and all(found[name] == ("night" if name[0] == "a" else "b") for name in found)
    tasks = read(HEAD + MACHINES + "jobs: [{name: c, profile: vips, request: 1, tasks: 3}]\n")
    assert {t.run_class for t in with_classes(tasks, "on").tasks} == {"c"}


def test_learning_is_on_where_run_times_may_be_off_or_a_class_is_given() -> None:
    assert chosen_learning(COPIES, 0.0) == "off"
    assert chosen_learning(COPIES, 0.2) == chosen_learning(COPIES, "measured") == "on"
    assert chosen_learning(replace(COPIES, estimate_error=0.3), 0.0) == "on"
    assert chosen_learning(read(HEAD + MACHINES + JOBS.replace("copies: 8", "class: a")), 0.0) == "on"


@pytest.mark.parametrize("policy", ["flow", "sjf"])
def test_off_and_observe_decide_as_without_and_observe_learns_all_the_same(policy: str) -> None:
    given = read(HEAD + MACHINES + SPREAD.replace("4", "40") + JOBS.replace("scale: 2", "class: late"))
    found: dict[Any, tuple[Run, list[Snapshot]]] = {
        learning: watched(given, Options(seed=2, model_error=0.7, error_of="class", learning=learning), policy)
        for learning in (None, "off", "observe", "on")
    }
    learnt = {learning: seen[-1].learnt_run_times for learning, (_, seen) in found.items()}
    plain = replace(given, tasks=tuple(replace(t, run_class="") for t in given.tasks))
    error = ModelError(0.7, 2, "class", {t.name: given.class_of(t) for t in given.tasks})
    without, _ = watched(plain, Options(seed=2, model_error=error, learning="off"), policy)

    assert found["off"][0].jobs == found["observe"][0].jobs == without.jobs
    assert found["on"][0].jobs == found[None][0].jobs
    assert policy != "flow" or found["on"][0].jobs != without.jobs
    assert learnt["off"] == LearntRunTimes()
    assert {entry.run_class for entry in learnt["observe"].classes} == {"encode", "late"}
    assert not learnt["observe"].in_use and learnt["on"].in_use


def test_errors_of_a_class_are_those_of_all_its_tasks() -> None:
    classes, types = {"a-1": "a", "a-2": "a", "b-1": "b"}, {"m1": "large", "m2": "large", "m3": "small"}
    by_class = ModelError(0.4, 7, "class", classes, types).factor
    both = ModelError(0.4, 7, "class-and-machine-type", classes, types).factor

    assert by_class("a-1", "m1") == by_class("a-2", "m3") != by_class("b-1", "m1")
    assert both("a-1", "m1") == both("a-2", "m2")
    assert len({both("a-1", "m1"), both("a-1", "m3"), both("b-1", "m1"), both("b-1", "m3")}) == 4
    for of in ("class", "class-and-machine-type"):
        drawn = [math.log(ModelError(0.4, 7, of, {}, {}).factor(f"c{k}", "m")) for k in range(400)]
        assert math.sqrt(sum(x * x for x in drawn) / 400) == pytest.approx(0.4, rel=0.1)


@pytest.mark.parametrize("error_of", ["class", "class-and-machine-type"])
def test_a_run_learns_the_truth_from_few_completions(error_of: ErrorOf) -> None:
    """Beside neighbours that are estimated, not known: within a fifth of the truth."""
    options = Options(seed=5, model_error=0.5, error_of=error_of)
    run, seen = watched(COPIES, options)
    types = {m.name: m.type for m in COPIES.machines}
    truth = ModelError(0.5, 5, error_of, {t.name: COPIES.class_of(t) for t in COPIES.tasks}, types).factor
    learnt = seen[-1].learnt_run_times
    assert {entry.run_class for entry in learnt.classes} == {"encode", "index"}
    off = []
    for entry in learnt.classes:
        found = learnt.of(entry.run_class, entry.machine_type)
        machine = next(name for name, kind in types.items() if kind == entry.machine_type)
        assert found is not None
        if entry.runs > 2:
            off.append(math.log(found.factor / truth(f"{entry.run_class}-1", machine)))
    assert len(off) > 1 and max(map(abs, off)) < 0.2
    assert all(job.end_s is not None for job in run.jobs)


def test_the_command_says_which_words_it_takes_and_runs_with_them(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(HEAD + MACHINES + JOBS)
    done = CliRunner().invoke(flowsched, ["simulate", str(path), "--learning", "maybe"])
    assert done.exit_code == 2 and "'off', 'observe', 'on'" in done.output
    assert load_scenario(path).class_of(load_scenario(path).tasks[0]) == "encode"
    assert get_args(ErrorOf)[2:] == ("class", "class-and-machine-type")
    args = ["simulate", str(path), "--policy", "sjf", "--variant", "declared-own", "--json", "--model-error", "0.5"]
    outputs = {
        learning: CliRunner().invoke(flowsched, [*args, "--error-of", "class", "--learning", learning]).output
        for learning in ("off", "on")
    }
    assert outputs["off"] and outputs["off"] != outputs["on"]


def ran(scenario: Scenario, **options: Any) -> dict[str, float]:
    """Seconds from start to end of each job, on its own cores."""
    run = simulate(scenario, "fcfs", options=Options(**options), variant="1-own")
    return {job.job: job.end_s - job.start_s for job in run.jobs if job.end_s is not None and job.start_s is not None}


ALONE = "machines: [{type: e2-standard-8, copies: 30}]\n"


def test_a_job_runs_by_its_true_profile_and_policies_are_told_the_other() -> None:
    jobs = "jobs: [{name: a, profile: vips, request: 1, scale: 2, copies: 2"
    told = read(HEAD + ALONE + jobs + ", true_profile: canneal}]\n")
    assert told.true_profiles == {"a-1": "canneal", "a-2": "canneal"} and {t.profile for t in told.tasks} == {"vips"}
    true = read(HEAD + ALONE + jobs.replace("vips", "canneal") + "}]\n")
    assert ran(told) == pytest.approx(ran(true))
    assert chosen_learning(told, 0.0) == "on"
    assert with_copies(told, jobs=2).true_profiles.keys() == {"a-1", "a-2", "a-1-2", "a-2-2"}
    drawn = drawn_workload(read(HEAD + ALONE + jobs[: jobs.index(", copies")] + DRAWN), 1)
    assert drawn.true_profiles == {"a-1": "canneal", "a-2": "canneal", "a-3": "canneal"}
    # Its slowdown is that to its true run time alone.
    slowdowns = [[job.slowdown for job in simulate(s, "fcfs", variant="1-own").jobs] for s in (told, true)]
    assert slowdowns[0] == pytest.approx(slowdowns[1])


DRAWN = ", true_profile: canneal}]\narrivals: {poisson: {rate_per_minute: 6, jobs: 3}}\n"


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("profile: vips, true_profile: vip", "true_profile: .*vip"),
        ("runtime_s: 3, true_profile: vips", "true_profile: has no meaning beside runtime_s"),
    ],
)
def test_a_true_profile_that_cannot_be_is_refused(job: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(HEAD + ALONE + f"jobs: [{{name: a, request: 1, {job}}}]\n")


def test_some_runs_straggle_as_the_seed_draws_them() -> None:
    jobs = "jobs: [{name: a, runtime_s: 10, request: 1, copies: 60}]\n"
    plain, late = (read(HEAD + more + ALONE + jobs) for more in ("", "stragglers: {share: 0.3, factor: 5}\n"))
    straight = ran(plain)
    factors = {name: seconds / straight[name] for name, seconds in ran(late, seed=4).items()}
    assert {round(factor, 6) for factor in factors.values()} == {1.0, 5.0}
    count = sum(factor > 2.0 for factor in factors.values())
    assert 8 <= count <= 30
    assert ran(late, seed=4) != ran(late, seed=5)
    assert chosen_learning(late, 0.0) == "on"
    assert drawn_parts(late, 0.0) == ("stragglers",)


def test_true_sensitivities_differ_where_neighbours_are() -> None:
    jobs = "jobs: [{name: a, profile: canneal, request: 1, copies: 8}]\n"
    for machines, same in ((ALONE, True), (ALONE.replace("copies: 30", "copies: 1"), False)):
        plain, off = (read(HEAD + more + machines + jobs) for more in ("", "sensitivity_error: 0.6\n"))
        if same:  # one on each machine
            plain, off = (
                replace(s, tasks=tuple(replace(t, machines=(f"e2-standard-8-{k}",)) for k, t in enumerate(s.tasks, 1)))
                for s in (plain, off)
            )
        found = ran(off, seed=2) == pytest.approx(ran(plain, seed=2))
        assert found is same
    assert chosen_learning(off, 0.0) == "on" and drawn_parts(off, 0.0) == ("sensitivities",)
