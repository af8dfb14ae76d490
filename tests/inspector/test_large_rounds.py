"""Records of rounds that looked at some of a cluster's machines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from round_records import search_record

from builders import crowd, task
from flowsched.cluster.snapshot import Snapshot
from flowsched.inspector.change import parse_changes
from flowsched.inspector.explanation import explain
from flowsched.inspector.replay import replay
from flowsched.inspector.restored_round import restore
from flowsched.inspector.sentences import sentences
from flowsched.inspector.summary import render_summary
from flowsched.inspector.whatif import what_if
from flowsched.round.candidates import MANY_MACHINES


@pytest.fixture(scope="module")
def cluster() -> Snapshot:
    """More machines than a round looks at, tasks that start and wait, and one that fits nowhere."""
    now = crowd(MANY_MACHINES + 30, 8, 4)
    return replace(now, pending=(*now.pending, task("large", cores=64, widths_milli=(64000,))))


def test_a_record_is_decided_again_byte_for_byte(cluster: Snapshot) -> None:
    outcome = replay(search_record(cluster))
    assert outcome.same, outcome.lines()


def test_every_task_is_explained(cluster: Snapshot) -> None:
    recorded = search_record(cluster)
    for waiting in cluster.pending:
        assert list(sentences(explain(recorded, waiting.name).facts))
    looked_at = {m for group in recorded.parts[0].plain["groups"] for m in group["members"]}
    unseen = next(r for r in cluster.running if r.machine not in looked_at)
    text = " ".join(sentences(explain(recorded, unseen.task.name).facts))
    assert f"{unseen.machine} was not among the machines that the round looked at" in text
    seen = next(r for r in cluster.running if r.machine in looked_at)
    assert "was not among" not in " ".join(sentences(explain(recorded, seen.task.name).facts))


def test_what_runs_on_a_machine_is_in_the_order_of_its_group(cluster: Snapshot) -> None:
    recorded = search_record(cluster)
    opened = restore(recorded, recorded.parts[0])
    view, seen = opened.model.view, 0
    for machine, g in zip(view.machines, view.group_of, strict=True):
        here, group = opened.residents(machine.name), view.groups[g]
        assert {r.task.name for r in here} == {r.task.name for r in cluster.running if r.machine == machine.name}
        assert [r.task.content for r in here] == [r.task.content for r in group.running]
        if machine is group.machine:
            assert here == group.running
        seen += len(here)
    assert seen


def test_the_summary_says_what_the_bound_is_over(cluster: Snapshot) -> None:
    recorded = search_record(cluster)
    looked_at = sum(len(group["members"]) for group in recorded.parts[0].plain["groups"])
    text = render_summary(recorded)
    assert f"among the {looked_at:,} machines looked at" in text


def test_a_what_if_draws_again(cluster: Snapshot) -> None:
    recorded = search_record(cluster)
    (placed, *_) = recorded.parts[0].placements
    gone = placed.machine
    again = what_if(recorded, parse_changes(recorded, drain=(gone,)))
    assert all(p.machine != gone for p in again.parts[0].placements)
    assert replay(again).same
