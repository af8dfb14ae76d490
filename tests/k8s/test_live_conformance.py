"""Upstream's own table cases under kube-scheduler and flowsched: eighty of them, as `make conformance-sample` runs them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conformance.report import Result, Verdict, known_failures, problems
from conformance.suite import run_suite
from conformance.upstream import Case, UpstreamError, cache_folder

from requirements_on_machine import give_up, needs

SAMPLE = 80
LEFT_OUT_AT_MOST = 4
"""Of the sample, by an API server that refuses an object of a case."""


def test_a_sample_of_upstream_cases_ends_as_under_kube_scheduler(tmp_path: Path) -> None:
    if not cache_folder().exists():
        needs("go", "to record upstream's table cases")
    try:
        outcome = run_suite(tmp_path, SAMPLE)
    except UpstreamError as error:
        give_up(f"upstream's table cases cannot be recorded: {error}")
    assert problems(outcome.results, known_failures()) == []
    assert len(outcome.results) >= SAMPLE - LEFT_OUT_AT_MOST
    assert sum(r.kube_scheduler is Verdict.PASS for r in outcome.results) >= SAMPLE * 3 // 4
    assert len({r.case.plugin for r in outcome.results}) >= 10


def result(flowsched: Verdict, name: str = "a") -> Result:
    case = Case("nodename", "TestNodeName", 1, name, {}, [])
    return Result(case, Verdict.PASS, flowsched, "why")


@pytest.mark.parametrize(
    ("verdict", "listed", "said"),
    [
        (Verdict.PASS, False, None),
        (Verdict.REFUSED, False, None),
        (Verdict.FAIL, True, None),
        (Verdict.FAIL, False, "fails and is not listed"),
        (Verdict.PASS, True, "is listed as failing and does not fail"),
        (Verdict.WRONG, False, "wrong"),
        (Verdict.WRONG, True, "wrong"),
    ],
)
def test_only_listed_failures_are_allowed_and_wrong_bindings_never(verdict: Verdict, listed: bool, said: str) -> None:
    known = {"nodename/TestNodeName/1": "a reason"} if listed else {}
    found = problems([result(verdict)], known)
    assert bool(found) == (said is not None)
    assert said is None or found[0].startswith(said)


def test_without_go_recording_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from conformance.upstream import record

    monkeypatch.setenv("FLOWSCHED_CACHE", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda *_: None)
    with pytest.raises(UpstreamError, match="Go is not installed"):
        record()
