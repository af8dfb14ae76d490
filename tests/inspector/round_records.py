"""Records of small rounds, made as the engine and the Kubernetes side make them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from engine.bulk_world import Kind, World, book, offered
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.replay import differences
from flowsched.records.record import of_decision, record_head
from flowsched.records.record_file import check_record, pack_record, read_record, record_json
from flowsched.round.linear.bulk_round import decide
from flowsched.round.scheduler import solve
from flowsched.solvers import make_solver

SOLVER = make_solver("ortools")


def search_record(snapshot: Snapshot, settings: Settings | None = None, solver: str = "ortools") -> RecordView:
    """The record of a search, as it is read from a file."""
    record = solve(snapshot, settings=settings, solver=solver).record
    assert record is not None
    return reread(record)


def bulk_record(world: World, solver: str = "ortools") -> RecordView:
    """The record of one bulk round."""
    return RecordView(plain_record(world, [world.kinds], solver), "world.json")


def chained_record(world: World) -> RecordView:
    """The record of a round that goes priority by priority: every kind is one, or every two."""
    levels = [world.kinds[i : i + 2] for i in range(0, len(world.kinds), 2)]
    return RecordView(plain_record(world, levels), "chain.json")


def plain_record(world: World, levels: Sequence[Sequence[Kind]], solver: str = "ortools") -> dict[str, Any]:
    """One part for each level, on what the levels before left."""
    fleet = world.fleet()
    parts = []
    for i, kinds in enumerate(levels):
        cluster = offered(fleet, kinds, world.groups, world.running_members)
        outcome = decide(cluster, solver=make_solver(solver), keep_record=True)
        assert outcome.record is not None
        parts += of_decision(outcome.record(len(levels) - i), i)
        of = {task: kind for kind in kinds for task in kind.tasks}
        for p in outcome.placements:
            book(fleet, p.task, of[p.task], p.machine)
    return {**record_head(3, 100.0, "flow", solver, Settings()), "parts": parts}


def reread(record: Any, packed: bool = False) -> RecordView:
    """A record as a file gives it back."""
    if packed:
        return RecordView(read_record(pack_record(record), "round.npz"), "round.npz")
    return RecordView(check_record(json.loads(record_json(record)), "round.json"), "round.json")


def untimed(recorded: RecordView) -> list[dict[str, Any]]:
    """The parts without what depends on the machine that made them."""
    return [{k: v for k, v in part.plain.items() if k != "timings"} for part in recorded.parts]


def unlike(a: RecordView, b: RecordView) -> list[str]:
    """Where the parts of two records differ."""
    return [f"{m.where}: {m.recorded} / {m.now}" for m in differences(untimed(a), untimed(b))][:5]


def without_kinds_that_have_no_task(world: World) -> World:
    """So that every priority has a task."""
    return replace(world, kinds=tuple(k for k in world.kinds if k.count))
