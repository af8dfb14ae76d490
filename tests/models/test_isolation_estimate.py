"""The runtime to reserve, from what a task used."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flowsched_models.isolation.estimate import MOST_CPUS, estimate, forecast_error


def test_a_steady_task_gets_the_least_margin() -> None:
    found = estimate([0.4] * 20, 10_000)
    assert found.bandwidth.runtime_us == pytest.approx(4_400)


def test_a_restless_one_gets_its_deviation() -> None:
    usage = [0.2, 0.4] * 10
    found = estimate(usage, 10_000)
    deviation = np.std(usage, ddof=1)
    assert found.bandwidth.cpus == pytest.approx(0.3 + 2 * deviation)


def test_one_thread_is_never_owed_more_than_it_can_get() -> None:
    found = estimate([0.9, 0.93, 0.91, 0.92], 10_000)
    assert found.bandwidth.cpus == pytest.approx(MOST_CPUS)


def test_samples_without_use_have_no_relative_error() -> None:
    error = forecast_error([0.0, 0.2], 0.1, 0.15)
    assert error.mape == pytest.approx(0.5)
    assert forecast_error([0.0], 0.1, 0.15).mape is None


@pytest.mark.parametrize("usage", [[], [0.0, 0.0], [0.1, -0.1], [0.1, math.nan], [[0.1]]])
def test_traces_that_say_nothing_are_refused(usage: list[float]) -> None:
    with pytest.raises(ValueError, match="trace"):
        estimate(usage, 10_000)


def test_less_than_a_tenth_of_margin_is_refused() -> None:
    with pytest.raises(ValueError, match="makes jobs late"):
        estimate([0.4] * 8, 10_000, least_margin=0.05)


def test_a_reservation_that_no_kernel_takes_is_refused() -> None:
    with pytest.raises(ValueError, match="period"):
        estimate([0.4] * 8, 10.0)
