"""Two trees measure the same rounds, and say whether they decided alike."""

from __future__ import annotations

import pytest

from benchmarks import kept_state
from benchmarks.engine_trees import HERE, Tree

SMALL = {
    "flow": ("flow", {"machines": 12, "running": 30, "waiting": 4, "kinds": 3}),
    "pods": ("kubernetes", {"nodes": 5, "running": 3, "waiting": 4, "measured": True}),
    "plain": ("kubernetes", {"nodes": 5, "running": 2, "waiting": 4, "measured": False}),
}


def test_each_stage_of_each_case_is_measured_in_both_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_state, "CASES", SMALL)
    with Tree(HERE, kept_state.WORKER) as one, Tree(HERE, kept_state.WORKER) as other:
        rows = [kept_state.measure(name, rounds=3, times=2, trees=(one, other)) for name in SMALL]
    assert [[*row["stages"]] for row in rows] == [
        ["snapshot", "decide", "round"],
        *[["begin", "plan", "end", "round"]] * 2,
    ]
    for row in rows:
        assert row["same_decisions"]
        for figures in row["stages"].values():
            assert all(0.0 < p50 <= most for p50, most in zip(figures["p50_ms"], figures["max_ms"], strict=True))
    assert kept_state.table(rows).splitlines()[3].split()[-1] == "alike"


def test_a_table_says_where_trees_decided_otherwise() -> None:
    stages = {"round": {"p50_ms": [2.0, 4.0], "max_ms": [3.0, 9.0]}}
    text = kept_state.table([{"case": "c", "stages": stages, "same_decisions": False}])
    assert text.splitlines()[1].split() == ["c", "round", "2.0", "3", "4.0", "9", "0.50", "otherwise"]
