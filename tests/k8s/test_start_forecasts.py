"""When pods that wait start and end: what they are told, how often, and what is learnt from what happened."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import objects_builders as b
import pytest
from model_scheduler import SOLVER, ModelScheduler
from model_server import ModelServer

from flowsched.cluster.snapshot import PlannedStart
from flowsched.cluster.start_errors import StartErrors
from flowsched.cluster.start_samples import Held, StartOutcome
from flowsched.inspector.explanation import explain
from flowsched.inspector.record_view import RecordView
from flowsched_k8s import names
from flowsched_k8s.configuration.configuration import Configuration, Features
from flowsched_k8s.groups.pod_groups import IN_TREE
from flowsched_k8s.instructions import PatchEstimate
from flowsched_k8s.metrics.metrics import Metrics
from flowsched_k8s.notices.start_notices import MOST_WRITES
from flowsched_k8s.objects import Pod
from flowsched_k8s.queue import Place
from flowsched_k8s.records.snapshot_export import snapshot_of
from flowsched_k8s.records.state_dump import dump, whole
from flowsched_k8s.rounds.planning import plan_round
from flowsched_k8s.rounds.round_input import RoundResult

TOLD = Configuration(annotate_estimated_starts=True)


def job(name: str, profile: str = "canneal", cpu: str = "4", **more: Any) -> Pod:
    notes = {names.PROFILE: profile, **more.pop("annotations", {})}
    return b.pod(name, cpu=cpu, memory="256Mi", annotations=notes, restartPolicy="Never", **more)


def contested(configuration: Configuration = TOLD, owner: tuple[str, str] | None = None) -> ModelScheduler:
    """One job runs on the large node; of those that wait, ``small`` could start on the other node, at a higher cost."""
    server = ModelServer()
    server.put(b.node("large", "7910m", "32Gi", labels={names.MACHINE_TYPE: "e2-standard-8"}))
    server.put(b.node("little", "2", "8Gi", labels={names.MACHINE_TYPE: "e2-standard-2"}))
    running = ModelScheduler(server, configuration)
    running.create(job("first", "radix"))
    running.settle(0.1)
    running.create(job("second", owner=owner), job("third", "ferret"), job("small", "vips", "2", owner=owner))
    running.settle(0.1)
    assert running.where() == {"first": "large"}
    return running


def crowd(*pods: Pod, configuration: Configuration = TOLD) -> ModelScheduler:
    """A full node, and pods that wait for room there; no round has planned any."""
    server = ModelServer()
    server.put(b.node("n1", "1"))
    server.put(b.pod("there", node="n1", cpu="1", restartPolicy="Never"))
    running = ModelScheduler(server, configuration)
    running.create(*pods)
    running.settle(0.1)
    return running


def uid(running: ModelScheduler, name: str) -> str:
    return running.server.pods["default", name].metadata.uid


def plan(running: ModelScheduler, number: int = 1, **ends_s: tuple[float, float | None]) -> None:
    """A round plans starts and ends of pods, in so many seconds."""
    now = running.now
    planned = tuple(
        PlannedStart(uid(running, name), "n1", 1, 1000, now + start, None if end is None else now + end)
        for name, (start, end) in ends_s.items()
    )
    running.state.starts.decided(RoundResult(number, (), (), planned), now)


def written(running: ModelScheduler) -> list[list[str]]:
    """Pods whose estimated starts are written second by second, until none is."""
    found = []
    while True:
        told = running.state.start_notices.look(running.now)
        for patch in told:
            running.server.patch_estimate(patch.pod, patch.text)
        running.deliver("pods")
        running.server.now += 1.0
        if not told:
            return found
        found.append([patch.pod.name for patch in told])


def note(running: ModelScheduler, name: str) -> str | None:
    return (running.server.pods["default", name].metadata.annotations or {}).get(names.ESTIMATED_START)


# What pods are told


def test_a_postponed_pod_hears_when_it_starts_and_ends() -> None:
    running = contested()

    (event,) = running.events("small")

    assert event.reason == names.POSTPONED
    assert "; starts in " in event.note and "; ends in " in event.note
    # Autoscalers and people read conditions, which would be written again and again.
    assert all("starts in" not in c.message for name in ("second", "third") for c in running.conditions(name))


def test_a_postponed_pod_of_a_job_hears_when_its_job_ends() -> None:
    (of_a_job,), (alone,) = (contested(owner=o).events("small") for o in (("Job", "of-two"), None))

    told, _, last = of_a_job.note.partition("; its job ends in ")
    assert told == alone.note and last
    # Its own end is an earlier one.
    assert float(last.split()[0]) > float(told.partition("; ends in ")[2].split()[0])


@pytest.mark.parametrize("own", [None, 5, 1])
def test_pods_are_ahead_by_the_priority_that_they_are_served_with(own: int | None) -> None:
    """That of their group, and without one the highest of its members'."""
    group = {"schedulingGroup": {"podGroupName": "train"}}
    configuration = Configuration(features=Features(pod_groups=(IN_TREE,)))
    running = crowd(
        job("long", cpu="1", **group),
        job("peer", cpu="1", priority=4, **group),
        job("short", cpu="1", priority=3),
        configuration=configuration,
    )
    running.put(b.in_tree_group(minimum=2, **({} if own is None else {"priority": own})))
    plan(running, long=(10.0, 510.0), peer=(10.0, 510.0), short=(10.0, 20.0))
    estimate = running.state.starts.of(uid(running, "short"))
    assert estimate is not None
    # The node has one core: what is to start first takes it for 500 s each.
    ahead = own is None or own > 3
    assert (estimate.start.expected_s - running.now > 900.0) is ahead


