"""All cases, or a sample of them, on a control plane of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plane import Plane, running_plane
from running import STANDARD, Running, running_scheduler

from conformance.report import Result, judge
from conformance.runner import Runner, Scheduler, run_both
from conformance.scenario import Scenario, SkippedError, even_sample, skipped_and_mapped
from conformance.upstream import Case, kubernetes_version, recorded_cases
from flowsched.round.scheduler import prepare
from flowsched.scale.bulk_round import prepare as prepare_bulk


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    found: list[Case]
    skipped: list[tuple[Case, str]]
    results: list[Result]

    def as_data(self) -> dict[str, Any]:
        """The verdicts as plain data."""
        return {
            "kubernetes": kubernetes_version(),
            "found": len(self.found),
            "skipped": [{"case": case.id, "reason": reason} for case, reason in self.skipped],
            "results": [
                {
                    "case": r.case.id,
                    "kube_scheduler": r.kube_scheduler.value,
                    "flowsched": r.flowsched.value,
                    "detail": r.detail,
                }
                for r in self.results
            ],
        }


def run_suite(folder: Path, sample: int | None, text: str, progress: Callable[[str], None]) -> Outcome:
    """Record the cases if need be, start everything, and run them. ``folder`` is for the scheduler's files.

    Raises ``UpstreamError`` if the cases cannot be recorded.
    """
    progress("recording upstream's cases (minutes the first time)")
    found = recorded_cases()
    scenarios, skipped = skipped_and_mapped(found)
    scenarios = [s for s in scenarios if text in s.case.id]
    if sample is not None:
        scenarios = even_sample(scenarios, sample)
    prepare()
    prepare_bulk()
    results = []
    # kube-scheduler's own limit of requests would be what its answers wait for.
    with (
        running_plane("--parts", "kwok,kube-scheduler", "--scheduler-qps", "5000") as plane,
        running_scheduler(plane, folder, features=(*STANDARD, "preemption")) as flowsched,
    ):
        for scenario, answers in _answers(plane, flowsched, scenarios, progress):
            if isinstance(answers, SkippedError):
                skipped.append((scenario.case, str(answers)))
            else:
                results.append(judge(scenario, *answers))
    return Outcome(found, skipped, results)


def _answers(plane: Plane, flowsched: Running, scenarios: list[Scenario], progress: Callable[[str], None]) -> Any:
    schedulers = (
        Scheduler("kube-scheduler", "default-scheduler", flowsched.pool),
        Scheduler("flowsched", flowsched.name, flowsched.pool, lambda: flowsched.state()["nodes"]),
    )
    return run_both(Runner(plane.admin), scenarios, schedulers, progress)
