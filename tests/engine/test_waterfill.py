"""Filling machines along rising prices, against taking the cheapest place one task after the other."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flowsched.waterfill import waterfill

PRICES = st.sampled_from((0.0, 0.25, 0.5, 1.0, 1.5))


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, ...]:
    size = draw(st.integers(0, 8))
    segments = draw(st.integers(1, 3))

    def column(values: st.SearchStrategy) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=size, max_size=size)))

    return (
        column(PRICES).astype(np.float64),
        column(PRICES).astype(np.float64),
        column(st.integers(-1, 5)).astype(np.int64),
        column(st.integers(0, segments - 1)).astype(np.int64),
        np.array(draw(st.lists(st.integers(0, 20), min_size=segments, max_size=segments)), dtype=np.int64),
    )


@given(cases())
def test_it_takes_the_cheapest_places(case: tuple[np.ndarray, ...]) -> None:
    base, step, slots, segment, wanted = case

    take = waterfill(base, step, slots, segment, wanted)

    assert (take >= 0).all() and (take <= np.maximum(slots, 0)).all()
    for s, count in enumerate(wanted.tolist()):
        here = np.flatnonzero(segment == s)
        places = sorted(base[m] + j * step[m] for m in here for j in range(max(0, int(slots[m]))))
        paid = sorted(base[m] + j * step[m] for m in here for j in range(int(take[m])))
        assert np.allclose(paid, places[:count])


def test_equal_machines_share_and_the_first_get_the_rest() -> None:
    zeros = np.zeros(3, dtype=np.int64)

    take = waterfill(np.zeros(3), np.ones(3), np.full(3, 9), zeros, np.array([7]))

    assert take.tolist() == [3, 2, 2]
