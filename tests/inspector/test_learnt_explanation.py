"""What explanations say of learnt run times, and that a round which used them is replayed from its record alone."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import LARGE, SCALING, SMALL, any_of, machine, rounds, running, snapshot, task
from flowsched.cli import flowsched
from flowsched.cluster.learnt_run_times import LearntRunTimes
from flowsched.cluster.run_time_errors import RunTimeErrors
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot
from flowsched.cluster.still_running import late_length, median_length
from flowsched.inspector.change import Changes
from flowsched.inspector.explanation import explain
from flowsched.inspector.learnt_table import NOTHING
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.replay import replay
from flowsched.inspector.whatif import what_if
from flowsched.records.record_file import check_record, record_json
from flowsched.round.scheduler import solve
from flowsched_models.document import InputError


def recorded(now: Snapshot) -> RecordView:
    record = solve(now, settings=Settings(exact_limit=0)).record
    assert record is not None
    return RecordView(check_record(json.loads(record_json(record)), "record"), "record")


LEARNT = LearntRunTimes()
for _ in range(14):
    LEARNT = LEARNT.with_end("night/encode", SMALL.name, 1.3).with_end("other", SMALL.name, 1.0)


def test_a_task_of_a_learnt_class_says_what_its_class_taught() -> None:
    tasks = [task("placed", cores=1, run_class="night/encode"), task("plain", cores=1), task("new", run_class="new")]
    here = running(task("runs", cores=1, run_class="night/encode"), "m1", (0,))
    opened = recorded(snapshot(tasks, running=[here], learnt_run_times=LEARNT))
    found = LEARNT.of("night/encode", SMALL.name)
    assert found is not None

    told = f"{SCALING.name} of class night/encode: 1.3x its profile on small, learnt from 14 runs (spread {{:.0f}} %)."
    for name in ("placed", "runs"):
        explanation = explain(opened, name)
        assert explanation.facts["learnt"]["factor"] == pytest.approx(found.factor)
        assert told.format(100.0 * found.spread) in explanation.lines()
    for name in ("plain", "new"):
        assert "learnt" not in explain(opened, name).facts
        assert not any("learnt" in line for line in explain(opened, name).lines())


def test_it_says_where_nothing_ran_of_the_class_and_where_nothing_uses_it() -> None:
    now = snapshot([task("t", run_class="night/encode")], (machine("m1", LARGE),), learnt_run_times=LEARNT)
    (line,) = [line for line in explain(recorded(now), "t").lines() if "learnt" in line]
    assert "its profile, learnt from 14 runs" in line
    shown = replace(now, learnt_run_times=replace(LEARNT, applied=False))
    (line,) = [line for line in explain(recorded(shown), "t").lines() if "learnt" in line]
    assert line.endswith("; forecasts do without.")


@settings(max_examples=20)
@given(rounds(), any_of(0.5, 1.0, 1.4), st.data())
def test_a_round_with_learnt_run_times_is_replayed_and_every_task_explained(
    drawn: Snapshot, factor: float, data: st.DataObject
) -> None:
    classes = any_of("", "night/encode", "other")
    now = replace(
        drawn,
        running=tuple(
            replace(r, factor=factor, task=replace(r.task, run_class=data.draw(classes))) for r in drawn.running
        ),
        pending=tuple(replace(t, run_class=data.draw(classes)) for t in drawn.pending),
        learnt_run_times=LEARNT.with_end("night/encode", LARGE.name, 0.6),
    )
    opened = recorded(now)
    assert replay(opened).same
    for t in now.pending:
        facts = explain(opened, t.name).facts
        assert ("learnt" in facts) == bool(t.run_class)


@pytest.mark.parametrize("known", [True, False])
def test_a_run_that_is_past_its_forecast_says_by_how_much_and_what_is_left(known: bool) -> None:
    """On one core alone: its profile forecasts 100 s, its class 130 s, and it has run for 170 s."""
    here = running(task("late", cores=1, run_class="night/encode" if known else ""), "m1", (0,), progress=1.7)
    on_time = running(task("early", cores=1, run_class="night/encode"), "m1", (1,), progress=0.4)
    now = snapshot([task("w", cores=4)], running=[here, on_time], learnt_run_times=LEARNT)
    opened = recorded(replace(now, run_time_errors=RunTimeErrors.of(40, 4.0)))
    explanation = explain(opened, "late")
    found = explanation.facts["overrun"]
    expected = LEARNT.of("night/encode", SMALL.name)
    assert expected is not None
    forecast = expected.factor if known else 1.0

    assert found["past_s"] / found["left_s"] == pytest.approx(
        (1.7 - forecast) / (length_of(opened, known) - 1.7), rel=1e-6
    )
    assert 0.0 < found["least_s"] < found["left_s"] < found["most_s"]
    assert found["left_s"] == pytest.approx(explanation.facts["place"]["end_s"])
    told = "this run is past its forecast by {past_s:.0f} s, {left_s:.0f} s [{least_s:.0f}, {most_s:.0f}] are expected."
    assert any(told.format(**found) in line.replace("This", "this") for line in explanation.lines())
    assert explain(opened, "early").facts["overrun"] is None
    assert not any("past its forecast" in line for line in explain(opened, "early").lines())


def length_of(opened: RecordView, known: bool) -> float:
    """How many times its profile's forecast the late run takes, by the median."""
    if known:
        found = LEARNT.of("night/encode", SMALL.name)
        assert found is not None
        return found.length(1.7)
    return RunTimeErrors.of(40, 4.0).length(1.7, SCALING.error)


