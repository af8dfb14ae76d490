"""The benchmark of the objective makespan against completion: a sample of what it reports."""

from __future__ import annotations

import pytest

from benchmarks.makespans import FAMILIES, IDEAL_S, batch, beside_greedy, both


@pytest.mark.parametrize("family", [name for name in FAMILIES if name.endswith("start")])
def test_of_jobs_that_are_there_at_the_start_none_ends_later_than_by_completion(family: str) -> None:
    assert both(FAMILIES[family](201), 201).ratio <= 1.0 + 1e-9


@pytest.mark.parametrize("family", [name for name in FAMILIES if name.endswith("Poisson")])
def test_where_jobs_arrive_it_ends_hardly_later_than_by_completion(family: str) -> None:
    assert both(FAMILIES[family](201), 201).ratio <= 1.02


def test_the_batch_ends_when_its_work_is_done() -> None:
    assert both(batch(4)).makespan.makespan_s == pytest.approx(IDEAL_S, abs=1e-6)


@pytest.mark.parametrize("seed", [1000, 1001])
def test_the_batch_ends_as_early_with_estimates_that_are_off(seed: int) -> None:
    """A plan of all that waits, by such estimates, leaves a task of 60 s for the end."""
    flow, *rules = beside_greedy(batch(5), seed, 0.5)
    assert flow <= min(rules) + 1e-6 and flow == pytest.approx(IDEAL_S, abs=1e-6)
