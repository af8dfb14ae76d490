"""Jobs that are killed at their walltime: when, what policies are told, what results say, and what comes after."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.exact_runs import started
from benchmarks.integer_loop import Job, starts_of
from builders import CATALOGUE, SCALING, machine, task
from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.decision import Decisions, Move, Placement, Preemption
from flowsched.cluster.events import MachineAdded, TaskBound, TaskFinished, TaskSubmitted
from flowsched.cluster.run_time_errors import RunTimeErrors
from flowsched.cluster.snapshot import Snapshot
from flowsched_models.document import InputError
from flowsched_models.execution import INSTANT_S
from flowsched_simulator import Options, Run, Scenario, load_scenario, make_scenario, simulate
from flowsched_simulator.baselines.registry import BASELINES
from flowsched_simulator.comparison import result
from flowsched_simulator.experiment.copies import with_copies
from flowsched_simulator.experiment.offered_load import offered_load
from flowsched_simulator.planning import snapshot_of
from flowsched_simulator.prediction import predict
from flowsched_simulator.replay import replay
from flowsched_simulator.report.page import render_report
from flowsched_simulator.schedule import Schedule, ScheduledTask
from flowsched_simulator.simulation import Simulation
from flowsched_simulator.table import render_table
from flowsched_simulator.workload import drawn_workload

CORES = 8
BOX = {"cores": CORES, "memory": "64Gi"}
MEASURED = {"name": "m0", "type": "e2-standard-8"}
POLICIES = ["fcfs", "easy", "sjf", "srpt", "conservative", "flow", "quincy"]


def scenario(jobs: Sequence[Mapping[str, Any]], machines: int = 1, **keys: Any) -> Scenario:
    named = [{"name": f"j{i:04d}", "request": CORES, **job} for i, job in enumerate(jobs)]
    return make_scenario([{**BOX, "name": f"m{k}"} for k in range(machines)], named, **keys)


def run_by(given: Scenario, policy: str, **options: Any) -> Run:
    granted = policy in BASELINES and BASELINES[policy].uses_granting
    return simulate(given, policy, options=Options(**options), variant="declared-own" if granted else None)


def killed(run: Run) -> list[bool | None]:
    return [job.killed for job in run.jobs]


def ends(run: Run) -> list[float | None]:
    return [job.end_s for job in run.jobs]


# --- when -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_is_killed_exactly_at_its_walltime_and_its_room_is_free_then(policy: str) -> None:
    jobs = [
        {"runtime_s": 100, "walltime_s": 61, "submit_s": 3},
        {"runtime_s": 7, "walltime_s": 7, "submit_s": 4},
        {"runtime_s": 5, "walltime_s": 60, "submit_s": 5, "after": ["j0000"]},
        {"runtime_s": 1, "submit_s": 1_700_000_000.0},
    ]

    run = run_by(scenario(jobs, start_delay={"at_submission_s": 1, "after_waiting_s": 2}), policy)

    assert killed(run) == [True, False, False, None]
    for job, lasts in zip(run.jobs, (61, 7, 5, 1), strict=True):
        assert job.start_s is not None and job.end_s is not None
        pieces = [(stay.start_s, stay.left_s) for stay in job.earlier] + [(job.start_s, job.end_s)]
        assert sum(max(0.0, end - start) for start, end in pieces) == lasts
    if policy != "srpt":  # which lets a shorter one go first
        assert ends(run)[:3] == [65.0, 74.0, 81.0]


def test_an_end_in_the_same_instant_wins_over_the_kill() -> None:
    for off_s, wins in ((0.0, True), (0.9 * INSTANT_S, True), (-0.9 * INSTANT_S, True), (3 * INSTANT_S, False)):
        run = run_by(scenario([{"runtime_s": 10 + off_s, "walltime_s": 10}]), "fcfs")
        assert killed(run) == [not wins], off_s
        assert ends(run) == pytest.approx([10 + off_s if wins else 10.0], abs=1e-9)


def test_neighbours_that_stretch_a_run_get_it_killed_and_go_on_faster() -> None:
    jobs: list[dict[str, Any]] = [
        {"request": 2, "profile": "canneal", "runtime_s": 100, "walltime_s": walltime} for walltime in (None, 100)
    ]
    jobs = [{key: value for key, value in job.items() if value is not None} for job in jobs]

    run = simulate(scenario(jobs), "all-at-once")

    assert killed(run) == [None, True] and ends(run)[1] == 100.0
    alone_s = ends(simulate(scenario([jobs[0], {**jobs[0]}]), "all-at-once"))[0]
    assert alone_s is not None and 100.0 < (ends(run)[0] or 0.0) < alone_s


def test_a_job_by_profile_is_killed_too() -> None:
    long = {"profile": "vips", "request": 2, "scale": 50}
    jobs = [{"name": "a", **long, "walltime_s": 30}, {"name": "b", **long, "walltime_s": 1e9}]

    run = run_by(make_scenario([MEASURED], jobs), "easy")

    assert killed(run) == [True, False]
    assert run.jobs[0].end_s == 30.0 and run.jobs[0].alone_s == 30.0


def test_each_task_of_a_job_has_the_walltime_for_itself() -> None:
    run = run_by(scenario([{"runtime_s": 50, "walltime_s": 30, "tasks": 3}]), "fcfs")

    assert ends(run) == [30.0, 60.0, 90.0] and killed(run) == [True] * 3
    (job,) = run.outcomes
    assert (job.killed, job.end_s, run.summary()["killed"]) == (True, 90.0, 1)


def test_gangs_and_coupled_sub_tasks_end_together() -> None:
    gang = {"request": 4, "runtime_s": 50, "walltime_s": 30, "tasks": 2, "barrier": True}
    run = run_by(scenario([gang, {"runtime_s": 5}]), "flow")
    assert ends(run) == [30.0, 30.0, 35.0]

    remote = {"request": 1, "runtime_s": 50, "walltime_s": 30, "gpus": {"count": 2, "remote": True}}
    box = {**BOX, "gpus": {"model": "V100", "count": 1}}
    apart = make_scenario(
        [{**box, "name": "m0"}, {**box, "name": "m1"}], [{"name": "a", **remote}, {"name": "b", **remote}]
    )
    for policy in ("fcfs", "drmaestro"):
        run = run_by(apart, policy)
        assert ends(run) == [30.0] * 3 + [60.0] * 3 and killed(run) == [True] * 6
        assert [job.killed for job in run.outcomes] == [True, True]


class Changes:
    """Starts everything on the first machine, and preempts or moves the first task at the second round."""

    name = "changes"
    told = ()

    def __init__(self, keeps_work: bool, move: bool) -> None:
        self.rounds, self.keeps_work, self.move = 0, keeps_work, move

    def decide(self, snapshot: Snapshot) -> Decisions:
        self.rounds += 1
        places = tuple(Placement(t.name, "m0", 1000, 1, (0,)) for t in snapshot.pending)
        if self.rounds == 2 and self.move:
            move = Move("j0000", "m0", "m1", 1000, 1, (0,), 5.0, 1.0, 0.0, self.keeps_work)
            return Decisions(places, (), preemptions=(), moves=(move,))
        gone = (Preemption("j0000", "m0", "j0001", 0.0, self.keeps_work),) if self.rounds == 2 else ()
        return Decisions(places, (), preemptions=gone, moves=())


@pytest.mark.parametrize(("move", "pause_s"), [(False, 0.0), (True, 5.0)])
@pytest.mark.parametrize(("runtime_s", "walltime_s"), [(100, 30), (100, 20.5), (30, 30), (0.3, 0.3), (29, 30)])
def test_a_task_that_keeps_its_work_has_what_is_left_and_one_that_starts_again_all_of_it(
    move: bool, pause_s: float, runtime_s: float, walltime_s: float
) -> None:
    at_s = 0.1 if runtime_s < 1 else 20
    jobs = [
        {"request": 1, "runtime_s": runtime_s, "walltime_s": walltime_s},
        {"request": 1, "runtime_s": 1, "submit_s": at_s},
        {"request": 1, "runtime_s": 1, "submit_s": 2000},
    ]
    for keeps_work in (True, False):
        run = Simulation(scenario(jobs, 2), Changes(keeps_work, move)).run()

        lasts_s = min(runtime_s, walltime_s)
        begun_s = pause_s + (0.0 if keeps_work else at_s)
        assert run.jobs[0].end_s == pytest.approx(begun_s + lasts_s, abs=1e-9)
        assert run.jobs[0].killed is (runtime_s > walltime_s)
        assert len(run.jobs[0].earlier) == 1


# --- what policies are told ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"runtime_s": 50}, 50),
        ({"runtime_s": 50, "walltime_s": 80}, 80),
        ({"runtime_s": 50, "walltime_s": 20}, 20),
        ({"runtime_s": 50, "estimate_s": 30, "walltime_s": 80}, 30),
        ({"runtime_s": 50, "estimate_s": 90, "walltime_s": 80}, 80),
        ({"runtime_s": 0, "walltime_s": 80}, 80),
        ({"runtime_s": 50, "estimate_s": 0, "walltime_s": 80}, INSTANT_S),
        ({"runtime_s": 50, "walltime_s": 1e-9}, INSTANT_S),
    ],
)
def test_policies_are_told_the_estimate_else_the_walltime_and_never_more(keys: dict[str, Any], told: float) -> None:
    given = scenario([keys])

    (job,) = given.tasks
    assert job.scale == told
    run = run_by(given, "fcfs")
    assert ends(run) == pytest.approx([min(keys["runtime_s"], keys.get("walltime_s", 1e9))], abs=1e-9)


def test_drawn_estimates_are_at_most_the_walltime_and_leave_the_truth() -> None:
    jobs = [{"request": 1, "runtime_s": 50, "walltime_s": 60} for _ in range(40)]
    given = scenario(jobs, estimate_error=0.5)

    told = [t.scale for t in drawn_workload(given, 3).tasks]

    assert max(told) == 60 and len(set(told)) > 10
    run = run_by(given, "easy", seed=3)
    assert [round((j.end_s or 0) - (j.start_s or 0), 9) for j in run.jobs] == [50.0] * 40 and not any(killed(run))


@pytest.mark.parametrize(("rule", "count"), [("fcfs", 300), ("easy", 300), ("sjf", 100), ("conservative", 60)])
def test_rules_agree_with_an_event_loop_in_integers_that_is_told_walltimes(rule: str, count: int) -> None:
    """Jobs that end early, at their walltime, or would go on; in whole seconds, so that instants coincide."""
    rng = random.Random(5)
    asked, jobs = [], []
    for i in range(count):
        walltime = rng.choice((20, 60, 60, 300))
        lasts = rng.choice((0, 1, walltime // 2, walltime, walltime + 1, 10 * walltime))
        submit, cores = 40 * (i // 4), rng.choice((1, 1, 2, 3, 5, 8))
        asked.append({"request": cores, "runtime_s": lasts, "walltime_s": walltime, "submit_s": submit})
        jobs.append(Job(submit, min(lasts, walltime), cores, walltime))

    run = run_by(scenario(asked, 2), rule)

    right = starts_of([CORES] * 2, jobs, rule)
    assert started(run) == right
    assert ends(run) == [start + job.run for (start, _), job in zip(right, jobs, strict=True)]
    assert killed(run) == [job["runtime_s"] > job["walltime_s"] for job in asked]
    assert sum(start > job.submit for (start, _), job in zip(right, jobs, strict=True)) > count / 10


def test_what_was_killed_is_not_learnt_as_a_run_time() -> None:
    learnt = []
    for was_killed in (True, False):
        state = ClusterState(CATALOGUE)
        state.apply(MachineAdded(machine("m")), 0.0)
        state.apply(TaskSubmitted(task("t", SCALING)), 0.0)
        state.apply(TaskBound("t", "m", 1000, 4, (0, 1, 2, 3), 0.0), 0.0)
        state.apply(TaskFinished("t", was_killed), 7.0)
        learnt.append(state.snapshot(7.0).run_time_errors)
    assert learnt[0] == RunTimeErrors() != learnt[1]


def test_a_run_learns_from_ends_alone() -> None:
    seen: list[RunTimeErrors | None] = []

    class Watch(Changes):
        def decide(self, snapshot: Snapshot) -> Decisions:
            seen.append(snapshot.run_time_errors)
            return Decisions(tuple(Placement(t.name, "m0", 1000, 1, (0,)) for t in snapshot.pending), ())

    jobs = [
        {"request": 1, "runtime_s": 100, "estimate_s": 10, "walltime_s": 30},
        {"request": 1, "runtime_s": 20, "estimate_s": 10, "walltime_s": 30},
    ]
    Simulation(scenario([*jobs, {"request": 1, "runtime_s": 1, "submit_s": 50}]), Watch(True, False)).run()

    assert seen[-1] == RunTimeErrors().with_end(2.0)


# --- results --------------------------------------------------------------------------------------------


JOBS: list[dict[str, Any]] = [
    {"runtime_s": 100, "walltime_s": 40, "deadline_s": 1000},
    {"runtime_s": 10, "walltime_s": 40, "deadline_s": 1000},
    {"runtime_s": 10, "deadline_s": 1000},
    {"runtime_s": 10, "walltime_s": 5, "submit_s": 500},
]


def test_a_killed_job_missed_its_deadline_and_is_compared_with_its_walltime() -> None:
    run = run_by(scenario(JOBS), "fcfs")

    assert [job.missed for job in run.jobs] == [True, False, False, None]
    assert [job.missed for job in run.outcomes] == [True, False, False, None]
    assert [job.alone_s for job in run.jobs] == [40.0, 10.0, 10.0, 5.0]
    assert [job.slowdown for job in run.jobs] == [1.0, 5.0, 6.0, 1.0]
    assert (run.summary()["killed"], run.summary()["missed"], run.makespan_s) == (2, 1, 505.0)
    frame = run.to_frame()
    assert frame["killed"].tolist() == [True, False, None, True]
    early = run_by(scenario(JOBS), "fcfs", max_time_s=20)
    assert killed(early) == [False, False, None, False] and early.summary()["killed"] == 0


def test_results_tell_of_kills_only_where_there_can_be_any() -> None:
    without = scenario([{"runtime_s": 60}])
    told = result(without, [run_by(without, "fcfs")])
    for text in (render_table(told["table"]), render_report(told), str(told)):
        assert "killed" not in text.lower() and "walltime" not in text.lower()
    given = scenario(JOBS)
    found = result(given, [run_by(given, "fcfs"), run_by(given, "flow")])
    assert "killed" in render_table(found["table"])
    assert "Jobs killed at their walltime: fcfs 2, flow 2." in render_report(found)
    assert '"Walltime, s"' in render_report(found)
    rows = json.loads(json.dumps(found))["runs"][0]["jobs"]
    assert [(job.get("walltime_s"), job.get("killed")) for job in rows] == [
        (40.0, True),
        (40.0, False),
        (None, None),
        (5.0, True),
    ]


def test_a_run_is_the_same_each_time_and_on_any_clock() -> None:
    rng = random.Random(2)
    jobs = [
        {"request": rng.choice((1, 2, 5)), "runtime_s": rng.uniform(1, 90), "walltime_s": 45, "submit_s": 10 * (i // 3)}
        for i in range(14)
    ]
    for policy in ("flow", "easy", "las"):
        runs = [run_by(scenario(jobs, 2), policy, model_error=0.3) for _ in range(2)]
        assert runs[0].jobs == runs[1].jobs
        assert {True, False} == set(killed(runs[0]))
        later = run_by(
            scenario([{**job, "submit_s": job["submit_s"] + 1e6} for job in jobs], 2), policy, model_error=0.3
        )
        assert [job.start_s - 1e6 for job in later.jobs if job.start_s is not None] == pytest.approx(
            [job.start_s for job in runs[0].jobs], abs=1e-6
        )


# --- replays, predictions, plans ------------------------------------------------------------------------------


def test_schedules_and_predictions_kill_too() -> None:
    given = scenario([{"request": 4, "runtime_s": 100, "walltime_s": 40}, {"request": 8, "runtime_s": 10}], name="w")
    place = {"machine": "m0", "threads": 4}
    schedule = Schedule(
        "mine",
        "w",
        {},
        (
            ScheduledTask(job="j0000", cores=(0, 1, 2, 3), start_s=2.0, **place),  # type: ignore[arg-type]
            ScheduledTask(job="j0001", cores=tuple(range(8)), after="j0000", **place),  # type: ignore[arg-type]
        ),
    )

    run = replay(given, schedule)

    assert ends(run) == [42.0, 52.0] and killed(run) == [True, None] and run.jobs[0].alone_s == 40.0
    assert predict(given, schedule, draws=3).makespan_s.nominal == 52.0


def test_plans_refuse_kills_that_they_cannot_foresee() -> None:
    assert [t.scale for t in snapshot_of(scenario([{"runtime_s": 50, "walltime_s": 20}]), 0).pending] == [20.0]
    for keys in ({"profile": "vips"}, {"profile": "vips", "runtime_s": 50}):
        given = make_scenario([MEASURED], [{"name": "a", "request": 2, "walltime_s": 20, **keys}])
        with pytest.raises(InputError, match="walltime_s: a plan does not know when a is killed"):
            snapshot_of(given, 0)


# --- files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["-1", "0", "soon", ".nan", ".inf"])
def test_a_walltime_is_a_number_of_seconds_above_0(value: str, tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    head = "apiVersion: flowsched/v1\nkind: Scenario\nname: w\nmachines: [{cores: 2, memory: 1Gi}]\n"
    path.write_text(f"{head}jobs: [{{name: a, request: 1, runtime_s: 5, walltime_s: {value}}}]\n")
    with pytest.raises(InputError) as raised:
        load_scenario(path)
    (problem,) = raised.value.problems
    assert "jobs[0].walltime_s" in str(problem) and "w.yaml:5" in str(problem)


def test_tables_mixes_and_copies_carry_it(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(
        "submit_s,name,request,runtime_s,estimate_s,walltime_s\n0,a,1,60,,20\n5,b,2,30,10,40\n9,c,1,30,,\n"
    )
    data = {"apiVersion": "flowsched/v1", "kind": "Scenario", "name": "t", "machines": [BOX]}
    (tmp_path / "t.yaml").write_text(yaml.safe_dump({**data, "arrivals": {"file": "jobs.csv"}}))
    given = load_scenario(tmp_path / "t.yaml")
    assert [t.scale for t in given.tasks] == [20.0, 10.0, 30.0]
    assert ends(run_by(given, "fcfs")) == [20.0, 35.0, 39.0]
    assert killed(run_by(with_copies(given, jobs=2), "fcfs")).count(True) == 2

    mix = scenario(
        [{"request": 1, "runtime_s": 60, "walltime_s": 20, "mix": 3}, {"request": 1, "runtime_s": 30}],
        arrivals={"poisson": {"rate_per_minute": 60, "jobs": 20}},
    )
    run = run_by(mix, "fcfs")
    assert all(job.killed is (True if job.job.startswith("j0000") else None) for job in run.jobs)
    assert True in killed(run) and None in killed(run)
    short = replace(mix, arrivals=replace(mix.arrivals, mix={}))
    assert offered_load(short) == pytest.approx((20 + 30) / 2 / CORES)
