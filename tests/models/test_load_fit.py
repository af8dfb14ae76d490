"""Runs under a changing load: who had which cores, and what is fitted to them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from measured_tables import findings, refused, write

from flowsched_models.calibration.fit_parts import interval_tables
from flowsched_models.calibration.latency_fit import FittedLatency
from flowsched_models.calibration.load_fit import (
    background_of,
    client_factor,
    machine_factors,
    score_intervals,
    with_loads,
)
from flowsched_models.calibration.noise_fit import FAR, SETTLED_S, fit_noise
from flowsched_models.measurements import load_measurements
from flowsched_models.measurements.measurements import LatencyPoint, LoadInterval, Where
from flowsched_models.service import LatencyCurve, ServiceProfile
from flowsched_models.window_noise import WindowNoise

NOWHERE = Where("synthetic", 0)
ONE = LatencyCurve(2, 1, 400.0, 500.0, 3e4, 7e4, 1800.0, 2e3, 3e4)
TWO = LatencyCurve(2, 2, 300.0, 300.0, 1e4, 1e5, 800.0, 2e3, 9e4)
TRUTH = ServiceProfile("kv", (ONE, TWO), {"c": 1.15}, background_slope=0.5, background_at=0.8, background_width=0.05)


def interval(
    group: str, qps: float, p95_us: float, cores: int | None = 2, background: float = 0.0, length_s: float = 10.0
) -> LoadInterval:
    return LoadInterval(
        "m", "kv", 0.0, length_s, qps, p95_us, NOWHERE,
        group=group, run="1", threads=2, cores=cores, background=background, shared=0.0,
    )  # fmt: skip


def synthetic(behind: tuple[str, ...] = (), groups: int = 4, noise: float = 0.02) -> list[LoadInterval]:
    """Groups whose load moves over two cores; those in ``behind`` have tasks of the lowest weight there."""
    rng = np.random.default_rng(3)
    found = []
    for g in range(groups):
        name = f"g{g}"
        level = math.exp(0.03 * rng.standard_normal())
        background = 1.0 if name in behind else 0.0
        for qps in rng.uniform(5e3, 95e3, 300).tolist():
            p95 = 1.15 * level * TWO.measured_p95_us(qps) * TRUTH.background_factor(TWO, qps, background)
            found.append(interval(name, qps, p95 * math.exp(noise * rng.standard_normal()), background=background))
    return found


# Reading

TRACE = "experiment,qps_interval_s,run,t_start_s,t_end_s,in_window,target_qps,qps,p95_us,machine_type\n"
EVENTS = "experiment,qps_interval_s,run,t_s,event,job,cores,threads,weight\n"


def read(tmp_path: Path, trace: str, events: str) -> tuple[LoadInterval, ...]:
    return load_measurements(write(tmp_path, load_runs=TRACE + trace, load_events=EVENTS + events)).load_intervals


def rows(*starts: float) -> str:
    return "".join(f"a,10,1,{t},{t + 10},1,30K,29990,600,m\n" for t in starts)


def test_who_had_which_cores(tmp_path: Path) -> None:
    events = (
        "a,10,1,-1,start,memcached,0 1,2,\na,10,1,0,start,low,1-3,3,0.002\na,10,1,12,pause,low,,,\n"
        "a,10,1,25,update_cores,memcached,0,,\na,10,1,25,unpause,low,,,\na,10,1,41,start,full,0,1,\n"
        "a,10,1,45,end,full,,,\n"
    )
    found = read(tmp_path, rows(0, 10, 20, 30, 40), events)
    assert [i.cores for i in found] == [2, 2, None, 1, 1]
    assert [i.threads for i in found] == [2] * 5
    assert [i.background for i in found] == pytest.approx([0.5, 0.1, 0.0, 0.0, 0.0])
    assert [i.shared for i in found] == pytest.approx([0.0, 0.0, 0.0, 0.0, 0.4])
    assert (found[0].qps, found[0].p95_us, found[0].run, found[0].length_s) == (30_000.0, 600.0, "a/10/1", 10.0)


def test_how_far_the_nearest_change_is(tmp_path: Path) -> None:
    events = (
        "a,10,1,-1,start,memcached,0 1,2,\na,10,1,9,start,far,2-3,2,0.002\na,10,1,10,update_cores,memcached,0 1,,\n"
        "a,10,1,22.5,update_cores,memcached,0 2,,\na,10,1,39.99,pause,far,,,\na,10,1,57,end,far,,,\n"
    )
    found = read(tmp_path, rows(0, 10, 20, 30, 40, 50, 60), events)
    assert [i.settled_s for i in found] == pytest.approx([12.5, 2.5, 0.0, 0.0, 0.01, 10.01, 20.01])
    assert [i.cores for i in found] == [2] * 7
    apart = "a,10,1,-1,start,memcached,0 1,2,\na,10,1,9,start,far,2-3,2,\na,10,1,20,end,far,,,\n"
    assert [i.settled_s for i in read(tmp_path, rows(0, 10), apart)] == [math.inf, math.inf]


def test_runs_that_tell_too_little_are_left_out(tmp_path: Path) -> None:
    folder = write(tmp_path, load_runs=TRACE + rows(0), load_events=EVENTS + "a,10,1,0,start,sort,0,1,\n")
    measured = load_measurements(folder)
    assert measured.load_intervals == ()
    assert "load runs 'a/10/1': nothing tells the cores of memcached (left out)" in findings(measured)[0]
    write(tmp_path, load_events=EVENTS + "a,10,1,0,update_cores,memcached,0,,\n")
    assert "nothing tells the threads of memcached" in findings(load_measurements(folder))[0]


def test_threads_are_those_of_the_other_runs(tmp_path: Path) -> None:
    trace = rows(0) + rows(0).replace("a,10,1", "a,10,2")
    events = "a,10,1,-1,start,memcached,0,2,\na,10,2,-1,update_cores,memcached,0 1,,\n"
    assert [(i.threads, i.cores) for i in read(tmp_path, trace, events)] == [(2, 1), (2, 2)]


def test_intervals_outside_the_run_are_passed_over(tmp_path: Path) -> None:
    events = "a,10,1,-1,start,memcached,0,2,\n"
    assert len(read(tmp_path, rows(0) + rows(10).replace(",1,30K", ",0,30K"), events)) == 1


def test_mistakes_are_told(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        load_runs=TRACE + rows(0).replace(",10,1,30K", ",-5,1,30K"),
        load_events=EVENTS + "a,10,1,0,stop,x,,,\n",
    )
    told = refused(folder)
    assert "load_runs.csv:2: t_end_s: the interval ends at -5 s, but starts at 0 s" in told
    assert "load_events.csv:2: event: 'stop' is not an event; events are start, end, pause" in told


# Fitting


def test_the_client_is_found_again() -> None:
    profile = ServiceProfile("kv", (ONE, TWO))
    found = client_factor(synthetic(), profile)
    assert found is not None and found.groups == 4
    assert found.value == pytest.approx(1.15, rel=0.04) and found.low < 1.15 < found.high
    assert client_factor([interval("g", 3e4, 900.0, cores=1), interval("g", 3e4, 900.0, length_s=1.0)], profile) is None


def test_tasks_of_the_lowest_weight_are_found_again() -> None:
    profile = ServiceProfile("kv", (ONE, TWO))
    found = background_of(synthetic(behind=("g3",)), profile)
    assert found is not None
    fitted = ServiceProfile("kv", (TWO,), background_slope=found[0], background_at=found[1], background_width=found[2])
    for qps in (3e4, 6e4, 7.5e4, 8.5e4, 9.4e4):
        expected = TRUTH.background_factor(TWO, qps, 1.0)
        assert fitted.background_factor(TWO, qps, 1.0) == pytest.approx(expected, abs=0.04)
    assert background_of(synthetic(), profile) is None


def windows_of(truth: WindowNoise) -> list[LoadInterval]:
    rng = np.random.default_rng(8)
    return [
        interval("g", 1e4 * load + 5e3, 500.0 * truth.draw(rng), length_s=truth.window_s)
        for load in range(8)
        for _ in range(200)
    ]


@pytest.mark.parametrize("truth", [WindowNoise(10.0, 0.04, 0.1, 0.2), WindowNoise(1.0, 0.05, 0.2, 0.4)])
def test_noise_is_found_again(truth: WindowNoise) -> None:
    made = windows_of(truth)
    (found,) = fit_noise(made, TRUTH)
    assert found.noise.window_s == truth.window_s
    assert found.noise.error == pytest.approx(truth.error, rel=0.15)
    assert found.noise.quantile(0.95) == pytest.approx(truth.quantile(0.95), rel=0.05)
    assert found.noise.quantile(0.99) == pytest.approx(truth.quantile(0.99), rel=0.15)
    assert (found.windows, found.groups, found.unsettled) == (1600, 1, 0)
    for share, factor in found.measured.items():
        assert factor == pytest.approx(truth.quantile(share), rel=0.1)
    assert found.far == pytest.approx(truth.share_above(FAR), abs=0.015)  # its middle is not the median
    assert fit_noise(made[:50], TRUTH) == ()


def test_noise_knows_nothing_of_moves_and_neighbours() -> None:
    made = windows_of(WindowNoise(1.0, 0.05, 0.05, 0.1))
    moved = [replace(i, p95_us=5.0 * i.p95_us, settled_s=0.99 * SETTLED_S) for i in made]
    half = [replace(i, p95_us=2.0 * i.p95_us, background=0.5) for i in made]
    behind = [replace(i, background=1.0, p95_us=i.p95_us * (1.0 if i.qps < 0.5 * TWO.qcap else 3.0)) for i in made]
    (plain,) = fit_noise(made, TRUTH)
    (found,) = fit_noise([*made, *moved, *half], TRUTH)
    assert found == replace(plain, unsettled=len(moved))
    (calm,) = fit_noise(behind, TRUTH)
    assert calm.windows == sum(i.qps < 0.5 * TWO.qcap for i in made)


def test_what_the_noise_was_fitted_to_is_told() -> None:
    made = windows_of(WindowNoise(1.0, 0.05, 0.05, 0.1))
    bare = FittedLatency("kv", ServiceProfile("kv", (ONE, TWO)), (), {}, "", (), (), (), (), ())
    moved = [replace(i, settled_s=0.0) for i in made[:7]]
    fitted = with_loads(bare, [*made, *moved])
    (noise,) = fitted.noise
    assert fitted.profile.window_noise == (noise.noise,)
    assert {p.name: p.source for p in fitted.parameters}["error of windows of 1 s"] == (
        "scatter of 1,600 intervals of 1 group"
    )
    (table,) = [t for t in interval_tables("kv", fitted) if "scatter" in t.caption]
    (row,) = table.rows
    assert row[:4] == ("1", "1,600", "1", "7") and len(row) == len(table.head)


def test_machine_types_differ_by_two_factors() -> None:
    points = [
        LatencyPoint(g, "kv", "fast", 2, c.cores, min(q, able * c.qcap), 0.5 * c.measured_p95_us(q / able), None,
                     NOWHERE, float(q))
        for g, able in (("a", 1.5), ("b", 1.6))
        for c in (ONE, TWO)
        for q in range(5_000, 220_001, 5_000)
    ]  # fmt: skip
    there = machine_factors(points, ServiceProfile("kv", (ONE, TWO)))["fast"]
    assert there.latency.value == pytest.approx(0.46, abs=0.05) and there.latency.groups == 2
    assert there.capacity is not None and there.capacity.value == pytest.approx(1.55, rel=0.02)
    one, two = there.sizes[2, 1], there.sizes[2, 2]
    assert one.latency < 1.0 < two.latency  # more of one core's p95 grows with load, which is worth less there
    assert (one.capacity, two.capacity) == pytest.approx((1.0, 1.0), abs=0.01)
    assert (one.max_measured_qps, two.max_measured_qps) == (105_000.0, 150_000.0)
    runs = [
        replace(interval(g, qps, 600.0 if qps < 170e3 else 2000.0), machine_type="fast")
        for g in "ab"
        for qps in range(5_000, 200_000, 1_000)
    ]
    again = machine_factors(points, ServiceProfile("kv", (ONE, TWO)), runs)["fast"]
    assert [m.max_measured_qps for m in again.sizes.values()] == [105_000.0, 169_000.0]
    assert again.latency == there.latency


def test_scores_know_nothing_of_their_own_group() -> None:
    made = synthetic(groups=3, noise=0.0)
    scores = score_intervals(made, ServiceProfile("kv", (ONE, TWO)))
    own = [i for i in made if i.group == "g0" and i.qps <= 0.9 * TWO.qcap]
    others = client_factor([i for i in made if i.group != "g0"], ServiceProfile("kv", (ONE, TWO)))
    assert others is not None
    first = [s for s in scores if s.group == "g0"]
    assert len(first) == len(own) - 1
    assert first[0].predicted_us == pytest.approx(others.value * TWO.measured_p95_us(first[0].load))
    assert all(s.calibrated_us == pytest.approx(s.measured_us) for s in scores)
