"""Cases under kube-scheduler and flowsched: 50 of them, by `make explore` the 120 of `make conformance-sample`."""

from __future__ import annotations

from pathlib import Path

from conformance.report import Verdict, known_failures, problems
from conformance.suite import run_suite
from conformance.upstream import PLUGINS, UpstreamError, cache_folder
from conformance.written import written_sources

from requirements_on_machine import give_up, needs

SAMPLE, SAMPLE_EXPLORING = 50, 120
LEFT_OUT_AT_MOST = 4
"""Of the sample, by an API server that refuses an object of a case."""


def test_a_sample_of_cases_ends_as_under_kube_scheduler(tmp_path: Path, exploring: bool) -> None:
    sample = SAMPLE_EXPLORING if exploring else SAMPLE
    if not cache_folder().exists():
        needs("go", "to record upstream's table cases")
    try:
        outcome = run_suite(tmp_path, sample)
    except UpstreamError as error:
        give_up(f"upstream's table cases cannot be recorded: {error}")
    assert problems(outcome.results, known_failures()) == []
    assert len(outcome.results) >= sample - LEFT_OUT_AT_MOST
    assert sum(r.kube_scheduler is Verdict.PASS for r in outcome.results) >= sample * 3 // 4
    ran = {r.case.plugin for r in outcome.results}
    assert len(ran & set(PLUGINS)) >= 10
    assert ran >= set(written_sources()) - {"kueue-gangs"}
