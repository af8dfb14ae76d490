"""The order of options of one price, beside sorting everything."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.round.tie_kernel import rank_in_parts


@settings(max_examples=200, deadline=None)
@given(st.data(), st.lists(st.integers(0, 40), max_size=5), st.integers(1, 4))
def test_ranks_are_the_places_in_a_sort_of_each_part(data: st.DataObject, sizes: list[int], keys: int) -> None:
    rows, first = sum(sizes), np.cumsum([0, *sizes])
    value = st.sampled_from((0.0, 1.0, -1.0, np.inf))
    drawn = data.draw(st.lists(st.tuples(*[value] * keys), min_size=rows, max_size=rows))
    table = np.column_stack([np.array(drawn, np.float64).reshape(rows, keys), np.arange(rows)])

    rank = np.zeros(rows, np.int64)
    rank_in_parts(first, table, rank)

    for begin, end in pairwise(first.tolist()):
        order = np.lexsort(table[begin:end].T[::-1])
        assert rank[begin:end][order].tolist() == list(range(1, end - begin + 1))
