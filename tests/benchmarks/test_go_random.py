"""Numbers that Go itself drew."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent.parent))  # benchmarks are no part of what is installed

from benchmarks.go_random import GoRandom


@pytest.mark.parametrize(
    ("seed", "first", "below_seven", "after_2000"),
    [
        (0, 8717895732742165505, 2, 8709626029223311392),
        (1, 5577006791947779410, 2, 6979472133000356212),
        (-5, 1811683815564572222, 0, 1548637764634744502),
        (1 << 40, 5470237361722394362, 0, 6381642915222367680),
    ],
)
def test_seeds(seed: int, first: int, below_seven: int, after_2000: int) -> None:
    random = GoRandom(seed)
    assert random.int63() == first
    assert random.intn(7) == below_seven
    for _ in range(2000):
        random.int63()
    assert random.int63() == after_2000


def test_one_source_gives_numbers_and_shuffles_in_turn() -> None:
    random = GoRandom(42)
    assert [random.int63() for _ in range(3)] == [3440579354231278675, 608747136543856411, 5571782338101878760]
    assert (random.intn(100), random.intn(64)) == (50, 31)
    items = list(range(10))
    random.shuffle(items)
    assert items == [6, 4, 1, 0, 5, 8, 2, 9, 7, 3]


@pytest.mark.parametrize("n", [0, -1, 2**31])
def test_ranges_that_it_cannot_draw_from_are_refused(n: int) -> None:
    with pytest.raises(ValueError, match=f"got {n}"):
        GoRandom(1).intn(n)
