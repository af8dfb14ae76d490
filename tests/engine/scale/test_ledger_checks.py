"""Numbers that no integer holds, and events that say two things, are refused in a sentence and change nothing."""

from __future__ import annotations

import numpy as np
import pytest

from flowsched.scale.ledger import Ledger, LedgerError
from flowsched.scale.migration import waiting_cost
from flowsched.scale.policies.flow import FlowNetworkPolicy
from flowsched.scale.task_class import MachineKind, MachineSpec, TaskClass

KIND = MachineKind("one")
NAN, INF = float("nan"), float("inf")


def spec(cpu: int = 4000, reading: float = 0.0, limit: float = INF) -> MachineSpec:
    return MachineSpec("x", KIND, {"cpu": cpu}, {"pressure": reading}, {"pressure": limit})


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (lambda g, t: g.add_machines([spec(cpu=1 << 62)]), "machine x has 4611686018427387904 of cpu; at most"),
        (lambda g, t: g.add_machines([spec(reading=NAN)]), "machine x reads nan for pressure; a number from 0"),
        (lambda g, t: g.add_machines([spec(reading=-1.0)]), "machine x reads -1 for pressure"),
        (lambda g, t: g.add_machines([spec(reading=1e300)]), r"machine x reads 1e\+300 for pressure"),
        (lambda g, t: g.add_machines([spec(limit=NAN)]), "machine x has the limit nan for pressure"),
        (lambda g, t: g.add_machines([spec(limit=-INF)]), "machine x has the limit -inf for pressure"),
        (lambda g, t: g.read("m", "pressure", INF), "machine m reads inf for pressure"),
        (lambda g, t: g.read("m", "heat", 1.0), "policy flow has no feature heat; it has pressure"),
        (lambda g, t: g.resize("m", {"tape": 1 << 62}), "machine m has 4611686018427387904 of tape"),
        (lambda g, t: g.intern(TaskClass("q", -5)), "class q asks for -5 of cpu"),
        (lambda g, t: g.intern(TaskClass("q", 5, (("tape", -1),))), "class q asks for -1 of tape"),
        (lambda g, t: g.intern(TaskClass("q", 5, (("cpu", 1),))), "class q names a resource twice in cpu"),
        (lambda g, t: g.intern(TaskClass("q", 5, (("tape", 1), ("tape", 2)))), "names a resource twice in tape, tape"),
        (lambda g, t: g.intern(TaskClass("q", 5, (("tape", 1),), pressure=1e12)), "adds 1e\\+12 to a feature"),
        (lambda g, t: g.intern(TaskClass("q", 5, run_s=-1.0)), "class q runs for -1 s"),
        (lambda g, t: g.submit(np.array([9]), np.zeros(1)), "a class beyond the 1 that are known"),
        (lambda g, t: g.submit(np.array([0]), np.array([NAN])), "created at no moment"),
        (lambda g, t: g.bind(t[[0, 0]], np.array([0, 0])), "task a stands twice"),
        (lambda g, t: g.unbind(t[[2, 2]]), "task c stands twice"),
        (lambda g, t: g.leave(t[[1, 1]]), "task b stands twice"),
        (lambda g, t: g.move(t[[2]], np.array([7])), "machine row 7 is empty"),
        (lambda g, t: g.remove_machines(["m", "m"]), "a machine leaves twice"),
    ],
)
def test_nothing_has_changed(event: object, says: str) -> None:
    ledger = Ledger(FlowNetworkPolicy())
    rows = ledger.add_machines([MachineSpec("m", KIND, {"cpu": 4000})])
    number = ledger.intern(TaskClass("t", 1000, pressure=0.5))
    tasks = ledger.submit(np.full(3, number), np.zeros(3), ["a", "b", "c"])
    ledger.bind(tasks[2:], rows)

    def state() -> tuple[object, ...]:
        arrays = ledger.alive, ledger.free, ledger.readings, ledger.limits, ledger.state, ledger.machine
        plain = ledger.rows, ledger.task_count, len(ledger.classes), tuple(ledger.resources), len(ledger.view().pending)
        return (*(a.tobytes() for a in arrays), *plain)

    before = state()
    with pytest.raises(LedgerError, match=says):
        event(ledger, tasks)  # type: ignore[operator]
    assert state() == before


def test_where_the_due_age_is_nothing_everybody_who_has_waited_is_of_that_age() -> None:
    ledger = Ledger(FlowNetworkPolicy(waiting=1.0, growth=2.0))
    number = ledger.intern(TaskClass("t", 1000))
    tasks = ledger.submit(np.full(2, number), np.array([0.0, 5.0]))
    assert waiting_cost(ledger, tasks, 5.0, 0.0).tolist() == [3.0, 1.0]
