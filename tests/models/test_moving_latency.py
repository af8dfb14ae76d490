"""p95 under a load that moves: mixtures of moments, backlogs, tasks of the lowest weight, and loads to count on."""

from __future__ import annotations

import functools
import math
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parent.parent.parent))  # benchmarks are no part of what is installed

from benchmarks.service_loads import highest_load, safe_load
from flowsched_models.latency import QCAP, p95_us
from flowsched_models.moving_latency import TAIL_SIGMA, Backlog, Moment, mixture_p95_us
from flowsched_models.profiles import load_catalogue
from flowsched_models.service import LatencyCurve, OtherMachine, ServiceProfile
from measured_data import cca_measurements

CURVE = LatencyCurve(2, 2, 300.0, 300.0, 1e4, 1e5, 800.0, 2e3, 9e4)
SERVICE = ServiceProfile(
    "s", (CURVE,), {"c": 1.0}, sharing_capacity=0.9, sharing_us=6000.0, background_slope=0.6, background_width=0.08
)
MEMCACHED = load_catalogue().services["memcached"]
DYNAMIC = "mcperf-dynamic"

moments = st.builds(
    Moment,
    t_s=st.just(0.0),
    end_s=st.just(1.0),
    queries=st.just(0.0) | st.floats(1e-3, 1e6),
    p95_us=st.floats(1.0, 1e7),
)
loads = st.floats(0.0, 3e5)


def row(qps: float) -> tuple[float, ...]:
    return CURVE.latency_row(qps, around=(0.2, 0.0, 0.9, 6000.0), window_s=0.0)


def advanced(backlog: Backlog, start_s: float, end_s: float, qps: float) -> list[Moment]:
    return backlog.advance(start_s, end_s, row(qps), qps, 0.0, 0.0, 1.0)


# Mixtures


def test_moments_that_are_alike_have_their_own_p95() -> None:
    assert mixture_p95_us([Moment(0, 1, 7.0, 500.0), Moment(1, 2, 9.0, 500.0)]) == 500.0
    assert mixture_p95_us([]) is None
    assert mixture_p95_us([Moment(0, 1, 0.0, 500.0)]) is None


@given(st.lists(moments, min_size=1, max_size=30))
def test_a_mixture_lies_between_its_moments(parts: list[Moment]) -> None:
    asked = [m.p95_us for m in parts if m.queries > 0.0]
    mixed = mixture_p95_us(parts)
    assert (mixed is None) == (not asked)
    if mixed is not None:
        assert min(asked) * (1 - 1e-9) <= mixed <= max(asked) * (1 + 1e-9)


@given(st.lists(moments, min_size=1, max_size=10), st.floats(1.0, 5.0), st.data())
def test_a_slower_moment_never_lowers_p95(parts: list[Moment], factor: float, data: st.DataObject) -> None:
    before = mixture_p95_us(parts)
    assume(before is not None)
    k = data.draw(st.integers(0, len(parts) - 1))
    slower = [replace(m, p95_us=m.p95_us * factor) if i == k else m for i, m in enumerate(parts)]
    after = mixture_p95_us(slower)
    assert before is not None and after is not None and after >= before * (1 - 3e-6)


@given(st.lists(moments, min_size=1, max_size=6), st.integers(2, 5))
def test_cutting_a_moment_into_pieces_changes_nothing(parts: list[Moment], pieces: int) -> None:
    cut = [replace(m, queries=m.queries / pieces) for m in parts for _ in range(pieces)]
    whole, again = mixture_p95_us(parts), mixture_p95_us(cut)
    assert (whole is None) == (again is None)
    if whole is not None:
        assert again == pytest.approx(whole, rel=1e-5)


def test_the_mixture_is_the_percentile_of_all_requests() -> None:
    rng = np.random.default_rng(11)
    parts = [Moment(0, 1, 40_000, 500.0), Moment(1, 2, 80_000, 700.0), Moment(2, 2.1, 9_000, 4000.0)]
    # 1.645 standard deviations below p95 is the median of a log-normal distribution.
    drawn = [m.p95_us * np.exp(TAIL_SIGMA * (rng.standard_normal(int(m.queries)) - 1.6448536)) for m in parts]
    assert mixture_p95_us(parts) == pytest.approx(np.percentile(np.concatenate(drawn), 95), rel=0.01)


def test_one_bad_moment_of_a_hundred_is_not_seen() -> None:
    good = [Moment(k, k + 1, 100.0, 500.0) for k in range(99)]
    one, ten = (mixture_p95_us([*good, Moment(99, 100, queries, 50_000.0)]) for queries in (100.0, 1_000.0))
    assert one is not None and 500.0 < one < 600.0
    assert ten is not None and ten > 5_000.0


# Backlogs


def test_without_overload_there_is_one_moment_and_no_backlog() -> None:
    backlog = Backlog()
    (only,) = advanced(backlog, 0.0, 10.0, 50_000.0)
    assert only == Moment(0.0, 10.0, 500_000.0, p95_us(row(50_000.0), 0.0, 0.0))
    assert backlog.queries == 0.0
    assert advanced(backlog, 3.0, 3.0, 50_000.0) == []


