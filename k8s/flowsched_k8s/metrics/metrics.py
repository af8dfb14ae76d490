"""What flowsched measures about itself, under the names that dashboards know. No label ever holds the name of a pod."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder

from flowsched.cluster.start_samples import Held, StartOutcome

FORECASTS = ("start", "end")
QUEUES = ("active", "backoff", "unschedulable", "gated")
RESULTS = ("scheduled", "unschedulable", "error")
MOST_ATTEMPTS = 15
"""Pods that needed so many attempts or more share one label value."""
MOST_REASONS = 30
"""Reasons that come from outside get so many label values; further ones are counted as ``other``."""
OTHER = "other"


def doubling(first: float, count: int) -> tuple[float, ...]:
    """Upper bounds of buckets, each twice the one before."""
    return tuple(first * 2**i for i in range(count))


@dataclass(frozen=True)
class Family:
    """One metric: its name as scraped, without the ``_bucket``, ``_sum`` and ``_count`` of a histogram."""

    name: str
    kind: str
    """``counter``, ``gauge`` or ``histogram``."""
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def encoded(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The text that Prometheus scrapes, in the form it accepts, and its content type."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


_FAST = doubling(0.001, 15)

FAMILIES: tuple[Family, ...] = (
    Family("scheduler_pending_pods", "gauge", "Pods waiting, by queue.", ("queue",)),
    Family(
        "scheduler_schedule_attempts_total",
        "counter",
        "Attempts to place a pod, by result.",
        ("result", "profile"),
    ),
    Family(
        "scheduler_scheduling_attempt_duration_seconds",
        "histogram",
        "Time from the start of a pod's round to its outcome.",
        ("result", "profile"),
        _FAST,
    ),
    Family(
        "scheduler_scheduling_algorithm_duration_seconds",
        "histogram",
        "Time a round took to decide, without binding.",
        (),
        _FAST,
    ),
    Family(
        "scheduler_pod_scheduling_sli_duration_seconds",
        "histogram",
        "Time from when a pod could first be scheduled until it was bound.",
        ("attempts",),
        doubling(0.01, 20),
    ),
    Family(
        "scheduler_pod_scheduling_attempts",
        "histogram",
        "Attempts that a pod took until it was bound.",
        (),
        doubling(1, 5),
    ),
    Family(
        "scheduler_queue_incoming_pods_total",
        "counter",
        "Pods put into a queue, by queue and by what put them there.",
        ("queue", "event"),
    ),
    Family(
        "scheduler_unschedulable_pods",
        "gauge",
        "Pods that found no place, by the constraint that stopped them.",
        ("plugin", "profile"),
    ),
    Family("scheduler_preemption_attempts_total", "counter", "Times a plan to make room was looked for."),
    Family("scheduler_preemption_victims", "histogram", "Pods evicted by one plan.", (), doubling(1, 7)),
    Family(
        "flowsched_rebalancing_moves_total",
        "counter",
        "Pods that rebalancing moves; result is sent, refused, or dry where nothing is moved.",
        ("purpose", "result"),
    ),
    Family("scheduler_cache_size", "gauge", "Objects in the cache.", ("type",)),
    Family("leader_election_master_status", "gauge", "1 on the leader, 0 on the others.", ("name",)),
    Family(
        "rest_client_requests_total",
        "counter",
        "Requests to the API server; code `<error>` got no answer.",
        ("method", "code"),
    ),
    Family("flowsched_round_duration_seconds", "histogram", "Time per round, by phase.", ("phase",), _FAST),
    Family(
        "flowsched_solve_duration_seconds",
        "histogram",
        "Time per solver call; mode is full or incremental.",
        ("backend", "mode"),
        _FAST,
    ),
    Family("flowsched_graph_nodes", "gauge", "Nodes of the network that a bulk round solved last.", ("kind",)),
    Family("flowsched_graph_arcs", "gauge", "Arcs of the network that a bulk round solved last.", ("kind",)),
    Family("flowsched_graph_rebuilds_total", "counter", "Times the network was built anew.", ("reason",)),
    Family(
        "flowsched_solver_fallbacks_total",
        "counter",
        "Times a second solver or a simpler model stepped in.",
        ("reason",),
    ),
    Family("flowsched_placement_cost", "gauge", "Cost of the last round's placements, in units of penalty."),
    Family(
        "flowsched_binds_total",
        "counter",
        "Bindings by result; `withdrawn` ones were not sent, because the node would have refused the pod by then.",
        ("result",),
    ),
    Family(
        "flowsched_requests_without_outcome",
        "gauge",
        "Requests that are not answered, or not with what became of them, by kind and by how long that has lasted.",
        ("request", "age"),
    ),
    Family(
        "flowsched_rounds_paused",
        "gauge",
        "1 while the leader decides no rounds, by reason; `namespaces`: rounds leave out the pods of some.",
        ("reason",),
    ),
    Family(
        "flowsched_watch_age_seconds",
        "gauge",
        "Seconds since the API server said anything about nodes or pods: a list, an event or a bookmark.",
        ("kind",),
    ),
    Family(
        "flowsched_kubelet_rejections_total",
        "counter",
        "Pods that were bound and then refused by the node, by the reason it gave.",
        ("reason",),
    ),
    Family("flowsched_gang_waiting", "gauge", "Groups of pods waiting for their quorum or for room."),
    Family("flowsched_stale_metrics_nodes", "gauge", "Nodes with a service whose load is not known freshly."),
    Family(
        "flowsched_services_beyond_grant",
        "gauge",
        "Bound services that count as granted, by what they claim beside that: load, goal, profile, client or cores.",
        ("claim",),
    ),
    Family(
        "flowsched_pod_ends_total",
        "counter",
        "Pods that ended well, by what came of that for learnt run times: learnt, or why nothing was.",
        ("outcome",),
    ),
    Family(
        "flowsched_run_time_error",
        "histogram",
        "Run time over forecast, or forecast over run time, whichever is more, less 1; by what forecast: profile or class.",
        ("forecast",),
        (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 4.0),
    ),
    Family(
        "flowsched_learnt_factor",
        "gauge",
        "Run time over forecast that is expected of a class of pods; of the 100 that were seen last.",
        ("class", "machine_type"),
    ),
    Family(
        "flowsched_learnt_spread",
        "gauge",
        "Standard deviation of the logarithm of run times around that factor.",
        ("class", "machine_type"),
    ),
    Family("flowsched_learnt_classes", "gauge", "Classes on machine types of which something was learnt."),
    Family("flowsched_learnt_saves_total", "counter", "Writes of what was learnt, by result.", ("result",)),
    Family("flowsched_postponed_pods", "gauge", "Pods that could run now but wait because waiting costs less."),
    Family(
        "flowsched_estimated_pods",
        "gauge",
        "Pods that wait and whose start is forecast.",
    ),
    Family(
        "flowsched_estimated_wait_seconds",
        "gauge",
        "Time until these are expected to start: of half of them, of nine of ten and of all it is no longer.",
        ("quantile",),
    ),
    Family(
        "flowsched_forecast_error_seconds",
        "histogram",
        "By how much starts and ends of pods that had waited were off, whichever way; of forecasts at any time.",
        ("forecast",),
        doubling(1, 16),
    ),
    Family(
        "flowsched_forecast_intervals_total",
        "counter",
        "Where they were, seen from their 80 % intervals: held, early or late.",
        ("forecast", "result"),
    ),
    Family("flowsched_events_dropped_total", "counter", "Events not written because there were too many."),
    Family(
        "flowsched_records_dropped_total",
        "counter",
        "Records of rounds that were not kept as configured: busy (the folder was too slow), failed, memory.",
        ("reason",),
    ),
    Family(
        "flowsched_reconcile_differences_total",
        "counter",
        "Objects whose cached state differed from the API server's in a full comparison.",
        ("kind",),
    ),
    Family("flowsched_watch_restarts_total", "counter", "Watches begun anew, by kind and why.", ("kind", "reason")),
    Family("flowsched_build_info", "gauge", "Always 1; versions are labels.", ("version", "python")),
)
"""Every metric but ``process_*``."""

ALWAYS_THERE: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "scheduler_pending_pods": tuple((q,) for q in QUEUES),
    "scheduler_cache_size": (("nodes",), ("pods",), ("assumed",)),
    "flowsched_forecast_intervals_total": tuple((f, h) for f in FORECASTS for h in Held),
}
"""Label values that are shown from the start, at 0: an alert on their absence must not fire."""


_KINDS: Mapping[str, type[Counter | Gauge | Histogram]] = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}


class Metrics:
    """All metrics of one process. What is more than a number is changed by methods in the words of the domain."""

    def __init__(self, version: str, profiles: Iterable[str] = ()) -> None:
        """``profiles``: the scheduler names."""
        # A creation time per series would nearly double what is scraped.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._families: dict[str, Any] = {}
        self._had_network = False
        for family in FAMILIES:
            buckets = {"buckets": family.buckets} if family.buckets else {}
            make: Any = _KINDS[family.kind]
            self._families[family.name] = make(
                family.name, family.help, family.labels, registry=self.registry, **buckets
            )
        ProcessCollector(registry=self.registry)
        # Looking up a child by its labels costs more than changing it.
        self.counter: Callable[..., Counter] = cache(self._child)
        self.gauge: Callable[..., Gauge] = cache(self._child)
        self.histogram: Callable[..., Histogram] = cache(self._child)
        self._unschedulable: set[tuple[str, str]] = set()
        self._rejections: set[str] = set()
        for name, values in ALWAYS_THERE.items():
            for value in values:
                self._child(name, *value)
        for profile in profiles:
            for result in RESULTS:
                self.counter("scheduler_schedule_attempts_total", result, profile)
                self.histogram("scheduler_scheduling_attempt_duration_seconds", result, profile)
        self.gauge("flowsched_build_info", version, platform.python_version()).set(1)

    def _child(self, name: str, *labels: str) -> Any:
        """The series of a family with these label values; the family itself, where it has no labels."""
        family = self._families[name]
        return family.labels(*labels) if labels else family

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """The text that Prometheus scrapes, in the form it accepts, and its content type."""
        return encoded(self.registry, accept)

    # Pods

    def attempt(self, result: str, seconds: float, profile: str) -> None:
        """A pod's round ended: ``scheduled``, ``unschedulable`` or ``error``."""
        self.counter("scheduler_schedule_attempts_total", result, profile).inc()
        self.histogram("scheduler_scheduling_attempt_duration_seconds", result, profile).observe(seconds)

    def bound(self, created_s: float, attempts: int, now: float) -> None:
        """A pod was bound; ``created_s`` is when it could first be scheduled."""
        label = f"{MOST_ATTEMPTS}+" if attempts >= MOST_ATTEMPTS else str(attempts)
        self.histogram("scheduler_pod_scheduling_sli_duration_seconds", label).observe(max(0.0, now - created_s))
        self.histogram("scheduler_pod_scheduling_attempts").observe(attempts)

    def unschedulable(self, pods: Mapping[tuple[str, str], int]) -> None:
        """Pods without a place by (constraint, scheduler name): the whole picture, what is not named is 0."""
        gone = dict.fromkeys(self._unschedulable - pods.keys(), 0)
        for labels, count in (gone | {**pods}).items():
            self.gauge("scheduler_unschedulable_pods", *labels).set(count)
        self._unschedulable |= pods.keys()

    def preemption(self, victims: int) -> None:
        """A plan to make room was looked for; 0 victims: there is none."""
        self.counter("scheduler_preemption_attempts_total").inc()
        if victims:
            self.histogram("scheduler_preemption_victims").observe(victims)

    def kubelet_rejected(self, reason: str, count: int) -> None:
        """A node refused pods that were bound to it. Reasons come from outside, so only so many are told apart."""
        if reason not in self._rejections:
            if not reason or len(reason) > 64 or len(self._rejections) >= MOST_REASONS:
                reason = OTHER
            else:
                self._rejections.add(reason)
        self.counter("flowsched_kubelet_rejections_total", reason).inc(count)

    def forecast_judged(self, outcome: StartOutcome) -> None:
        """What came of a forecast of a start or an end; it counts as often as it stands for others."""
        error = self.histogram("flowsched_forecast_error_seconds", outcome.forecast)
        for _ in range(outcome.weight):
            error.observe(abs(outcome.error_s))
        self.counter("flowsched_forecast_intervals_total", outcome.forecast, outcome.held).inc(outcome.weight)

    def replace(self, name: str, values: Mapping[tuple[str, ...], float]) -> None:
        """A gauge has these series and no others."""
        family = self._families[name]
        family.clear()
        for labels, value in values.items():
            family.labels(*labels).set(value)

    # Rounds

    def not_solved(self, backend: str) -> None:
        """A round called no solver: the families of solves and networks are there with nothing in them all the same, so
        that a board of a cluster whose pods come one at a time has no gaps.
        """
        self.histogram("flowsched_solve_duration_seconds", backend, "full")
        if not self._had_network:
            self.graph({"sink": 0}, {"class": 0})

    def graph(self, nodes: Mapping[str, int], arcs: Mapping[str, int]) -> None:
        """Size of the last network by kind of node and of arc."""
        self._had_network = True
        for name, sizes in (("flowsched_graph_nodes", nodes), ("flowsched_graph_arcs", arcs)):
            gauge = self._families[name]
            gauge.clear()
            for kind, size in sizes.items():
                gauge.labels(kind).set(size)

    # The API server

    def request(self, method: str, code: int | None) -> None:
        """A request was answered with a status; None: no answer."""
        self.counter("rest_client_requests_total", method, "<error>" if code is None else str(code)).inc()
