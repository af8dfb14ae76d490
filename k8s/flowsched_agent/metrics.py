"""What the agent measures, as text for Prometheus. Written by hand, so that a plain machine needs no package for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from flowsched_agent.status import Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[Mapping[str, str], float]


@dataclass(frozen=True)
class Family:
    """One metric."""

    name: str
    kind: str
    """``counter`` or ``gauge``."""
    help: str
    labels: tuple[str, ...] = ()


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


def exposition(status: Status, version: str) -> bytes:
    """The text to scrape."""
    samples = _samples(status, version)
    lines = []
    for family in FAMILIES:
        lines.append(f"# HELP {family.name} {family.help}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for labels, value in samples.get(family.name, ()):
            lines.append(f"{family.name}{_labels(labels)} {_number(value)}")
    return ("\n".join(lines) + "\n").encode()


def _samples(status: Status, version: str) -> dict[str, list[Sample]]:
    own = "flowsched_agent_"
    found: dict[str, list[Sample]] = {
        f"{own}build_info": [({"version": version}, 1.0)],
        f"{own}pauses_total": [({}, status.pauses)],
        f"{own}acts_total": [({"act": act}, n) for act, n in status.acts.items()],
        f"{own}ticks_total": [({}, status.ticks)],
        f"{own}overruns_total": [({}, status.overruns)],
        f"{own}missed_ticks_total": [({}, status.missed)],
        f"{own}last_tick_duration_seconds": [({}, status.last_tick_s)],
        # All kinds from the start: a rate needs a first zero.
        f"{own}errors_total": [
            ({"kind": kind}, status.errors.get(kind, 0)) for kind in sorted({*ERROR_KINDS, *status.errors})
        ],
    }

    def add(name: str, labels: Mapping[str, str], value: float | None) -> None:
        if value is not None:
            found.setdefault(own + name, []).append((labels, value))

    for name, service in status.services.items():
        who = {"service": name}
        add("service_up", who, float(service.answers))
        add("service_load_qps", who, service.qps)
        add("service_predicted_p95_seconds", who, None if service.p95_us is None else service.p95_us / 1e6)
        add("service_slo_seconds", who, service.slo_us / 1e6)
        add("service_headroom_ratio", who, service.headroom)
        add("service_cores", who, len(service.cores))
        add("service_cpu_seconds_total", who, service.cpu_s)
    for name, task in status.tasks.items():
        for state in TASK_STATES:
            add("task_state", {"task": name, "state": state}, float(task.state == state))
        add("task_cores", {"task": name}, len(task.cores))
        add("task_weight_ratio", {"task": name}, task.weight)
        add("task_cpu_seconds_total", {"task": name}, task.cpu_s)
    return found


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value) if isinstance(value, float) else str(value)
