"""What operators see of a running scheduler: events, metrics, records, dumps, and how much of it there is."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import objects_builders as b
import pytest
import yaml
from model_scheduler import ModelScheduler
from model_server import ModelServer
from plane import Object, Plane, Space, wait_for
from running import Running, Site, running_scheduler, site_of

from flowsched.records.record_file import load_record, record_json
from flowsched_k8s import names
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.instructions import PatchCondition
from flowsched_k8s.records.state_dump import dump, whole

MANY = 1000
STANDARD_NAMES = (
    "scheduler_pending_pods",
    "scheduler_schedule_attempts_total",
    "scheduler_scheduling_attempt_duration_seconds_bucket",
    "scheduler_scheduling_algorithm_duration_seconds_bucket",
    "scheduler_pod_scheduling_sli_duration_seconds_bucket",
    "scheduler_pod_scheduling_attempts_bucket",
    "scheduler_queue_incoming_pods_total",
    "scheduler_unschedulable_pods",
    "scheduler_preemption_attempts_total",
    "scheduler_preemption_victims_bucket",
    "scheduler_cache_size",
    "leader_election_master_status",
    "rest_client_requests_total",
    "process_cpu_seconds_total",
)
OWN_NAMES = (
    "flowsched_round_duration_seconds_bucket",
    "flowsched_solve_duration_seconds_bucket",
    "flowsched_graph_nodes",
    "flowsched_graph_arcs",
    "flowsched_placement_cost",
    "flowsched_binds_total",
    "flowsched_gang_waiting",
    "flowsched_stale_metrics_nodes",
    "flowsched_build_info",
)
UNUSED_NAMES = (
    "flowsched_graph_rebuilds_total",
    "flowsched_solver_fallbacks_total",
    "flowsched_kubelet_rejections_total",
)
"""Counters by reason that appear with their first reason; until then only their description is there."""


@pytest.fixture(scope="module")
def scheduler(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("scheduler")
    with running_scheduler(plane, folder, records={"directory": str(folder / "records")}) as started:
        yield started


@pytest.fixture
def site(scheduler: Running, space: Space) -> Iterator[Site]:
    with site_of(scheduler, space) as made:
        yield made


def test_a_pod_that_comes_to_fit(site: Site) -> None:
    """One event for the refusal, however often it is tried in vain; then the one of the binding."""
    site.node("small", cpu="1")
    site.pod("pod", cpu="2")
    expected = "0/1 nodes are available: 1 Insufficient cpu."
    assert site.refused("pod") == expected
    condition = site.condition("pod")
    assert condition is not None and condition["observedGeneration"] == site.space.pod("pod")["metadata"]["generation"]
    for number in range(3):
        attempts = site.waits("pod")["attempts"]
        site.node(f"small-{number}", cpu="1")
        wait_for(lambda before=attempts: site.waits("pod")["attempts"] > before, "another attempt")
    site.waits_with("pod", "0/4 nodes are available: 4 Insufficient cpu.")
    # Numbers alone are no news yet.
    assert site.refused("pod") == expected
    node = site.node("large", cpu="4")
    assert site.bound("pod") == node
    wait_for(lambda: site.events("pod", names.SCHEDULED), "the event of the binding")
    found = [(e["type"], e["reason"], e["action"], e["note"]) for e in site.events("pod")]
    assert found == [
        ("Warning", names.FAILED_SCHEDULING, "Scheduling", expected),
        ("Normal", names.SCHEDULED, "Binding", f"Successfully assigned {site.name}/pod to {node}"),
    ]
    after = site.condition("pod")
    assert after is not None and after["status"] == "True"


def test_foreign_pods_are_left_alone(site: Site) -> None:
    """They count as use, and nothing is ever written to them."""
    node = site.node(cpu="2")
    site.foreign("running", node, cpu="1500m")
    waiting = site.space.make_pod("waiting", scheduler="another-scheduler", cpu="8")
    site.pod("ours", cpu="1")
    assert site.refused("ours") == "0/1 nodes are available: 1 Insufficient cpu."
    assert site.space.pod("waiting")["metadata"]["resourceVersion"] == waiting["metadata"]["resourceVersion"]
    assert site.events("waiting") == []
    site.space.delete_pod("running")
    assert site.bound("ours") == node


def test_finished_pods_leave_their_room(site: Site) -> None:
    node = site.node(cpu="1")
    site.pod("short", cpu="1", annotations={"flowsched.test/run-for": "100ms"})
    assert site.bound("short") == node
    site.pod("next", cpu="1")
    assert site.bound("next") == node
    assert site.space.pod("short")["status"]["phase"] == "Succeeded"


def test_nodes_outside_of_the_pool_are_not_used(site: Site) -> None:
    site.space.make_nodes(1, prefix="outside", cpu="8")
    inside = site.node("inside", cpu="1")
    site.pod("pod", cpu="1")
    assert site.bound("pod") == inside
    site.pod("large", cpu="2")
    assert site.refused("large") == "0/1 nodes are available: 1 Insufficient cpu."
    joins = f"{site.name}-outside-0"
    site.change_node(joins, {"metadata": {"labels": site.scheduler.pool}})
    assert site.bound("large") == joins


def test_metrics(site: Site) -> None:
    site.nodes(2)
    site.pod("fits")
    site.bound("fits")
    site.pod("not", cpu="100")
    site.refused("not")
    scheduler = site.scheduler

    def counted() -> bool:
        return scheduler.metric("scheduler_schedule_attempts_total", result="unschedulable") >= 1

    wait_for(counted, "the attempt to be counted")
    found = {name for name, _ in scheduler.metrics()}
    assert found >= {*STANDARD_NAMES, *OWN_NAMES}
    text = scheduler.answer("/metrics").decode()
    for name in UNUSED_NAMES:
        assert f"# TYPE {name.removesuffix('_total')}" in text
    assert site.name not in text, "no names of pods or namespaces"
    mine = {"profile": scheduler.name}
    assert scheduler.metric("scheduler_schedule_attempts_total", result="scheduled", **mine) >= 1
    scheduler.metric_becomes(1, "scheduler_pending_pods", queue="unschedulable")
    scheduler.metric_becomes(1, "scheduler_unschedulable_pods", plugin="NodeResourcesFit", **mine)
    assert scheduler.metric("scheduler_cache_size", type="nodes") == 2
    assert scheduler.metric("leader_election_master_status", name="flowsched") == 1
    assert scheduler.metric("flowsched_binds_total", result="bound") >= 1
    assert scheduler.metric("rest_client_requests_total", method="POST", code="201") >= 1
    sli = scheduler.metric("scheduler_pod_scheduling_sli_duration_seconds_sum")
    assert 0 < sli < 3600


def test_records_and_configuration_are_served(site: Site) -> None:
    node = site.node()
    uid = site.pod("pod")["metadata"]["uid"]
    site.bound("pod")
    record = site.scheduler.record()
    assert (record["apiVersion"], record["kind"]) == ("flowsched/v5", "Record")
    (part,) = record["parts"]
    assert [part["machines"][m] for m in part["placements"]["machine"]] == [node]
    assert part["placements"]["task"] == [uid]
    assert record["titles"] == {uid: f"{site.name}/pod"}
    assert site.scheduler.record(str(record["round"])) == record
    site.pod("not", cpu="100")
    message = site.refused("not")
    wait_for(lambda: site.scheduler.record()["round"] > record["round"], "the next record")
    held = site.scheduler.record()["held"]
    assert [(h["fate"], h["message"], h["counts"]) for h in held] == [
        ("unschedulable", message, {"Insufficient cpu": 1})
    ]
    listed = json.loads(site.scheduler.answer("/debug/records"))["records"]
    assert str(record["round"]) in [kept["round"] for kept in listed]
    files = site.scheduler.folder.parent / "records"
    (file,) = wait_for(lambda: list(files.glob(f"*-{record['round']}.npz")), "the record in the folder")
    assert record_json(load_record(file)) == record_json(record)
    served = json.loads(site.scheduler.answer("/configz"))
    for key, value in yaml.safe_load(site.scheduler.configuration.read_text()).items():
        if isinstance(value, dict) and key != "nodeSelector":
            told = {k: served[key][k] for k in value}
            assert {k: sorted(v) if isinstance(v, list) else v for k, v in told.items()} == {
                k: sorted(v) if isinstance(v, list) else v for k, v in value.items()
            }
        else:
            assert served[key] == value
    for path in ("/livez", "/readyz", "/healthz"):
        assert site.scheduler.answer(path) == b"ok"


def test_a_dump_on_request(site: Site) -> None:
    node = site.node()
    site.pod("there")
    site.bound("there")
    site.pod("not", cpu="100")
    message = site.refused("not")

    def dumps() -> list[Object]:
        lines = site.scheduler.text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and not line.startswith('{"ts"')]

    before = len(dumps())
    site.scheduler.signal(signal.SIGUSR2)
    dump = wait_for(lambda: dumps()[before:], "a dump")[0]
    assert dump["nodes"][node]["pods"] == [f"{site.name}/there"]
    (waiting,) = dump["waiting"]
    assert (waiting["pod"], waiting["queue"], waiting["message"]) == (f"{site.name}/not", "unschedulable", message)
    assert waiting["attempts"] >= 1


def test_news_that_come_too_soon_are_told_later() -> None:
    """Texts that change quickly are not all written; the last one is, although nothing happens any more.

    Shown on the state machine, whose clock can be turned.
    """
    server = ModelServer()
    server.put(b.node("n1", "1", cordoned=True))
    running = ModelScheduler(server, Configuration())
    running.create(b.pod("p", cpu="2"))
    running.settle()
    server.now += 2.0
    server.cordon("n1", False)
    running.deliver()
    running.settle()
    first = "0/1 nodes are available: 1 node(s) were unschedulable."
    last = "0/1 nodes are available: 1 Insufficient cpu."
    assert [c.message for c in running.conditions("p")] == [first]
    assert whole(dump(running.state, running.now))["waiting"][0]["message"] == last
    assert running.state.notices.again(running.state.waiting.postponed, running.now) == []
    server.now += 20.0
    told = running.state.notices.again(running.state.waiting.postponed, running.now)
    assert [i.message for i in told if isinstance(i, PatchCondition)] == [last]
    assert running.state.notices.again(running.state.waiting.postponed, running.now) == []


def requests(scheduler: Running) -> dict[str, float]:
    return {method: scheduler.metric("rest_client_requests_total", method=method) for method in ("POST", "PATCH")}


def test_very_many_unschedulable_pods(site: Site) -> None:
    """Each is told once, by a condition and at most one event; then there is silence, until there is room."""
    small = site.node("small", cpu="500m")
    scheduler = site.scheduler
    began, before = time.monotonic(), requests(scheduler)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: site.pod(f"p{n}", cpu="1", memory="1Mi"), range(MANY)))

    def told() -> bool:
        return sum("conditions" in p["status"] for p in site.space.pods()) == MANY

    wait_for(told, "all pods to have their condition")
    site.pod("tiny", cpu="100m")
    assert site.bound("tiny") == small
    wait_for(lambda: scheduler.state()["queue"]["unschedulable"] == MANY, "all to wait")
    quiet = requests(scheduler)
    # Nothing that changes here helps any of them, so no round is asked for.
    for number in range(5):
        site.pod(f"tiny-{number}", cpu="10m", memory="1Mi")
        site.bound(f"tiny-{number}")
    took = time.monotonic() - began
    after = requests(scheduler)
    assert after["PATCH"] == quiet["PATCH"], "no condition twice"
    assert after["PATCH"] - before["PATCH"] <= MANY + 10
    events = site.space.events()
    regarding = [e["regarding"]["name"] for e in events if e["reason"] == names.FAILED_SCHEDULING]
    assert len(set(regarding)) == len(regarding), "one event for a pod"
    # 500 at once and 50 a second are the limit, whatever there is to say.
    assert len(regarding) <= 500 + 50 * took + 1
    assert after["POST"] - before["POST"] <= len(events) + 6 + 10
    site.nodes(5, prefix="large", cpu="256", memory="64Gi", pods=400)
    site.all_bound(MANY + 6)
    scheduled = [e["regarding"]["name"] for e in site.space.events() if e["reason"] == names.SCHEDULED]
    assert len(set(scheduled)) == len(scheduled)
