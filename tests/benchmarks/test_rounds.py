"""The benchmark of rounds: every preset runs, prints what it promises, and its courses are what they say."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

sys.path.append(str(Path(__file__).parent.parent.parent))  # benchmarks are no part of what is installed

from benchmarks import rounds, rounds_peers
from benchmarks.lemon import LemonError
from benchmarks.round_scaling import slope, slopes
from benchmarks.round_scaling import table as scaling_table
from benchmarks.rounds_course import Course
from benchmarks.rounds_peers import Peers, chosen_rounds, place_greedily
from benchmarks.rounds_presets import PRESETS, Goal, goal_sentences
from benchmarks.rounds_run import Run, best_run, peak_rss_mib, run_rounds
from benchmarks.scale_workload import SHARES, WIDTHS, draw_mix
from flowsched.network.network import Network
from flowsched.round.linear.linear_round import RoundOutcome
from flowsched.round.linear.waiting import survey

PROMISED = {
    "preset",
    "machines",
    "tasks",
    "churn",
    "rounds",
    "p50_ms",
    "p95_ms",
    "p99_ms",
    "phases_ms",
    "gap_p50",
    "gap_p95",
    "arcs",
    "classes",
    "groups",
    "rss_mib",
    "goals",
    "runs",
    "peers",
    "machine",
}


def no_lemon(network: Network, limit_s: float) -> Any:
    raise LemonError("LEMON is skipped in tests")


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_prints_what_it_promises(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_peers, "solve_by_lemon", no_lemon)
    options = ["--preset", name, "--machines", "30", "--rounds", "2", "--runs", "2", "--json"]
    options += ["--no-peers"] if name.startswith("quincy") else []
    done = CliRunner().invoke(rounds.main, options)
    assert done.exit_code == 0, done.output
    row = json.loads(done.stdout)
    assert row.keys() >= PROMISED
    assert (row["preset"], row["machines"], row["rounds"], len(row["runs"])) == (name, 30, 2, 2)
    assert row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"]
    assert row["p95_ms"] == min(run["p95_ms"] for run in row["runs"])
    assert row["arcs"] > 0 and row["rss_mib"] > 1.0
    assert 0.0 <= row["gap_p50"] <= row["gap_p95"] <= 1.0
    assert [g["figure"] for g in row["goals"]] == [g.figure for g in PRESETS[name].goals]
    assert all(goal["met"] in (True, False) for goal in row["goals"])
    if not name.startswith("quincy"):
        assert row["bucket_error"]["bound_p50"] > 0.0
        assert set(row["peers"]["ms"]) >= {"greedy", "uncompacted_ortools", "uncompacted_networkx"}
        assert row["peers"]["skipped"]["uncompacted_lemon"] == "LEMON is skipped in tests"
    assert "goal: " in rounds.describe(row)


def test_nothing_is_kept_of_another_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "RESULTS", tmp_path)
    options = ["--preset", "single-pod", "--machines", "9", "--rounds", "1", "--runs", "1", "--no-peers"]
    assert CliRunner().invoke(rounds.main, options).exit_code == 0
    assert list(tmp_path.iterdir()) == []
    assert CliRunner().invoke(rounds.main, [*options, "--keep"]).exit_code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rounds-single-pod.json", "rounds-single-pod.txt"]


def test_the_mix_is_the_one_that_stands_in_the_docs() -> None:
    mix = draw_mix(60, 0)
    assert len(mix.classes) == len(set(mix.classes)) == 60
    for width, share in zip(WIDTHS, SHARES, strict=True):
        of_width = [c.width_milli == 1000 * width for c in mix.classes]
        assert mix.share[of_width].sum() == pytest.approx(share)


def use_of(course: Course) -> float:
    cluster = course.cluster
    return 1.0 - float(cluster.machines.free[:, 0].sum()) / float(cluster.machines.allocatable[:, 0].sum())


def test_churn_takes_and_brings_as_many() -> None:
    course = Course(rounds.resized(PRESETS["google"], 300), 3)
    assert use_of(course) == pytest.approx(0.9, abs=0.002)
    events = course.draw()
    running = course.cluster.tasks.count
    assert len(events.leave) == len(events.come) == round(0.01 * running)
    assert len(set(events.leave.tolist())) == len(events.leave)


def test_a_full_cluster_is_at_its_use_and_has_its_tasks_waiting_as_every_round_begins() -> None:
    preset = rounds.resized(PRESETS["google-98"], 200)
    assert preset.waiting == 80
    found = []

    def look(k: int, now_s: float, course: Course, decider: Any, outcome: Any) -> None:
        found.append((use_of(course), course.cluster.tasks.count - int((course.cluster.tasks.state == 2).sum())))

    run_rounds(preset, 5, 0, look)
    assert all(use == pytest.approx(0.98, abs=0.003) for use, _ in found)
    assert [waiting for _, waiting in found] == [80] * 5


def test_an_idle_cluster_keeps_its_few_tasks() -> None:
    run = run_rounds(replace(PRESETS["single-pod"], machines=12), 6, 0)
    assert run.tasks == 10 + 1 - 1
    assert run.came == [1] * 6 and run.churn == [pytest.approx(0.1)] * 6


def test_runs_of_one_seed_decide_the_same_and_others_are_told_apart() -> None:
    preset = rounds.resized(PRESETS["google"], 60)
    first, second, other = (run_rounds(preset, 3, seed) for seed in (0, 0, 1))
    assert first.digest == second.digest != other.digest
    assert best_run([first, second]) in (first, second)
    with pytest.raises(RuntimeError, match="decided differently"):
        best_run([first, other])


def test_the_best_run_is_the_one_with_the_least_p95() -> None:
    calm, rough = Run(whole_ms=[2.0] * 20), Run(whole_ms=[1.0] * 18 + [9.0] * 2)
    assert best_run([rough, calm]) is calm
    assert calm.quantiles() == {"p50_ms": 2.0, "p95_ms": 2.0, "p99_ms": 2.0}


def test_the_greedy_keeps_to_capacities_and_takes_the_cheapest_place() -> None:
    course = Course(rounds.resized(PRESETS["google"], 30), 0)
    cluster = course.cluster
    tasks = cluster.submit(np.zeros(1, dtype=np.int64), np.zeros(1))
    waiting = survey(cluster, tasks, 0.0, 600.0)
    table = cluster.classes.table()
    costs = [
        float(table.base[0, cluster.machines.kind[m]])
        + float(
            table.coefficients[0]
            @ (cluster.classes.factors[cluster.machines.kind[m]] * cluster.machines.readings[m] / (1 << 24))
        )
        for m in range(cluster.machines.rows)
        if cluster.machines.alive[m] and (cluster.machines.free[m] >= cluster.classes.demands[0]).all()
    ]
    greedy = place_greedily(cluster, waiting)
    assert greedy.placed == 1 and greedy.cost == pytest.approx(min(costs))
    many = cluster.submit(np.zeros(10_000, dtype=np.int64), np.zeros(10_000))
    waiting = survey(cluster, many, 0.0, 600.0)
    greedy = place_greedily(cluster, waiting)
    room = int((cluster.machines.free[:, 0] // cluster.classes.demands[0, 0]).sum())
    assert 0 < greedy.placed <= room
    assert greedy.cost >= float(waiting.cost.sum()) - float(waiting.cost[: greedy.placed].sum())


def test_peers_are_beside_ours_and_never_below_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_peers, "solve_by_lemon", no_lemon)
    peers = Peers(chosen_rounds(4, 2))
    run_rounds(rounds.resized(PRESETS["google"], 60), 4, 0, peers)
    figures = peers.figures()
    assert figures["rounds"] == 2
    assert all(gap >= 0.0 for gap in peers.greedy_gap)
    text = "\n".join(rounds.describe_peers(figures))
    assert "plain greedy: cost" in text and "LEMON is skipped in tests" in text


def test_rounds_for_peers_are_spread_over_all() -> None:
    assert chosen_rounds(200, 3) == {0, 100, 199}
    assert chosen_rounds(1, 3) == {0}


def test_goals_have_a_side() -> None:
    row = {"p95_ms": 12.0, "ratio": 9.0}
    goals = [Goal("p95_ms", 20.0), Goal("ratio", 10.0, least=True), Goal("gap_p95", 0.02)]
    plain = [goal.plain(row) for goal in goals]
    assert [goal["met"] for goal in plain] == [True, False, None]
    assert goal_sentences(plain) == [
        "goal: p95_ms under 20: met (12)",
        "goal: ratio at least 10: missed (9)",
        "goal: gap_p95 under 0.02: not measured",
    ]


def test_slopes_are_those_of_powers() -> None:
    sizes = [100.0, 1000.0, 10_000.0, 100_000.0]
    assert slope(sizes, [s**0.7 for s in sizes]) == pytest.approx(0.7)
    assert slope([100.0], [1.0]) is None
    rows = [{"machines": int(s), "p50_ms": s, "peers": {"ms": {"greedy": s * s}}} for s in sizes]
    assert slopes(rows) == {
        "all": pytest.approx(1.0),
        "steady": pytest.approx(1.0),
        "greedy_steady": pytest.approx(2.0),
    }


def test_the_table_of_sizes_has_a_line_for_each() -> None:
    row = {
        "machines": 1000,
        "tasks": 11_804,
        "arcs": 2720,
        "p50_ms": 3.0,
        "p95_ms": 4.0,
        "phases_ms": {"events": 0.1, "solve": 2.0},
        "gap_p50": 0.0375,
        "rss_mib": 188.0,
        "peers": {"ms": {"greedy": 3.6}},
    }
    bare = {**row, "machines": 100, "gap_p50": None, "peers": {}}
    rows = [bare, row]
    text = scaling_table({"rows": rows, "slopes": {"all": 0.0, "steady": None, "greedy_steady": None}})
    assert len(text.splitlines()) == 5
    assert "3.75" in text and text.splitlines()[1].rstrip().endswith("-")


def test_memory_is_that_of_this_process() -> None:
    assert 10.0 < peak_rss_mib() < 100_000.0


def test_the_bound_is_tight_where_wide_tasks_wait() -> None:
    """Classes that all wait have no price in the network but what leaving them costs."""
    gaps: list[float] = []

    def look(k: int, now_s: float, course: object, decider: object, outcome: RoundOutcome) -> None:
        certificate = outcome.certificate
        assert certificate is not None
        gaps.append(certificate.gap_relative)

    run_rounds(replace(PRESETS["google"], machines=600, use=0.96), 6, 0, look)
    assert max(gaps) < 0.03
