from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from flowsched.cluster.start_samples import Held, StartOutcome
from flowsched_k8s.metrics.metrics import FAMILIES, MOST_REASONS, QUEUES, Metrics

TO_2_14_MS = [0.001 * 2**i for i in range(15)]
CONTRACT = {
    "scheduler_pending_pods": ("gauge", {"queue"}),
    "scheduler_schedule_attempts_total": ("counter", {"result", "profile"}),
    "scheduler_scheduling_attempt_duration_seconds": ("histogram", {"result", "profile"}),
    "scheduler_scheduling_algorithm_duration_seconds": ("histogram", set()),
    "scheduler_pod_scheduling_sli_duration_seconds": ("histogram", {"attempts"}),
    "scheduler_pod_scheduling_attempts": ("histogram", set()),
    "scheduler_queue_incoming_pods_total": ("counter", {"queue", "event"}),
    "scheduler_unschedulable_pods": ("gauge", {"plugin", "profile"}),
    "scheduler_preemption_attempts_total": ("counter", set()),
    "scheduler_preemption_victims": ("histogram", set()),
    "scheduler_cache_size": ("gauge", {"type"}),
    "leader_election_master_status": ("gauge", {"name"}),
    "rest_client_requests_total": ("counter", {"method", "code"}),
    "flowsched_round_duration_seconds": ("histogram", {"phase"}),
    "flowsched_solve_duration_seconds": ("histogram", {"backend", "mode"}),
    "flowsched_graph_nodes": ("gauge", {"kind"}),
    "flowsched_graph_arcs": ("gauge", {"kind"}),
    "flowsched_graph_rebuilds_total": ("counter", {"reason"}),
    "flowsched_solver_fallbacks_total": ("counter", {"reason"}),
    "flowsched_placement_cost": ("gauge", set()),
    "flowsched_binds_total": ("counter", {"result"}),
    "flowsched_requests_without_outcome": ("gauge", {"request", "age"}),
    "flowsched_rounds_paused": ("gauge", {"reason"}),
    "flowsched_watch_age_seconds": ("gauge", {"kind"}),
    "flowsched_pod_ends_total": ("counter", {"outcome"}),
    "flowsched_run_time_error": ("histogram", {"forecast"}),
    "flowsched_learnt_factor": ("gauge", {"class", "machine_type"}),
    "flowsched_learnt_spread": ("gauge", {"class", "machine_type"}),
    "flowsched_learnt_classes": ("gauge", set()),
    "flowsched_learnt_saves_total": ("counter", {"result"}),
    "flowsched_kubelet_rejections_total": ("counter", {"reason"}),
    "flowsched_rebalancing_moves_total": ("counter", {"purpose", "result"}),
    "flowsched_gang_waiting": ("gauge", set()),
    "flowsched_stale_metrics_nodes": ("gauge", set()),
    "flowsched_services_beyond_grant": ("gauge", {"claim"}),
    "flowsched_build_info": ("gauge", {"version", "python"}),
    "flowsched_postponed_pods": ("gauge", set()),
    "flowsched_estimated_pods": ("gauge", set()),
    "flowsched_estimated_wait_seconds": ("gauge", {"quantile"}),
    "flowsched_forecast_error_seconds": ("histogram", {"forecast"}),
    "flowsched_forecast_intervals_total": ("counter", {"forecast", "result"}),
    "flowsched_events_dropped_total": ("counter", set()),
    "flowsched_records_dropped_total": ("counter", {"reason"}),
    "flowsched_reconcile_differences_total": ("counter", {"kind"}),
    "flowsched_watch_restarts_total": ("counter", {"kind", "reason"}),
}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("1.2.3", ["flowsched"])


