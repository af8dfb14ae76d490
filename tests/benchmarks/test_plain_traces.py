"""Plain traces: the same jobs for a seed, loads that are exact, and bars that are judged as they are written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path.append(str(Path(__file__).parent.parent.parent))  # benchmarks are no part of what is installed

from benchmarks import plain_spread
from benchmarks.plain_bars import RULES, bars_of
from benchmarks.plain_cases import CASES, RELAXED, TRACES, Case
from benchmarks.plain_jobs import Cluster, PlainJob, at_load, load_of, nasa, segment
from benchmarks.plain_traces import SEEDS, digest, engine_with, main, widest_tenth
from measured_data import traces_folder

SYNTHETIC = [case for case in CASES.values() if case.file is None]


@pytest.mark.parametrize("case", SYNTHETIC, ids=lambda case: case.name)
def test_drawn_cases_have_their_load_and_the_same_jobs_again(case: Case) -> None:
    jobs = case.jobs_of(7)

    assert load_of(jobs, case.cluster) == pytest.approx(case.load)
    assert len(jobs) == case.jobs
    assert max(job.cores for job in jobs) <= case.cluster.cores
    assert digest(jobs) == digest(case.jobs_of(7)) != digest(case.jobs_of(8))


def test_a_load_moves_times_of_submission_only() -> None:
    light, dense = (CASES[f"1to16-{load}"].jobs_of(3) for load in (0.9, 1.1))

    assert [(j.run_s, j.cores) for j in light] == [(j.run_s, j.cores) for j in dense]
    assert light[-1].submit_s / dense[-1].submit_s == pytest.approx(1.1 / 0.9)


def test_load_is_of_the_resource_that_binds() -> None:
    jobs = [PlainJob(0.0, 10.0, 1, 50), PlainJob(10.0, 10.0, 1, 50)]

    assert load_of(jobs, Cluster(2, 4, 200)) == pytest.approx(0.25)
    assert load_of(jobs, Cluster(2, 4, 1000)) == pytest.approx(2 * 10 / (8 * 10))
    assert at_load(jobs, Cluster(2, 4, 200), 0.5)[-1].submit_s == pytest.approx(5.0)


def test_seeds_for_choosing_are_none_of_those_for_reporting() -> None:
    assert not {*SEEDS["choose"]} & {*SEEDS["report"]}


def test_the_widest_tenth_is_rounded_up_and_of_equals_takes_the_first() -> None:
    assert widest_tenth([1, 8, 2, 8, 8, 1, 1, 1, 1, 1, 1]).tolist() == [1, 3]


@pytest.mark.parametrize("source", TRACES)
def test_a_segment_of_a_trace_fits_its_machines(source: str) -> None:
    case = next(case for case in CASES.values() if case.source == source)
    jobs = case.jobs_of(1, traces_folder())

    assert len(jobs) == case.jobs
    assert load_of(jobs, case.cluster) == pytest.approx(case.load)
    assert max(job.cores for job in jobs) <= case.cluster.cores
    assert [job.submit_s for job in jobs] == sorted(job.submit_s for job in jobs)


def test_a_segment_begins_at_zero(tmp_path: Path) -> None:
    line = "{} {} -1 5 {} " + "-1 " * 13
    log = tmp_path / "small.swf"
    log.write_text("\n".join(["; MaxProcs: 16", *(line.format(k, 10 * k, 1 + k) for k in range(1, 7))]))
    jobs = segment(nasa(log), 3, seed=1)

    assert [job.submit_s for job in jobs] == [0.0, 10.0, 20.0]
    with pytest.raises(ValueError, match="needs as many, got 3"):
        segment(jobs, 4, seed=1)


def figures(waiting: float, slowdown: float, makespan: float, longest: float, widest: float) -> dict[str, float]:
    return {
        "mean_waiting_s": waiting,
        "mean_bounded_slowdown": slowdown,
        "makespan_s": makespan,
        "longest_waiting_s": longest,
        "widest_waiting_s": widest,
    }


def judged(
    flow: dict[str, float], *, sigma: float = 0.0, relaxed: bool = False, **rules: dict[str, float]
) -> list[bool]:
    usual = figures(50.0, 3.0, 1000.0, 500.0, 80.0)
    beside = {rule: rules.get(rule.replace("-", "_"), usual) for rule in RULES}
    return [bar.met for bar in bars_of("case", {"flow": flow, **beside}, sigma=sigma, relaxed=relaxed)]


BEST = figures(20.0, 2.0, 1000.0, 400.0, 40.0)


def test_bars_where_rules_wait() -> None:
    # Waiting, slowdown, beside easy, makespan, widest tenth, longest.
    assert judged(figures(18.0, 1.9, 1050.0, 400.0, 38.0), tetris=BEST, sjf=BEST) == [True] * 6
    assert judged(figures(18.1, 1.91, 1051.0, 401.0, 38.1), tetris=BEST, sjf=BEST) == [False, False, True] + 3 * [False]
    assert judged(figures(19.0, 1.95, 1.0, 1.0, 1.0), sigma=0.5, best_fit=BEST)[:2] == [True, True]
    assert judged(figures(19.1, 1.96, 1.0, 1.0, 1.0), sigma=0.5, best_fit=BEST)[:2] == [False, False]


def test_bars_where_the_best_rule_hardly_waits() -> None:
    calm = figures(0.9, 1.02, 1000.0, 400.0, 6.1)
    assert judged(figures(1.0, 1.03, 1.0, 1.0, 7.1), easy=calm) == [True] * 6
    assert judged(figures(1.01, 1.031, 1.0, 1.0, 7.2), easy=calm) == [False, False, True, True, False, True]
    assert judged(figures(1.03, 1.0, 1.0, 1.0, 1.0), easy=calm)[2] is False


def test_on_relaxed_cases_only_waiting_has_a_bar() -> None:
    assert RELAXED == ("alibaba", "philly")
    assert judged(figures(23.0, 9.0, 9e9, 9e9, 9e9), relaxed=True, sjf=BEST) == [True]
    assert judged(figures(23.1, 1.0, 1.0, 1.0, 1.0), relaxed=True, sjf=BEST) == [False]
    assert judged(figures(0.35, 1.0, 1.0, 1.0, 1.0), relaxed=True, easy=figures(0.1, 1.0, 1.0, 1.0, 1.0)) == [True]


def test_one_core_jobs_are_judged_by_the_machines_they_use() -> None:
    rows = [plain_spread.measure(20, Cluster(20, 16), "easy", engine_with(()))]
    assert (rows[0]["used"], rows[0]["wide_waiting_s"]) == (2, 0.0)

    scattered = {**rows[0], "policy": "flow", "used": 20, "wide_waiting_s": 470.0}
    assert [bar.met for bar in plain_spread.bars([*rows, scattered])] == [False, False]
    assert [bar.met for bar in plain_spread.bars([*rows, {**rows[0], "policy": "flow"}])] == [True, True]


def test_an_earlier_result_saves_its_rules_a_second_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = CASES["2to8-0.9"]
    monkeypatch.setitem(CASES, small.name, type(small)("2to8", 0.9, Cluster(2, 16), 20))
    before = tmp_path / "before.json"
    ask = ["--case", small.name, "--seeds", "9"]
    done = CliRunner().invoke(main, [*ask, "--policy", "fcfs", "--policy", "sjf", "--out", str(before)])
    assert done.exit_code == 0, done.output

    done = CliRunner().invoke(main, [*ask, "--policy", "flow", "--baselines", str(before), "--set", "length_weight=1"])
    assert done.exit_code == 0, done.output
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith(small.name)] == [
        "flow",
        "sjf",
        "fcfs",
    ]
    assert "flow with length_weight=1" in done.stdout
    assert "fcfs" not in done.stderr

    kept = json.loads(before.read_text())
    kept["rows"][0]["digest"] = "other"
    before.write_text(json.dumps(kept))
    done = CliRunner().invoke(main, [*ask, "--policy", "flow", "--baselines", str(before)])
    assert "other jobs in 2to8-0.9, seed 9" in done.output


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (["--seeds", "some"], "expected report or choose, or numbers with commas between them, got 'some'"),
        (["--set", "no_setting=1"], "no_setting"),
        (["--keep", "--case", "spread"], "--keep is for all cases and policies"),
        (["--policy", "flaw"], "there is no such policy"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(ask: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ask)
    assert (done.exit_code, message in done.output) == (2, True), done.output