def test_a_backlog_grows_and_drains_as_a_queue_does() -> None:
    backlog = Backlog()
    grown = advanced(backlog, 0.0, 2.0, 150_000.0)
    assert backlog.queries == pytest.approx(100_000.0)
    assert grown[-1].p95_us == pytest.approx(p95_us(row(150_000.0), 0.0, 0.0) + 1e6, rel=0.03)
    # 20,000 a second are served beyond what arrives: empty after 5 s.
    drained = advanced(backlog, 2.0, 12.0, 80_000.0)
    assert backlog.queries == 0.0
    base = p95_us(row(80_000.0), 0.0, 0.0)
    assert all((m.p95_us > base) == (m.end_s <= 7.0 + 1e-9) for m in drained)
    assert drained[-1].p95_us == base and drained[-1].t_s == pytest.approx(7.0)


@given(st.lists(st.tuples(st.floats(0.01, 3.0), loads), min_size=1, max_size=8))
def test_moments_are_whole_and_the_backlog_balances(steps: list[tuple[float, float]]) -> None:
    backlog, now, arrived = Backlog(), 0.0, 0.0
    for length, qps in steps:
        before = backlog.queries
        parts = advanced(backlog, now, now + length, qps)
        assert parts[0].t_s == now and parts[-1].end_s == now + length
        assert all(a.end_s == b.t_s for a, b in pairwise(parts))
        assert math.fsum(m.queries for m in parts) == pytest.approx(qps * length, abs=1e-6)
        served = before + qps * length - backlog.queries
        assert backlog.queries >= 0.0 and served <= CURVE.qcap * length * (1 + 1e-9) + 1e-6
        if backlog.queries > 0.0 and before > 0.0:
            assert served == pytest.approx(CURVE.qcap * length, rel=1e-6, abs=1e-3)
        arrived, now = arrived + qps * length, now + length


@given(st.lists(loads, min_size=1, max_size=6), st.integers(2, 9))
def test_steps_may_be_cut_anywhere(load: list[float], cuts: int) -> None:
    whole, fine = Backlog(), Backlog()
    for k, qps in enumerate(load):
        once = advanced(whole, k, k + 1, qps)
        many = [m for c in range(cuts) for m in advanced(fine, k + c / cuts, k + (c + 1) / cuts, qps)]
        assert fine.queries == pytest.approx(whole.queries, rel=1e-9, abs=1e-6)
        one, other = mixture_p95_us(once), mixture_p95_us(many)
        if one is not None:
            assert other == pytest.approx(one, rel=0.02)


@given(st.lists(loads, min_size=1, max_size=6), st.integers(0, 5), st.floats(0.0, 1e5))
def test_more_load_never_means_less_backlog_or_p95(load: list[float], at: int, more: float) -> None:
    heavier = [qps + (more if k == at else 0.0) for k, qps in enumerate(load)]
    backlogs = Backlog(), Backlog()
    for k, both in enumerate(zip(load, heavier, strict=True)):
        parts = [advanced(b, float(k), k + 1.0, qps) for b, qps in zip(backlogs, both, strict=True)]
        assert backlogs[1].queries >= backlogs[0].queries * (1 - 1e-12) - 1e-6
        assert max(m.p95_us for m in parts[1]) >= max(m.p95_us for m in parts[0]) * (1 - 1e-9)


@given(st.floats(0.0, 0.5), st.floats(0.9e5, 1.1e5))
def test_little_more_load_changes_little(share: float, qps: float) -> None:
    p95 = []
    for load in (qps, qps * (1 + 1e-9)):
        parts = Backlog().advance(0.0, 1.0, row(load), load, 0.1, share, 1.0)
        p95.append(mixture_p95_us(parts))
    assert p95[0] is not None and p95[1] == pytest.approx(p95[0], rel=1e-3)


def test_neighbours_take_capacity_and_the_factor_leaves_the_wait_alone() -> None:
    shared, behind = Backlog(), Backlog()
    shared.advance(0.0, 1.0, row(9e4), 9e4, 0.0, 0.5, 1.0)
    assert shared.queries == pytest.approx(9e4 - row(9e4)[QCAP] * 0.55)
    plain, doubled = (Backlog().advance(0.0, 1.0, row(2e5), 2e5, 0.0, 0.0, f)[-1].p95_us for f in (1.0, 2.0))
    assert doubled - plain == pytest.approx(p95_us(row(2e5), 0.0, 0.0))
    assert behind.queries == 0.0


# Tasks of the lowest weight, and loads that a controller may count on


