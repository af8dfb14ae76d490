"""Masks, wishes, ceilings and ties: what goes by single machines, and which of equal ones a task takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flowsched.errors import LedgerError
from flowsched.relations.relation import Relation, RelationKind
from flowsched.scale.ledger import Ledger
from flowsched.scale.places import Places
from flowsched.scale.policies.flow import FlowCostModel
from flowsched.scale.round import RoundOutcome, Rounds, RoundSettings
from flowsched.scale.task_class import MachineKind, MachineSpec, TaskClass
from flowsched.solvers import make_solver

ONE = TaskClass("one", 1000)


def ledger_of(count: int, cores: int = 4, **labels: str) -> Ledger:
    ledger = Ledger(FlowCostModel())
    ledger.add_machines(
        [
            MachineSpec(f"m{i}", MachineKind("plain"), {"cpu": 1000 * cores, "memory": 64}, labels=labels)
            for i in range(count)
        ]
    )
    return ledger


def submit(ledger: Ledger, task_class: TaskClass, count: int) -> None:
    ledger.submit(np.full(count, ledger.intern(task_class)), np.zeros(count))


def decide(ledger: Ledger, **settings: object) -> RoundOutcome:
    return Rounds(ledger, make_solver("ortools"), RoundSettings(**settings)).decide(0.0)  # type: ignore[arg-type]


def by_row(values: dict[int, object], ledger: Ledger, usual: object, dtype: type) -> np.ndarray:
    return np.array([values.get(row, usual) for row in range(ledger.rows)], dtype=dtype)


def test_a_mask_is_exact() -> None:
    ledger = ledger_of(3)
    only = ledger.places.intern(Places(allowed=by_row({1: True}, ledger, False, np.bool_)))
    submit(ledger, replace(ONE, places=only), 5)
    outcome = decide(ledger)
    assert outcome.machines.tolist() == [1] * 4
    assert len(outcome.waits) == 1


def test_wishes_are_paid_and_met_first() -> None:
    ledger = ledger_of(3)
    wish = ledger.places.intern(Places(preference=by_row({0: 0.5, 2: 0.25}, ledger, 0.0, np.float64)))
    submit(ledger, replace(ONE, places=wish), 6)
    outcome = decide(ledger)
    assert sorted(outcome.machines.tolist()) == [1, 1, 1, 1, 2, 2]
    assert outcome.cost.sum() == pytest.approx(0.5)
    assert outcome.certificate is not None
    assert outcome.certificate.gap_absolute == pytest.approx(0.0, abs=1e-9)


def test_equal_places_have_one_number() -> None:
    ledger = ledger_of(2)
    mask = by_row({1: True}, ledger, False, np.bool_)
    assert ledger.places.intern(Places()) == 0
    assert ledger.places.intern(Places(allowed=mask)) == ledger.places.intern(Places(allowed=mask.copy())) == 1


def test_no_place_costs_more_than_the_ceiling() -> None:
    ledger = ledger_of(2)
    wish = ledger.places.intern(Places(preference=by_row({0: 0.5, 1: 0.25}, ledger, 0.0, np.float64)))
    submit(ledger, replace(ONE, places=wish, max_cost=0.25), 6)
    outcome = decide(ledger)
    assert outcome.machines.tolist() == [1] * 4
    assert len(outcome.waits) == 2


def test_what_others_bring_counts_towards_the_ceiling() -> None:
    ledger = ledger_of(1)
    submit(ledger, replace(ONE, name="shy", sensitivity=1.0, pressure=0.5, max_cost=0.25), 1)
    submit(ledger, replace(ONE, name="loud", sensitivity=1.0, pressure=0.5, width_milli=2000), 1)
    outcome = decide(ledger)
    placed = {ledger.classes[c].name for c in ledger.task_class[outcome.tasks].tolist()}
    assert placed == {"loud"}


@pytest.mark.parametrize(("scoring", "loads"), [("spread", [2, 2, 2]), ("pack", [0, 2, 4])])
def test_ties_spread_or_pack(scoring: str, loads: list[int]) -> None:
    ledger = ledger_of(3)
    submit(ledger, ONE, 6)
    counts = np.bincount(decide(ledger, scoring=scoring).machines, minlength=3)[:3]
    assert sorted(counts.tolist()) == loads


def test_tasks_without_cpu_spread_too() -> None:
    ledger = ledger_of(10)
    submit(ledger, TaskClass("bare", 0), 30)
    assert np.bincount(decide(ledger).machines)[:10].tolist() == [3] * 10


def test_an_unknown_scoring_is_refused() -> None:
    with pytest.raises(ValueError, match="scoring must be spread or pack, got 'worst'"):
        RoundSettings(scoring="worst")


def test_relations_are_counted_from_events() -> None:
    ledger = ledger_of(3)
    one_each = Relation("one", RelationKind.LIMIT)
    ledger.declare_relation(one_each)
    related = replace(ONE, holds=("one",), joins=("one",))
    submit(ledger, related, 3)
    first = decide(ledger)
    assert sorted(first.machines.tolist()) == [0, 1, 2]
    ledger.bind(first.tasks, first.machines)
    submit(ledger, related, 1)
    assert not len(decide(ledger).tasks)
    ledger.leave(first.tasks[first.machines == 1])
    assert decide(ledger).machines.tolist() == [1]


def test_a_relation_that_is_declared_late_counts_what_runs() -> None:
    ledger = ledger_of(1)
    related = replace(ONE, holds=("one",), joins=("one",))
    submit(ledger, related, 1)
    outcome = decide(ledger)
    ledger.bind(outcome.tasks, outcome.machines)
    ledger.declare_relation(Relation("one", RelationKind.LIMIT))
    submit(ledger, related, 1)
    assert not len(decide(ledger).tasks)
    with pytest.raises(LedgerError, match="relation one is there already, and another one"):
        ledger.declare_relation(Relation("one", RelationKind.LIMIT, most=2))


def test_domains_go_by_labels_and_machines_without_one_take_no_spread() -> None:
    ledger = Ledger(FlowCostModel())
    zones = ({"zone": "x"}, {"zone": "x"}, {"zone": "y"}, {})
    ledger.add_machines(
        [MachineSpec(f"m{i}", MachineKind("plain"), {"cpu": 4000}, labels=z) for i, z in enumerate(zones)]
    )
    ledger.declare_relation(Relation("even", RelationKind.SPREAD, "zone"))
    submit(ledger, replace(ONE, holds=("even",), joins=("even",)), 4)
    machines = decide(ledger).machines.tolist()
    assert sorted("xxy-"[m] for m in machines) == ["x", "x", "y", "y"]