def everything(metrics: Metrics) -> Metrics:
    """One call of each kind."""
    metrics.attempt("scheduled", 0.2, "flowsched")
    metrics.bound(created_s=10.0, attempts=2, now=10.5)
    metrics.gauge("scheduler_pending_pods", "active").set(3)
    metrics.counter("scheduler_queue_incoming_pods_total", "active", "PodAdd").inc(4)
    metrics.unschedulable({("NodeResourcesFit", "flowsched"): 2})
    metrics.gauge("flowsched_postponed_pods").set(5)
    metrics.gauge("flowsched_estimated_pods").set(4)
    metrics.gauge("flowsched_estimated_wait_seconds", "0.5").set(30.0)
    metrics.forecast_judged(StartOutcome("start", 3.0, Held.HELD, 1))
    metrics.gauge("flowsched_gang_waiting").set(1)
    metrics.preemption(3)
    metrics.counter("flowsched_rebalancing_moves_total", "room", "sent").inc(2)
    metrics.kubelet_rejected("OutOfcpu", 1)
    metrics.histogram("scheduler_scheduling_algorithm_duration_seconds").observe(0.1)
    metrics.histogram("flowsched_round_duration_seconds", "solve").observe(0.1)
    metrics.histogram("flowsched_solve_duration_seconds", "ortools", "full").observe(0.05)
    metrics.graph({"class": 4}, {"class to machine": 9})
    metrics.counter("flowsched_graph_rebuilds_total", "profiles changed").inc()
    metrics.counter("flowsched_solver_fallbacks_total", "time limit").inc()
    metrics.gauge("flowsched_placement_cost").set(12.5)
    metrics.counter("flowsched_binds_total", "bound").inc()
    metrics.gauge("flowsched_requests_without_outcome", "binding", "under_5s").set(1)
    metrics.gauge("flowsched_rounds_paused", "watch").set(1)
    metrics.gauge("flowsched_watch_age_seconds", "pods").set(1.5)
    metrics.request("POST", 201)
    metrics.request("GET", None)
    metrics.counter("flowsched_events_dropped_total").inc(7)
    metrics.counter("flowsched_records_dropped_total", "memory").inc(2)
    metrics.counter("flowsched_reconcile_differences_total", "pods").inc(1)
    metrics.counter("flowsched_watch_restarts_total", "nodes", "expired").inc()
    metrics.gauge("leader_election_master_status", "flowsched").set(True)
    metrics.gauge("scheduler_cache_size", "assumed").set(5)
    metrics.gauge("flowsched_stale_metrics_nodes").set(2)
    metrics.gauge("flowsched_services_beyond_grant", "load").set(1)
    metrics.counter("flowsched_pod_ends_total", "learnt").inc()
    metrics.histogram("flowsched_run_time_error", "profile").observe(0.3)
    metrics.replace("flowsched_learnt_factor", {("batch/nightly", "e2-standard-8"): 1.3})
    metrics.replace("flowsched_learnt_spread", {("batch/nightly", "e2-standard-8"): 0.1})
    metrics.gauge("flowsched_learnt_classes").set(1)
    metrics.counter("flowsched_learnt_saves_total", "done").inc()
    return metrics


def samples(metrics: Metrics) -> Iterator[tuple[str, dict[str, str], float]]:
    text, content_type = metrics.exposition()
    assert content_type.startswith("text/plain")
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def value(metrics: Metrics, name: str, /, **labels: str) -> float:
    found = [v for n, given, v in samples(metrics) if n == name and given == labels]
    assert len(found) == 1, (name, labels, found)
    return found[0]


def test_names_types_and_labels_are_the_contract(metrics: Metrics) -> None:
    assert {f.name: (f.kind, set(f.labels)) for f in FAMILIES} == CONTRACT
    text = everything(metrics).exposition()[0].decode()
    found: dict[str, tuple[str, set[str]]] = {}
    for family in text_string_to_metric_families(text):
        # The parser takes the ending off the name of a counter.
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {key for sample in family.samples for key in sample.labels} - {"le"}
        found[name] = (family.type, labels)
    assert {n: f for n, f in found.items() if not n.startswith("process_")} == CONTRACT
    assert "process_cpu_seconds_total" in found
    assert "process_resident_memory_bytes" in found
    assert "_created" not in text


def test_every_metric_says_what_it_is() -> None:
    assert all(f.help.endswith(".") for f in FAMILIES)
    for f in FAMILIES:
        assert (f.kind == "counter") == f.name.endswith("_total")
        assert bool(f.buckets) == (f.kind == "histogram")


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("scheduler_scheduling_attempt_duration_seconds", TO_2_14_MS),
        ("scheduler_scheduling_algorithm_duration_seconds", TO_2_14_MS),
        ("scheduler_pod_scheduling_sli_duration_seconds", [0.01 * 2**i for i in range(20)]),
        ("scheduler_pod_scheduling_attempts", [1, 2, 4, 8, 16]),
    ],
)
def test_buckets(metrics: Metrics, name: str, bounds: list[float]) -> None:
    found = {float(labels["le"]) for n, labels, _ in samples(everything(metrics)) if n == f"{name}_bucket"}
    assert sorted(found) == pytest.approx([*bounds, float("inf")])


