"""Loads or compiles, beforehand, all that rounds at linear prices need."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.cluster.settings import Settings
from flowsched.cluster.task_class import TaskClass
from flowsched.relations.relation import Relation, RelationKind
from flowsched.round.linear.bulk_round import decide
from flowsched.round.linear.bulk_rows import bulk_rows
from flowsched.round.linear.bulk_settings import bulk_settings
from flowsched.round.linear.lone_task import decide_lone
from flowsched.round.linear.places import Places
from flowsched.solvers import make_solver


@cache
def prepare() -> None:
    """Load the compiled code of bulk rounds, or compile it (up to a minute, once), before a round has to wait for it."""
    booked = BookedTasks()
    machines = booked.machines
    relations = Relation("apart", RelationKind.APART), Relation("even", RelationKind.SPREAD)
    for relation in relations:
        machines.relation_store.declare(relation)
    for name in ("a", "b"):
        booked.put_machine(name, {"cpu": 2, "memory": 2}, {})
    machines.set_service("a", 2.0, 1.0)
    anywhere, alike = Places(), Places(slowness=np.zeros(machines.rows))
    one = TaskClass("one", 1, sensitivity=1.0, pressure=1.0)
    gang, mate = TaskClass("gang", 2, group="gang"), TaskClass("mate", 1, group="gang")
    apart, even = (TaskClass(r.name, 1, holds=(r.name,), joins=(r.name,)) for r in relations)
    counted, other = replace(one, counted=((0, 1.0),)), replace(one, name="other")
    where = {one: alike, counted: alike, other: alike}
    many = {one: 2, counted: 2, other: 1, gang: 3, mate: 1, apart: 2, even: 2}
    solver = make_solver("ortools")
    for classes in ([one, other], [one, apart], [one, even], [gang], [gang, mate], [counted, other]):
        tasks = [[f"{c.name}-{i}" for i in range(many[c])] for c in classes]
        places = [where.get(c, anywhere) for c in classes]
        cluster = bulk_rows(machines, classes, places, tasks)
        cluster.declare_group("gang", 3)
        outcome = decide(cluster, solver=solver, keep_record=True)
        assert outcome.record is not None, "the round was asked for its record"
        outcome.record(None)
    decide_lone(machines, one, alike, "one-1", bulk_settings(Settings()), solver=solver)
