"""The load that a controller is ready for: up at once, down slowly, never surprised by a restart."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowsched.node.load import LoadTracker
from flowsched.node.usual_loads import REGIMES, UsualLoads

STEP_S = 0.1


def follow(rates, *, margin=2.0, calm_s=1.0, seed=0, keys=1, ramp_s=5.0):
    """A tracker that read Poisson counts at these rates, one reading each; the loads it said on the way."""
    rng = np.random.default_rng(seed)
    tracker = LoadTracker(calm_s, margin, ramp_s)
    queries, said = 0, []
    tracker.read(0.0, 0)
    for k, rate in enumerate(rates):
        queries += keys * int(rng.poisson(rate * STEP_S / keys))
        tracker.read((k + 1) * STEP_S, queries)
        said.append(tracker.qps)
    return tracker, said


def test_a_jump_is_believed_with_the_first_reading_that_holds_it():
    _, said = follow([20_000] * 30 + [90_000] * 5)
    assert said[29] < 21_000
    assert said[30] > 88_000


def test_a_drop_is_believed_after_a_calm_second_and_not_before():
    _, said = follow([90_000] * 20 + [20_000] * 15)
    assert all(q > 88_000 for q in said[20:29])
    assert said[31] < 21_500


def test_a_steady_load_is_known_to_a_per_cent():
    tracker, said = follow([80_000] * 50)
    assert 80_000 * 0.995 < said[-1] < 80_000 * 1.01
    assert tracker.level == pytest.approx(80_000, rel=0.005)


def test_a_slow_rise_is_followed():
    _, said = follow(np.linspace(20_000, 60_000, 400))
    assert said[-1] > 57_000


@pytest.mark.parametrize("keys", [1, 20, 200])
def test_what_one_request_counts_as_is_learned(keys):
    """Gets of many keys scatter more; a steady load of them is one level all the same, and a jump is still seen."""
    rng = np.random.default_rng(3)
    tracker = LoadTracker(1.0, 2.0)
    queries, said = 0, []
    tracker.read(0.0, 0)
    for k in range(300):
        requests = 80.0 if k < 250 else 240.0  # in 100 ms
        queries += keys * int(rng.poisson(requests))
        tracker.read((k + 1) * STEP_S, queries)
        said.append(tracker.qps / keys)
    assert 0.5 * keys <= tracker.dispersion <= 2.5 * keys
    steady = np.array(said[100:250])
    assert (steady < 900.0).mean() > 0.9
    assert said[250] > 2_000.0


def test_a_great_step_is_believed_at_once_however_much_counts_scatter():
    tracker, queries = LoadTracker(1.0, 2.0), 0
    tracker.read(0.0, 0)
    for k in range(120):
        queries += 800 if k % 2 else 3200
        tracker.read((k + 1) * STEP_S, queries)
    queries += 10_000
    tracker.read(12.1, queries)
    assert tracker.qps > 90_000


def test_a_counter_that_starts_anew_is_no_negative_load():
    tracker = LoadTracker(1.0, 2.0)
    for k in range(10):
        tracker.read(k * STEP_S, 50_000 + 1000 * k)
    tracker.read(1.0, 300)
    assert not tracker.known
    tracker.read(1.1, 1300)
    assert tracker.known
    assert tracker.level == pytest.approx(10_000)
    assert tracker.qps < 13_000


def test_no_answer_is_not_known():
    tracker = LoadTracker(1.0, 2.0)
    for k in range(5):
        tracker.read(k * STEP_S, 1000 * k)
    assert tracker.known
    tracker.read(0.5, None)
    assert not tracker.known
    tracker.read(0.7, 7000)
    assert tracker.known
    assert tracker.level == pytest.approx(10_000)


def test_two_readings_at_one_time_are_one():
    tracker = LoadTracker(1.0, 2.0)
    tracker.read(0.0, 0)
    tracker.read(0.1, 1000)
    tracker.read(0.1, 1000)
    assert math.isfinite(tracker.qps)


@given(st.lists(st.integers(0, 100_000), min_size=2, max_size=60))
def test_the_load_is_never_below_what_was_counted_since_the_level_began(rates):
    tracker, said = follow(rates)
    assert tracker.qps >= tracker.level * (1.0 - 1e-9)
    assert all(math.isfinite(q) and q >= 0 for q in said)


# Ramps.


def grows(share, *, low=10_000.0, high=100_000.0):
    """Readings of a load that grows by a share of itself each second, and the seconds of steady load before it."""
    steps = round(math.log(high / low) / math.log1p(share) / STEP_S)
    return [low] * 50 + [low * (high / low) ** (k / steps) for k in range(steps + 1)]


def shortfall(rates, said):
    """By how much each load that was said falls short of the one until the next reading."""
    return np.array([max(0.0, 1.0 - q / rate) for q, rate in zip(said[:-1], rates[1:], strict=True)])


@pytest.mark.parametrize(("share", "keys", "most"), [(0.05, 1, 0.35), (0.1, 1, 0.35), (0.2, 1, 0.35), (0.1, 20, 0.8)])
def test_a_load_that_grows_is_not_lagged_behind(share, keys, most):
    """``most``: readings with 5 % too little, of those that a tracker that knows jumps only has."""
    ours, plain = 0.0, 0.0
    for seed in range(4):
        rates = grows(share)
        ours += (shortfall(rates, follow(rates, seed=seed, keys=keys, calm_s=0.6)[1])[50:] > 0.05).mean()
        plain += (shortfall(rates, follow(rates, seed=seed, keys=keys, calm_s=0.6, ramp_s=0.0)[1])[50:] > 0.05).mean()
    assert plain > 0.1
    assert ours < most * plain


def test_the_slope_is_found_up_and_down_and_gone_when_the_load_stays():
    up = np.linspace(20_000, 60_000, 101).tolist()
    assert follow(up)[0].slope == pytest.approx(4_000, rel=0.1)
    assert follow(up[::-1])[0].slope == pytest.approx(-4_000, rel=0.1)
    assert follow(up + [60_000] * 60)[0].slope == 0.0


def test_a_load_that_falls_evenly_is_not_held_for_long():
    rates = np.linspace(90_000, 30_000, 200)
    _, said = follow(rates, calm_s=0.6)
    _, plain = follow(rates, calm_s=0.6, ramp_s=0.0)
    over = np.mean(np.array(said)[40:] / rates[40:] - 1.0)
    assert 0.0 < over < 0.6 * np.mean(np.array(plain)[40:] / rates[40:] - 1.0)
    assert shortfall(rates, said).max() < 0.02


@pytest.mark.parametrize("keys", [1, 20])
@pytest.mark.parametrize("qps", [5_000.0, 50_000.0])
def test_a_steady_load_is_no_ramp(qps, keys):
    for seed in range(5):
        rates = [qps] * 1000
        assert follow(rates, seed=seed, keys=keys)[1] == follow(rates, seed=seed, keys=keys, ramp_s=0.0)[1]


@pytest.mark.parametrize("interval_s", [1.75, 4.0, 10.0])
def test_a_load_that_jumps_is_no_ramp(interval_s):
    """Nor where a jump falls into the middle of a reading. Small jumps in a row may look like one, and change little."""
    for seed in range(5):
        loads = np.random.default_rng(seed).uniform(5_000, 100_000, size=100)
        fine = np.repeat(loads, round(interval_s / 0.01))[:12_000]
        rates = fine.reshape(-1, 10).mean(axis=1).tolist()
        said, plain = (np.array(follow(rates, seed=seed, ramp_s=kept_s)[1]) for kept_s in (5.0, 0.0))
        assert said == pytest.approx(plain, rel=0.02)
        assert (said != plain).mean() < 0.05


def test_a_jump_on_a_ramp_is_believed_with_the_first_reading_that_holds_it():
    ramp = np.linspace(20_000, 40_000, 80).tolist()
    _, said = follow([*ramp, 80_000, 80_000])
    assert said[79] < 44_000
    assert said[80] > 77_000


def test_a_single_burst_makes_no_ramp():
    rates = ([30_000] * 36 + [90_000]) * 12
    assert follow(rates)[1] == follow(rates, ramp_s=0.0)[1]


def test_a_counter_that_starts_anew_on_a_ramp_is_no_fall():
    tracker, queries = LoadTracker(1.0, 2.0), 0
    for k in range(60):
        tracker.read(k * STEP_S, queries)
        queries += 2000 + 50 * k
    assert tracker.slope > 0.0
    tracker.read(6.0, 100)
    assert tracker.slope == 0.0
    tracker.read(6.1, 5100)
    assert tracker.level == pytest.approx(50_000)


def test_readings_at_uneven_times_lie_on_the_same_line():
    rng = np.random.default_rng(5)
    tracker, t_s = LoadTracker(0.6, 2.0), 0.0
    for _ in range(80):
        tracker.read(t_s, round(20_000 * t_s + 2_000 * t_s**2))  # 20K queries per second, and 4K more each second
        t_s += float(rng.uniform(0.05, 0.2))
    assert tracker.slope == pytest.approx(4_000, rel=0.05)


def test_usual_loads_are_few_and_add_up_to_all_time():
    usual = UsualLoads()
    for k in range(100):
        usual.add(float(k), (10_000.0 if k % 2 else 90_000.0,))
    regimes = usual.regimes()
    assert sum(share for share, _ in regimes) == pytest.approx(1.0)
    assert len(regimes) <= REGIMES
    assert {loads for _, loads in regimes} == {(9_000.0,), (90_000.0,)}


def test_nothing_is_usual_before_enough_was_seen():
    usual = UsualLoads()
    usual.add(0.0, (1.0,))
    assert usual.regimes() == []


def test_what_other_services_had_is_not_usual_for_these():
    usual = UsualLoads()
    usual.begin(("a",))
    for k in range(100):
        usual.add(float(k), (10_000.0,))
    usual.begin(("a",))
    assert usual.regimes()
    usual.begin(("b",))
    assert usual.regimes() == []
    usual.add(100.0, (1.0,))
