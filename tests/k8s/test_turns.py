"""Requests that are not answered keep no others waiting, and are bounded by namespace and in all."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched_k8s.bindings.sender import Sender
from flowsched_k8s.bindings.turns import PATIENCE_S, STUCK_S, Turn, Turns

SLOTS = 32


def sent(turns: Turns[int], now: float) -> list[Turn[int]]:
    """What may be sent now."""
    found = []
    while (turn := turns.next(now)) is not None:
        found.append(turn)
    return found


def test_what_is_answered_has_all_slots_and_no_limit_of_its_namespace() -> None:
    turns: Turns[int] = Turns(SLOTS)
    for number in range(100):
        turns.add("a", number)
    under_way = sent(turns, 0.0)
    assert [turn.item for turn in under_way] == list(range(SLOTS))
    for turn in under_way:
        turns.end(turn, 0.1)
    assert len(sent(turns, 0.1)) == SLOTS
    assert not turns.closed("a", 0.1)


@pytest.mark.parametrize("hangs", [True, False])
@pytest.mark.parametrize(("namespaces", "each"), [(1, 1000), (50, 20), (60, 1)])
def test_others_have_their_turn_within_two_seconds(namespaces: int, each: int, hangs: bool) -> None:
    """Requests of many namespaces hang, or end without an outcome at once; then one of another namespace comes."""
    turns: Turns[int] = Turns(SLOTS)
    for number in range(namespaces * each):
        turns.add(f"bad-{number % namespaces}", number)
    now, step, most = 0.0, PATIENCE_S / 2, 0
    good_s = None
    while now <= 10.0:
        if now == 1.0:
            turns.add("good", -1)
        turns.look(now)
        while (turn := turns.next(now)) is not None:
            if turn.namespace == "good":
                good_s = now - 1.0
                turns.end(turn, now)
            elif not hangs:
                turns.set_apart(turn, now, "500")
        most = max(most, len(turns.apart()))
        now += step
    assert good_s is not None
    assert good_s <= 2.0
    # Half of the slots, one of each other namespace, and what was under way when that was found out.
    assert most <= SLOTS // 2 + namespaces + SLOTS
    assert turns.stuck(now) == {f"bad-{n}" for n in range(namespaces)}
    assert turns.sendable(now) == 0


def test_a_slow_server_is_sent_as_much_as_before() -> None:
    """Each answer takes longer than the patience: nothing is stuck, and as many as there are slots are under way."""
    turns: Turns[int] = Turns(SLOTS)
    for number in range(10 * SLOTS):
        turns.add("a", number)
    done, now = 0, 0.0
    while done < 10 * SLOTS:
        under_way = sent(turns, now)
        assert len(under_way) == SLOTS
        assert turns.look(now + 0.8)
        assert turns.closed("a", now + 0.8)
        assert not turns.stuck(now + 0.8)
        now += 1.5
        for turn in under_way:
            turns.end(turn, now)
        done += len(under_way)
    assert not turns.apart()


def test_a_namespace_is_tried_again_once_it_is_answered() -> None:
    turns: Turns[int] = Turns(SLOTS)
    for number in range(20):
        turns.add("a", number)
    lost = sent(turns, 0.0)
    for turn in lost:
        turns.set_apart(turn, 0.1, "500")
    turns.add("a", 20)
    assert turns.next(0.2) is None
    assert turns.stuck(0.2) == set()
    assert turns.stuck(0.1 + STUCK_S) == {"a"}
    assert turns.by_age(7.0) == {"under_5s": 0, "under_30s": 20, "over_30s": 0}
    for turn in lost[:-3]:
        turns.end(turn, 9.0)
    assert turns.stuck(9.0) == set()
    again = turns.next(9.0)
    assert again is not None
    assert again.item == 20


def test_with_very_many_without_an_outcome_only_those_are_tried_that_are_answered() -> None:
    turns: Turns[int] = Turns(SLOTS)
    turns.add("good", -1)
    (good,) = sent(turns, 0.0)
    turns.end(good, 0.0)
    for number in range(1000):
        turns.add(f"bad-{number}", number)
    for _ in range(1000 // SLOTS):
        for turn in sent(turns, 1.0):
            turns.set_apart(turn, 1.0)
    assert len(turns.apart()) == 256
    turns.add("good", -1)
    assert [turn.namespace for turn in sent(turns, 2.0)] == ["good"]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("ssslaeec"), st.integers(0, 9)), max_size=80))
def test_every_item_is_sent_once_or_taken_back(steps: list[tuple[str, int]]) -> None:
    turns: Turns[int] = Turns(3)
    added, begun, back = 0, [], []
    running: list[Turn[int]] = []
    now = 0.0
    for step, pick in steps:
        now += 0.2
        if step == "s":
            turns.add(f"n{pick % 3}", added)
            added += 1
        elif step == "l":
            turns.look(now)
        elif step == "a" and running:
            turns.set_apart(running[pick % len(running)], now)
        elif step == "e" and running:
            turns.end(running.pop(pick % len(running)), now, answered=pick % 2 == 0)
        elif step == "c":
            back += turns.take_back(f"n{pick % 3}")
        for turn in sent(turns, now):
            begun.append(turn.item)
            running.append(turn)
        assert len([turn for turn in running if turn.apart_s is None]) <= 3
        assert sorted(begun + back) == sorted(set(begun + back))
        assert len(begun) + len(back) + turns.waiting == added
        assert sum(turns.by_age(now).values()) == len(turns.apart())
    for turn in running:
        turns.end(turn, now)
    while rest := sent(turns, now):
        for turn in rest:
            turns.end(turn, now)
            begun.append(turn.item)
    assert sorted(begun + back) == list(range(added))


def test_items_beyond_the_slots_wait_and_a_fault_in_one_is_told() -> None:
    begun: list[int] = []
    faults: list[tuple[int, str]] = []
    answers: dict[int, asyncio.Future[bool]] = {}

    async def carry_out(turn: Turn[int]) -> bool:
        begun.append(turn.item)
        answers[turn.item] = asyncio.get_running_loop().create_future()
        return await answers[turn.item]

    async def course() -> None:
        now = 0.0
        turns: Turns[int] = Turns(2)
        sender = Sender(turns, carry_out, lambda: now, lambda turn, fault: faults.append((turn.item, str(fault))))
        for item in range(6):
            sender.add("a", item)
        assert begun == []
        sender.send()
        await asyncio.sleep(0)
        assert begun == [0, 1]
        answers[0].set_result(True)
        answers[1].set_exception(KeyError("of ours"))
        await asyncio.sleep(0.01)
        assert faults == [(1, "'of ours'")]
        assert begun == [0, 1, 2, 3]
        # Those that are not answered give their slots back, and one more would be too many of the namespace.
        now = PATIENCE_S
        sender.add("b", 6)
        await asyncio.sleep(PATIENCE_S)
        assert begun == [0, 1, 2, 3, 6]
        sender.stop()
        for answer in answers.values():
            answer.cancel()

    asyncio.run(course())


def test_requests_that_hang_are_given_up_but_for_a_few() -> None:
    """An API server has places for some fifty requests of all service accounts, and one that hangs takes one of them."""
    hung, answered, now = 0, [], 0.0
    turns: Turns[int] = Turns(8)

    async def hang() -> bool:
        nonlocal hung
        hung += 1
        try:
            await asyncio.Event().wait()
        finally:
            hung -= 1
        return True

    async def carry_out(turn: Turn[int]) -> bool:
        answered.append(await sender.request(turn, hang()))
        return False

    sender: Sender[int] = Sender(turns, carry_out, lambda: now, lambda turn, fault: None)

    async def course() -> None:
        nonlocal now
        for item in range(8):
            sender.add(f"n{item}", item)
        sender.send()
        await asyncio.sleep(0)
        now = 1.9
        sender._look()
        await asyncio.sleep(0.01)
        assert (hung, answered) == (8, [])
        now = 2.1
        sender._look()
        await asyncio.sleep(0.01)
        assert (hung, answered) == (2, [None] * 6)
        sender.stop()
        for task in sender.tasks:
            task.cancel()
        await asyncio.gather(*sender.tasks, return_exceptions=True)
        assert hung == 0

    asyncio.run(course())
