"""How far latency services yield to pods that are overdue or have a higher priority, and that they yield no further."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import objects_builders as b
import pytest
from consistency import check_state
from events_recorded import Recorded, differences, played_inputs
from model_scheduler import ModelScheduler
from small_services import DUE_S, EDGE, caps, cluster, engine, say, service, six_services

from builders import CACHE, HUNGRY, SCALING, SERIAL, catalogue
from flowsched.cluster.occupied_machines import service_load
from flowsched.cluster.settings import Settings
from flowsched.cluster.settings_form import apply_settings
from flowsched.cluster.snapshot import MILLI, by_machine
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.replay import replay
from flowsched.records.record_file import pack_record, read_record
from flowsched_k8s import names
from flowsched_k8s.configuration.configuration import Configuration, CostModelChoice
from flowsched_k8s.events.event_player import play
from flowsched_models.document import InputError
from flowsched_models.execution import Execution
from flowsched_models.runtime import HostFactory, Resident
from flowsched_models.service import LatencyCurve
from flowsched_simulator.policies import readers

CRITICAL = 2_000_000_000
KINDS = {"plain": {}, "job": {names.PROFILE: "canneal"}}


def pods(kind: str, *wanted: str, cpu: str = "500m", **more: Any) -> list[Any]:
    return [b.pod(name, "b", cpu=cpu, annotations=KINDS[kind], **more) for name in wanted]


def wait(running: ModelScheduler, seconds: float) -> None:
    until = running.now + seconds
    while running.now < until:
        running.tick(min(1.0, until - running.now))
    check_state(running.state)


# Overdue pods


@pytest.mark.parametrize("kind", KINDS)
def test_goals_at_the_edge_keep_pods_off_for_the_due_age(kind: str) -> None:
    running = six_services(EDGE)
    began = running.now
    running.create(*pods(kind, *(f"p{i}" for i in range(5))), *pods(kind, "critical", priority=CRITICAL))
    running.settle(within=1.0)
    assert running.where().keys() == {"critical", *(f"svc{i}" for i in range(6))}, "all but the critical one wait"
    wait(running, began + DUE_S - 0.5 - running.now)
    assert len(running.where()) == 7
    wait(running, 1.0)
    assert len(running.where()) == 12, "they are tried again at the moment when they are overdue"


@pytest.mark.parametrize("model", ["flow-network", "flow"])
def test_each_round_takes_no_more_than_services_leave(model: str) -> None:
    """A service of 500m keeps 2 of 8 CPUs, so that six pods of one CPU come, however many are overdue."""
    running = cluster(1, cost_model=CostModelChoice(model))
    running.create(service("svc", EDGE, cpu="500m"))
    running.settle(within=1.0)
    running.create(*(b.pod(f"p{i}", "b", cpu="1") for i in range(9)))
    wait(running, DUE_S + 6.0)
    assert sum(name.startswith("p") for name in running.where()) == 6
    assert running.state.cache.machines.free[0, running.state.cache.machines.column("cpu")] == 1500


@pytest.mark.parametrize(("per_core", "come"), [(0.0, 7), (1.0, 7), (2.0, 6), (4.0, 4), (7.9, 0), (100.0, 0)])
def test_a_service_keeps_so_many_cpus_for_each_that_it_requests(per_core: float, come: int) -> None:
    running = cluster(1, engine=engine(kept_per_core=per_core))
    running.create(service("svc", EDGE, cpu="1"))
    running.settle(within=1.0)
    running.create(*(b.pod(f"p{i}", "b", cpu="1") for i in range(9)))
    wait(running, DUE_S + 6.0)
    assert len(running.where()) - 1 == come


def test_small_services_keep_no_cores_from_overdue_jobs() -> None:
    """Eight of 100m have a core of their own each, and pay for less than one."""
    running = cluster(1)
    running.create(*(b.pod(p.metadata.name, "a", cpu="100m", annotations=p.metadata.annotations) for p in eight()))
    running.settle(within=1.0)
    assert len(running.where()) == 8 and not running.state.cache.services.free_cores("n0")
    running.create(*pods("job", "job", cpu="1"))
    wait(running, DUE_S + 1.0)
    assert running.where().get("job") == "n0"


def eight() -> list[Any]:
    return [service(f"svc{i}", "p95=5ms@100qps") for i in range(8)]


def test_small_services_keep_no_cores_from_services_that_are_overdue() -> None:
    running = cluster(1)
    running.create(*(b.pod(p.metadata.name, "a", cpu="100m", annotations=p.metadata.annotations) for p in eight()))
    running.settle(within=1.0)
    large = service("large", cpu="2")
    running.create(b.pod("large", "b", cpu="2", annotations=large.metadata.annotations))
    wait(running, DUE_S - 0.5)
    assert "large" not in running.where()
    wait(running, 400.0)
    assert running.where().get("large") == "n0"


def test_a_gang_that_is_overdue_is_placed_whole() -> None:
    running = six_services(EDGE)
    grouped = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "4"}
    running.create(*pods("plain", *(f"g{i}" for i in range(4)), cpu="7", labels=grouped))
    running.settle(within=1.0)
    assert len(running.where()) == 6
    wait(running, DUE_S + 1.0)
    assert len(running.where()) == 10


def test_members_of_a_gang_that_no_service_keeps_off_come_with_the_others() -> None:
    running = cluster(2)
    running.create(service("svc", EDGE))
    running.settle(within=1.0)
    grouped = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}
    for i in range(2):
        running.create(*pods("plain", f"g{i}", labels=grouped, nodeSelector={names.HOSTNAME: f"n{i}"}))
    wait(running, DUE_S - 1.0)
    assert running.where().keys() == {"svc"}
    wait(running, 2.0)
    assert running.where().keys() == {"svc", "g0", "g1"}


@pytest.mark.parametrize(("priority", "at_once"), [(5, True), (0, False)])
def test_a_gang_is_overdue_with_its_last_member(priority: int, at_once: bool) -> None:
    running = six_services(EDGE)
    grouped = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "4"}
    names_of = [f"g{i}" for i in range(4)]
    early, late = pods("plain", *names_of[:2], labels=grouped), pods("plain", *names_of[2:], cpu="1", labels=grouped)
    running.create(*(replaced(p, priority) for p in early))
    wait(running, DUE_S + 1.0)
    running.create(*(replaced(p, priority) for p in late))
    running.settle(within=1.0)
    assert (len(running.where()) == 10) is at_once
    wait(running, DUE_S + 1.0)
    assert len(running.where()) == 10


def replaced(pod: Any, priority: int) -> Any:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=priority))


def test_pods_go_where_goals_are_kept_first() -> None:
    running = cluster(2)
    running.create(service("svc", EDGE))
    running.settle(within=1.0)
    running.create(*pods("plain", "before", priority=CRITICAL), *pods("job", "measured", priority=CRITICAL))
    running.settle(within=1.0)
    taken = running.where().pop("svc")
    assert {running.where()["before"], running.where()["measured"]} == {"n0", "n1"} - {taken}


# Priorities


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("of_service", "of_pod", "comes"), [(0, 1, True), (10, 10, False), (10, 1, False)])
def test_pods_of_higher_priority_are_not_kept_off(kind: str, of_service: int, of_pod: int, comes: bool) -> None:
    running = cluster(1)
    running.create(service("svc", EDGE, priority=of_service))
    running.settle(within=1.0)
    running.create(*pods(kind, "pod", priority=of_pod), *pods(kind, "lower"))
    running.settle(within=1.0)
    assert ("pod" in running.where()) is comes
    assert "lower" not in running.where()


def test_a_service_of_higher_priority_still_keeps_them_off() -> None:
    running = cluster(1)
    low, high = service("low", "p95=900us@30000qps"), service("high", EDGE)
    running.create(low)
    running.settle(within=1.0)
    status = b.granted("n0", p95_us=839.0, width_milli=100, cores=(1,))
    running.create(
        b.pod("high", "a", cpu="100m", annotations=high.metadata.annotations, priority=9, node="n0", status=status)
    )
    running.create(*pods("plain", "between", priority=5), *pods("plain", "above", priority=10))
    running.settle(within=1.0)
    assert running.where().keys() == {"low", "high", "above"}


# What waiting pods are told


@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_that_waits_for_services_too_long_says_so_in_its_condition(kind: str) -> None:
    running = cluster(3, engine=engine(kept_per_core=100.0))
    running.create(service("svc0", EDGE), service("svc1", EDGE))
    running.create(b.pod("full", node="n2", cpu="8"))
    running.settle(within=1.0)
    running.create(*pods(kind, "pod"))
    running.settle(within=1.0)
    (event,) = [e for e in running.events("pod") if e.reason == names.POSTPONED]
    assert "a/svc0 on n" in event.note and "and 1 more" in event.note
    assert not running.conditions("pod"), "autoscalers add no node for the due age"
    wait(running, DUE_S + 1.0)
    (told,) = running.conditions("pod")
    assert told.reason == names.UNSCHEDULABLE
    place = running.where()["svc0"]
    assert told.message in {
        f"0/3 nodes are available: 1 Insufficient cpu, 2 {names.SERVICE_GOAL}. It waits for service a/{name} on {node} "
        "and 1 more."
        for name, node in (("svc0", place), ("svc1", running.where()["svc1"]))
    }
    running.server.remove(running.server.pods["a", "svc0"])
    running.settle(within=10.0)
    assert running.where()["pod"] == place


def test_members_of_a_gang_name_the_service_that_they_wait_for() -> None:
    running = cluster(1, engine=engine(kept_per_core=100.0))
    running.create(service("svc", EDGE))
    running.settle(within=1.0)
    grouped = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}
    running.create(*pods("plain", "g0", "g1", labels=grouped))
    wait(running, DUE_S + 1.0)
    assert "It waits for service a/svc on n0." in running.conditions("g0")[-1].message


def test_a_record_tells_where_a_pod_went_that_services_yielded_to() -> None:
    running = cluster(1)
    running.create(service("svc", EDGE))
    running.settle(within=1.0)
    running.create(*pods("job", "job"), *pods("plain", "plain"))
    running.settle(within=1.0)
    running.server.now += DUE_S + 1.0
    assert running.begin()
    running.plan()
    assert running.result is not None and running.result.trace is not None
    record = RecordView(read_record(pack_record(running.result.trace.record()), "round.npz"), "round.npz")
    assert replay(record).same
    for chosen in running.result.chosen:
        found = record.find_task(chosen.uid)
        assert found is not None
        assert [p.machine for p in found[0].placements if p.task == chosen.uid] == ["n0"]
    assert {bind.pod.name for bind in running.end()} == {"job", "plain"}


def test_rounds_in_which_services_yield_are_played_as_they_were(tmp_path: Path) -> None:
    running = cluster(2)
    recorded = Recorded(running, tmp_path / "events.jsonl.gz")
    running.create(service("svc0", EDGE), service("svc1", EDGE, priority=5))
    running.settle(within=1.0)
    running.create(*pods("job", "job"), *pods("plain", "plain", "other"), *pods("plain", "above", priority=3))
    wait(running, DUE_S + 1.0)
    assert len(running.where()) == 6
    path = recorded.done()
    assert not differences(played_inputs(path), recorded.inputs)
    assert (played := play(path)).same, played.verdict()


# The other way


FOUR = LatencyCurve(4, 4, 200.0, 120.0, 80_000.0, 190_000.0, 3000.0, 6000.0, 180_000.0)
PROFILES = catalogue([SCALING, SERIAL, HUNGRY], [replace(CACHE, curves=(*CACHE.curves, FOUR))])
"""With a measured service of two and of four cores."""


def predicted_us(running: ModelScheduler, hosts: HostFactory) -> Mapping[str, float]:
    """p95 of each service beside the jobs that are there, by uid."""
    cluster = running.state.inputs.occupied.look(running.now)
    services, there = by_machine(cluster.services), by_machine(cluster.running)
    found = {}
    for node in cluster.machines:
        host = hosts.host(node.type, [service_load(s) for s in services[node.name]])
        execution: Execution[str] = Execution(host, running.now, ends=False)
        for r in there[node.name]:
            width = r.width_milli / MILLI
            execution.start(r.task.name, Resident(r.task.profile, r.task.scale, r.threads, r.cores, width, 0))
        found |= {s.name: p95 for s, p95 in zip(services[node.name], execution.p95_us, strict=True)}
    return found


@pytest.mark.parametrize("kind", ["plain", "job"])
@pytest.mark.parametrize("cores", [2, 4])
def test_no_placement_lifts_a_p95_above_its_goal(cores: int, kind: str) -> None:
    rng, running = random.Random(cores), cluster(3, catalogue=PROFILES)
    hosts = HostFactory(running.state.cache.catalogue)
    goals = {f"svc{i}": (300.0 + 15.0 * i, (40_000 if cores == 2 else 80_000)) for i in range(3)}
    said = {names.PROFILE: "cache", names.WORKLOAD_CLASS: names.LATENCY_SENSITIVE}
    for name, (p95_us, qps) in goals.items():
        notes = {**said, names.SLO: f"p95={p95_us:g}us@{qps}qps", names.LOAD: str(qps // 10)}
        running.create(service(name, cpu=str(cores), notes=notes))
    running.settle(within=1.0)
    assert len(set(running.where().values())) == 3
    profiles, come = ("hungry", "scaling", "serial"), 0
    for tenth in range(1, 12):
        for name, (_, qps) in goals.items():
            say(running, name, load=str(qps * tenth // 10))
        running.server.now += 2 * DUE_S
        before = predicted_us(running, hosts)
        places = len(running.where())
        made = [
            b.pod(f"b{tenth}-{i}", "b", cpu=rng.choice(("500m", "1", "2")), annotations=job(kind, rng.choice(profiles)))
            for i in range(3)
        ]
        running.create(*made)
        running.server.now += 2 * DUE_S
        running.settle(within=1.0)
        come += len(running.where()) - places
        machines = running.state.cache.machines
        for node, cap in caps(running).items():
            row = machines.row(node)
            new = {
                e.place for e in running.state.cache.pods.values() if e.key.name.startswith(f"b{tenth}-") and e.place
            }
            assert kind == "job" or node not in new or machines.pressure()[row] <= cap + 1e-6
        for uid, p95_us in predicted_us(running, hosts).items():
            goal = goals[running.state.cache.pods[uid].key.name][0]
            assert kind == "plain" or p95_us <= max(goal, before[uid]) * (1 + 1e-9)
    assert come, "some have come"
    assert come < 33, "and some were kept off"


def job(kind: str, profile: str) -> Mapping[str, str]:
    return {names.PROFILE: profile} if kind == "job" else {}


def test_the_setting_is_for_kubernetes_alone() -> None:
    assert Configuration().plain()["engine"]["keptPerCore"] == 4.0
    with pytest.raises(InputError, match="not read by flow"):
        apply_settings(Settings(), ["kept_per_core=1"], readers=readers(["flow"], {}))