def test_calls_reach_their_series(metrics: Metrics) -> None:
    everything(metrics)
    assert value(metrics, "scheduler_schedule_attempts_total", result="scheduled", profile="flowsched") == 1
    assert value(metrics, "scheduler_pod_scheduling_sli_duration_seconds_sum", attempts="2") == 0.5
    assert value(metrics, "scheduler_pending_pods", queue="active") == 3
    assert value(metrics, "scheduler_pending_pods", queue="gated") == 0
    assert value(metrics, "scheduler_queue_incoming_pods_total", queue="active", event="PodAdd") == 4
    assert value(metrics, "rest_client_requests_total", method="POST", code="201") == 1
    assert value(metrics, "rest_client_requests_total", method="GET", code="<error>") == 1
    assert value(metrics, "scheduler_cache_size", type="assumed") == 5
    assert value(metrics, "leader_election_master_status", name="flowsched") == 1
    assert value(metrics, "flowsched_placement_cost") == 12.5
    metrics.gauge("leader_election_master_status", "flowsched").set(False)
    assert value(metrics, "leader_election_master_status", name="flowsched") == 0


def test_alerts_find_their_series_from_the_start(metrics: Metrics) -> None:
    for queue in QUEUES:
        assert value(metrics, "scheduler_pending_pods", queue=queue) == 0
    for result in ("scheduled", "unschedulable", "error"):
        assert value(metrics, "scheduler_schedule_attempts_total", result=result, profile="flowsched") == 0
    labels = [given for name, given, _ in samples(metrics) if name == "flowsched_build_info"]
    assert [given["version"] for given in labels] == ["1.2.3"]


def test_constraints_that_stop_no_pod_any_more_are_zero(metrics: Metrics) -> None:
    metrics.unschedulable({("a", "flowsched"): 2, ("b", "flowsched"): 1})
    metrics.unschedulable({("b", "flowsched"): 4})
    assert value(metrics, "scheduler_unschedulable_pods", plugin="a", profile="flowsched") == 0
    assert value(metrics, "scheduler_unschedulable_pods", plugin="b", profile="flowsched") == 4


def test_the_graph_is_that_of_the_last_round(metrics: Metrics) -> None:
    metrics.graph({"class": 4, "slot": 1}, {})
    metrics.graph({"class": 5}, {})
    assert [(g, v) for n, g, v in samples(metrics) if n == "flowsched_graph_nodes"] == [({"kind": "class"}, 5.0)]


def test_many_attempts_share_a_label(metrics: Metrics) -> None:
    for attempts in (15, 16, 1000):
        metrics.bound(0.0, attempts, 1.0)
    assert value(metrics, "scheduler_pod_scheduling_sli_duration_seconds_count", attempts="15+") == 3


@given(reasons=st.lists(st.text(max_size=100), max_size=120))
def test_reasons_from_outside_are_bounded(reasons: list[str]) -> None:
    metrics = Metrics("1")
    for reason in reasons:
        metrics.kubelet_rejected(reason, 1)
    found = {g["reason"]: v for n, g, v in samples(metrics) if n == "flowsched_kubelet_rejections_total"}
    assert len(found) <= MOST_REASONS + 1
    assert sum(found.values()) == len(reasons)


def test_a_clock_that_goes_back_breaks_nothing(metrics: Metrics) -> None:
    metrics.bound(created_s=10.0, attempts=0, now=9.0)
    assert value(metrics, "scheduler_pod_scheduling_sli_duration_seconds_sum", attempts="0") == 0


def test_two_processes_worth_of_metrics_do_not_mix() -> None:
    one, other = Metrics("1"), Metrics("1")
    one.gauge("flowsched_postponed_pods").set(3)
    assert value(other, "flowsched_postponed_pods") == 0


def test_openmetrics_for_those_who_ask(metrics: Metrics) -> None:
    text, content_type = everything(metrics).exposition("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert list(parse_openmetrics(text.decode()))  # type: ignore[no-untyped-call]
