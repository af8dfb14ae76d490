"""Masks, wishes, ceilings and ties: what goes by single machines, and which of equal ones a task takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flowsched.cluster.task_class import MachineKind, MachineSpec, TaskClass
from flowsched.errors import EventError
from flowsched.pricing.linear.policies.flow import FlowCostModel
from flowsched.relations.relation import Relation, RelationKind
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.linear_round import RoundOutcome, Rounds, RoundSettings
from flowsched.round.linear.places import Places
from flowsched.solvers import make_solver

ONE = TaskClass("one", 1000)


def cluster_of(count: int, cores: int = 4, **labels: str) -> ClusterRows:
    cluster = ClusterRows.of(FlowCostModel())
    cluster.add_machines(
        [
            MachineSpec(f"m{i}", MachineKind("plain"), {"cpu": 1000 * cores, "memory": 64}, labels=labels)
            for i in range(count)
        ]
    )
    return cluster


def submit(cluster: ClusterRows, task_class: TaskClass, count: int) -> None:
    cluster.submit(np.full(count, cluster.intern(task_class)), np.zeros(count))


def decide(cluster: ClusterRows, **settings: object) -> RoundOutcome:
    return Rounds(cluster, make_solver("ortools"), RoundSettings(**settings)).decide(0.0)  # type: ignore[arg-type]


def by_row(values: dict[int, object], cluster: ClusterRows, usual: object, dtype: type) -> np.ndarray:
    return np.array([values.get(row, usual) for row in range(cluster.machines.rows)], dtype=dtype)


def test_a_mask_is_exact() -> None:
    cluster = cluster_of(3)
    only = cluster.classes.places.intern(Places(allowed=by_row({1: True}, cluster, False, np.bool_)))
    submit(cluster, replace(ONE, places=only), 5)
    outcome = decide(cluster)
    assert outcome.machines.tolist() == [1] * 4
    assert len(outcome.waits) == 1


def test_wishes_are_paid_and_met_first() -> None:
    cluster = cluster_of(3)
    wish = cluster.classes.places.intern(Places(preference=by_row({0: 0.5, 2: 0.25}, cluster, 0.0, np.float64)))
    submit(cluster, replace(ONE, places=wish), 6)
    outcome = decide(cluster)
    assert sorted(outcome.machines.tolist()) == [1, 1, 1, 1, 2, 2]
    assert outcome.cost.sum() == pytest.approx(0.5)
    assert outcome.certificate is not None
    assert outcome.certificate.gap_absolute == pytest.approx(0.0, abs=1e-9)


def test_equal_places_have_one_number() -> None:
    cluster = cluster_of(2)
    mask = by_row({1: True}, cluster, False, np.bool_)
    assert cluster.classes.places.intern(Places()) == 0
    assert (
        cluster.classes.places.intern(Places(allowed=mask))
        == cluster.classes.places.intern(Places(allowed=mask.copy()))
        == 1
    )


def test_no_place_costs_more_than_the_ceiling() -> None:
    cluster = cluster_of(2)
    wish = cluster.classes.places.intern(Places(preference=by_row({0: 0.5, 1: 0.25}, cluster, 0.0, np.float64)))
    submit(cluster, replace(ONE, places=wish, max_cost=0.25), 6)
    outcome = decide(cluster)
    assert outcome.machines.tolist() == [1] * 4
    assert len(outcome.waits) == 2


def test_what_others_bring_counts_towards_the_ceiling() -> None:
    cluster = cluster_of(1)
    submit(cluster, replace(ONE, name="shy", sensitivity=1.0, pressure=0.5, max_cost=0.25), 1)
    submit(cluster, replace(ONE, name="loud", sensitivity=1.0, pressure=0.5, width_milli=2000), 1)
    outcome = decide(cluster)
    placed = {cluster.classes[c].name for c in cluster.tasks.task_class[outcome.tasks].tolist()}
    assert placed == {"loud"}


@pytest.mark.parametrize(("scoring", "loads"), [("spread", [2, 2, 2]), ("pack", [0, 2, 4])])
def test_ties_spread_or_pack(scoring: str, loads: list[int]) -> None:
    cluster = cluster_of(3)
    submit(cluster, ONE, 6)
    counts = np.bincount(decide(cluster, scoring=scoring).machines, minlength=3)[:3]
    assert sorted(counts.tolist()) == loads


def test_tasks_without_cpu_spread_too() -> None:
    cluster = cluster_of(10)
    submit(cluster, TaskClass("bare", 0), 30)
    assert np.bincount(decide(cluster).machines)[:10].tolist() == [3] * 10


def test_an_unknown_scoring_is_refused() -> None:
    with pytest.raises(ValueError, match="scoring must be auto, spread or pack, got 'worst'"):
        RoundSettings(scoring="worst")


def test_relations_are_counted_from_events() -> None:
    cluster = cluster_of(3)
    one_each = Relation("one", RelationKind.LIMIT)
    cluster.declare_relation(one_each)
    related = replace(ONE, holds=("one",), joins=("one",))
    submit(cluster, related, 3)
    first = decide(cluster)
    assert sorted(first.machines.tolist()) == [0, 1, 2]
    cluster.bind(first.tasks, first.machines)
    submit(cluster, related, 1)
    assert not len(decide(cluster).tasks)
    cluster.leave(first.tasks[first.machines == 1])
    assert decide(cluster).machines.tolist() == [1]


def test_a_relation_that_is_declared_late_counts_what_runs() -> None:
    cluster = cluster_of(1)
    related = replace(ONE, holds=("one",), joins=("one",))
    submit(cluster, related, 1)
    outcome = decide(cluster)
    cluster.bind(outcome.tasks, outcome.machines)
    cluster.declare_relation(Relation("one", RelationKind.LIMIT))
    submit(cluster, related, 1)
    assert not len(decide(cluster).tasks)
    with pytest.raises(EventError, match="relation one is there already, and another one"):
        cluster.declare_relation(Relation("one", RelationKind.LIMIT, most=2))


def test_domains_go_by_labels_and_machines_without_one_take_no_spread() -> None:
    cluster = ClusterRows.of(FlowCostModel())
    zones = ({"zone": "x"}, {"zone": "x"}, {"zone": "y"}, {})
    cluster.add_machines(
        [MachineSpec(f"m{i}", MachineKind("plain"), {"cpu": 4000}, labels=z) for i, z in enumerate(zones)]
    )
    cluster.declare_relation(Relation("even", RelationKind.SPREAD, "zone"))
    submit(cluster, replace(ONE, holds=("even",), joins=("even",)), 4)
    machines = decide(cluster).machines.tolist()
    assert sorted("xxy-"[m] for m in machines) == ["x", "x", "y", "y"]
