"""The real run of the node agent: what is kept of a run, and what its page says, on numbers made up for that."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent.parent.parent))  # benchmarks are no part of what is installed

from benchmarks import node_agent, node_agent_page
from benchmarks.load_generator.load_plan import LoadPlan
from benchmarks.load_generator.rows import LoadRow, Totals
from benchmarks.load_generator.running_load import LoadResult
from benchmarks.load_generator.steps import LoadStep
from benchmarks.machine import describe_machine
from benchmarks.node_agent import keep
from benchmarks.node_agent_page import lessons
from benchmarks.node_calibration import NodeCapacity, Site, over_slo
from benchmarks.node_lessons import LESSONS, PROTECTIONS, Point, plain
from benchmarks.node_modes import MODES
from benchmarks.node_plots import AGENT, STATIC, draw_all
from benchmarks.node_run import Outcome, Sample, Window, read_windows, steps_for, summarise, table, write_windows

CAPACITY = NodeCapacity({1: 30_000.0, 2: 40_000.0}, {1: 25_000.0, 2: 30_000.0})
START_S = 500.0


def load_row(t_s: float, p95_us: float | None, offered: float) -> LoadRow:
    due = round(offered / 10)
    return LoadRow(
        t_s, 0.1, offered, due, due, 0, 0, 0, 0, due, p95_us, p95_us, p95_us, p95_us, p95_us, 50.0, 60.0, 10.0, 1.0
    )


def result(p95s: list[float | None], offered: list[float]) -> LoadResult:
    rows = tuple(load_row(0.1 * i, p95, rate) for i, (p95, rate) in enumerate(zip(p95s, offered, strict=True)))
    due = sum(row.due for row in rows)
    totals = Totals(1.0, due, due, 0, 0, 0, 0, due, 1.0, 1.0, 1.0, 1.0, 1.0, 50.0, 60.0, 100.0, 10.0)
    return LoadResult(LoadPlan((LoadStep(1.0, 1.0),), seed=7), START_S, rows, (), totals)


def samples() -> list[Sample]:
    """Every 25 ms from before the start: one core until 0.2 s, then two; the batch job stands still from 0.2 to 0.3 s."""
    made = []
    used = 0.0
    for i in range(-8, 24):
        t_s = 0.025 * i
        runs = not 0.2 <= t_s < 0.3 - 1e-9
        # A millisecond before the round time, so that rounding decides nothing.
        made.append(Sample(START_S + t_s - 1e-3, 1 if t_s < 0.2 else 2, runs, used, 0.5 * t_s, 0.1 * t_s))
        used += 0.025 if runs else 0.0
    return made


def test_a_run_is_summed_up_from_its_windows_and_core_sets() -> None:
    loaded = result([100.0, 2000.0, 1500.0, None, 300.0], [8e3, 8e3, 34e3, 34e3, 8e3])
    outcome, windows = summarise("agent", 2, loaded, samples(), 77)
    assert [window.service_cores for window in windows] == [1, 1, 2, 2, 2]
    assert [window.batch_runs for window in windows] == [1, 1, 0, 1, 1]
    assert [window.batch_cpu_s for window in windows] == pytest.approx([0.1, 0.1, 0.0, 0.1, 0.1])
    assert outcome.violations == pytest.approx(2 / 5)
    assert outcome.violations_high == pytest.approx(1 / 2)
    assert outcome.worst_p95_us == 2000.0
    assert outcome.batch_cpu_s == pytest.approx(0.4)
    assert (outcome.pauses, outcome.core_changes, outcome.batch_units, outcome.seed) == (1, 1, 77, 7)
    assert outcome.service_cpu_s == pytest.approx(0.25)
    assert outcome.agent_cpu_s == pytest.approx(0.05)
    assert outcome.doubt == ""


def test_a_window_that_lost_requests_is_over_the_goal_and_an_empty_one_is_not() -> None:
    row = load_row(0.0, 999.0, 1000.0)
    assert not over_slo(row)
    assert over_slo(replace(row, p95_us=1001.0))
    assert over_slo(replace(row, lost=1))
    assert not over_slo(replace(row, p95_us=None))


def test_windows_come_back_from_their_file(tmp_path: Path) -> None:
    _, windows = summarise("one core, batch always", 1, result([100.0, None], [8e3, 34e3]), samples(), 0)
    write_windows(tmp_path / "windows.csv", windows)
    assert read_windows(tmp_path / "windows.csv") == windows


def test_steps_and_capacities() -> None:
    assert [step.rate for step in steps_for(CAPACITY, 3.0)] == pytest.approx([7.8e3, 24e3, 7.8e3, 24e3, 7.8e3])
    assert CAPACITY.doubt() == ""
    assert "others work here" in NodeCapacity({1: 40e3, 2: 31e3}, {1: 1.0, 2: 1.0}).doubt()
    assert NodeCapacity({1: 1.0, 2: 2.0}, {1: 5.0, 2: 4.0}).at_most(2) == 5.0
    site = Site(0, 1, 50)
    plan = site.plan(LoadStep(1.0, 1.0), port=5)
    assert (plan.cpus, plan.fifo, site.cores(1), site.cores(2)) == ((1,), 50, (0,), (0, 1))


def test_modes_that_are_drawn_and_protections_that_are_read_have_their_names() -> None:
    names = [mode.name for mode in MODES]
    assert {AGENT, *STATIC} <= set(names)
    assert [mode.agent for mode in MODES].count(True) == 1
    assert {"batch, lowest weight", "batch, equal weight"} <= PROTECTIONS.keys()


def point(lesson: str, case: str, offered: float, p95_us: float, cpu_us: float = 30.0) -> Point:
    return Point(lesson, case, offered, offered or 9e3, 0.5 * p95_us, p95_us, 2 * p95_us, cpu_us)


def points() -> list[Point]:
    return [
        point("curve", "get of 200 keys", 1e3, 180.0, 60.0),
        point("curve", "get of 200 keys", 1e4, 150.0, 40.0),
        point("curve", "get of 200 keys", 2.7e4, 400.0, 31.0),
        point("loops", "closed loop, 1 connection", 0.0, 100.0),
        point("loops", "open loop, 1 connection", 9e3, 3000.0),
        point("protection", "alone", 5e3, 150.0),
        point("protection", "batch, equal weight", 5e3, 3000.0),
        point("protection", "batch, lowest weight", 5e3, 160.0),
        point("protection", "batch, quota of 0.6 cores", 5e3, 3500.0, float("nan")),
        point("switching", "two cores to one: before", 2e4, 200.0),
        point("switching", "two cores to one: first 0.4 s", 2e4, 210.0),
        point("switching", "batch resumed on its core: before", 2e4, 200.0),
        point("switching", "batch resumed on its core: after", 2e4, 3000.0),
    ]


def test_lessons_say_what_the_numbers_show_and_nothing_else() -> None:
    said = "\n".join(lessons(plain(points())))
    for part in (
        "p95 falls as load grows",
        "180 us at 1,000/s, 150 us at 10,000/s",
        "60.0 us at 1,000/s and 31.0 us at 27,000/s",
        "p95 100 us in a closed loop at 9,000/s, 3,000 us in an open loop",
        "A quota protects from little",
        "Moving memcached costs little",
        "A neighbour on the same core at equal weight costs much",
    ):
        assert part in said
    assert "lowest weight does not protect" not in said
    assert lessons([]) == []
    contrary = [replace(p, p95_us=200.0, p99_us=400.0, cpu_per_request_us=30.0) for p in points()]
    assert [line.split("**")[1] for line in lessons(plain(contrary))] == [
        "Moving memcached costs little below capacity."
    ]


def measured() -> tuple[dict[str, Any], list[Window]]:
    outcomes, windows = [], []
    for mode in MODES:
        for repetition in (1, 2):
            loaded = result([100.0, 2000.0, 1500.0, None, 300.0], [8e3, 8e3, 34e3, 34e3, 8e3])
            outcome, rows = summarise(mode.name, repetition, loaded, samples(), 5000)
            outcomes.append(asdict(outcome))
            windows += rows
    return {
        "machine": describe_machine(),
        "load_before": 0.1,
        "fifo": True,
        "alone_us": 180.0,
        "capacity": {"closed": CAPACITY.closed, "within_slo": CAPACITY.within_slo},
        "seconds": 3.0,
        "seed": 1,
        "outcomes": outcomes,
        "points": plain(points()),
    }, windows


def test_what_is_kept_makes_the_page_and_its_pictures(tmp_path: Path) -> None:
    outcome, windows = measured()
    text = node_agent.render(outcome)
    keep(tmp_path, outcome, windows, text)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node_agent.csv", "node_agent.json", "node_agent.txt"]
    kept = json.loads((tmp_path / "node_agent.json").read_text())
    assert node_agent.render(kept) == text
    page = node_agent_page.render(kept)
    shown = table(Outcome(**each) for each in kept["outcomes"])
    assert shown in page
    assert shown in text
    assert "40.0, 40.0" in shown
    assert "Preliminary" not in page
    assert "Preliminary" in node_agent_page.render({**kept, "alone_us": 900.0})
    assert "too noisy" in node_agent.render({**kept, "alone_us": 900.0})
    pytest.importorskip("matplotlib")
    drawn = draw_all(tmp_path / "images", read_windows(tmp_path / "node_agent.csv"), kept["points"])
    for path in drawn:
        assert path.stat().st_size > 5000
        assert f"images/{path.name}" in page


def test_the_page_is_what_its_command_makes_of_the_kept_results() -> None:
    if not node_agent_page.RESULTS.exists():
        pytest.skip("nothing was measured yet: python -m benchmarks.node_agent --write")
    assert node_agent_page.PAGE.read_text(encoding="utf-8") == node_agent_page.render(
        json.loads(node_agent_page.RESULTS.read_text(encoding="utf-8"))
    )


def test_every_lesson_says_what_it_is() -> None:
    assert all((lesson.__doc__ or "").strip().endswith(".") for lesson in LESSONS.values())
