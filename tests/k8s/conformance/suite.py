"""All cases, or a sample of them, on a control plane of their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plane import Plane, running_plane
from running import STANDARD, Running, running_scheduler

from conformance.report import Outcome, judge
from conformance.runner import Runner, Scheduler, run_both
from conformance.scenario import Scenario, SkippedError, even_sample, skipped_and_mapped
from conformance.upstream import recorded_cases
from flowsched.round.scheduler import prepare
from flowsched.scale.bulk_round import prepare as prepare_bulk

# kube-scheduler's own limit of requests would be what its answers wait for. Without the gate, which is off by default, the
# API server takes no toleration with an operator that flowsched says it does not support.
PLANE = ("--parts", "kwok,kube-scheduler", "--scheduler-qps", "5000")
GATES = ("--feature-gates", "TaintTolerationComparisonOperators=true")


def silent(text: str) -> None:
    """Report no progress."""


def run_suite(
    folder: Path, sample: int | None = None, text: str = "", progress: Callable[[str], None] = silent
) -> Outcome:
    """Record the cases if need be, start everything, and run those whose title contains ``text``.

    ``folder`` is for the scheduler's files. Raises ``UpstreamError`` if the cases cannot be recorded.
    """
    progress("recording upstream's cases (minutes the first time)")
    found = recorded_cases()
    scenarios, skipped = skipped_and_mapped(found)
    scenarios = [s for s in scenarios if text in s.case.title]
    if sample is not None:
        scenarios = even_sample(scenarios, sample)
    prepare()
    prepare_bulk()
    began = time.monotonic()
    results = []
    with (
        running_plane(*PLANE, *GATES) as plane,
        running_scheduler(plane, folder, features=(*STANDARD, "preemption")) as flowsched,
    ):
        for scenario, answers in _answers(plane, flowsched, scenarios, progress):
            if isinstance(answers, SkippedError):
                skipped.append((scenario.case, str(answers)))
            else:
                results.append(judge(scenario, *answers))
    return Outcome(found, skipped, results, time.monotonic() - began)


def _answers(plane: Plane, flowsched: Running, scenarios: list[Scenario], progress: Callable[[str], None]) -> Any:
    schedulers = (
        Scheduler("kube-scheduler", "default-scheduler", flowsched.pool),
        Scheduler("flowsched", flowsched.name, flowsched.pool, lambda: flowsched.state()["nodes"]),
    )
    return run_both(Runner(plane.admin), scenarios, schedulers, progress)
