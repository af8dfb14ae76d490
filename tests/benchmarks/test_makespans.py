"""The benchmark of the objective makespan against completion: a sample of what it reports."""

from __future__ import annotations

import pytest

from benchmarks.makespans import FAMILIES, IDEAL_S, batch, both


@pytest.mark.parametrize("family", [name for name in FAMILIES if name.endswith("start")])
def test_of_jobs_that_are_there_at_the_start_none_ends_later_than_by_completion(family: str) -> None:
    assert both(FAMILIES[family](201), 201).ratio <= 1.0 + 1e-9


@pytest.mark.parametrize("family", [name for name in FAMILIES if name.endswith("Poisson")])
def test_where_jobs_arrive_it_ends_hardly_later_than_by_completion(family: str) -> None:
    assert both(FAMILIES[family](201), 201).ratio <= 1.02


def test_the_batch_ends_when_its_work_is_done() -> None:
    assert both(batch(4)).makespan.makespan_s == pytest.approx(IDEAL_S, abs=1e-6)
