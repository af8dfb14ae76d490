"""The garbage collector of a process that decides rounds."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from flowsched.support.collector import CollectBetweenRounds


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()


class Node:
    def __init__(self) -> None:
        self.me = self


def test_cycles_are_collected_when_it_is_time_to_and_what_is_left_is_left_alone() -> None:
    collector = CollectBetweenRounds(every_s=180.0)
    assert collector.collect(1000.0)
    kept, gone = Node(), weakref.ref(Node())
    assert not collector.collect(1179.0)
    assert collector.collect(1180.0)
    assert gone() is None
    assert gc.get_freeze_count() > 0
    assert not any(thing is kept for thing in gc.get_objects())
    assert not collector.collect(1181.0)


def test_no_round_is_interrupted_by_a_look_at_all_objects() -> None:
    CollectBetweenRounds(every_s=180.0).collect(0.0)
    looks: list[int] = []

    def told(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            looks.append(info["generation"])

    gc.callbacks.append(told)
    try:
        things = [[Node() for _ in range(2000)] for _ in range(200)]
    finally:
        gc.callbacks.remove(told)
    assert len(things) == 200
    assert looks and 2 not in looks
