"""What the agent measures, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from flowsched_agent.status import Status
from flowsched_k8s.metrics.metrics import Family, encoded

FAMILIES = (
    Family("flowsched_agent_build_info", "gauge", "1; the version is a label.", ("version",)),
    Family("flowsched_agent_service_up", "gauge", "1 if the service answered at the last tick.", ("service",)),
    Family("flowsched_agent_service_load_qps", "gauge", "Queries per second over the last second.", ("service",)),
    Family(
        "flowsched_agent_service_predicted_p95_seconds",
        "gauge",
        "p95 that the profile predicts for this load on these cores, without neighbours.",
        ("service",),
    ),
    Family("flowsched_agent_service_slo_seconds", "gauge", "p95 that shall be kept.", ("service",)),
    Family(
        "flowsched_agent_service_headroom_ratio",
        "gauge",
        "Share of the latency goal that is left, by the prediction; negative when broken.",
        ("service",),
    ),
    Family("flowsched_agent_service_cores", "gauge", "Cores of the service.", ("service",)),
    Family("flowsched_agent_service_cpu_seconds_total", "counter", "CPU used by the service.", ("service",)),
    Family("flowsched_agent_task_state", "gauge", "1 for the state that the task is in.", ("task", "state")),
    Family("flowsched_agent_task_cores", "gauge", "Cores that the task may use.", ("task",)),
    Family(
        "flowsched_agent_task_weight_ratio", "gauge", "CPU weight of the task relative to Linux's default.", ("task",)
    ),
    Family("flowsched_agent_task_cpu_seconds_total", "counter", "CPU used by the task.", ("task",)),
    Family(
        "flowsched_agent_learnt_factor",
        "gauge",
        "Run time of a class relative to its forecast, learnt from completions; of the 100 that completed last.",
        ("class",),
    ),
    Family(
        "flowsched_agent_learnt_spread",
        "gauge",
        "Standard deviation of the logarithm of its run time around that.",
        ("class",),
    ),
    Family("flowsched_agent_pauses_total", "counter", "Times that a task was paused."),
    Family("flowsched_agent_acts_total", "counter", "Settings that were changed.", ("act",)),
    Family("flowsched_agent_ticks_total", "counter", "Decisions."),
    Family("flowsched_agent_overruns_total", "counter", "Ticks that took longer than the period."),
    Family("flowsched_agent_missed_ticks_total", "counter", "Ticks left out because of overruns."),
    Family("flowsched_agent_last_tick_duration_seconds", "gauge", "Time that the last tick took."),
    Family("flowsched_agent_errors_total", "counter", "What failed, by kind.", ("kind",)),
)
TASK_STATES = ("queued", "running", "paused", "absent", "done")
ERROR_KINDS = ("control", "controller", "service", "start", "state", "record", "report", "tick")


_Value = tuple[str, Sequence[str], float | None]
"""Name without what all begin with, values of the labels, and the value; None is not shown."""


def exposition(status: Status, version: str, accept: str = "") -> tuple[bytes, str]:
    """The text to scrape, in the form that is accepted, and its content type."""
    registry = CollectorRegistry()
    registry.register(_Snapshot(status, version))
    return encoded(registry, accept)


class _Snapshot(Collector):
    """All metrics as they are after one tick."""

    def __init__(self, status: Status, version: str) -> None:
        self._status = status
        self._version = version

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Every family, also those without a value."""
        found: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for family in FAMILIES:
            make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            found[family.name] = make(family.name, family.help, labels=family.labels)
        for name, labels, value in _values(self._status, self._version):
            if value is not None:
                found[f"flowsched_agent_{name}"].add_metric(labels, value)
        yield from found.values()


def _values(status: Status, version: str) -> Iterator[_Value]:
    yield "build_info", [version], 1
    yield "pauses_total", (), status.pauses
    for act, count in status.acts.items():
        yield "acts_total", [act], count
    yield "ticks_total", (), status.ticks
    yield "overruns_total", (), status.overruns
    yield "missed_ticks_total", (), status.missed
    yield "last_tick_duration_seconds", (), status.last_tick_s
    # All kinds from the start: a rate needs a first zero.
    for kind in sorted({*ERROR_KINDS, *status.errors}):
        yield "errors_total", [kind], status.errors.get(kind, 0)
    for name, learnt in status.learnt.items():
        yield "learnt_factor", [name], learnt.factor
        yield "learnt_spread", [name], learnt.spread
    for name, service in status.services.items():
        yield "service_up", [name], service.answers
        yield "service_load_qps", [name], service.qps
        yield "service_predicted_p95_seconds", [name], None if service.p95_us is None else service.p95_us / 1e6
        yield "service_slo_seconds", [name], service.slo_us / 1e6
        yield "service_headroom_ratio", [name], service.headroom
        yield "service_cores", [name], len(service.cores)
        yield "service_cpu_seconds_total", [name], service.cpu_s
    for name, task in status.tasks.items():
        for state in TASK_STATES:
            yield "task_state", [name, state], task.state == state
        yield "task_cores", [name], len(task.cores)
        yield "task_weight_ratio", [name], task.weight
        yield "task_cpu_seconds_total", [name], task.cpu_s
