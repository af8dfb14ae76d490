"""Pods without a profile that say how long they run are planned and backfilled like measured ones, and no other pod is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import objects_builders as b
import pytest
from click.testing import CliRunner
from model_scheduler import CATALOGUE, ModelScheduler
from model_server import ModelServer

from benchmarks.declared_run_times import DECLARED, SILENT, World, main, play, ratio, table
from builders import CATALOGUE as SMALL
from flowsched.cluster.settings import Settings
from flowsched_k8s import names
from flowsched_k8s.configuration.configuration import Configuration, Features
from flowsched_k8s.groups.pod_groups import MINIMUM_LABEL, NAME_LABEL
from flowsched_k8s.instructions import PostEvent
from flowsched_k8s.pods.intent import KEEPS_RUNNING, read_intent
from flowsched_k8s.pods.run_times import forecast_run_s, rounded
from flowsched_k8s.rounds.neutral import MOST_CPUS, given_run_time, with_neutral, without_plain
from flowsched_k8s.rounds.round_input import ClassInput
from flowsched_models.neutral import NEUTRAL
from flowsched_models.runtime import HostFactory, Resident, ServiceLoad

RUN = names.RUN_TIME


def scheduler(*things: Any, engine: Settings | None = None, **features: bool) -> ModelScheduler:
    server = ModelServer()
    for thing in things:
        server.put(thing)
    engine = engine or Configuration().engine
    return ModelScheduler(server, Configuration(engine=engine, features=Features(**features)))


def job(name: str, cpu: str, run: str | None, **fields: Any) -> Any:
    notes = {**fields.pop("annotations", {}), **({} if run is None else {RUN: run})}
    return b.pod(name, cpu=cpu, memory="64Mi", annotations=notes, restartPolicy="Never", **fields)


def asked(running: ModelScheduler) -> dict[str, ClassInput]:
    """The classes of a round, by the name of a pod of each."""
    assert running.begin()
    assert running.given is not None
    return {running.given.titles[uid].split("/")[1]: c for c in running.given.classes for uid in c.uids}


def told(running: ModelScheduler, reason: str) -> list[str]:
    return [t.note for t in running.told if isinstance(t, PostEvent) and t.reason == reason]


def test_a_wide_pod_has_its_turn_and_only_what_ends_by_then_starts_before_it() -> None:
    running = scheduler(b.node("n1", "4"), job("there", "2", "100s", node="n1", status={"phase": "Running"}))
    running.create(job("wide", "4", "100s"))
    assert not running.round()
    running.server.now += 20.0
    running.create(job("long", "2", "1000s"), job("short", "2", "30s"))
    bound = [bind.pod.name for bind in running.round()]
    assert bound == ["short"]
    assert {p.machine for p in running.state.plan.values()} == {"n1"}


def test_the_same_pods_that_say_nothing_take_what_is_free() -> None:
    running = scheduler(b.node("n1", "4"), job("there", "2", None, node="n1", status={"phase": "Running"}))
    running.create(job("wide", "4", None))
    assert not running.round()
    running.create(job("long", "2", None))
    assert [bind.pod.name for bind in running.round()] == ["long"]
    assert not running.state.plan


def test_what_forecasts_take_of_pods() -> None:
    pods = {
        "says": job("says", "1", "1m30s"),
        "silent": job("silent", "1", None),
        "part": job("part", "500m", "90s"),
        "nothing": b.pod("nothing", annotations={RUN: "90s"}),
        "measured": job("measured", "1", "90s", annotations={names.PROFILE: "canneal"}),
        "service": b.pod("service", cpu="1", annotations={RUN: "90s", names.PROFILE: "memcached"}),
        "stopped": job("stopped", "1", "90s", activeDeadlineSeconds=60),
        "kept": b.pod("kept", cpu="1", annotations={RUN: "90s"}, owner=("ReplicaSet", "web")),
        "of-job": job("of-job", "1", "90s", owner=("Job", "batch")),
    }
    running = scheduler(b.node("n1", "32"), *pods.values())
    known = {e.key.name: forecast_run_s(e) for e in running.state.cache.pods.values()}
    assert known == {
        **dict.fromkeys(pods),
        "says": 90.0,
        "stopped": 60.0,
        "of-job": 90.0,
    }
    classes = asked(running)
    tasks = {name: c.task for name, c in classes.items()}
    assert {name for name, task in tasks.items() if task is not None} == {"says", "stopped", "of-job", "measured"}
    said = tasks["says"]
    assert said is not None and not said.endless
    assert (said.profile, said.scale) == (given_run_time(1000), 90.0)
    # A run time that no forecast uses tells no class from another.
    assert classes["nothing"].uids != classes["part"].uids
    running.plan()
    assert len(running.end()) == len(pods)
    notes = "\n".join(told(running, names.FAILED_SCHEDULING))
    assert notes.count(f"{RUN} has no effect: it is for pods without a profile") == 2
    assert notes.count("a ReplicaSet keeps its pods running, so that they have no run time; leave it out") == 1


@pytest.mark.parametrize("kind", KEEPS_RUNNING)
def test_pods_that_are_kept_running_have_no_run_time(kind: str) -> None:
    intent = read_intent(b.pod(cpu="1", annotations={RUN: "90s"}, owner=(kind, "it")), SMALL)
    assert intent.run_s is None
    assert [kind in problem for problem in intent.problems] == [True]


@pytest.mark.parametrize("text", ["0", "0s", "-5", "-5s", "721h", "1e300", "soon", "", "nan"])
def test_a_run_time_that_cannot_be_is_one_sentence_and_the_pod_is_placed_without_it(text: str) -> None:
    running = scheduler(b.node("n1", "4"), job("p", "1", text))
    assert asked(running)["p"].task is None
    running.plan()
    assert [bind.node for bind in running.end()] == ["n1"]
    (note,) = told(running, names.FAILED_SCHEDULING)
    assert note.startswith(f"annotation {RUN}: ")
    assert "write it as 90s, 5m, 1h30m or as seconds, at most 720h" in note


def test_a_run_time_that_changes_in_the_queue_is_not_used() -> None:
    running = scheduler(b.node("n1", "4"), job("there", "4", "100s", node="n1", status={"phase": "Running"}))
    (made,) = running.create(job("p", "4", "100s"))
    running.round()
    entry = running.state.cache.pods[made.metadata.uid]
    assert forecast_run_s(entry) == 100.0

    def say(text: str | None, node: str | None = None) -> float | None:
        running.put(job("p", "4", text, node=node))
        return forecast_run_s(entry)

    running.server.now += 60.0
    assert say("5s") is None
    note = next(note for note in told(running, names.FAILED_SCHEDULING) if RUN in note)
    assert note == f"{RUN} was changed while the pod waits and is not used; give it when the pod is created"
    assert [say("6s"), say(None), say("100s")] == [None, None, 100.0]
    assert say("5s", node="n1") == 100.0
    assert not entry.intent.problems


def test_kinds_beyond_the_budget_of_forecasts_are_placed_at_linear_prices_in_the_same_round() -> None:
    pods = [job(f"p{i}", "1", f"{10 * (i + 1)}s") for i in range(6)]
    engine = replace(Configuration().engine, pricings=8)
    running = scheduler(b.node("n1", "8"), b.node("n2", "8"), *pods, job("silent", "1", None), engine=engine)
    classes = asked(running)
    assert [classes[f"p{i}"].task is not None for i in range(6)] == [True] * 4 + [False] * 2
    running.plan()
    assert len(running.end()) == 7


def test_a_gang_is_within_the_budget_whole_or_not_at_all() -> None:
    labels = {NAME_LABEL: "g", MINIMUM_LABEL: "3"}
    gang = [job(f"g{i}", "1", f"{10 * (i + 1)}s", labels=labels) for i in range(3)]
    for most, priced in ((2, False), (3, True)):
        engine = replace(Configuration().engine, pricings=most)
        running = scheduler(b.node("n1", "8"), *gang, engine=engine)
        classes = asked(running)
        assert {c.task is not None for c in classes.values()} == {priced}
        running.plan()
        assert len(running.end()) == 3


def test_a_gang_waits_whole_for_its_turn() -> None:
    labels = {NAME_LABEL: "g", MINIMUM_LABEL: "2"}
    running = scheduler(b.node("n1", "4"), job("there", "1", "100s", node="n1", status={"phase": "Running"}))
    running.create(*(job(f"g{i}", "2", "60s", labels=labels) for i in range(2)))
    assert not running.round()
    running.server.remove(running.server.pods["default", "there"])
    running.deliver()
    running.tick(10.0)
    assert sorted(p.spec.node_name for p in running.server.pods.values()) == ["n1", "n1"]


def test_pods_with_run_times_wait_where_no_node_has_any_cpu() -> None:
    full = b.pod("full", cpu="4", node="n1", scheduler="other", status={"phase": "Running"})
    running = scheduler(b.node("n1", "4"), full, job("narrow", "1", "60s"), job("wide", "2", "60s"))
    running.server.allocate("n1", cpu="0")
    running.deliver()
    assert running.round() == []
    assert all("Insufficient cpu" in note for note in told(running, names.FAILED_SCHEDULING))


def test_a_higher_priority_preempts_for_a_pod_with_a_run_time() -> None:
    low = job("low", "4", "1000s", node="n1", status={"phase": "Running"})
    running = scheduler(b.node("n1", "4"), low, preemption=True)
    running.create(job("high", "4", "10s", priority=10))
    running.round()
    assert [key.name for key in running.victims] == ["low"]


def test_apart_is_kept_among_pods_with_run_times() -> None:
    apart = b.affinity(apart=[b.pod_term(names.HOSTNAME, b.selector(app="a"))])
    pods = [job(f"p{i}", "1", "60s", labels={"app": "a"}, affinity=apart) for i in range(3)]
    running = scheduler(b.node("n1", "8"), b.node("n2", "8"), *pods)
    assert sorted(bind.node for bind in running.round()) == ["n1", "n2"]


def test_the_profiles_of_run_times_do_to_others_what_the_neutral_one_does_on_as_many_cores() -> None:
    known = with_neutral(CATALOGUE)
    assert with_neutral(known) == known
    for milli, cores in ((1000, 1), (1500, 2), (16_000, 16), (17_000, 24), (10**9, MOST_CPUS)):
        found = known.jobs[given_run_time(milli)]
        assert found.is_plain
        assert found.pressure == known.jobs[NEUTRAL].pressure * cores
        assert found.error == known.jobs[NEUTRAL].error
    written = without_plain(known)
    assert set(written.jobs) == {*CATALOGUE.jobs, NEUTRAL}
    assert with_neutral(written) == known


@pytest.mark.parametrize("cores", [1, 4, 6])
def test_a_pod_with_a_run_time_puts_the_same_pressure_on_a_service_until_it_ends(cores: int) -> None:
    known = with_neutral(CATALOGUE)
    service = ServiceLoad("memcached", (0,), 1, 1.0, 30_000.0, "mcperf-dynamic")
    host = HostFactory(known).host("e2-standard-8", [service])
    first, last, _ = host.course(Resident(given_run_time(cores * 1000), 60.0, cores, tuple(range(1, 8)), float(cores)))
    for stage in (first, last):
        ((pressure, _),) = host.around((stage,))
        assert pressure == pytest.approx(known.jobs[NEUTRAL].pressure * cores)


@pytest.mark.parametrize(("p95_us", "six"), [(700, 0), (760, 1), (1000, 1)])
def test_beside_a_service_no_more_of_them_start_than_of_silent_ones(p95_us: int, six: int) -> None:
    def started(cpu: str, run: str | None) -> int:
        notes = {names.PROFILE: "memcached", names.SLO: f"p95={p95_us}us@30K", names.CLIENT: "mcperf-dynamic"}
        status = b.granted("n1", p95_us=float(p95_us))
        service = b.pod("service", cpu="1", memory="1Gi", annotations=notes, node="n1", status=status)
        running = scheduler(b.node("n1", "8", "32Gi", labels={names.INSTANCE_TYPE: "e2-standard-8"}), service)
        running.create(*(job(f"p{i}", cpu, run) for i in range(8)))
        return len(running.round())

    for cpu in ("1", "2", "4", "6"):
        assert started(cpu, "60s") <= started(cpu, None)
    assert started("6", "60s") == six


def test_they_are_no_profiles_that_pods_may_name() -> None:
    intent = read_intent(b.pod(annotations={names.PROFILE: given_run_time(1000)}), with_neutral(CATALOGUE))
    assert intent.profile is None
    (problem,) = intent.problems
    assert problem.count(":1s") == 1


def test_run_times_count_in_two_digits() -> None:
    assert [rounded(s) for s in (0.1, 1.26, 30.0, 127.0, 5400.0, 2_592_000.0)] == [
        0.1,
        1.3,
        30.0,
        130.0,
        5400.0,
        2_600_000.0,
    ]


def test_waits_are_shorter_on_a_small_cluster() -> None:
    world = World(nodes=8, pods=150, load=1.3)
    rows = [{"seed": seed, **{kind: play(world, seed, kind) for kind in (SILENT, DECLARED)}} for seed in range(3)]
    assert ratio(rows)[0] < 0.8
    assert play(world, 0, DECLARED) == rows[0][DECLARED]
    text = table(rows)
    assert text.startswith("seconds") and "3 seeds" in text
    assert CliRunner().invoke(main, ["--seeds", "none"]).exit_code == 2
