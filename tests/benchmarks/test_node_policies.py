"""The comparison of node controllers: its rows, its table, and what it says of its targets."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent.parent.parent))  # benchmarks are no part of what is installed

from benchmarks.node_policies import RESULTS, SETTINGS, _lines, render, run_cell
from benchmarks.node_targets import PUBLISHED_ACTIVE_S, checks


def row(policy: str, setting: str = "10s", seed: int = 0, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "setting": setting,
        "policy": policy,
        "seed": seed,
        "makespan_s": 540.0,
        "fluid_bound_s": 500.0,
        "points": 50,
        "violations": 0,
        "feasible_points": 45,
        "feasible_violations": 0,
        "feasible_model_violations": 0,
    }
    return values | changes


def outcomes(*rows: dict[str, Any]) -> dict[str, bool]:
    """Whether each target is met, by its sentence."""
    found = {}
    for line in checks(rows):
        met, text = line[:8].strip(), line[8:].strip()
        assert met in ("met", "not met")
        found[text] = met == "met"
    return found


def verdict(begin: str, *rows: dict[str, Any]) -> bool:
    """Of the only target whose sentence begins so."""
    (met,) = [met for text, met in outcomes(*rows).items() if text.startswith(begin)]
    return met


@pytest.mark.parametrize(("makespan_s", "met"), [(549.0, True), (551.0, False)])
def test_flow_node_is_held_to_its_share_of_the_bound(makespan_s: float, met: bool) -> None:
    rows = [row("flow-node"), row("flow-node", seed=1, makespan_s=makespan_s)]
    assert verdict("flow-node, 10s: makespan at most 1.10", *rows) is met


def test_flow_node_is_compared_seed_by_seed() -> None:
    ours = [row("flow-node", seed=k, makespan_s=540.0 + k) for k in range(2)]
    later = [row("low-weight", seed=k, makespan_s=541.0) for k in range(2)]
    assert verdict("flow-node, 10s: no slower than low-weight", *ours, *later)
    assert not verdict("flow-node, 10s: no slower than low-weight", *ours, *(r | {"makespan_s": 540.5} for r in later))
    equal = [r | {"policy": "two-queue"} for r in ours]
    assert not verdict("flow-node, 10s: faster than two-queue", *ours, *equal)
    worse = [r | {"violations": 1} for r in ours]
    assert not verdict("flow-node, 10s: no slower than low-weight", *worse, *later)


@pytest.mark.parametrize(("violations", "met"), [(1, True), (2, False)])
def test_under_three_percent_means_in_every_seed(violations: int, met: bool) -> None:
    rows = [row("flow-node", "1s", 0), row("flow-node", "1s", 1, violations=violations)]
    assert verdict("flow-node, 1s", *rows) is met


def test_two_queue_is_held_to_the_published_times() -> None:
    published = row("two-queue", "published wave", makespan_s=690.0, active_s=dict(PUBLISHED_ACTIVE_S))
    assert all(outcomes(published).values())
    longer = published | {"makespan_s": 695.0}
    missed = [text for text, met in outcomes(longer).items() if not met]
    assert len(missed) == 1
    assert missed[0].startswith("two-queue, published wave: makespan")
    slow = published | {"active_s": PUBLISHED_ACTIVE_S | {"radix": 56.0}}
    assert [met for text, met in outcomes(slow).items() if "radix" in text] == [False]


def test_a_run_before_its_bound_is_told_unless_its_policy_starves_services() -> None:
    assert not verdict("no run is done before its bound", row("low-weight", makespan_s=499.0))
    assert verdict("no run is done before its bound", row("low-weight"), row("static-1", makespan_s=499.0))


def test_a_target_without_rows_is_left_out() -> None:
    assert checks([]) == []
    assert checks([row("flow-node", makespan_s=None)]) == []


def test_a_cell_runs_all_its_policies_on_one_load() -> None:
    rows = run_cell(("two services, 10s", 3, ("static-2", "low-weight-all")))
    assert "needs virtual CPUs for jobs alone" in rows[0]["impossible"]
    assert rows[1]["makespan_s"] >= rows[1]["fluid_bound_s"] >= rows[1]["plain_bound_s"] > 0.0
    assert rows[1] | {"run_s": 0} == run_cell(("two services, 10s", 3, ("low-weight-all",)))[0] | {"run_s": 0}
    text = render(rows)
    assert "static-2        cannot run here" in text
    assert "no run is done before its bound" in text


def test_kept_rows_are_read_again() -> None:
    head, rows = {"machine": {"cores": 2}}, [{"policy": "a", "seed": 0}, {"policy": "b", "seed": 1}]
    assert json.loads(_lines(head, rows)) == {**head, "rows": rows}


def test_what_is_kept_can_be_read() -> None:
    kept = json.loads((RESULTS / "node_policies.json").read_text(encoding="utf-8"))
    assert {row["setting"] for row in kept["rows"]} == set(SETTINGS)
