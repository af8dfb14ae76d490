"""What ends of pods teach, with the state machine and its engine; the watches' events are handed over one by one."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from events_recorded import Recorded, differences, played_inputs
from hypothesis import given, settings
from hypothesis import strategies as st
from model_scheduler import ModelScheduler
from model_server import ModelServer
from objects_builders import Json, container, decoded, metadata, node, pod

from flowsched.cluster.class_runs import MOST_RUNS, ClassRuns
from flowsched_k8s import names
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.events.event_player import play
from flowsched_k8s.learning.finished_runs import SHORTEST_S, FinishedRun, LeftOut, finished_run
from flowsched_k8s.learning.learner import LEARNT, PROFILE, Learner
from flowsched_k8s.learning.saved_runs import Saved, SavedRuns, dump_saved, read_saved
from flowsched_k8s.objects import FinishedPod, Pod
from flowsched_k8s.pods.run_times import forecast_run_s
from flowsched_models.profiles import load_catalogue

CATALOGUE = load_catalogue()
KIND = "e2-standard-8"
JOB = {names.PROFILE: "canneal"}


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ended(
    name: str,
    run_s: float,
    ended_s: float,
    *,
    cpu: str = "1",
    image: str = "v1",
    labels: Json | None = None,
    annotations: Json | None = None,
    on: str = "n1",
    restarts: int = 0,
    code: int = 0,
    policy: str = "Never",
    deleted_s: float | None = None,
    conditions: list[Json] | None = None,
    uid: str | None = None,
) -> FinishedPod:
    """As the watch of finished pods shows it."""
    meta = metadata(name, "default", labels=labels, annotations=annotations, uid=uid)
    if deleted_s is not None:
        meta |= {"deletionTimestamp": moment(deleted_s + 30), "deletionGracePeriodSeconds": 30}
    terminated = {"exitCode": code, "startedAt": moment(ended_s - run_s), "finishedAt": moment(ended_s)}
    return decoded(
        FinishedPod,
        {
            "metadata": meta,
            "spec": {
                "schedulerName": "flowsched",
                "nodeName": on,
                "restartPolicy": policy,
                "containers": [{**container("main", cpu), "image": image}],
            },
            "status": {
                "phase": "Succeeded",
                "conditions": conditions,
                "containerStatuses": [{"restartCount": restarts, "state": {"terminated": terminated}}],
            },
        },
    )


def waiting(name: str, image: str = "v1", cpu: str = "1", **more: Any) -> Pod:
    """The same before it runs."""
    return pod(name, containers=[{**container("main", cpu), "image": image}], restartPolicy="Never", **more)


def scheduler(mode: str = "on", nodes: int = 1) -> ModelScheduler:
    """One that does not know yet what was learnt before."""
    server = ModelServer()
    for i in range(nodes):
        server.put(node(f"n{i + 1}", "8", labels={names.MACHINE_TYPE: KIND}))
    return ModelScheduler(server, Configuration.model_validate({"learning": mode}))


def learning(mode: str = "on", nodes: int = 1) -> ModelScheduler:
    """One that leads and has learnt nothing."""
    running = scheduler(mode, nodes)
    learner_of(running).lead(Saved(until_s=1.0), running.now)
    return running


def learner_of(running: ModelScheduler) -> Learner:
    assert running.state.learner is not None
    return running.state.learner


def finish(learner: Learner, pods: list[FinishedPod], now: float) -> None:
    """The watch tells of ends, and a second goes by."""
    learner.finished(pods, now)
    learner.learn(now)


# What an end says


@pytest.mark.parametrize(
    ("pod_ended", "outcome"),
    [
        (ended("a", SHORTEST_S - 1.0, 100.0), LeftOut.SHORT),
        (ended("a", 60.0, 100.0, restarts=1), LeftOut.RESTARTED),
        (ended("a", 60.0, 100.0, code=3), LeftOut.UNCLEAR),
        (ended("a", 60.0, 100.0, on=""), LeftOut.UNCLEAR),
        (ended("a", 60.0, 100.0, deleted_s=100.0), LeftOut.DISRUPTED),
        (ended("a", 60.0, 100.0, deleted_s=90.0), LeftOut.DISRUPTED),
        (ended("a", 60.0, 100.0, conditions=[{"type": names.DISRUPTION_TARGET, "status": "True"}]), LeftOut.DISRUPTED),
        (ended("a", 60.0, 100.0, policy="Always"), None),
    ],
)  # fmt: skip
def test_some_ends_say_nothing_of_run_times(pod_ended: FinishedPod, outcome: LeftOut | None) -> None:
    assert finished_run(pod_ended, CATALOGUE) is outcome


def test_a_pod_that_is_deleted_after_its_end_ran_to_its_end() -> None:
    run = finished_run(ended("a", 60.0, 100.0, deleted_s=101.0), CATALOGUE)
    assert isinstance(run, FinishedRun)
    assert (run.run_s, run.ended_s) == (60.0, 100.0)


def test_ends_without_an_observation_are_counted_by_reason() -> None:
    running = learning()
    learner = learner_of(running)
    finish(learner, [ended("a", 1.0, 100.0), ended("b", 60.0, 100.0, restarts=2), ended("c", 60.0, 100.0)], 101.0)
    finish(learner, [ended("d", 60.0, 100.0, policy="Always")], 101.0)
    assert learner.tallies.ends == {LeftOut.SHORT: 1, LeftOut.RESTARTED: 1, LEARNT: 1}
    assert [row.runs for row in learner.learnt.classes] == [1]


# What is learnt


def test_a_run_is_compared_with_what_its_pod_declared_before_it_ran() -> None:
    """Whichever watch tells of the end first."""
    running = learning()
    learner = learner_of(running)
    told, later = {names.RUN_TIME: "50s"}, {names.RUN_TIME: "5000s"}
    running.create(*(waiting(name, annotations=told) for name in ("first", "second")))
    running.round()
    running.answer_all()
    running.deliver()
    uids = {e.key.name: e.key.uid for e in running.state.cache.pods.values()}
    running.server.now += 60.0
    finish(learner, [ended("first", 60.0, running.now, annotations=later, uid=uids["first"])], running.now)
    running.server.finish(next(e.pod for e in running.state.cache.pods.values() if e.key.name == "second"))
    running.deliver()
    finish(learner, [ended("second", 60.0, running.now, annotations=later, uid=uids["second"])], running.now)
    errors = [error for compared, error in learner.tallies.errors if compared == PROFILE]
    assert errors == pytest.approx([0.2, 0.2])


def test_a_run_is_measured_against_the_forecast_for_its_neighbours() -> None:
    """Two pods that share cores, each as slow as the models say: the factor is 1, and raw durations would say more."""
    running = learning()
    running.create(*(waiting(f"job-{i}", cpu="4", annotations=JOB) for i in range(2)))
    running.round()
    running.answer_all()
    running.deliver()
    began = running.now
    running.create(waiting("more", cpu="100m", annotations=JOB))
    running.round()  # it looks at the nodes, so that progress is estimated from here on
    running.answer_all()
    running.deliver()
    entries = {e.key.name: e for e in running.state.cache.pods.values()}
    course_of = running.state.inputs.occupied.course

    def progress(after_s: float) -> float:
        course = course_of(entries["job-0"], began + after_s)
        assert course is not None
        return course.progress

    lasts = next(after_s for after_s in range(1, 10_000) if progress(after_s) >= 1.0)
    running.server.now += lasts
    learner = learner_of(running)
    placed = entries["job-0"]
    host = course_of(placed, running.now)
    assert host is not None
    alone = host.host.alone_s("canneal", host.resident.threads, host.resident.cores, 1.0)
    assert lasts > 1.1 * alone, "they do not slow each other down"
    notes = {**JOB, names.THREADS: str(placed.threads), names.CORES: ",".join(map(str, placed.cores))}
    last = ended("job-0", lasts, running.now, cpu="4", annotations=notes, on=placed.node, uid=placed.key.uid)
    finish(learner, [last], running.now)
    (row,) = learner.learnt.classes
    assert abs(row.log_sum) < 0.02
    kind, off = learner.tallies.errors[0]
    assert (kind, off < 0.02) == ("profile", True)


def test_either_watch_may_tell_of_an_end_first() -> None:
    found = []
    for first in (True, False):
        running = learning()
        running.create(waiting("job-0", annotations=JOB), waiting("beside", annotations=JOB))
        running.round()
        running.answer_all()
        running.deliver()
        running.server.now += 300.0
        entry = next(e for e in running.state.cache.pods.values() if e.key.name == "job-0")
        last = ended("job-0", 290.0, running.now, annotations=JOB, uid=entry.key.uid)
        if first:
            finish(learner_of(running), [last], running.now)
        running.server.finish(entry.pod)
        running.deliver()
        if not first:
            finish(learner_of(running), [last], running.now)
        finish(learner_of(running), [last], running.now)  # told again, such as for a finalizer that went
        found.append(learner_of(running).learnt.classes)
    assert found[0] == found[1]
    assert [row.runs for row in found[0]] == [1]


def test_pods_without_a_forecast_are_measured_against_the_first_of_their_class() -> None:
    running = learning()
    learner = learner_of(running)
    for i, run_s in enumerate((100.0, 120.0, 110.0)):
        finish(learner, [ended(f"job-{i}", run_s, 1000.0 + i)], 1000.0 + i)
    (row,) = learner.learnt.classes
    assert [saved.base_s for saved in learner.saved().rows] == [100.0]
    assert row.log_sum == pytest.approx(math.log(1.2) + math.log(1.1), abs=1e-5)
    # A first run is compared with nothing; with its profile none of them is.
    assert [kind for kind, _ in learner.tallies.errors] == ["class", "class"]


def test_a_declared_run_time_is_the_forecast_of_a_pod_without_a_profile() -> None:
    learner = learner_of(learning())
    finish(learner, [ended("job-0", 100.0, 1000.0, annotations={names.RUN_TIME: "50s"})], 1000.0)
    (row,) = learner.learnt.classes
    assert row.log_sum == pytest.approx(math.log(2.0), abs=1e-5)
    assert learner.tallies.errors == [("profile", pytest.approx(1.0))]


def test_a_new_image_begins_as_the_old_one_with_the_weight_of_one_run() -> None:
    running = learning()
    learner = learner_of(running)
    for i in range(10):
        finish(learner, [ended(f"job-{i}", 150.0, 1000.0 + i, annotations={names.RUN_TIME: "100s"})], 1000.0 + i)
    (old,) = learner.learnt.classes
    running.create(waiting("job-77", image="v2", annotations={names.RUN_TIME: "100s"}))
    entry = next(e for e in running.state.cache.pods.values() if e.key.name == "job-77")
    new = next(row for row in learner.learnt.classes if row.run_class == entry.run_class)
    assert (new.runs, old.runs) == (1, 10)
    assert new.log_sum == pytest.approx(math.log(1.5), abs=1e-5)
    before = learner.learnt.of(new.run_class, new.machine_type)
    for i in range(5):
        last = ended(f"job-8{i}", 75.0, 1100.0 + i, image="v2", annotations={names.RUN_TIME: "100s"})
        finish(learner, [last], 1100.0 + i)
    after = learner.learnt.of(new.run_class, new.machine_type)
    assert before is not None
    assert after is not None
    assert after.factor < 1.0 < before.factor


@given(st.lists(st.floats(0.2, 5.0), min_size=MOST_RUNS, max_size=3 * MOST_RUNS))
@settings(max_examples=10)
def test_old_runs_fade(ratios: list[float]) -> None:
    learner = learner_of(learning())
    for i, ratio in enumerate(ratios):
        run_s = max(SHORTEST_S, round(100.0 * ratio))
        finish(learner, [ended(f"job-{i}", run_s, 1000.0 + i, annotations={names.RUN_TIME: "100s"})], 1000.0)
        (row,) = learner.learnt.classes
        assert row.runs <= MOST_RUNS
        # Sums are those of some runs: a mean square is never below the square of the mean.
        assert row.log_squares * row.runs >= row.log_sum**2 - 1e-3
    for i in range(4 * MOST_RUNS):
        finish(learner, [ended(f"job-{1000 + i}", 100.0, 5000.0, annotations={names.RUN_TIME: "100s"})], 5000.0)
    (row,) = learner.learnt.classes
    assert row.runs <= MOST_RUNS
    # What came before has been halved eight times.
    assert abs(row.log_sum) < 1.0


# What rounds are told


def snapshots(running: ModelScheduler) -> Any:
    """What the engine is given."""
    assert running.begin()
    given = running.given
    assert given is not None
    running.plan()
    running.end()
    return given


def taught(running: ModelScheduler, ratio: float = 2.0) -> str:
    """Ends of pods of the class of ``waiting``, each so much longer than alone; the class."""
    learner = learner_of(running)
    host = running.state.cache.nodes["n1"].type
    hosts = learner._hosts.host(host.name, ())
    alone = hosts.alone_s("canneal", 1, tuple(range(host.vcpus)), 1.0)
    for i in range(6):
        finish(learner, [ended(f"job-{i}", round(ratio * alone), 1000.0 + i, annotations=JOB)], 1000.0 + i)
    return learner.learnt.classes[0].run_class


@pytest.mark.parametrize("mode", ["observe", "on"])
def test_only_where_it_is_on_rounds_are_told_factors(mode: str) -> None:
    running = learning(mode)
    run_class = taught(running)
    running.create(waiting("job-50", annotations=JOB))
    given = snapshots(running)
    (task,) = (c.task for c in given.classes)
    on = mode == "on"
    assert task.run_class == (run_class if on else "")
    assert [row.run_class for row in given.learnt.classes] == ([run_class] if on else [])
    shown = learner_of(running).learnt.shown(run_class, KIND)
    assert shown is not None
    assert shown.factor == pytest.approx(2.0, rel=0.1)
    running.answer_all()
    running.deliver()
    entry = next(e for e in running.state.cache.pods.values() if e.key.name == "job-50")
    assert entry.factor == (shown.factor if on else 1.0)
    running.create(waiting("job-51", annotations=JOB))
    (there,) = snapshots(running).cluster.running
    assert there.factor == entry.factor


def test_pods_of_different_classes_are_different_tasks() -> None:
    running = learning()
    running.create(waiting("train-1", annotations=JOB), waiting("encode-1", annotations=JOB))
    given = snapshots(running)
    assert len({c.task.run_class for c in given.classes}) == 2


def test_a_running_pod_is_further_where_less_is_expected_of_it() -> None:
    """Its progress counts the work that was forecast at its start, factor and all."""
    done = []
    for mode in ("observe", "on"):
        running = learning(mode)
        taught(running)
        running.create(waiting("job-50", annotations=JOB))
        running.round()
        running.answer_all()
        running.deliver()
        running.create(waiting("job-51", annotations=JOB))
        snapshots(running)
        running.answer_all()
        running.deliver()
        running.server.now += 20.0
        running.create(waiting("job-52", annotations=JOB))
        given = snapshots(running)
        done.append(next(r.progress for r in given.cluster.running if r.task.job == "default/job-50"))
    assert done[0] == pytest.approx(done[1] * 2.0, rel=0.1)


def test_rounds_with_learnt_run_times_are_played_as_they_were(tmp_path: Path) -> None:
    running = learning(nodes=2)
    taught(running)
    recorded = Recorded(running, tmp_path / "events.jsonl")
    for i in range(4):
        running.create(*(waiting(f"job-{i}{j}", cpu="3", annotations=JOB) for j in range(3)))
        running.round()
        running.answer_all()
        running.deliver()
        running.server.now += 45.0
        finish(learner_of(running), [ended(f"other-{i}", 90.0, running.now, annotations=JOB)], running.now)
    recorded.done()
    path = tmp_path / "events.jsonl"
    assert not differences(played_inputs(path), recorded.inputs)
    played = play(path)
    assert played.same, played.verdict()
    assert played.rounds >= 4


# Restarts


def test_a_replica_that_does_not_lead_learns_when_it_does() -> None:
    running = scheduler()
    learner = learner_of(running)
    for i in range(5):
        finish(learner, [ended(f"job-{i}", 60.0, 1000.0 + 100.0 * i)], running.now)
    assert not learner.learnt.classes
    assert not learner.tallies.ends
    learner.lead(Saved(until_s=1150.0), running.now)
    # Of those that ended after the last entry, and shortly before.
    assert [row.runs for row in learner.learnt.classes] == [4]


@given(st.lists(st.integers(0, 400), min_size=1, max_size=30), st.integers(0, 30), st.randoms())
@settings(max_examples=25, deadline=None)
def test_after_a_restart_every_end_counts_once(ends: list[int], first: int, rng: Any) -> None:
    pods = [ended(f"job-{i}", 60.0, 10_000.0 + at, annotations={names.RUN_TIME: "60s"}) for i, at in enumerate(ends)]
    whole = learner_of(learning())
    finish(whole, pods, 0.0)
    before = learner_of(learning())
    # Ends are told within some seconds.
    told = sorted(pods, key=lambda p: (p.status.container_statuses[0].state.terminated.finished_at, rng.random()))  # type: ignore[index, union-attr]
    finish(before, told[:first], 0.0)
    saved, wrong = read_saved(dump_saved(before.saved()))
    assert not wrong
    after = learner_of(scheduler())
    finish(after, pods, 0.0)  # the list that a replica begins with
    after.lead(saved, 0.0)
    assert [(r.runs, r.micro_logs) for r in after.learnt.classes] == [
        (r.runs, r.micro_logs) for r in whole.learnt.classes
    ]


def test_what_was_deleted_is_forgotten_and_not_learnt_again() -> None:
    learner = learner_of(learning())
    finish(learner, [ended("job-0", 60.0, 1000.0)], 1000.0)
    learner.forget(1010.0)
    assert not learner.learnt.classes
    saved = learner.saved()
    again = learner_of(scheduler())
    finish(again, [ended("job-0", 60.0, 900.0)], 1020.0)
    again.lead(saved, 1020.0)
    assert not again.learnt.classes


def test_a_line_has_some_hundred_bytes_and_those_seen_longest_ago_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        SavedRuns(ClassRuns.of(f"team-{i % 12}/nightly-encode@{i:08x}", KIND, 14, 3.672111, 1.021234567), 612.125, i)
        for i in range(400)
    ]
    data = dump_saved(Saved(tuple(rows), 1000.0))
    assert len(data["classes"]) / len(rows) < 110
    assert read_saved(data)[0].rows == tuple(sorted(rows, key=lambda r: dump_saved(Saved((r,)))["classes"]))
    monkeypatch.setattr("flowsched_k8s.learning.saved_runs.MOST_BYTES", 10_000)
    kept = read_saved(dump_saved(Saved(tuple(rows), 1000.0)))[0].rows
    assert {row.seen_s for row in kept} == set(range(400 - len(kept), 400))
    monkeypatch.setattr("flowsched_k8s.learning.learner.MOST_ROWS", 100)
    learner = learner_of(learning())
    learner.lead(Saved(tuple(rows), 1000.0), 1000.0)
    assert {row.seen_s for row in learner.saved().rows} == set(range(300, 400))


@pytest.mark.parametrize(
    ("data", "rows", "says"),
    [
        ({}, 0, "version ''"),
        ({"version": "2", "until": "1", "classes": ""}, 0, "version '2'"),
        ({"version": "1", "until": "nan", "classes": ""}, 0, "'until' is not a time"),
        ({"version": "1", "until": "1", "classes": '["a","b",1,0.5,0.25,0,1]\n["a"]\n{}'}, 1, "2 of its lines"),
        ({"version": "1", "until": "1", "classes": '["a","b",0,0.5,0.25,0,1]\n["a b","b",1,0,0,0,1]'}, 0, "2 of its"),
        ({"version": "1", "until": "1", "classes": '["a","b",1,1e300,0.25,0,1]'}, 0, "1 of its lines"),
    ],
)
def test_what_users_write_there_is_data(data: dict[str, str], rows: int, says: str) -> None:
    saved, wrong = read_saved(data)
    assert len(saved.rows) == rows
    assert says in wrong


def test_a_template_is_not_shared_by_pods_of_other_classes() -> None:
    running = learning()
    running.create(*(waiting(f"{name}-{i}") for i, name in itertools.product(range(2), ("a", "b"))))
    found = {e.key.name: e.run_class.partition("@")[0] for e in running.state.cache.pods.values()}
    assert found == {f"{n}-{i}": f"default/{n}" for i, n in itertools.product(range(2), ("a", "b"))}


def test_off_means_that_nothing_is_known() -> None:
    running = scheduler("off")
    running.create(waiting("job-0"))
    assert running.state.learner is None
    assert {e.run_class for e in running.state.cache.pods.values()} == {""}
    assert running.state.cache.learnt.classes == ()


def test_pods_without_a_profile_are_forecast_by_what_their_class_took() -> None:
    found = {}
    for mode in ("on", "observe"):
        running = learning(mode)
        silent = waiting("job-7", cpu="2")
        running.create(silent)
        entry = next(iter(running.state.cache.pods.values()))
        assert forecast_run_s(entry) is None
        for i, run_s in enumerate((100.0, 200.0)):
            finish(learner_of(running), [ended(f"job-{i}", run_s, 1000.0 + i, cpu="2")], 1000.0 + i)
        assert running.begin()
        assert running.given is not None
        (asked,) = running.given.classes
        found[mode] = forecast_run_s(entry), None if asked.task is None else (asked.task.scale, asked.task.endless)
        running.plan()
        running.end()
        running.answer_all()
        running.deliver()
        assert entry.place == "n1"
        found[f"{mode} placed"] = entry.factor
    assert found["on"] == (100.0, (100.0, False))
    assert found["on placed"] > 1.05  # the second ran for twice as long
    assert (found["observe"], found["observe placed"]) == ((None, None), 1.0)


def test_what_a_class_took_is_bounded_by_a_deadline_and_forgotten_with_the_rest() -> None:
    running = learning()
    running.create(waiting("job-7"), waiting("job-8", activeDeadlineSeconds=60))
    finish(learner_of(running), [ended("job-0", 100.0, 1000.0)], 1000.0)
    entries = {entry.key.name: entry for entry in running.state.cache.pods.values()}
    assert {name: forecast_run_s(entry) for name, entry in entries.items()} == {"job-7": 100.0, "job-8": 60.0}
    learner_of(running).forget(2000.0)
    assert {forecast_run_s(entry) for entry in entries.values()} == {None}


def test_pods_that_ran_before_anything_was_known_of_their_class_teach_how_long_they_ran() -> None:
    running = learning()
    running.create(
        *(waiting(f"job-{i}", cpu="2") for i in range(2)), waiting("beside", annotations={**JOB, names.SCALE: "9"})
    )
    running.round()
    running.answer_all()
    running.deliver()
    entries = {e.key.name: e for e in running.state.cache.pods.values()}
    began, learner = running.now, learner_of(running)
    for i, after_s in enumerate((100.0, 120.0)):
        running.server.now = began + after_s
        # A round looks at what runs.
        running.create(waiting(f"later-{i}", cpu="8", annotations=JOB))
        running.round()
        finish(
            learner, [ended(f"job-{i}", after_s, running.now, cpu="2", uid=entries[f"job-{i}"].key.uid)], running.now
        )
    course = running.state.inputs.occupied.course(entries["job-1"], running.now)
    assert course is not None
    assert course.progress == pytest.approx(1.2)
    (row,) = [row for row in learner.learnt.classes if row.run_class == entries["job-0"].run_class]
    assert row.runs == 2
    assert row.log_sum == pytest.approx(math.log(1.2), abs=0.02)
