"""Tasks without a low weight share no core with a service: they are moved, get a core that it does not need, or stop."""

from __future__ import annotations

import pytest
from agent_fakes import ALLOWED, SERVICE, bench

from flowsched.node import LOWEST_WEIGHT, Allocation, Reading, ServiceGrant, ServiceReading, TaskGrant
from flowsched_agent.apart import ALONE, MADE_ROOM, Apart, Present

BELIEFS = bench().beliefs
MC = BELIEFS.service(SERVICE)
"""Keeps its goal up to 25 000 queries per second on one core, 40 000 on two."""


def apart_at(qps: float | None) -> Apart:
    made = Apart(BELIEFS.node)
    for tick in range(40):
        count = None if qps is None else round(qps * 0.1 * tick)
        made.read(Reading(0.1 * tick, (ServiceReading(MC, count),), (), ()))
    return made


def kept(
    apart: Apart, service: tuple[int, ...], *, least: int = 1, present: bool = True, **tasks: TaskGrant
) -> tuple[Allocation, frozenset[str]]:
    wanted = Allocation({"mc": ServiceGrant(service)}, tasks)
    there = [Present(MC, least)] if present else []
    return apart.keep(wanted, there, [n for n in tasks if n != "weighed"], ALLOWED)


def low(*cores: int) -> TaskGrant:
    return TaskGrant(True, cores, LOWEST_WEIGHT)


def test_who_shares_is_moved_to_its_other_cores_and_nobody_else_is_touched() -> None:
    tasks = {
        "shares": low(1, 2),
        "anywhere": low(),
        "beside": low(2),
        "meant": TaskGrant(True, (0,), 1.0),
        "weighed": low(0),
        "paused": TaskGrant(False, (0,), LOWEST_WEIGHT),
    }
    allocation, changed = kept(apart_at(1000), (0, 1), **tasks)
    assert changed == {"shares", "anywhere"}
    assert {n: (allocation.tasks[n].run, allocation.tasks[n].cores) for n in changed} == {
        "shares": (True, (2,)),
        "anywhere": (True, (2, 3)),
    }
    assert all(allocation.tasks[n].reason == ALONE for n in changed)
    assert {n: t for n, t in allocation.tasks.items() if n not in changed} == {
        n: t for n, t in tasks.items() if n not in changed
    }
    assert allocation.services == {"mc": ServiceGrant((0, 1))}


@pytest.mark.parametrize(
    ("qps", "least", "service", "batch"),
    [
        (1_000.0, 1, (0,), (1, 2, 3)),
        (24_500.0, 1, (0, 1), (2, 3)),  # one core would do, with no room left
        (30_000.0, 1, (0, 1), (2, 3)),
        (60_000.0, 1, (0, 1, 2, 3), ()),
        (1_000.0, 3, (0, 1, 2), (3,)),
        (None, 1, (0, 1, 2, 3), ()),
    ],
)
def test_a_service_with_all_cores_makes_room_where_fewer_are_enough_for_its_load(
    qps: float | None, least: int, service: tuple[int, ...], batch: tuple[int, ...]
) -> None:
    allocation, changed = kept(apart_at(qps), ALLOWED, least=least, batch=low(0, 1, 2, 3))
    assert changed == {"batch"}
    assert allocation.services["mc"].cores == service
    assert (allocation.services["mc"].reason == MADE_ROOM) == (service != ALLOWED)
    assert (allocation.tasks["batch"].run, allocation.tasks["batch"].cores) == (bool(batch), batch)


def test_a_task_takes_the_core_that_was_made_free_whichever_was_meant() -> None:
    allocation, _ = kept(apart_at(1000), (0, 1), batch=low(0))
    assert (allocation.services["mc"].cores, allocation.tasks["batch"].cores) == ((0,), (1,))


def test_nobody_makes_room_for_a_task_that_is_paused_or_not_unweighed() -> None:
    for tasks in ({"weighed": low(0)}, {"paused": TaskGrant(False, (), LOWEST_WEIGHT)}, {}):
        allocation, changed = kept(apart_at(1000), (0, 1), **tasks)
        assert (allocation, changed) == (Allocation({"mc": ServiceGrant((0, 1))}, tasks), frozenset())


def test_from_a_service_that_is_not_there_nobody_keeps_off() -> None:
    allocation, changed = kept(apart_at(1000), (0, 1), present=False, batch=low(0))
    assert (allocation.tasks["batch"], changed) == (low(0), frozenset())
