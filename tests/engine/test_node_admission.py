"""Which tasks of a node get the CPU bandwidth that they ask for."""

from __future__ import annotations

import itertools
import random

import pytest

from flowsched.node.admission import admit_deadlines
from flowsched.node.deadline import Deadline
from flowsched.node.node import NodeTask
from flowsched_models.isolation.admission import Bandwidth, Room, admit


def task(name: str, cpus: float | None, priority: int = 0) -> NodeTask:
    deadline = None if cpus is None else Deadline(cpus * 10_000, 10_000)
    return NodeTask(name, "job", 1, deadline=deadline, priority=priority)


def test_those_of_higher_priority_are_taken_first() -> None:
    tasks = [task("low", 0.6), task("high", 0.7, 5), task("none", None, 9), task("small", 0.2)]
    found = admit_deadlines(tasks, Room(1))
    assert found.admitted == ("high", "small")
    assert list(found.refused) == ["low"]
    assert found.refused["low"] == (
        "it asks for 0.600 CPUs; 0.950 are given away: 1 core x 0.95, and 0.700 of them are taken by high"
    )


def test_what_no_kernel_takes_is_refused_with_its_reason() -> None:
    odd = NodeTask("odd", "job", 1, deadline=Deadline(20, 50), priority=9)
    found = admit_deadlines([odd, task("other", 0.5)], Room(2))
    assert found.admitted == ("other",)
    assert "period" in found.refused["odd"]


def test_no_task_asks() -> None:
    found = admit_deadlines([task("a", None)], Room(2))
    assert (found.admitted, dict(found.refused)) == ((), {})


@pytest.mark.parametrize("seed", range(40))
def test_no_admissible_set_is_better_in_order_of_priority(seed: int) -> None:
    """Against all subsets: the best is the one that has the first, then the second, and so on."""
    rng = random.Random(seed)
    tasks = [task(f"t{k}", rng.choice([0.1, 0.3, 0.45, 0.6, 0.95]), rng.randrange(3)) for k in range(7)]
    room = Room(2, 0.95, rng.choice([0.0, 0.05]))
    order = sorted(tasks, key=lambda t: -t.priority)

    def fits(chosen: tuple[bool, ...]) -> bool:
        asked = [t.deadline for t, taken in zip(order, chosen, strict=True) if taken and t.deadline]
        return admit([Bandwidth(d.runtime_us, d.period_us) for d in asked], room).admitted

    best = max(chosen for chosen in itertools.product((False, True), repeat=len(order)) if fits(chosen))
    expected = tuple(t.name for t, taken in zip(order, best, strict=True) if taken)
    assert admit_deadlines(tasks, room).admitted == expected
    assert set(admit_deadlines(tasks, room).refused) == {t.name for t in tasks} - set(expected)