def test_the_state_and_the_record_tell_it_of_every_pod_that_is_planned() -> None:
    server = contested().server
    running = ModelScheduler(server)
    assert running.begin()
    running.plan()
    assert running.result is not None and running.result.trace is not None
    record = running.result.trace.record()
    planned = {p.task for p in running.result.plan}
    running.end()

    waiting = {w["uid"]: w for w in whole(dump(running.state, running.now))["waiting"]}

    assert planned == {u for u, w in waiting.items() if "starts_in_s" in w} and planned
    for of in planned:
        start, end = waiting[of]["starts_in_s"], waiting[of]["ends_in_s"]
        assert 0.0 <= start["earliest"] <= start["expected"] <= start["latest"]
        assert start["expected"] < end["expected"] <= end["latest"]
        told = explain(
            RecordView(json.loads(json.dumps(record, default=lambda a: a.tolist())), "r"), waiting[of]["pod"]
        )
        assert "In four of five cases it starts between " in " ".join(told.lines())


def test_the_annotation_tells_the_same_as_the_state() -> None:
    running = contested()
    running.tick()

    waiting = {w["pod"]: w for w in whole(dump(running.state, running.now))["waiting"]}
    notes = {name: note(running, name) for name in ("second", "third", "small")}

    assert any(notes.values())
    for name, text in notes.items():
        if text is None:
            continue
        for of, moments in json.loads(text).items():
            in_s = waiting[f"default/{name}"][f"{of}s_in_s"]
            assert moments.keys() == in_s.keys() == {"earliest", "expected", "latest"}
            for which, moment in moments.items():
                at_s = datetime.fromisoformat(moment).timestamp()
                assert at_s == pytest.approx(running.now + in_s[which], abs=0.6)


def test_nothing_is_written_unless_it_is_switched_on() -> None:
    running = contested(Configuration())
    for _ in range(3):
        running.tick()

    assert not any(isinstance(i, PatchEstimate) for i in running.told)
    assert "; starts in " in running.events("small")[0].note


