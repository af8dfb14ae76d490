"""The page of performance says what the kept results say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent.parent.parent))  # benchmarks are no part of what is installed

from benchmarks import performance_page
from benchmarks.machine import describe_machine
from benchmarks.performance_page import amount, goals, preliminary, render
from benchmarks.performance_plots import draw_all
from benchmarks.rounds import describe
from benchmarks.rounds_presets import PRESETS, judged


def row(name: str, **changes: Any) -> dict[str, Any]:
    made = {
        "preset": name,
        "machines": PRESETS[name].machines,
        "tasks": 1000,
        "churn": 0.01,
        "rounds": PRESETS[name].rounds,
        "p50_ms": 1.0,
        "p95_ms": 1.5,
        "p99_ms": 1.75,
        "phases_ms": {"events": 0.25, "solve": 0.5},
        "gap_p50": 0.01,
        "gap_p95": 0.0125,
        "arcs": 10,
        "classes": 2,
        "groups": 3,
        "rss_mib": 123.0,
        "runs": [{"p95_ms": 1.5}] * 3,
        "peers": {"ms": {"greedy": 2.0}, "skipped": {}},
        "load_before": 0.0,
        "machine": describe_machine(),
        **changes,
    }
    return {**made, "goals": judged(PRESETS[name], made)}


def keep(folder: Path, name: str, outcome: dict[str, Any], text: str) -> None:
    (folder / f"{name}.json").write_text(json.dumps(outcome), encoding="utf-8")
    (folder / f"{name}.txt").write_text(text + "\n", encoding="utf-8")


def test_the_page_is_what_its_command_makes_of_the_kept_results() -> None:
    assert performance_page.PAGE.read_text(encoding="utf-8") == render()


def test_goals_that_are_missed_are_named() -> None:
    text = goals({"google": row("google", p95_ms=25.0), "single-pod": row("single-pod")})
    assert "| `google` | p95 under 20 ms | 25 ms | **no** | `python -m benchmarks.rounds --preset google` |" in text
    assert "| `google` | p95 of the gap under 2 % | 1.25 % | yes |" in text
    assert "Missed: p95 of `google`." in text
    assert "All goals are met." in goals({"single-pod": row("single-pod")})


def test_every_kept_result_stands_there_with_command_and_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(performance_page, "RESULTS", tmp_path)
    for name in ("google", "poseidon"):
        keep(tmp_path, f"rounds-{name}", row(name), describe(row(name)))
    text = render()
    assert "python -m benchmarks.rounds --preset poseidon\n```\n\n```text\nposeidon: 2,700 machines" in text
    assert "### huge" not in text and "round_scaling" not in text
    assert text.count("Measured on ") == 2 and "Preliminary" not in text


def test_what_was_measured_in_haste_is_called_preliminary() -> None:
    assert preliminary("google", row("google")) == ""
    hasty = row("google", rounds=20, load_before=2.0)
    assert preliminary("google", hasty) == (
        " *Preliminary: 20 rounds and 3 runs only, others worked on the machine (load 2.0).*"
    )


def test_amounts_have_units() -> None:
    assert [amount(0.02, "%"), amount(4096.0, "MiB"), amount(1.25, ""), amount(15.678, "ms")] == [
        "2 %",
        "4,096 MiB",
        "1.25",
        "15.7 ms",
    ]


def test_the_same_results_make_the_same_pictures(tmp_path: Path) -> None:
    sizes = [row("google", machines=m, p50_ms=m / 100, p95_ms=m / 50) for m in (100, 1000)]
    pictures = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        draw_all(folder, {"rows": sizes})
        pictures.append({p.name: p.read_bytes() for p in folder.iterdir()})
    assert pictures[0] == pictures[1] and len(pictures[0]) == 2
    assert all(len(data) < 100_000 for data in pictures[0].values())
