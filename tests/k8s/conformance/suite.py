"""All cases, upstream's and those written here, or a sample of them, on a control plane of their own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from plane import run_script, running_plane
from running import STANDARD, install_pod_groups, running_scheduler

from conformance.report import Outcome, Result, Verdict, judge
from conformance.runner import LONG_SETTLE_S, SETTLE_S, Runner, Scheduler, questions_of
from conformance.scenario import Scenario, SkippedError, even_sample, skipped_and_mapped
from conformance.upstream import recorded_cases
from conformance.written import written_cases
from flowsched.round.linear.preparation import prepare as prepare_bulk
from flowsched.round.scheduler import prepare

# kube-scheduler's own limit of requests would be what its answers wait for. Without the gate, which is off by default, the
# API server takes no toleration that compares numbers.
PLANE = ("--parts", "kwok,kube-scheduler", "--scheduler-qps", "5000")
GATES = {(1, 35): "TaintTolerationComparisonOperators=true"}
"""By the first version that has it."""


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
    written = written_cases()
    found += [scenario.case for scenario in written]
    scenarios += written
    scenarios = [s for s in scenarios if text in s.case.title]
    if sample is not None:
        scenarios = even_sample(scenarios, sample)
    prepare()
    prepare_bulk()
    began = time.monotonic()
    results = []
    version = tuple(int(part) for part in run_script("version").lstrip("v").split("."))
    gates = ",".join(gate for since, gate in GATES.items() if version >= since)
    skipped += [(s.case, f"Kubernetes is older than {s.since[0]}.{s.since[1]}") for s in scenarios if version < s.since]
    scenarios = [s for s in scenarios if version >= s.since]
    with (
        running_plane(*PLANE, *(("--feature-gates", gates) if gates else ())) as plane,
        contextlib.ExitStack() as stack,
    ):
        install_pod_groups(plane)
        features = (*STANDARD, "preemption")
        flowsched = stack.enter_context(running_scheduler(plane, folder, features=features))
        schedulers = (
            Scheduler("default-scheduler", flowsched.pool),
            Scheduler(flowsched.name, flowsched.pool, lambda: flowsched.state()["nodes"]),
        )
        runner = Runner(plane.admin)
        for number, scenario in enumerate(scenarios, start=1):
            progress(f"{number}/{len(scenarios)} {scenario.case.title}")
            try:
                results.append(_result(runner, scenario, *schedulers))
            except SkippedError as reason:
                if scenario.steps:  # what is written here can be corrected
                    results.append(Result(scenario.case, Verdict.NOT_APPLICABLE, Verdict.PASS, str(reason), "", True))
                else:
                    skipped.append((scenario.case, str(reason)))
    return Outcome(found, skipped, results, time.monotonic() - began, run_script("version"))


def _result(runner: Runner, scenario: Scenario, kube_scheduler: Scheduler, flowsched: Scheduler) -> Result:
    """The verdicts on a case; one that may come from a watch that was late is looked at again, node by node.

    Raises ``SkippedError`` if the API server refuses an object of the case.
    """
    for settle_s in (SETTLE_S, LONG_SETTLE_S):
        asked = questions_of(scenario, singly=settle_s == LONG_SETTLE_S)
        control = [] if scenario.not_applicable else runner.run(scenario, asked, kube_scheduler, settle_s)
        answers = runner.run(scenario, asked, flowsched, settle_s, control)
        result = judge(scenario, asked, control, answers)
        if (
            result.flowsched not in (Verdict.FAIL, Verdict.WRONG)
            and not result.binds_too_much
            and not result.uncontrolled
        ):
            break
    return result
