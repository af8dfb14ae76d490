"""The figures of a run that policies are compared by; of all of them less is better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flowsched_simulator.scenario import Objective, Scenario


@dataclass(frozen=True)
class Metric:
    """How a figure is called and shown."""

    words: str
    unit: str = ""
    factor: float = 1.0
    """From the value in tables to the one that is shown."""
    of_jobs: str = ""
    """The column of jobs that it is a mean or quantile of; empty for a figure of the whole run."""

    @property
    def head(self) -> str:
        """Its words, with the unit of its values."""
        return f"{self.words}, {self.unit}" if self.unit else self.words


METRICS: Mapping[str, Metric] = {
    "makespan_s": Metric("makespan", "s"),
    "mean_completion_s": Metric("mean completion time", "s", of_jobs="completion_s"),
    "median_completion_s": Metric("median completion time", "s", of_jobs="completion_s"),
    "p95_completion_s": Metric("p95 of completion time", "s", of_jobs="completion_s"),
    "mean_waiting_s": Metric("mean waiting time", "s", of_jobs="waiting_s"),
    "median_waiting_s": Metric("median waiting time", "s", of_jobs="waiting_s"),
    "p95_waiting_s": Metric("p95 of waiting time", "s", of_jobs="waiting_s"),
    "mean_slowdown": Metric("mean slowdown", of_jobs="slowdown"),
    "median_slowdown": Metric("median slowdown", of_jobs="slowdown"),
    "p95_slowdown": Metric("p95 of slowdown", of_jobs="slowdown"),
    "slo_violation_ratio": Metric("time over the SLO", "%", 100.0),
    "worst_p95_us": Metric("worst p95 of a service", "ms", 1e-3),
    "unfinished": Metric("jobs that never ended"),
    "missed": Metric("missed deadlines"),
    "killed": Metric("jobs killed at their walltime"),
    "mean_gpu_fragmentation": Metric("mean fragmentation of GPUs", "%", 100.0),
}
SHOWN = (
    "makespan_s",
    "mean_completion_s",
    "p95_completion_s",
    "mean_waiting_s",
    "mean_slowdown",
    "slo_violation_ratio",
)
"""The metrics of tables where none is asked for."""


def default_metric(scenario: Scenario) -> str:
    """What decides on a scenario unless the experiment says so: its own objective."""
    return "makespan_s" if scenario.objective is Objective.MAKESPAN else "mean_completion_s"
