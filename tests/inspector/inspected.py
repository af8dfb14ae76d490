"""Records of every shape for tests of the inspector: a search, a bulk round, and a Kubernetes round of both."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flowsched.cli
from engine.bulk_world import Kind, offered
from flowsched import Settings, load_snapshot, solve
from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.records.record import record_head
from flowsched.relations.relation import Relation, RelationKind
from flowsched.round.linear.bulk_round import decide
from flowsched.solvers import make_solver

HOUSE = Path(__file__).parents[2]
EXAMPLE = HOUSE / "docs" / "examples" / "turns.yaml"


@cache
def searched(objective: str = "completion") -> dict[str, Any]:
    """Three tasks on three machines; with completion one of them waits for a machine. For a makespan they came at one
    moment: while more may come, what it changes has to gain much.
    """
    now = load_snapshot(EXAMPLE)
    if objective == "makespan":
        now = replace(now, pending=tuple(replace(task, submit_s=0.0) for task in now.pending))
    record = solve(now, settings=Settings(objective=objective, exact_limit=0)).record
    assert record is not None
    return dict(record)


@cache
def bulk(machines: int = 24, classes: int = 4, each: int = 12) -> dict[str, Any]:
    """Machines of three sizes in three zones, classes of which some spread and some keep apart, and two tasks too wide."""
    rng = np.random.default_rng(7)
    fleet = BookedTasks()
    fleet.machines.relation_store.declare(Relation("spread", RelationKind.SPREAD, "zone"))
    fleet.machines.relation_store.declare(Relation("one", RelationKind.APART))
    for i in range(machines):
        cpu = int(rng.choice([4000, 8000, 16000]))
        resources = {"cpu": cpu, "memory": cpu * 2**22, "pods": 110}
        fleet.put_machine(f"node-{i:03d}", resources, {"zone": f"z{i % 3}"}, bandwidth=float(rng.choice([1.0, 1.3])))
        if rng.random() < 0.5:
            needs = {"cpu": int(rng.integers(1, 6)) * 500, "memory": 2**30, "pods": 1}
            fleet.book(f"old-{i}", f"node-{i:03d}", needs, sensitivity=0.2, pressure=float(rng.choice([0.0, 0.5])))
    kinds = []
    for c in range(classes):
        relation = ("spread",) if c % 3 == 1 else ("one",) if c % 3 == 2 and each <= machines else ()
        cpu = (250, 500, 1000, 2000)[c % 4]
        needs = {"cpu": cpu, "memory": cpu * 2**20, "pods": 1}
        names = [f"shop/web-{c}-{k}" for k in range(each)]
        kinds.append(
            Kind(f"class-{c}", each, needs, sensitivity=0.1, pressure=0.3, holds=relation, joins=relation, names=names)
        )
    huge = {"cpu": 64000, "memory": 2**20, "pods": 1}
    kinds.append(Kind("too-wide", 2, huge, names=["shop/huge-0", "shop/huge-1"]))
    outcome = decide(offered(fleet, kinds), solver=make_solver("ortools"), keep_record=True)
    assert outcome.record is not None
    (part,) = outcome.record(0)
    return {**record_head(7, 1000.0, "flow", "ortools", Settings()), "parts": [part], "timings": {"linear_ms": 2.5}}


@cache
def on_kubernetes() -> dict[str, Any]:
    """Two parts, tasks by uid with titles, and what waiting pods were told."""
    search = {**searched()["parts"][0], "priority": 10}
    titles = {task["name"]: f"shop/{task['name']}-pod" for task in search["snapshot"]["pending"]}
    message = "0/24 nodes are available: 24 Insufficient cpu."
    told = {"tasks": ["shop/huge-0", "shop/huge-1"], "fate": "unschedulable", "message": message}
    return {
        **record_head(12, 1700000000.0, "flow", "ortools", Settings()),
        "titles": titles,
        "parts": [search, bulk()["parts"][0]],
        "held": [{**told, "counts": {"Insufficient cpu": 24}}],
        "timings": {"forecast_ms": 12.5, "linear_ms": 2.0, "explain_ms": 0.5},
    }


def flowsched_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: object
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command line, in this process."""
    monkeypatch.setattr(sys, "argv", ["flowsched", *map(str, args)])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        flowsched.cli.main()
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err