@given(any_of(1.0, 1.05, 1.5, 4.0, 60.0), any_of(0.02, 0.2, 0.8))
def test_quantiles_of_late_runs_rise_and_the_median_is_that_of_the_forecast(done: float, sigma: float) -> None:
    shares = (0.05, 0.1, 0.5, 0.9, 0.95)
    found = [late_length(done, sigma, share) for share in shares]
    assert found == sorted(found) and found[0] >= done
    assert found[2] == pytest.approx(median_length(done, sigma), rel=1e-6)
    for share, length in zip(shares, found, strict=True):
        tails = [math.erfc(math.log(x) / sigma / math.sqrt(2.0)) for x in (length, done)]
        if tails[1] > 1e-280:
            assert 1.0 - tails[0] / tails[1] == pytest.approx(share, abs=1e-6)


def test_the_command_prints_what_was_learnt(tmp_path: Path) -> None:
    now = snapshot([task("t", run_class="night/encode")], learnt_run_times=LEARNT.with_end("once", LARGE.name, 0.5))
    for number, known in enumerate((LearntRunTimes(), now.learnt_run_times)):
        record = solve(replace(now, round=number, learnt_run_times=known), settings=Settings(exact_limit=0)).record
        assert record is not None
        (tmp_path / f"round-{number}.json").write_text(record_json(record))
    told = CliRunner().invoke(flowsched, ["inspect", str(tmp_path), "--learnt"])
    assert told.exit_code == 0, told.output
    rows = {line.split()[0]: line.split() for line in told.output.splitlines()[1:4]}
    found = now.learnt_run_times.of("night/encode", SMALL.name)
    assert found is not None
    factor, spread = f"{found.factor:.2f}", f"{100 * found.spread:.0f}"
    assert rows["night/encode"] == ["night/encode", "small", "14", "1.30", factor, spread]
    assert rows["once"][2:4] == ["1", "0.50"] and "spread of runs within a class" in told.output
    nothing = CliRunner().invoke(flowsched, ["inspect", str(tmp_path / "round-0.json"), "--learnt"])
    assert nothing.output == f"{NOTHING}\n"
    refused = CliRunner().invoke(flowsched, ["inspect", str(tmp_path), "--learnt", "--json"])
    assert isinstance(refused.exception, InputError) and "does not go with --json" in str(refused.exception)


def test_a_what_if_knows_what_was_learnt() -> None:
    """Of two machines the one that the class was slower on is taken only where the other is drained."""
    known = LEARNT
    for _ in range(14):
        known = known.with_end("night/encode", LARGE.name, 3.0)
    waits = task("t", cores=4, widths_milli=(4000,), run_class="night/encode")
    cluster = (machine("slow", SMALL), machine("quick", LARGE))
    opened = recorded(snapshot([waits], cluster, learnt_run_times=known))
    (placed,) = opened.parts[0].placements
    assert placed.machine == "slow"
    changed = what_if(opened, Changes(drains=("slow",)))
    (placed,) = changed.parts[0].placements
    assert placed.machine == "quick"
    assert (
        changed.parts[0].forecast["snapshot"]["learnt_run_times"]
        == opened.parts[0].forecast["snapshot"]["learnt_run_times"]
    )
    assert "3x its profile on large" in "\n".join(explain(changed, "t").lines())
