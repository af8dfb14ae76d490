"""What explanations say of learnt run times, and that a round which used them is replayed from its record alone."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import LARGE, SCALING, SMALL, any_of, machine, rounds, running, snapshot, task
from flowsched.cluster.learnt_run_times import LearntRunTimes
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot
from flowsched.inspector.explanation import explain
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.replay import replay
from flowsched.records.record_file import check_record, record_json
from flowsched.round.scheduler import solve


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
