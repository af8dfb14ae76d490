"""How long a job runs in all, given that it still runs: against the normal distribution, and against draws."""

from __future__ import annotations

import math
from statistics import NormalDist, median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowsched.cluster.still_running import late_length, median_length, run_length, run_lengths, spread_of

NORMAL = NormalDist()
DONE = st.floats(1e-3, 20.0)
SIGMA = st.floats(0.02, 1.5)


@given(DONE, SIGMA)
def test_half_of_the_jobs_that_still_run_end_before_the_median(done: float, sigma: float) -> None:
    length = median_length(done, sigma)
    z, at = -math.log(done) / sigma, -math.log(length) / sigma

    assert length >= done
    if z > -30.0:  # beyond, the normal distribution of the library is 0
        assert NORMAL.cdf(at) == pytest.approx(0.5 * NORMAL.cdf(z), rel=1e-9)


@given(st.one_of(st.just(0.0), DONE), SIGMA, st.sampled_from((0.1, 0.5, 0.9)))
def test_a_quantile_is_that_of_the_jobs_that_still_run(done: float, sigma: float, share: float) -> None:
    length = late_length(done, sigma, share)
    z, at = -math.log(done or 1e-300) / sigma, -math.log(length) / sigma

    assert length >= done
    if z > -30.0:
        assert NORMAL.cdf(at) == pytest.approx((1.0 - share) * NORMAL.cdf(z), rel=1e-6)
        if share == 0.5:
            assert length == pytest.approx(median_length(done, sigma), rel=1e-6)
    assert late_length(done, 0.0, share) == max(1.0, done)


@pytest.mark.parametrize(("done", "sigma"), [(0.3, 0.4), (0.9, 0.2), (1.0, 0.4), (1.4, 0.3), (2.0, 0.5)])
def test_the_median_is_that_of_draws(done: float, sigma: float) -> None:
    draws = np.exp(sigma * np.random.default_rng(1).standard_normal(200_000))

    assert median_length(done, sigma) == pytest.approx(median(draws[draws > done].tolist()), rel=0.01)


@given(st.floats(0.0, 20.0), st.floats(0.0, 20.0), st.floats(0.0, 1.5))
def test_a_job_that_has_run_longer_runs_longer(one: float, other: float, sigma: float) -> None:
    few, more = sorted((one, other))

    assert median_length(few, sigma) <= median_length(more, sigma) * (1.0 + 1e-12)


@given(st.floats(0.0, 0.999), st.floats(1.0, 50.0))
def test_without_a_spread_the_forecast_holds_to_its_end(before: float, beyond: float) -> None:
    assert median_length(before, 0.0) == 1.0 and median_length(beyond, 0.0) == beyond


def test_a_job_that_has_just_begun_runs_as_long_as_forecast() -> None:
    for done in (0.0, 1e-300, 1e-4):
        assert median_length(done, 0.4) == pytest.approx(1.0, abs=1e-9)


def test_far_out_what_is_left_is_sigma_squared_over_the_logarithm() -> None:
    """ln 2 of the mean excess x sigma^2 / ln x, in the limit of a long overrun (Mills' ratio)."""
    for done in (1.5, 3.0):
        left = median_length(done, 0.01) - done
        assert left == pytest.approx(math.log(2.0) * done * 0.01**2 / math.log(done), rel=0.02)


@given(st.floats(0.0, 1.0), st.floats(0.0, 0.6), st.integers(0, 100), st.floats(0.0, 1.0))
def test_the_spread_lies_between_what_is_stated_and_what_was_seen(
    done: float, error: float, ends: int, square: float
) -> None:
    spread = spread_of(done, error, float(ends), ends * square)
    seen = square if ends else error**2

    assert min(error**2, seen) - 1e-12 <= spread**2 <= max(error**2, seen) + 1e-12


def test_the_spread_goes_from_the_stated_error_to_what_was_seen() -> None:
    assert spread_of(0.5, 0.3, 0.0, 0.0) == pytest.approx(0.3)
    assert spread_of(0.5, 0.3, 1e6, 1e6 * 0.16) == pytest.approx(0.4, abs=1e-5)
    exact = [spread_of(0.5, 0.3, float(n), 0.0) for n in (0, 4, 60, 10**6)]
    assert exact[1] == pytest.approx(0.3 / math.sqrt(2.0)) and exact[2] < 0.08 and exact[3] < 1e-3


@given(st.floats(1.01, 100.0), st.integers(0, 1000))
def test_a_job_beyond_an_exact_forecast_has_something_left(done: float, ends: int) -> None:
    """With nothing but exact ends seen, and none stated: its own overrun is what is known of errors."""
    left = run_length(done, 0.0, float(ends), 0.0) - done

    assert left > done * math.log(done) * 0.3 / (ends + 5.0)


@given(st.lists(st.tuples(st.floats(0.0, 5.0), st.floats(0.0, 0.5)), max_size=8))
def test_many_at_once_are_as_one_by_one(jobs: list[tuple[float, float]]) -> None:
    found = np.empty(len(jobs))
    columns = np.array(jobs, np.float64).reshape(-1, 2).T.copy()
    run_lengths(columns[0], columns[1], 7.0, 0.9, found)

    assert found.tolist() == [run_length(done, error, 7.0, 0.9) for done, error in jobs]