def test_two_are_written_a_second_and_the_first_in_the_queue_first() -> None:
    running = crowd(*(job(f"p{i}", cpu="1", priority=i // 4) for i in range(7)))
    plan(running, **{f"p{i}": (100.0, 200.0) for i in range(7)})

    assert written(running) == [["p4", "p5"], ["p6", "p0"], ["p1", "p2"], ["p3"]]
    assert MOST_WRITES == 2


def test_looks_within_a_second_write_no_more() -> None:
    running = crowd(*(job(f"p{i}", cpu="1") for i in range(5)))
    plan(running, **{f"p{i}": (100.0, 200.0) for i in range(5)})
    look, now = running.state.start_notices.look, running.now

    assert [len(look(now + at_s)) for at_s in (0.0, 0.3, 0.9, 1.0, 1.5, 2.1)] == [2, 0, 0, 2, 0, 1]


def test_it_is_written_again_where_it_moved_by_a_tenth_and_taken_back_where_nothing_is_planned() -> None:
    running = crowd(job("p", cpu="1"), job("q", cpu="1"))
    plan(running, p=(100.0, 300.0), q=(100.0, None))
    assert written(running) == [["p", "q"]]
    first = note(running, "p")

    # Seconds have passed meanwhile: these moments are the same.
    passed = 2.0
    plan(running, 2, p=(109.0 - passed, 300.0 - passed), q=(100.0 - passed, None))
    assert written(running) == [] and note(running, "p") == first

    plan(running, 3, p=(100.0, 340.0), q=(120.0, None))
    assert written(running) == [["p", "q"]] and note(running, "p") != first

    state = running.state
    state.starts.waits_no_longer(uid(running, "p"))
    assert written(running) == [["p"]]
    assert note(running, "p") is None and note(running, "q") is not None


def test_a_new_leader_goes_on_from_what_pods_have_been_told() -> None:
    running = crowd(job("same", cpu="1"), job("moved", cpu="1"), job("gone", cpu="1"))
    plan(running, same=(100.0, 200.0), moved=(100.0, 200.0), gone=(100.0, 200.0))
    written(running)
    passed = running.now

    other = ModelScheduler(running.server, TOLD)
    for name in ("same", "moved", "gone"):
        other.state.starts.waits_no_longer(uid(other, name))
    passed = other.now - passed + 3.0
    plan(other, 1, same=(100.0 - passed, 200.0 - passed), moved=(150.0, 250.0))

    assert written(other) == [["moved", "gone"]]
    assert note(other, "gone") is None


@pytest.mark.parametrize("text", ["", "soon", "[" * 5000, '{"start":1}', '{"start":{"expected":"9999"}}', "[1]"])
def test_a_text_of_others_in_its_place_is_replaced(text: str) -> None:
    running = crowd(job("p", cpu="1", annotations={names.ESTIMATED_START: text}))
    plan(running, p=(100.0, 200.0))

    assert written(running) == [["p"]]
    assert json.loads(note(running, "p") or "").keys() == {"start", "end"}


def test_the_own_annotation_wakes_no_pod_and_one_of_others_does() -> None:
    running = crowd(job("p", cpu="1"))
    state = running.state
    entry = state.cache.pods[uid(running, "p")]
    assert state.queue.place(entry.key) is Place.UNSCHEDULABLE
    before, wants = dict(state.queue.incoming), entry.wants
    plan(running, p=(100.0, 200.0))

    written(running)

    assert note(running, "p") is not None
    assert names.ESTIMATED_START in (entry.pod.metadata.annotations or {})
    assert state.queue.place(entry.key) is Place.UNSCHEDULABLE
    assert state.queue.incoming == before and entry.wants is wants
    running.server.annotate(entry.pod, {names.SCALE: "2"})
    running.deliver("pods")
    assert state.queue.place(entry.key) is not Place.UNSCHEDULABLE


def test_the_end_of_a_job_is_that_of_its_last_pod_where_all_are_planned() -> None:
    owner = ("Job", "of-three")
    running = crowd(*(job(f"p{i}", cpu="1", owner=owner) for i in range(3)), job("alone", cpu="1", owner=("Job", "x")))

    def told() -> dict[str, Any]:
        return {w["pod"].split("/")[1]: w for w in whole(dump(running.state, running.now))["waiting"]}

    plan(running, p0=(10.0, 50.0), p1=(20.0, 90.0), p2=(30.0, 70.0), alone=(10.0, 20.0))
    found = told()
    assert all(found[f"p{i}"]["job_ends_in_s"] == found["p1"]["ends_in_s"] for i in range(3))
    assert "job_ends_in_s" not in found["alone"]
    assert running.state.starts.job_ends().keys() == {"of-three"}

    running.state.starts.waits_no_longer(uid(running, "p0"))
    assert not any("job_ends_in_s" in w for w in told().values())


def test_a_pod_waits_for_those_with_less_work_whatever_was_planned_for_it() -> None:
    """One CPU; each is planned for the next completion, in 10 s, and the last round was about the short one alone."""
    running = crowd(job("long", cpu="1"), job("middle", cpu="1"), job("short", cpu="1"))
    running.state.starts.resume(StartErrors(((0, 4096),), ((0, 4096),)))  # starts and ends are as forecast
    plan(running, long=(10.0, 1010.0), middle=(10.0, 110.0))
    plan(running, 2, short=(10.0, 40.0))

    found = {name: running.state.starts.of(uid(running, name)) for name in ("short", "middle", "long")}

    expected = {"short": (10.0, 40.0), "middle": (30.0, 130.0), "long": (130.0, 1130.0)}
    for name, estimate in found.items():
        assert estimate is not None and estimate.end is not None
        assert (estimate.start.expected_s - running.now, estimate.end.expected_s - running.now) == pytest.approx(
            expected[name], rel=0.05
        )


# What is learnt


def lives(running: ModelScheduler, name: str, planned: tuple[float, float], starts_s: float, ends_s: float) -> None:
    """A pod of which forty rounds in one moment say the same; then it starts and ends."""
    for number in range(1, 41):
        plan(running, number, **{name: planned})
    began = running.now
    key = running.state.cache.pods[uid(running, name)].key
    running.server.bind(key, "n1")
    running.deliver("pods")
    running.server.now = began + starts_s
    running.server.run(running.server.pods["default", name])
    running.deliver("pods")
    running.server.now = began + ends_s


def outcomes(running: ModelScheduler, forecast: str) -> set[Held]:
    return {o.held for o in running.state.tallies.start_outcomes if o.forecast == forecast}


def test_errors_are_learnt_from_when_pods_run_and_end() -> None:
    running = crowd(job("p", cpu="1"), job("q", cpu="1"))
    assert running.state.starts.errors(running.now) == StartErrors()

    lives(running, "p", (10.0, 50.0), 10.0, 500.0)
    waiting = running.state.starts.errors(running.now)
    assert waiting.starts and not waiting.ends and waiting.open_ends
    running.server.finish(running.server.pods["default", "p"])
    running.deliver("pods")
    assert outcomes(running, "start") == {Held.HELD} and outcomes(running, "end") == {Held.LATE}
    learnt = running.state.starts.errors(running.now)
    assert learnt.ends and not learnt.open_ends and not learnt.open_starts
    assert all(at > 0 for at, _ in learnt.ends)

    running.state.tallies.start_outcomes.clear()
    lives(running, "q", (100.0, 200.0), 3.0, 250.0)
    running.server.finish(running.server.pods["default", "q"])
    running.deliver("pods")
    assert outcomes(running, "start") == {Held.EARLY}


@pytest.mark.parametrize("how", ["deleted", "failed", "removed while it waits"])
def test_nothing_is_learnt_from_pods_that_do_not_end_by_themselves(how: str) -> None:
    running = crowd(job("p", cpu="1"))
    if how == "removed while it waits":
        plan(running, p=(10.0, 50.0))
        running.server.remove(running.server.pods["default", "p"])
        running.deliver("pods")
        assert running.state.starts.errors(running.now) == StartErrors()
        assert len(running.state.starts) == 0
        return
    lives(running, "p", (10.0, 50.0), 10.0, 50.0)
    pod = running.server.pods["default", "p"]
    if how == "deleted":
        running.server.terminate(pod)
        running.deliver("pods")
        running.server.remove(pod)
    else:
        running.server.finish(pod, "Failed")
    running.deliver("pods")

    errors = running.state.starts.errors(running.now)

    assert errors.starts and not errors.ends and not errors.open_ends
    assert outcomes(running, "end") == set()


def test_a_pod_that_another_one_of_its_name_replaces_is_forgotten() -> None:
    running = crowd(job("p", cpu="1"))
    for number in range(1, 41):
        plan(running, number, p=(10.0, 50.0))
    server = running.server
    server.remove(server.pods["default", "p"])
    server.deliver("pods")  # which the scheduler does not hear
    assert running.state.starts.errors(running.now).open_starts

    running.create(job("p", cpu="1"))

    assert running.state.starts.errors(running.now) == StartErrors()
    assert len(running.state.starts) == 0


def test_what_was_learnt_is_in_records_and_snapshots_and_decides_nothing() -> None:
    running = ModelScheduler(contested().server)
    given, _ = running.state.begin_round(running.now)
    assert given is not None
    learnt = StartErrors(((-3, 2), (4, 50)), ((1, 3),))

    plain = plan_round(replace(given, booked=given.booked.copy()), SOLVER, clock=lambda: 0.0)
    other = plan_round(replace(given, booked=given.booked.copy(), start_errors=learnt), SOLVER, clock=lambda: 0.0)

    assert (plain.chosen, plain.held, plain.plan) == (other.chosen, other.held, other.plan)
    assert other.trace is not None
    (part,) = other.trace.record()["parts"]
    assert part["snapshot"]["start_errors"]["starts"] == {"-3": 2, "4": 50}


def test_an_exported_snapshot_has_planned_moments_of_its_own_clock() -> None:
    running = contested()

    snapshot, _ = snapshot_of(running.state, running.now)

    assert snapshot.plan
    for planned in snapshot.plan:
        assert planned.start_s is not None and planned.end_s is not None
        assert snapshot.now_s <= planned.start_s < planned.end_s < snapshot.now_s + 3600.0


# Metrics


def test_metrics_count_errors_and_intervals_by_how_many_forecasts_they_stand_for() -> None:
    metrics = Metrics("1.0")
    for outcome in (
        StartOutcome("start", -3.0, Held.HELD, 4),
        StartOutcome("start", 90.0, Held.LATE, 1),
        StartOutcome("end", 0.5, Held.HELD, 2),
    ):
        metrics.forecast_judged(outcome)

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, labels)

    assert value("flowsched_forecast_intervals_total", forecast="start", result="held") == 4
    assert value("flowsched_forecast_intervals_total", forecast="start", result="late") == 1
    assert value("flowsched_forecast_intervals_total", forecast="end", result="early") == 0
    assert value("flowsched_forecast_error_seconds_count", forecast="start") == 5
    assert value("flowsched_forecast_error_seconds_sum", forecast="start") == pytest.approx(102.0)
    assert value("flowsched_forecast_error_seconds_bucket", forecast="end", le="1.0") == 2
