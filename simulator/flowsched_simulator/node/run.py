"""What one run of a controller on one machine came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flowsched_models.picked_fields import picked
from flowsched_models.quantity import format_cores
from flowsched_models.window_noise import WindowNoise


@dataclass(frozen=True)
class Stretch:
    """A time in which a job ran with one grant."""

    start_s: float
    end_s: float
    cores: tuple[int, ...]
    weight: float
    quota: float | None


@dataclass(frozen=True)
class NodeJobRun:
    """One job."""

    job: str
    profile: str
    threads: int
    submit_s: float
    end_s: float | None
    """None if it never ended."""
    stretches: tuple[Stretch, ...]
    """When it ran, in order; between two that do not touch it was paused."""
    reason: str = ""
    """Of one that never ended: what the controller said about it last."""

    @property
    def start_s(self) -> float | None:
        """When its program was started."""
        return self.stretches[0].start_s if self.stretches else None

    @property
    def active_s(self) -> float:
        """Seconds that it ran, pauses left out."""
        return sum(s.end_s - s.start_s for s in self.stretches)

    @property
    def completion_s(self) -> float | None:
        """From submission to end."""
        return None if self.end_s is None else self.end_s - self.submit_s

    @property
    def pauses(self) -> int:
        """How often it was paused."""
        return sum(a.end_s < b.start_s for a, b in zip(self.stretches, self.stretches[1:], strict=False))

    @property
    def core_changes(self) -> int:
        """How often it was moved to other virtual CPUs, while it ran or while it was paused."""
        return sum(a.cores != b.cores for a, b in zip(self.stretches, self.stretches[1:], strict=False))


@dataclass(frozen=True)
class Window:
    """One point of a latency report: all requests of an interval together."""

    service: str
    t_s: float
    end_s: float
    qps: float
    """Mean load that arrived."""
    model_p95_us: float
    """What the models say."""
    p95_us: float
    """The same with the noise of a measurement."""


@dataclass(frozen=True)
class CoreStep:
    """A service has these virtual CPUs from ``t_s`` on."""

    service: str
    t_s: float
    cores: tuple[int, ...]


@dataclass(frozen=True)
class NodeRun:
    """One controller, one load. Windows are from the first start of a job to the last end."""

    policy: str
    qps_interval_s: float
    seed: int
    load_seed: int | None
    """None where the load was the scenario's wave."""
    noise: tuple[WindowNoise, ...]
    """[services] the noise on p95."""
    slo_us: tuple[tuple[str, float], ...]
    """Goals by service."""
    jobs: tuple[NodeJobRun, ...]
    windows: tuple[Window, ...]
    core_steps: tuple[CoreStep, ...]
    end_s: float
    """Where the run stops: when the last job ended, or when it was cut."""
    ticks: int
    """How often the controller was asked."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Jobs that asked for a deadline and did not get it, and why; of controllers that admit deadlines."""

    @property
    def unfinished(self) -> tuple[NodeJobRun, ...]:
        """Jobs that never ended."""
        return tuple(j for j in self.jobs if j.end_s is None)

    @property
    def makespan_s(self) -> float | None:
        """From the first submission to the last end; None if some job never ended."""
        if self.unfinished:
            return None
        return max(j.end_s or 0.0 for j in self.jobs) - min(j.submit_s for j in self.jobs)

    @property
    def mean_completion_s(self) -> float | None:
        """From submission to end, the mean over the jobs; None if some job never ended."""
        if self.unfinished:
            return None
        return sum(j.completion_s or 0.0 for j in self.jobs) / len(self.jobs)

    @property
    def violations(self) -> int:
        """Points with p95 over the goal of their service."""
        slo = dict(self.slo_us)
        return sum(w.p95_us > slo[w.service] for w in self.windows)

    @property
    def slo_violation_ratio(self) -> float:
        """The same as a share of all points."""
        return self.violations / len(self.windows) if self.windows else 0.0

    @property
    def worst_p95_us(self) -> float | None:
        """The highest p95 of any point."""
        return max((w.p95_us for w in self.windows), default=None)

    @property
    def service_core_changes(self) -> int:
        """How often services got other virtual CPUs than before."""
        return len(self.core_steps) - len(self.slo_us)

    def summary(self) -> dict[str, Any]:
        """One row of the comparison table."""
        return {
            **picked(self, "policy", "qps_interval_s", "makespan_s", "mean_completion_s"),
            "points": len(self.windows),
            **picked(self, "violations", "slo_violation_ratio", "worst_p95_us"),
            "worst_model_p95_us": max((w.model_p95_us for w in self.windows), default=None),
            "pauses": sum(j.pauses for j in self.jobs),
            "service_core_changes": self.service_core_changes,
            "job_core_changes": sum(j.core_changes for j in self.jobs),
        }

    def to_json(self) -> dict[str, Any]:
        """The run as plain data, as ``--json`` prints it."""
        return {
            **self.summary(),
            "seed": self.seed,
            "load_seed": self.load_seed,
            "noise": [
                {"service": name, "error": n.error, "stalls": n.stalls, "stall": n.stall}
                for (name, _), n in zip(self.slo_us, self.noise, strict=True)
            ],
            "end_s": self.end_s,
            "ticks": self.ticks,
            "refused_deadlines": dict(self.refused),
            "jobs": [
                {
                    **picked(j, "job", "profile", "threads", "submit_s", "start_s", "end_s"),
                    **picked(j, "active_s", "pauses", "core_changes"),
                    "stretches": [[s.start_s, s.end_s, format_cores(s.cores), s.weight, s.quota] for s in j.stretches],
                }
                for j in self.jobs
            ],
            "latency": [picked(w, "service", "t_s", "end_s", "qps", "p95_us", "model_p95_us") for w in self.windows],
            "service_cores": [
                {"service": c.service, "t_s": c.t_s, "cores": format_cores(c.cores)} for c in self.core_steps
            ],
        }
