"""A logged run is played as its controller would have done it: what follows ends moves with them, pauses do not."""

from __future__ import annotations

import pytest

pytest.importorskip("scipy")

from benchmarks.node_replay import replay, script
from benchmarks.node_runs import GroupResult, order, ties, year_factors
from flowsched_models.measurements.controlled_run import ControlledRun
from flowsched_models.measurements.load_event import LoadEvent
from flowsched_models.profiles import load_catalogue

KIND = "n2d-highmem-4-docker"


def logged(*events: tuple[float, str, str, tuple[int, ...], int | None]) -> ControlledRun:
    all_events = [LoadEvent(-1.0, "start", "memcached", (0,), 1, 1.0), *(LoadEvent(*e, 1.0) for e in events)]
    starts = {e.job: e.t_s for e in all_events if e.kind == "start" and e.job != "memcached"}
    ends = {e.job: e.t_s for e in all_events if e.kind == "end"}
    loads = tuple((10.0 * k - 5.0, 10.0 * k + 5.0, 20_000.0) for k in range(40))
    executions = {job: (starts[job], ends[job]) for job in starts}
    return ControlledRun(
        "lab", "2024", "", 10.0, "1", "n2d-highmem-4", "memcached", 1, tuple(all_events), loads, executions
    )


CHAIN = logged(
    (0.0, "start", "vips", (2, 3), 2),
    (40.0, "end", "vips", (), None),
    (40.5, "start", "radix", (2,), 1),
    (60.0, "pause", "radix", (), None),
    (70.0, "unpause", "radix", (), None),
    (85.0, "end", "radix", (), None),
    (85.2, "update_cores", "memcached", (0, 1), None),
)


def test_a_start_follows_the_end_before_it_and_a_pause_keeps_its_time() -> None:
    plan = script(CHAIN)

    ((lag, _, event),) = plan.after["vips"]
    assert (event.job, event.kind, lag) == ("radix", "start", 0.5)
    assert [(t, e.kind) for t, _, e in plan.at if e.job == "radix"] == [(60.0, "pause"), (70.0, "unpause")]
    assert (85.2, "memcached") in [(t, e.job) for t, _, e in plan.at], "a service follows its load"


def test_a_longer_first_job_delays_the_second_and_not_its_pause() -> None:
    catalogue = load_catalogue()

    plain = replay(CHAIN, catalogue, KIND)
    twice = replay(CHAIN, catalogue, KIND, {"vips": 1.2})

    assert twice.active_s["vips"] == pytest.approx(1.2 * plain.active_s["vips"], rel=0.02)
    assert twice.active_s["radix"] == pytest.approx(plain.active_s["radix"], abs=0.5)
    longer = twice.active_s["vips"] - plain.active_s["vips"]
    assert twice.makespan_s == pytest.approx(plain.makespan_s + longer, abs=0.6)
    paused = plain.makespan_s - plain.active_s["vips"] - plain.active_s["radix"]
    assert paused == pytest.approx(10.5, abs=0.6)


def test_what_follows_an_end_loses_to_what_came_later_in_the_log() -> None:
    # vips ends much later than logged: the unpause that followed it must not undo the pause after it.
    run = logged(
        (0.0, "start", "vips", (2,), 1),
        (0.0, "start", "radix", (3,), 1),
        (5.0, "pause", "radix", (), None),
        (9.8, "end", "vips", (), None),
        (10.0, "unpause", "radix", (), None),
        (20.0, "pause", "radix", (), None),
        (30.0, "unpause", "radix", (), None),
        (60.0, "end", "radix", (), None),
    )

    played = replay(run, load_catalogue(), KIND)

    assert played.active_s["vips"] > 40.0
    assert played.makespan_s > 60.0, "radix waits from 5 s to 30 s, then runs on"


def result(
    group: str, measured: tuple[float, ...], played: float, year: str = "2024", ratio: float = 1.0
) -> GroupResult:
    return GroupResult(group, year, measured, (played,), {"sort": (ratio * 10.0, 10.0)}, (played,), {"sort": 10.0})


def test_order_counts_pairs_that_differ_by_more_than_their_repeats() -> None:
    fast, near, slow = (
        result("fast", (500.0, 510.0), 520.0),
        result("near", (508.0, 516.0), 515.0),
        result("slow", (700.0, 702.0), 490.0),
    )

    rank, wrong, pairs = order([fast, near, slow], lambda g: g.played_s[0])

    assert ties(fast, near) and not ties(near, slow)
    assert pairs == 2
    assert len(wrong) == 2 and all("slow" in text for text in wrong)
    assert rank == pytest.approx(-1.0)


def test_factors_of_a_year_come_from_its_other_groups() -> None:
    groups = [result("a", (1.0,), 1.0, "2023", 1.3), result("b", (1.0,), 1.0, "2023", 1.1), result("c", (1.0,), 1.0)]

    assert year_factors(groups[0], groups) == {"sort": pytest.approx(1.1)}
    assert year_factors(groups[2], groups) == {}
