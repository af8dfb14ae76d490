"""The range check: what is within, what is out, and what cannot be compared."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parent.parent.parent))  # benchmarks are no part of what is installed

from benchmarks import range_check
from benchmarks.machine import describe_machine
from benchmarks.range_check import FACTOR, FLOOR, MOST, make_ranges, other_machine, outside, spread, verdict


def result(**changes: Any) -> dict[str, Any]:
    return {
        "preset": "google",
        "machines": 12_500,
        "rounds": 200,
        "seed": 0,
        "p50_ms": 14.0,
        "p95_ms": 16.0,
        "gap_p50": 0.015,
        "gap_p95": 0.018,
        "rss_mib": 300.0,
        "arcs": 6000,
        "classes": 60,
        "groups": 100,
        "runs": [{"p50_ms": 14.0, "p95_ms": 16.0}, {"p50_ms": 14.7, "p95_ms": 24.0}],
        "machine": describe_machine(),
        **changes,
    }


def test_a_result_is_within_its_own_ranges() -> None:
    assert outside(make_ranges(result()), result()) == {}


@given(st.floats(0.1, 1e4), st.floats(1.0, 3.0), st.floats(0.1, 10.0))
def test_times_are_out_beyond_the_spread_and_the_floor(best: float, worst: float, now: float) -> None:
    runs = [{"p95_ms": best}, {"p95_ms": best * worst}]
    ranges = make_ranges(result(p95_ms=best, runs=runs))
    out = outside(ranges, result(p95_ms=best * now))
    room = 1.0 + min(max(FLOOR, FACTOR * spread([best, best * worst])), MOST)
    if now > room * (1 + 1e-9):
        assert set(out) == {"p95_ms"}
    elif now < room * (1 - 1e-9):
        assert out == {}


def test_kept_runs_that_were_disturbed_do_not_let_everything_pass(kept: Path) -> None:
    runs = [{"p50_ms": 14.0, "p95_ms": 16.0}, {"p50_ms": 150.0, "p95_ms": 200.0}]
    assert set(outside(make_ranges(result(runs=runs)), result(p50_ms=29.0, p95_ms=33.0))) == {"p50_ms", "p95_ms"}
    write(kept / "rounds-google.json", result(runs=runs))

    assert "google: p95 of the kept runs differs by 1150 %, so the machine was disturbed" in run("--set")[1]


def test_what_is_better_is_never_out() -> None:
    better = result(p50_ms=1.0, p95_ms=1.0, gap_p50=0.0, gap_p95=0.0, rss_mib=10.0)
    assert outside(make_ranges(result()), better) == {}


@pytest.mark.parametrize(("figure", "value"), [("gap_p95", 0.03), ("rss_mib", 600.0), ("arcs", 9000), ("groups", 20)])
def test_figures_that_no_noise_changes_are_out_at_once(figure: str, value: float) -> None:
    out = outside(make_ranges(result()), result(**{figure: value}))
    assert set(out) == {figure}
    assert out[figure].startswith(f"google: {figure} is {value:.4g}, ") and "was kept" in out[figure]


def test_a_figure_that_is_gone_is_out() -> None:
    assert outside(make_ranges(result()), result(gap_p95=None)) == {
        "gap_p95": "google: gap_p95 is missing; 0.018 was kept",
    }


def test_where_more_is_better_less_is_out() -> None:
    kept = result(preset="quincy-incremental", ratio=100.0, ratio_98=8.0, runs=[{"ratio": 100.0}])
    ranges = make_ranges(kept)
    assert outside(ranges, {**kept, "ratio": 500.0, "ratio_98": 9.0}) == {}
    assert set(outside(ranges, {**kept, "ratio": 79.0})) == {"ratio"}
    assert outside(ranges, {**kept, "ratio": 81.0}) == {}
    lower = make_ranges(result(preset="quincy", ratio=1.1))
    assert set(outside(lower, result(preset="quincy", ratio=2.0))) == {"ratio"}


def test_another_machine_is_named() -> None:
    ranges = make_ranges(result())
    assert other_machine(ranges, describe_machine()) == []
    assert other_machine(ranges, {**describe_machine(), "cores": 96}) == [
        f"cores 96 instead of {describe_machine()['cores']}"
    ]


def test_what_is_out_outweighs_what_could_not_be_compared() -> None:
    assert [verdict(codes) for codes in ([0, 0], [0, 2], [2, 1, 0], [])] == [0, 2, 1, 2]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(range_check, "RESULTS", tmp_path)
    monkeypatch.setattr(range_check, "RANGES", tmp_path / "ranges.json")
    return tmp_path


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(range_check.main, words)
    return done.exit_code, done.output


def write(path: Path, row: dict[str, Any]) -> str:
    path.write_text(json.dumps(row), encoding="utf-8")
    return str(path)


def test_from_kept_results_to_a_verdict(kept: Path) -> None:
    code, text = run()
    assert code == 2 and "There are no ranges yet" in text
    write(kept / "rounds-google.json", result())
    code, text = run("--set")
    assert code == 0 and "google: 9 ranges." not in text and "google: 8 ranges." in text
    assert "huge: there is no kept result" in text
    assert run("--result", write(kept / "fresh.json", result())) == (
        0,
        "google: all 8 figures are within their ranges.\n",
    )
    code, text = run("--result", write(kept / "slow.json", result(p50_ms=30.0, gap_p95=0.1)))
    assert code == 1
    assert text.splitlines() == [
        "google: p50_ms is 30, above 17.5; 14 was kept.",
        "google: gap_p95 is 0.1, above 0.0218; 0.018 was kept.",
    ]


def test_what_cannot_be_compared_is_no_failure_and_no_success(kept: Path) -> None:
    other = {**describe_machine(), "processor": "abacus"}
    write(kept / "rounds-google.json", result(machine=other))
    assert run("--set")[0] == 0
    code, text = run("--result", write(kept / "fresh.json", result()))
    assert code == 2 and "of another machine: processor" in text and "instead of abacus" in text
    code, text = run("--result", write(kept / "huge.json", result(preset="huge")))
    assert code == 2 and text == "huge: there is no range to compare with; make one with --set.\n"
    write(kept / "rounds-google.json", result())
    assert run("--set")[0] == 0
    code, text = run("--result", write(kept / "small.json", result(machines=100)))
    assert code == 2 and "of another course: machines 100 instead of 12500" in text


def test_a_result_that_cannot_be_read_is_one_sentence(kept: Path) -> None:
    code, text = run("--result", str(kept / "nowhere.json"))
    assert code == 2 and text.startswith("Error: ") and "cannot be read as a result" in text
    assert len(text.splitlines()) == 1


def test_what_is_out_is_measured_once_more(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(kept / "rounds-google.json", result())
    assert run("--set")[0] == 0
    measured = iter([result(p50_ms=90.0, p95_ms=99.0), result(p95_ms=98.0)])
    monkeypatch.setattr(range_check, "measure_again", lambda name, ranges, rounds: next(measured))
    code, text = run("--preset", "google")
    assert code == 1
    assert text == "google: p95_ms is 98, above 32; 16 was kept.\n"
    measured = iter([result(p50_ms=90.0), result()])
    assert run("--preset", "google")[0] == 0
