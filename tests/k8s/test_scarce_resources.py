"""Resources that the engine need not count, because CPU or memory runs out before them on every node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from objects_builders import node, pod
from test_snapshot_decisions import job
from test_state import scheduler

from flowsched_k8s.rounds.measured_pods import scarce_resources
from flowsched_k8s.rounds.round_input import ClassInput

RESOURCES = ("cpu", "memory", "pods", "disk")
COLUMNS = {name: i for i, name in enumerate(RESOURCES)}


@dataclass
class Kind:
    """What :func:`scarce_resources` asks of a class."""

    needs: dict[str, int]
    uids: tuple[str, ...]


def kinds(draw: st.DrawFn) -> list[Kind]:
    found = []
    for k in range(draw(st.integers(1, 3))):
        needs = {"cpu": draw(st.integers(0, 6)), "memory": draw(st.integers(0, 6)), "pods": 1}
        needs["disk"] = draw(st.integers(0, 3))
        found.append(Kind(needs, tuple(f"{k}-{i}" for i in range(draw(st.integers(1, 9))))))
    return found


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_pods_that_cpu_and_memory_have_room_for_take_more_than_there_is(data: st.DataObject) -> None:
    classes = data.draw(st.composite(kinds)())
    row = st.tuples(st.integers(0, 24), st.integers(0, 24), st.integers(0, 24), st.integers(0, 12))
    largest = np.array(data.draw(st.lists(row, min_size=1, max_size=3)), np.int64)
    free = np.minimum(largest, np.array(data.draw(st.lists(row, min_size=len(largest), max_size=len(largest)))))
    asked: list[ClassInput] = classes  # type: ignore[assignment]

    scarce = scarce_resources(asked, free, largest, COLUMNS)

    waiting = data.draw(st.permutations([c for c in classes for _ in c.uids]))
    for which in range(len(largest)):
        # What is there may end before they come, so that they have all CPU and memory of the node.
        left = dict(zip(RESOURCES, largest[which].tolist(), strict=True))
        used = dict.fromkeys(RESOURCES, 0)
        for c in waiting:
            if c.needs["cpu"] <= left["cpu"] and c.needs["memory"] <= left["memory"]:
                for name, amount in c.needs.items():
                    used[name] += amount
                    left[name] -= amount
        for name in {"pods", "disk"} - {*scarce}:
            assert used[name] <= free[which, COLUMNS[name]]


def test_a_quotient_that_is_rounded_down_hides_no_shortage() -> None:
    """35 / (7 / 3) is 14.999..., and five pods take 15."""
    asked: list[ClassInput] = [Kind({"cpu": 7, "disk": 3}, ("a", "b", "c", "d", "e"))]  # type: ignore[list-item]
    largest = np.array([[35, 0, 0, 15]], np.int64)
    assert scarce_resources(asked, largest - [[0, 0, 0, 1]], largest, COLUMNS) == ["disk"]
    assert scarce_resources(asked, largest, largest, COLUMNS) == []


@pytest.mark.parametrize(("places", "more"), [("1", 0), ("2", 1), ("110", 3)])
def test_places_for_pods_are_counted_where_they_run_out_before_cpu(places: str, more: int) -> None:
    running = scheduler(node("few", "16", pods=places))
    running.create(pod("there", cpu="100m", node="few", scheduler="other"))
    running.create(*(job(f"j{i}", i, cpu="4") for i in range(6)))
    running.round()
    running.answer_all()
    running.deliver()
    assert len(running.where()) - 1 == more
