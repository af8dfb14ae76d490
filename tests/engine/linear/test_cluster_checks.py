"""Numbers that no integer holds, and events that say two things, are refused in a sentence and change nothing."""

from __future__ import annotations

import numpy as np
import pytest

from flowsched.cluster.task_class import MachineKind, MachineSpec, TaskClass
from flowsched.errors import EventError
from flowsched.pricing.linear.policies.flow import FlowCostModel
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.linear_round import Rounds
from flowsched.round.linear.moves import waiting_cost
from flowsched.solvers import make_solver

KIND = MachineKind("one")
NAN, INF = float("nan"), float("inf")


def spec(cpu: int = 4000, reading: float = 0.0, limit: float = INF) -> MachineSpec:
    return MachineSpec("x", KIND, {"cpu": cpu}, {"pressure": reading}, {"pressure": limit})


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (lambda g, t: g.add_machines([spec(cpu=1 << 62)]), "machine x has 4611686018427387904 of cpu; at most"),
        (
            lambda g, t: g.add_machines([spec(reading=NAN)]),
            "machine x: reading of pressure must be from 0 to .*, got nan",
        ),
        (lambda g, t: g.add_machines([spec(reading=-1.0)]), "machine x: reading of pressure must be .*, got -1"),
        (lambda g, t: g.add_machines([spec(reading=1e300)]), r"machine x: reading of pressure must be .*, got 1e\+300"),
        (lambda g, t: g.add_machines([spec(limit=NAN)]), "machine x: limit of pressure must be .*, got nan"),
        (lambda g, t: g.add_machines([spec(limit=-INF)]), "machine x: limit of pressure must be .*, got -inf"),
        (lambda g, t: g.read("m", "pressure", INF), "machine m: reading of pressure must be .*, got inf"),
        (lambda g, t: g.read("m", "heat", 1.0), "policy flow-network has no feature heat; it has pressure"),
        (lambda g, t: g.resize("m", {"tape": 1 << 62}), "machine m has 4611686018427387904 of tape"),
        (lambda g, t: g.intern(TaskClass("q", -5)), "class q: cpu must be from 0 to .*, got -5"),
        (lambda g, t: g.intern(TaskClass("q", 5, (("tape", -1),))), "class q: tape must be from 0 to .*, got -1"),
        (lambda g, t: g.intern(TaskClass("q", 5, (("cpu", 1),))), "class q names a resource twice in cpu"),
        (lambda g, t: g.intern(TaskClass("q", 5, (("tape", 1), ("tape", 2)))), "names a resource twice in tape, tape"),
        (lambda g, t: g.intern(TaskClass("q", 5, (("tape", 1),), pressure=1e12)), "adds 1e\\+12 to a feature"),
        (lambda g, t: g.intern(TaskClass("q", 5, run_s=-1.0)), "class q: run_s must be >= 0 .*, got -1"),
        (lambda g, t: g.submit(np.array([9]), np.zeros(1)), "a class beyond the 1 that are known"),
        (lambda g, t: g.submit(np.array([0]), np.array([NAN])), "created_s must be finite numbers of seconds, got nan"),
        (lambda g, t: g.bind(t[[0, 0]], np.array([0, 0])), "task a stands twice"),
        (lambda g, t: g.unbind(t[[2, 2]]), "task c stands twice"),
        (lambda g, t: g.leave(t[[1, 1]]), "task b stands twice"),
        (lambda g, t: g.move(t[[2]], np.array([7])), "machine row 7 is empty"),
        (lambda g, t: g.remove_machines(["m", "m"]), "a machine leaves twice"),
    ],
)
def test_nothing_has_changed(event: object, says: str) -> None:
    cluster = ClusterRows.of(FlowCostModel())
    rows = cluster.add_machines([MachineSpec("m", KIND, {"cpu": 4000})])
    number = cluster.intern(TaskClass("t", 1000, pressure=0.5))
    tasks = cluster.submit(np.full(3, number), np.zeros(3), ["a", "b", "c"])
    cluster.bind(tasks[2:], rows)

    def state() -> tuple[object, ...]:
        arrays = (
            cluster.machines.alive,
            cluster.machines.free,
            cluster.machines.readings,
            cluster.machines.limits,
            cluster.tasks.state,
            cluster.tasks.machine,
        )
        plain = (
            cluster.machines.rows,
            cluster.tasks.count,
            len(cluster.classes),
            tuple(cluster.classes.resources),
            len(cluster.tasks.waiting()),
        )
        return (*(a.tobytes() for a in arrays), *plain)

    before = state()
    with pytest.raises(EventError, match=says):
        event(cluster, tasks)  # type: ignore[operator]
    assert state() == before


def test_where_the_due_age_is_zero_all_that_have_waited_are_of_that_age() -> None:
    cluster = ClusterRows.of(FlowCostModel(waiting=1.0, growth=2.0))
    number = cluster.intern(TaskClass("t", 1000))
    tasks = cluster.submit(np.full(2, number), np.array([0.0, 5.0]))
    assert waiting_cost(cluster, tasks, 5.0, 0.0).tolist() == [3.0, 1.0]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"width_milli": 1000.5}, r"cpu must be a whole number \(.*\), got 1000.5"),
        ({"width_milli": "1000"}, r"cpu must be a whole number \(.*\), got '1000'"),
        ({"priority": 1.5}, r"priority must be a whole number \(.*\), got 1\.5"),
        ({"needs": {"memory": 1}}, r"needs must be a tuple of tuples, as in \(\(\"memory\", 512\),\), got a dict"),
        ({"selector": [("zone", "a")]}, "selector must be a tuple of tuples, .*, got a list"),
        ({"sensitivity": -1.0}, "sensitivity must be a finite number >= 0, got -1"),
        ({"pressure": float("nan")}, "pressure must be a finite number >= 0, got nan"),
    ],
)
def test_a_class_of_the_wrong_form_is_told(fields: dict[str, object], says: str) -> None:
    values = {"name": "x", "width_milli": 1000, **fields}
    with pytest.raises(EventError, match=says):
        ClusterRows.of(FlowCostModel()).intern(TaskClass(**values))  # type: ignore[arg-type]


def test_tasks_and_machines_of_the_wrong_form_are_told() -> None:
    cluster = ClusterRows.of(FlowCostModel())
    number = cluster.intern(TaskClass("x", 1000))
    assert len(cluster.submit([number], [0.0])) == 1  # type: ignore[arg-type]
    with pytest.raises(EventError, match=r"2 classes .* came with 1 times"):
        cluster.submit(np.array([number, number]), np.zeros(1))
    with pytest.raises(EventError, match="created_s must be finite numbers of seconds, got "):
        cluster.submit(np.array([number]), np.array([np.inf]))
    for cpu, says in (
        (4.5, r"machine m: cpu must be a whole number \(.*\), got 4\.5"),
        (10**9, "at most 10000000 thousandths of a core"),
    ):
        with pytest.raises(EventError, match=says):
            cluster.add_machines([MachineSpec("m", MachineKind("small"), {"cpu": cpu})])  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="now_s must be a finite number of seconds, got nan"):
        Rounds(cluster, make_solver("ortools")).decide(float("nan"))


def test_labels_are_the_same_in_any_order() -> None:
    assert MachineKind("a", (("z", "1"), ("a", "2"))) == MachineKind("a", (("a", "2"), ("z", "1")))
