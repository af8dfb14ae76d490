"""Loads or compiles, beforehand, all that rounds at linear prices need."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from flowsched.cluster.fleet import Fleet
from flowsched.cluster.settings import Settings
from flowsched.relations.relation import Relation, RelationKind, TaskGroup
from flowsched.scale.bulk_input import bulk_settings
from flowsched.scale.bulk_round import place
from flowsched.scale.demand import Demand
from flowsched.scale.lone_task import decide_lone
from flowsched.scale.places import Places
from flowsched.solvers import make_solver


@cache
def prepare() -> None:
    """Load the compiled code of bulk rounds, or compile it (up to a minute, once), before a round has to wait for it."""
    fleet = Fleet()
    relations = Relation("apart", RelationKind.APART), Relation("even", RelationKind.SPREAD)
    for relation in relations:
        fleet.declare(relation)
    for name in ("a", "b"):
        fleet.put_machine(name, {"cpu": 2, "memory": 2}, {})
    fleet.set_service("a", 2.0, 1.0)
    places = Places(slowness=np.zeros(fleet.rows))
    one = Demand("one", ("one-1", "one-2"), {"cpu": 1}, places, sensitivity=1.0, pressure=1.0)
    gang = Demand("gang", ("gang-1", "gang-2", "gang-3"), {"cpu": 2}, group="gang")
    related = [Demand(r.name, (r.name, f"{r.name}-2"), {"cpu": 1}, holds=(r.name,), joins=(r.name,)) for r in relations]
    counted = replace(one, counted=((0, 1.0),))
    other = replace(one, name="other", tasks=("other",))
    solver = make_solver("ortools")
    for demands in ([one, other], [one, related[0]], [one, related[1]], [gang], [counted, other]):
        outcome = place(fleet, demands, [TaskGroup("gang", 3)], solver=solver, keep_record=True)
        assert outcome.record is not None, "the round was asked for its record"
        outcome.record(None)
    decide_lone(fleet, [replace(one, tasks=("one-1",))], bulk_settings(Settings()), solver=solver)
