"""Width tiers against brute force, and packing against both."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.packing import Parcel, Room, pack
from flowsched.tiers import largest_sum, tier_capacities

ARBITRARY = st.lists(st.integers(1, 40), min_size=1, max_size=4, unique=True).map(sorted).map(tuple)


@given(st.integers(-5, 60), ARBITRARY)
def test_largest_sum_is_what_trying_all_multiples_finds(free: int, widths: tuple[int, ...]) -> None:
    reachable = [
        total
        for counts in product(*(range(max(free, 0) // w + 1) for w in widths))
        if (total := sum(n * w for n, w in zip(counts, widths, strict=True))) <= max(free, 0)
    ]

    assert largest_sum(free, widths) == max(reachable)


def test_largest_sum_of_nothing_and_of_one_width() -> None:
    assert largest_sum(7999, ()) == 0
    assert largest_sum(7999, (4000,)) == 4000
    assert largest_sum(7999, (1000, 4000)) == 7000
    assert largest_sum(0, (1,)) == 0


@given(st.lists(st.integers(0, 40), min_size=1, max_size=4), st.data())
def test_no_packable_set_exceeds_a_tier(free: list[int], data: st.DataObject) -> None:
    """Tasks drawn onto machines are packable by construction."""
    widths = data.draw(ARBITRARY)
    taken = dict.fromkeys(widths, 0)
    for room in free:
        left = room
        for w in data.draw(st.lists(st.sampled_from(widths), max_size=8)):
            if w <= left:
                left -= w
                taken[w] += w

    capacity = tier_capacities(free, widths)

    for w in widths:
        assert sum(taken[v] for v in widths if v >= w) <= capacity[w]


@settings(max_examples=200)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=5), st.tuples(*[st.integers(0, 6)] * 4))
def test_dividing_widths_within_their_tiers_all_pack(free: list[int], counts: tuple[int, ...]) -> None:
    widths = (8, 4, 2, 1)
    capacity = tier_capacities(free, widths)
    parcels = []
    for i, w in enumerate(widths):
        above = sum(p.count * p.width_milli for p in parcels)
        room = min((capacity[v] - above for v in widths[i:]), default=0)
        parcels.append(Parcel(i, max(0, min(counts[i], room // w)), w, 0))

    placed = pack(parcels, {m: Room(f, 0) for m, f in enumerate(free)})

    assert len(placed) == sum(p.count for p in parcels)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=4),
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9), st.integers(0, 9)), max_size=4),
)
def test_packing_overcommits_nothing_and_leaves_nothing_out_that_fits(
    free: list[tuple[int, int]], asks: list[tuple[int, int, int]]
) -> None:
    parcels = [Parcel(i, count, width, memory) for i, (count, width, memory) in enumerate(asks)]
    rooms = {m: Room(*room) for m, room in enumerate(free)}

    placed = pack(parcels, rooms)

    for m, (cpu, memory) in enumerate(free):
        here = [asks[c] for c, machine in placed if machine == m]
        assert sum(a[1] for a in here) == cpu - rooms[m].cpu_milli <= cpu
        assert sum(a[2] for a in here) == memory - rooms[m].memory_mib <= memory
    for i, (count, width, memory) in enumerate(asks):
        got = sum(c == i for c, _ in placed)
        assert got <= count
        assert got == count or not any(room.takes(width, memory) for room in rooms.values())
