"""What flowsched measures about itself, under the names that dashboards know. No label ever holds the name of a pod."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder

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
        "flowsched_kubelet_rejections_total",
        "counter",
        "Pods that were bound and then refused by the node, by the reason it gave.",
        ("reason",),
    ),
    Family("flowsched_gang_waiting", "gauge", "Groups of pods waiting for their quorum or for room."),
    Family("flowsched_stale_metrics_nodes", "gauge", "Nodes with a service whose load is not known freshly."),
    Family("flowsched_postponed_pods", "gauge", "Pods that could run now but wait because waiting costs less."),
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
}
"""Label values that are shown from the start, at 0: an alert on their absence must not fire."""


class Metrics:
    """All metrics of one process, changed in the words of the domain."""

    def __init__(self, version: str, profiles: Iterable[str] = (), registry: CollectorRegistry | None = None) -> None:
        """``profiles``: the scheduler names."""
        # A creation time per series would nearly double what is scraped.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry if registry is not None else CollectorRegistry()
        self._gauges: dict[str, Gauge] = {}
        self._had_network = False
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        for family in FAMILIES:
            self._make(family)
        ProcessCollector(registry=self.registry)
        # Looking up a child by its labels costs more than changing it.
        self._counter: Callable[..., Counter] = cache(lambda name, *labels: self._counters[name].labels(*labels))
        self._histogram: Callable[..., Histogram] = cache(lambda name, *labels: self._histograms[name].labels(*labels))
        self._unschedulable: set[tuple[str, str]] = set()
        self._rejections: set[str] = set()
        for name, values in ALWAYS_THERE.items():
            for value in values:
                self._gauges[name].labels(*value)
        for profile in profiles:
            for result in RESULTS:
                self._counter("scheduler_schedule_attempts_total", result, profile)
                self._histogram("scheduler_scheduling_attempt_duration_seconds", result, profile)
        self._gauges["flowsched_build_info"].labels(version, platform.python_version()).set(1)

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """The text that Prometheus scrapes, in the form it accepts, and its content type."""
        return encoded(self.registry, accept)

    # Pods

    def attempt(self, result: str, seconds: float, profile: str) -> None:
        """A pod's round ended: ``scheduled``, ``unschedulable`` or ``error``."""
        self._counter("scheduler_schedule_attempts_total", result, profile).inc()
        self._histogram("scheduler_scheduling_attempt_duration_seconds", result, profile).observe(seconds)

    def bound(self, created_s: float, attempts: int, now: float) -> None:
        """A pod was bound; ``created_s`` is when it could first be scheduled."""
        label = f"{MOST_ATTEMPTS}+" if attempts >= MOST_ATTEMPTS else str(attempts)
        self._histogram("scheduler_pod_scheduling_sli_duration_seconds", label).observe(max(0.0, now - created_s))
        self._histograms["scheduler_pod_scheduling_attempts"].observe(attempts)

    def queue_sizes(self, sizes: Mapping[str, int]) -> None:
        """Pods by queue."""
        gauge = self._gauges["scheduler_pending_pods"]
        for queue in QUEUES:
            gauge.labels(queue).set(sizes.get(queue, 0))

    def incoming(self, queue: str, event: str, count: int = 1) -> None:
        """Pods were put into a queue."""
        self._counters["scheduler_queue_incoming_pods_total"].labels(queue, event).inc(count)

    def unschedulable(self, pods: Mapping[tuple[str, str], int]) -> None:
        """Pods without a place by (constraint, scheduler name): the whole picture, what is not named is 0."""
        gauge = self._gauges["scheduler_unschedulable_pods"]
        for labels in self._unschedulable - pods.keys():
            gauge.labels(*labels).set(0)
        for labels, count in pods.items():
            gauge.labels(*labels).set(count)
        self._unschedulable |= pods.keys()

    def postponed(self, pods: int) -> None:
        """Pods that wait because waiting costs less."""
        self._gauges["flowsched_postponed_pods"].set(pods)

    def gangs_waiting(self, groups: int) -> None:
        """Groups that wait."""
        self._gauges["flowsched_gang_waiting"].set(groups)

    def preemption(self, victims: int) -> None:
        """A plan to make room was looked for; 0 victims: there is none."""
        self._counters["scheduler_preemption_attempts_total"].inc()
        if victims:
            self._histograms["scheduler_preemption_victims"].observe(victims)

    def moved(self, purpose: str, result: str, count: int) -> None:
        """Pods that are moved for a better whole."""
        self._counters["flowsched_rebalancing_moves_total"].labels(purpose, result).inc(count)

    def kubelet_rejected(self, reason: str) -> None:
        """A node refused a pod that was bound to it. Reasons come from outside, so only so many are told apart."""
        if reason not in self._rejections:
            if not reason or len(reason) > 64 or len(self._rejections) >= MOST_REASONS:
                reason = OTHER
            else:
                self._rejections.add(reason)
        self._counters["flowsched_kubelet_rejections_total"].labels(reason).inc()

    # Rounds

    def decided(self, seconds: float) -> None:
        """A round decided, in so many seconds."""
        self._histograms["scheduler_scheduling_algorithm_duration_seconds"].observe(seconds)

    def phase(self, phase: str, seconds: float) -> None:
        """A phase of a round took so long."""
        self._histograms["flowsched_round_duration_seconds"].labels(phase).observe(seconds)

    def solved(self, backend: str, mode: str, seconds: float) -> None:
        """A solver was called; mode is ``full`` or ``incremental``."""
        self._histograms["flowsched_solve_duration_seconds"].labels(backend, mode).observe(seconds)

    def not_solved(self, backend: str) -> None:
        """A round called no solver: the families of solves and networks are there with nothing in them all the same, so
        that a board of a cluster whose pods come one at a time has no gaps.
        """
        self._histograms["flowsched_solve_duration_seconds"].labels(backend, "full")
        if not self._had_network:
            self.graph({"sink": 0}, {"class": 0})

    def graph(self, nodes: Mapping[str, int], arcs: Mapping[str, int]) -> None:
        """Size of the last network by kind of node and of arc."""
        self._had_network = True
        for name, sizes in (("flowsched_graph_nodes", nodes), ("flowsched_graph_arcs", arcs)):
            gauge = self._gauges[name]
            gauge.clear()
            for kind, size in sizes.items():
                gauge.labels(kind).set(size)

    def graph_rebuilt(self, reason: str) -> None:
        """The network was built anew."""
        self._counters["flowsched_graph_rebuilds_total"].labels(reason).inc()

    def fell_back(self, reason: str) -> None:
        """A second solver or a simpler model stepped in."""
        self._counters["flowsched_solver_fallbacks_total"].labels(reason).inc()

    def placement_cost(self, cost: float) -> None:
        """Cost of the last round's placements."""
        self._gauges["flowsched_placement_cost"].set(cost)

    # The API server

    def bind_sent(self, result: str) -> None:
        """A binding was answered, or not."""
        self._counter("flowsched_binds_total", result).inc()

    def request(self, method: str, code: int | None) -> None:
        """A request was answered with a status; None: no answer."""
        self._counter("rest_client_requests_total", method, "<error>" if code is None else str(code)).inc()

    def events_dropped(self, count: int = 1) -> None:
        """Events were not written."""
        self._counters["flowsched_events_dropped_total"].inc(count)

    def records_dropped(self, reason: str, count: int = 1) -> None:
        """Records were not kept as configured: ``busy``, ``failed`` or ``memory``; 0 shows the reason."""
        self._counters["flowsched_records_dropped_total"].labels(reason).inc(count)

    def reconcile_differences(self, kind: str, count: int) -> None:
        """A full comparison found so many differences; 0 shows that there was one."""
        self._counters["flowsched_reconcile_differences_total"].labels(kind).inc(count)

    def watch_restarted(self, kind: str, reason: str) -> None:
        """A watch was begun anew."""
        self._counters["flowsched_watch_restarts_total"].labels(kind, reason).inc()

    # The process

    def leader(self, name: str, leading: bool) -> None:
        """Whether this process leads; ``name`` is the Lease's."""
        self._gauges["leader_election_master_status"].labels(name).set(leading)

    def cache_size(self, nodes: int, pods: int, assumed: int) -> None:
        """Objects in the cache."""
        gauge = self._gauges["scheduler_cache_size"]
        for kind, size in (("nodes", nodes), ("pods", pods), ("assumed", assumed)):
            gauge.labels(kind).set(size)

    def stale_nodes(self, nodes: int) -> None:
        """Nodes with a service whose load is not known freshly."""
        self._gauges["flowsched_stale_metrics_nodes"].set(nodes)

    def _make(self, family: Family) -> None:
        if family.kind == "counter":
            self._counters[family.name] = Counter(family.name, family.help, family.labels, registry=self.registry)
        elif family.kind == "gauge":
            self._gauges[family.name] = Gauge(family.name, family.help, family.labels, registry=self.registry)
        else:
            self._histograms[family.name] = Histogram(
                family.name, family.help, family.labels, registry=self.registry, buckets=family.buckets
            )
