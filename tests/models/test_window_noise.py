"""Noise of reporting windows: quantiles, draws, and lengths between those that were measured."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flowsched_models.profiles import load_catalogue
from flowsched_models.service import ServiceProfile
from flowsched_models.window_noise import USUAL, WindowNoise, noise_at

noises = st.builds(
    WindowNoise,
    window_s=st.floats(0.1, 100.0),
    error=st.floats(0.0, 0.5),
    stalls=st.floats(0.0, 1.0),
    stall=st.floats(0.0, 1.0),
)


NEXT_TO_NO_ERROR = WindowNoise(1.0, 1e-200, stalls=0.5, stall=1.0)
"""Ratios to such an error are no floats when they are squared."""


@given(noises, st.floats(0.1, 10.0), st.floats(1.0, 3.0))
@example(NEXT_TO_NO_ERROR, 0.5, 1.0)
@example(WindowNoise(1.0, 0.3, stalls=1.0, stall=0.3 / (20.0 * math.sqrt(2.0))), 0.99999999, 1.00000002)
def test_fewer_windows_are_above_a_larger_factor(noise: WindowNoise, factor: float, more: float) -> None:
    assert 0.0 <= noise.share_above(factor * more) <= noise.share_above(factor) + 1e-12 <= 1.0 + 1e-12


@given(noises, st.floats(0.01, 0.999))
@example(NEXT_TO_NO_ERROR, 0.5)
def test_a_quantile_is_the_least_factor_that_holds_its_share(noise: WindowNoise, share: float) -> None:
    factor = noise.quantile(share)
    assert noise.share_above(factor) <= 1.0 - share + 1e-9
    assert noise.share_above(factor * 0.999) >= 1.0 - share - 1e-9


@pytest.mark.parametrize(
    "noise", [WindowNoise(10, 0.04, 0.1, 0.1), WindowNoise(1, 0.05, 0.16, 0.25), WindowNoise(1, 0.2)]
)
def test_draws_follow_the_shares(noise: WindowNoise) -> None:
    rng = np.random.default_rng(5)
    drawn = np.array([noise.draw(rng) for _ in range(20_000)])
    for share in (0.1, 0.5, 0.9, 0.95, 0.99):
        assert np.mean(drawn > noise.quantile(share)) == pytest.approx(1.0 - share, abs=0.01)
    assert np.std(np.log(drawn)) == pytest.approx(noise.deviation, rel=0.03)


def test_a_draw_takes_as_many_numbers_whatever_comes_out() -> None:
    one, other = np.random.default_rng(1), np.random.default_rng(1)
    for _ in range(50):
        WindowNoise(1, 0.1, 0.5, 0.3).draw(one)
        WindowNoise(10, 0.0).draw(other)
    assert one.random() == other.random()


def test_the_same_generator_gives_the_same_factors() -> None:
    noise = WindowNoise(1, 0.1, 0.5, 0.3)
    first, again = ([noise.draw(rng) for _ in range(9)] for rng in (np.random.default_rng(3), np.random.default_rng(3)))
    assert first == again and len(set(first)) == 9


def test_lengths_between_and_beyond() -> None:
    known = (WindowNoise(10, 0.02, 0.1, 0.1), WindowNoise(1, 0.06, 0.3, 0.5))
    assert noise_at(known, 0.2) == known[1] and noise_at(known, 60.0) == known[0]
    between = noise_at(known, math.sqrt(10.0))
    assert (between.error, between.stalls, between.stall) == pytest.approx((0.04, 0.2, 0.3))
    assert noise_at((), 3.0) == USUAL


def test_without_scatter_every_window_is_as_predicted() -> None:
    still = WindowNoise(1, 0.0)
    assert still.draw(np.random.default_rng(0)) == 1.0
    assert still.quantile(0.99) == pytest.approx(1.0)


def test_short_windows_of_memcached_scatter_more() -> None:
    memcached = load_catalogue().services["memcached"]
    assert [n.window_s for n in memcached.window_noise] == [1.0, 1.8, 5.0, 10.0]
    assert 1.15 > memcached.noise(1.0).quantile(0.95) > memcached.noise(10.0).quantile(0.95) > 1.06
    assert 1.45 > memcached.noise(1.0).quantile(0.99) > memcached.noise(10.0).quantile(0.99) > 1.2
    assert 0.04 < memcached.noise(10.0).deviation < 0.09
    assert ServiceProfile("s", memcached.curves).noise(10.0).deviation == USUAL.error
