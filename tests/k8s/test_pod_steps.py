"""What a pod says costs time that grows with its length: not with its square, and not with its length times all pods.

Time is counted in lines of flowsched that the interpreter runs, so that no machine is too slow for these tests.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import FrameType
from typing import Any, get_args, get_type_hints

import msgspec
import objects_builders as b
import pytest
from model_scheduler import ModelScheduler
from model_server import ModelServer
from wordy_pods import ROWS, Field, Said, wordy

from flowsched_k8s import objects
from flowsched_k8s.rounds import participants

LENGTH, PODS = 60, 60
_OTHERWISE = 2_000
"""Lines by which pods may differ that say as much. One for each pair of entries would be more."""


_ALL_PAIRS = [(("LabelSelector", "match_expressions"), 1)]
"""What excludes labels is compared with all pods of a namespace: their number times the length of a pod, up to a bound."""
_CASES = [(field, i) for field, rows in ROWS.items() for i in range(len(rows))]


def lists_of(kind: Any, seen: set[Any]) -> Iterator[Field]:
    """Lists and mappings of a type of the API, and of the types that it is made of."""
    for inner in get_args(kind):
        yield from lists_of(inner, seen)
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)) or kind in seen:
        return
    seen.add(kind)
    for name, type_ in get_type_hints(kind).items():
        if any(getattr(part, "__origin__", None) in (list, dict) for part in (type_, *get_args(type_))):
            yield kind.__name__, name
        yield from lists_of(type_, seen)


def test_every_list_of_a_pod_has_a_row() -> None:
    assert set(lists_of(objects.Pod, set())) == set(ROWS)


def lines(work: Callable[[], object]) -> int:
    """Lines of flowsched that are run for some work."""
    count = 0

    def in_ours(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return in_ours

    def on_call(frame: FrameType, _event: str, _argument: object) -> Any:
        return in_ours if str(frame.f_globals.get("__name__", "")).startswith("flowsched") else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def steps(said: Said, pods: int) -> int:
    """Lines for a pod that comes, is decided on with one that came before, and for one of another tenant after it."""
    server = ModelServer()
    for i in range(3):
        server.put(b.node(f"n{i}", "64", zone=f"z{i % 2}"))
    for i in range(pods):
        own = {"app": f"w{i % 7}", "tier": "web", "number": str(i)}
        server.put(b.pod(f"other-{i}", "tenant", node=f"n{i % 3}", labels=own, cpu="10m", memory="1Mi"))
    running = ModelScheduler(server)
    pod = wordy(said)

    def work() -> None:
        running.create(pod, b.pod("with-it", "tenant", labels={"app": "w1"}, cpu="1m"))
        running.settle(within=1.0)
        running.create(b.pod("after-it", "shop", labels={"app": "w1"}, cpu="1m"))
        running.settle(within=1.0)

    count = lines(work)
    assert {"with-it", "after-it"} <= running.where().keys()
    return count


@cache
def least(pods: int) -> int:
    """Lines for a pod that says little."""
    return steps({}, pods)


@pytest.fixture(autouse=True)
def rounds_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that say much have no rounds of their own: one round more or less is no matter of length."""
    monkeypatch.setattr(participants, "LONG", 0)


@pytest.mark.parametrize(("field", "row"), _CASES, ids=["-".join((*f, str(i))) for f, i in _CASES])
def test_steps_grow_with_the_length_of_a_pod(field: Field, row: int) -> None:
    said = ROWS[field][row]
    once, twice = (steps(said(n), PODS) for n in (LENGTH, 2 * LENGTH))
    among, both = (steps(said(n), 2 * PODS) for n in (LENGTH, 2 * LENGTH))
    at_most = 4 if (field, row) in _ALL_PAIRS else 3
    assert twice <= 2 * once and among <= 2 * once and both <= at_most * once
    # The same without what every pod costs, which is less for one that is not placed.
    once, among = max(0, once - least(PODS)), max(0, among - least(2 * PODS))
    twice, both = twice - least(PODS), both - least(2 * PODS)
    assert twice <= 2 * once + _OTHERWISE and among <= 2 * once + _OTHERWISE and both <= at_most * once + _OTHERWISE