@given(loads, loads, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_p95_never_falls_with_load_or_tasks_behind(qps: float, other: float, one: float, two: float) -> None:
    def p95(load: float, background: float) -> float:
        return SERVICE.p95_us(CURVE, load, "c", background=background)

    assert p95(max(qps, other), one) >= p95(min(qps, other), one) * (1 - 1e-12)
    assert p95(qps, max(one, two)) >= p95(qps, min(one, two)) * (1 - 1e-12)
    assert p95(qps, 0.0) == SERVICE.p95_us(CURVE, qps, "c")
    assert 1.0 <= SERVICE.background_factor(CURVE, qps, one) <= 1.6


@given(st.floats(100.0, 1e5), st.floats(0.0, 1.0), st.floats(1.0, 3.0))
def test_the_highest_load_keeps_its_margin(slo_us: float, background: float, margin: float) -> None:
    load = highest_load(SERVICE, CURVE, slo_us, "c", background=background, margin=margin)
    if load > 0.0:
        assert margin * SERVICE.p95_us(CURVE, load, "c", background=background) <= slo_us * (1 + 1e-9)
    assert margin * SERVICE.p95_us(CURVE, load * 1.001 + 1.0, "c", background=background) > slo_us * (1 - 1e-9)
    assert load <= highest_load(SERVICE, CURVE, slo_us, "c")
    safe = safe_load(SERVICE, CURVE, slo_us, "c", background=background, margin=margin)
    assert safe == min(load, CURVE.max_measured_qps)


def test_no_more_than_was_measured_on_this_machine() -> None:
    able = replace(SERVICE, capacity_factor={"m": 2.0})
    assert safe_load(able, CURVE, 1e9, "c") == 9e4
    assert safe_load(able, CURVE, 1e9, "c", machine_type="m") == able.highest_measured_load(CURVE, "m") == 18e4


def test_a_size_that_was_measured_there_has_numbers_of_its_own() -> None:
    there = replace(CURVE, elsewhere=(OtherMachine("m", 0.5, 1.2, 7e4),))
    service = replace(SERVICE, latency_factor={"m": 0.8}, capacity_factor={"m": 2.0})
    assert service.p95_us(there, 2e4, "c", machine_type="m") == pytest.approx(
        0.5 * service.p95_us(CURVE, 2e4, "c", machine_type="m"), rel=1e-3
    )
    assert service.latency_row(there, 2e4, "c", machine_type="m")[QCAP] == pytest.approx(1.2 * 2.0 * CURVE.qcap)
    assert service.p95_us(there, 2e4, "c") == service.p95_us(CURVE, 2e4, "c")
    assert safe_load(service, there, 1e9, "c", machine_type="m") == 7e4
    assert replace(service, curves=(there,)).curve_or_estimate(4, 4).elsewhere == ()


def test_memcached_on_one_core_and_on_two() -> None:
    one, two = MEMCACHED.curve(2, 1), MEMCACHED.curve(2, 2)
    assert one is not None and two is not None
    margin = MEMCACHED.noise(10.0).quantile(0.95)
    # A published controller gave up one core at 29K; two carried every load up to 100K.
    assert 20e3 < safe_load(MEMCACHED, one, 1000.0, DYNAMIC, margin=margin) < 30.1e3
    assert safe_load(MEMCACHED, two, 1000.0, DYNAMIC, margin=margin) > 105e3
    behind = safe_load(MEMCACHED, two, 1000.0, DYNAMIC, background=1.0, margin=margin)
    assert 75e3 < behind < 100e3


# What was measured


@functools.cache
def steady_2024():
    measured = cca_measurements().of_years("2024")
    return [i for i in measured.load_intervals if i.cores == 2 and i.shared <= 0.03 and 8.0 <= i.length_s < 11.0]


def test_the_spread_within_an_interval() -> None:
    sigmas = [
        math.log(i.p99_us / i.p50_us) / 2.326
        for i in steady_2024()
        if i.p50_us and i.p99_us and i.background <= 0.03 and i.qps >= 20e3
    ]
    assert len(sigmas) > 500 and np.median(sigmas) == pytest.approx(TAIL_SIGMA, abs=0.02)


def test_published_runs_are_predicted() -> None:
    curve = MEMCACHED.curve(2, 2)
    assert curve is not None
    for behind, most in ((False, 0.06), (True, 0.10)):
        own = [i for i in steady_2024() if (i.background >= 0.9) is behind and i.qps < 0.9 * curve.qcap]
        off = [
            abs(MEMCACHED.p95_us(curve, i.qps, DYNAMIC, background=round(i.background)) / i.p95_us - 1.0) for i in own
        ]
        assert len(own) > 150 and np.median(off) < most


def test_beside_tasks_of_the_lowest_weight_p95_grows_near_capacity_only() -> None:
    curve = MEMCACHED.curve(2, 2)
    assert curve is not None
    near, far = ([i for i in steady_2024() if low <= i.qps < high] for low, high in ((90e3, 101e3), (40e3, 60e3)))
    for own, least, most in ((far, 0.9, 1.05), (near, 1.15, 1.5)):
        alone, behind = (np.median([i.p95_us for i in own if (i.background >= 0.9) is here]) for here in (False, True))
        assert least < behind / alone < most
        predicted = MEMCACHED.background_factor(curve, float(np.median([i.qps for i in own])), 1.0)
        assert predicted == pytest.approx(behind / alone, rel=0.15)
