"""Who of the overdue is served first, and until when: the same rule whatever the prices."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowsched.relations.gang import Gang
from flowsched.relations.relation import TaskGroup
from flowsched.round.bounded_waiting import Owed, binds, gone_by, in_turn, missing, serve

GANG = Gang(TaskGroup("gang", 2), 0, (2, 3, 4))


def owed(task: int) -> Owed[tuple[int, ...]]:
    return Owed.of(GANG) if task in GANG.members else Owed((task,))


def turns(late: list[int], holders: set[int]) -> list[tuple[int, ...]]:
    return [one.members for one in in_turn(late, holders, owed)]


@dataclass
class Answers:
    """Tasks that start, keep what they hold or get a reservation; all others get nothing."""

    starting: set[int] = field(default_factory=set)
    keeping: set[int] = field(default_factory=set)
    reserving: set[int] = field(default_factory=set)
    asked: list[tuple[str, int]] = field(default_factory=list)

    def _answer(self, what: str, given: set[int], owed: Owed[tuple[int, ...]]) -> bool:
        self.asked.append((what, owed.members[0]))
        return owed.members[0] in given

    def start(self, owed: Owed[tuple[int, ...]]) -> bool:
        return self._answer("start", self.starting, owed)

    def keep(self, owed: Owed[tuple[int, ...]]) -> bool:
        return self._answer("keep", self.keeping, owed)

    def reserve(self, owed: Owed[tuple[int, ...]]) -> bool:
        return self._answer("reserve", self.reserving, owed)


def test_those_that_hold_a_reservation_come_first_and_a_gang_comes_once() -> None:
    assert turns([1, 3, 2, 5], set()) == [(1,), (2, 3, 4), (5,)]
    assert turns([1, 3, 2, 5], {5}) == [(5,), (1,), (2, 3, 4)]
    # Its third member is not overdue yet, and holds the machine that was reserved for the gang.
    assert turns([1, 3, 5], {4}) == [(2, 3, 4), (1,), (5,)]


@given(late=st.lists(st.integers(0, 9), unique=True), holders=st.sets(st.integers(0, 9)))
def test_each_is_served_once_and_none_is_passed_by_a_later_one_of_its_kind(late: list[int], holders: set[int]) -> None:
    found = turns(late, holders)
    assert len(set(found)) == len(found)
    assert {t for members in found for t in members} == {t for task in late for t in owed(task).members}
    holding = [not holders.isdisjoint(members) for members in found]
    assert holding == sorted(holding, reverse=True)
    came = [min(late.index(t) for t in members if t in late) for members in found]
    for kind in (True, False):
        mine = [at for at, holds in zip(came, holding, strict=True) if holds is kind]
        assert mine == sorted(mine)


@pytest.mark.parametrize("most", [1, 2, 4])
def test_the_next_is_served_until_one_starts_or_enough_have_reservations(most: int) -> None:
    tasks = [Owed((t,)) for t in range(8)]
    answers = Answers(starting={6}, keeping={1}, reserving={3, 5})
    serve(tasks, answers, most)
    assert [t for what, t in answers.asked if what == "start"] == list(range({1: 2, 2: 4, 4: 7}[most]))
    assert ("reserve", 1) not in answers.asked  # it keeps what it has
    assert ("keep", 6) not in answers.asked  # it has started


def test_a_start_that_ends_with_the_reserved_one_does_not_delay_it() -> None:
    assert gone_by(10.0, 10.0)
    assert not gone_by(10.001, 10.0)
    assert not gone_by(inf, 10.0)
    ends = np.array([[5.0, 11.0], [inf, 11.0]])
    assert gone_by(ends, np.array([10.0, 12.0])).tolist() == [[True, True], [False, True]]
    assert not gone_by(np.array([0.0]), np.array([-inf])).any()  # a machine that only drains


def test_a_reservation_binds_its_own_level_and_lower_ones() -> None:
    assert [binds(1, priority) for priority in (0, 1, 2)] == [True, True, False]
    assert binds(inf, 10**9)


def test_what_is_missing_is_the_sum_of_shares() -> None:
    free = np.array([[4, 100, 0], [1, 25, 0], [0, 0, 7]])
    assert missing(np.array([2, 100, 0]), free).tolist() == [0.0, 1.25, 2.0]
    assert float(missing(np.array([2]), np.array([1]))) == 0.5
    assert float(missing(np.zeros(0, np.int64), np.zeros(0, np.int64))) == 0.0
