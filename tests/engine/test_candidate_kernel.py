"""The compiled loops that rank candidates, beside sorting everything."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.cluster.settings import Settings
from flowsched.pricing.flow_prices import price_settings_of
from flowsched.pricing.sharing_kernel import (
    ARRIVAL_NUMBERS,
    RUNNING_NUMBERS,
    ArrivingKinds,
    RankedMachines,
    SharedMachines,
    add_courses,
    columns_with_courses,
    put_in_order,
    sharing_prices,
)
from flowsched.round.candidate_kernel import cheapest_first, lowest, mixed, with_room
from flowsched.support.arrays import FloatArray, IntArray


def few(draw: st.DrawFn, values: st.SearchStrategy[int], count: int) -> IntArray:
    return np.array(draw(st.lists(values, min_size=count, max_size=count)), np.int64)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(1, 40), st.integers(1, 45), st.integers(0, 45), st.sampled_from((1, -1)))
def test_the_cheapest_are_those_that_a_sort_of_all_has_first(
    data: st.DataObject, machines: int, most: int, alike: int, sign: int
) -> None:
    milli, memory_mib = (few(data.draw, st.integers(-2, 2), machines) for _ in range(2))
    rank = np.array(data.draw(st.permutations(range(machines))), np.uint64)
    rows = np.array(data.draw(st.permutations(range(machines)))[: data.draw(st.integers(1, machines))], np.int64)
    prices = st.sampled_from((0.0, 1.0, 1.5, np.inf))
    price: FloatArray = np.array(data.draw(st.lists(prices, min_size=len(rows), max_size=len(rows))))

    found = np.full(min(most, len(rows)), -1, np.int64)
    count = cheapest_first(price, milli, memory_mib, rank, rows, sign, alike, found)

    order = np.lexsort((rank[rows], sign * memory_mib[rows], sign * milli[rows], price))
    in_order = price[order]
    repeated = np.arange(len(order)) - np.searchsorted(in_order, in_order)
    assert found[:count].tolist() == rows[order[repeated <= alike]][: len(found)].tolist()


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(1, 12), st.integers(0, 2))
def test_room_is_where_nothing_is_short(data: st.DataObject, machines: int, resources: int) -> None:
    milli, memory_mib, *units = (few(data.draw, st.integers(-1, 3), machines) for _ in range(2 + resources))
    asked = few(data.draw, st.integers(0, 3), resources)
    width, needed_mib = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    room = np.empty(machines, np.bool_)
    have = np.array(units, np.int64).reshape(resources, machines).T.copy()

    with_room(milli, memory_mib, have, width, needed_mib, asked, room)

    for m in range(machines):
        enough = all(asked[r] <= 0 or have[m, r] >= asked[r] for r in range(resources))
        assert room[m] == (milli[m] >= width and memory_mib[m] >= needed_mib and enough)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(1, 4), st.integers(0, 12))
def test_tasks_on_a_machine_are_in_the_order_of_their_numbers(data: st.DataObject, machines: int, tasks: int) -> None:
    at = few(data.draw, st.integers(0, machines - 1), tasks)
    number = st.sampled_from((0.0, 1.0, np.inf))
    rows = data.draw(st.lists(st.tuples(*[number] * RUNNING_NUMBERS), min_size=tasks, max_size=tasks))
    numbers = np.array(rows, np.float64).reshape(tasks, RUNNING_NUMBERS)
    first = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=machines))])
    running = np.zeros((tasks, columns_with_courses(2)))

    put_in_order(at, numbers, first, running)

    for m in range(machines):
        there = running[first[m] : first[m + 1], :RUNNING_NUMBERS]
        assert [tuple(row) for row in there.tolist()] == sorted(
            row for row, where in zip(rows, at.tolist(), strict=True) if where == m
        )


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), max_size=6), st.integers(0, 2**32 - 1))
def test_ranks_are_the_numbers_of_splitmix(values: list[int], seed: int) -> None:
    found = np.empty(len(values), np.uint64)
    mixed(np.array(values, np.uint64), seed, found)
    for value, number in zip(values, found.tolist(), strict=True):
        expected = value * 0x9E3779B97F4A7C15 + seed * 0xD1342543DE82EF95
        for factor, bits in ((0xBF58476D1CE4E5B9, 30), (0x94D049BB133111EB, 27)):
            expected %= 1 << 64
            expected = (expected ^ (expected >> bits)) * factor
        expected %= 1 << 64
        assert number == expected ^ (expected >> 31)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(2, 60))
def test_the_lowest_are_those_below_the_last_of_them_in_a_sort(data: st.DataObject, count: int) -> None:
    numbers = st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1))
    rank = np.array(data.draw(st.lists(numbers, min_size=count, max_size=count)), np.uint64)
    rows = np.array(sorted(data.draw(st.permutations(range(count)))[: data.draw(st.integers(2, count))]), np.int64)
    most = data.draw(st.integers(1, count))

    found = np.full(min(most, len(rows)), -1, np.int64)
    assert lowest(rows, rank, most, found) == len(found)
    assert found.tolist() == rows[rank[rows] <= np.sort(rank[rows])[len(found) - 1]][: len(found)].tolist()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 700), st.integers(1, 4))
def test_kinds_that_are_priced_together_cost_what_each_costs_alone(seed: int, machines: int, kinds: int) -> None:
    draw, starts = np.random.default_rng(seed), 3
    at = draw.integers(0, machines, 2 * machines)
    numbers = draw.uniform(0.5, 4.0, (len(at), RUNNING_NUMBERS))
    first = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=machines))])
    running, cores = np.zeros((len(at), columns_with_courses(starts))), draw.integers(0, 5, machines).astype(np.float64)
    put_in_order(at, numbers, first, running)
    add_courses(first, cores, running)
    places = np.stack([draw.uniform(0.0, 3.0, machines), draw.uniform(0.0, 9.0, machines), cores], axis=1)
    there = SharedMachines(first, running, places, draw.integers(0, 2, machines))
    of = ArrivingKinds(
        *(draw.uniform(0.5, 2.0, (kinds, width)) for width in (ARRIVAL_NUMBERS, 2, 2)), np.ones((kinds, 1))
    )
    parts = [np.sort(draw.choice(machines, draw.integers(0, machines + 1), replace=False)) for _ in range(2 * kinds)]
    kind = np.repeat(np.arange(kinds), 2)

    def prices(chosen: list[int]) -> list[FloatArray]:
        """By part, what it costs at best and what it costs now."""
        rows = np.concatenate([parts[i] for i in chosen])
        ends = np.cumsum([0, *(len(parts[i]) for i in chosen)])
        found, now = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
        ranked = RankedMachines(rows, ends, kind[chosen])
        sharing_prices(there, of, ranked, price_settings_of(Settings(), 0.0), found, now)
        return np.split(np.stack([found, now]), ends[1:-1], axis=1)

    together = prices(list(range(2 * kinds)))
    for i, of_part in enumerate(together):
        assert not np.isnan(of_part).any()
        assert of_part.tobytes() == prices([i])[0].tobytes()
