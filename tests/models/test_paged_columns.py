"""Columns that change row by row, and what they were when they were looked at."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched_models.paged_columns import ROWS_OF_A_PAGE, PagedColumns

_ROWS = st.sampled_from((0, 1, ROWS_OF_A_PAGE - 1, ROWS_OF_A_PAGE, 2 * ROWS_OF_A_PAGE + 5))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(_ROWS, st.booleans()), max_size=20))
def test_a_look_keeps_what_was_there(changes: list[tuple[int, bool]]) -> None:
    columns = PagedColumns(np.array((0.0, -1.0)))
    kept: dict[int, tuple[float, float]] = {}
    looks = [(columns.look(), dict(kept))]
    for value, (row, look) in enumerate(changes, 1):
        while row >= len(columns):
            columns.widen()
        columns.put(row, (value, 2 * value))
        kept[row] = (value, 2 * value)
        assert columns.row(row).tolist() == [value, 2 * value]
        if look:
            looks.append((columns.look(), dict(kept)))
    for seen, expected in looks:
        found = seen.all
        assert found.shape[1] % ROWS_OF_A_PAGE == 0
        changed = {row for row, pair in enumerate(found.T.tolist()) if pair != [0.0, -1.0]}
        assert changed == set(expected)
        assert all(seen.row(row).tolist() == list(pair) for row, pair in expected.items())


def test_a_single_column_may_hold_objects() -> None:
    columns = PagedColumns(np.array(None, np.object_))
    assert columns.look().all.tolist() == []
    columns.widen()
    columns.put(3, "task")
    seen = columns.look()
    columns.put(3, None)
    assert (seen.row(3), columns.row(3)) == ("task", None)
    assert seen.all[2:5].tolist() == [None, "task", None]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(("put", "gap", "of")), st.lists(_ROWS, max_size=4, unique=True))))
def test_columns_that_go_on_from_a_look_leave_it_as_it_was(
    steps: list[tuple[str, list[int]]],
) -> None:
    blank = np.array((0.0, -1.0))
    columns, naive = PagedColumns(blank), np.tile(blank[:, None], 3 * ROWS_OF_A_PAGE)
    for _ in range(3):
        columns.widen()
    looks = []
    for value, (what, rows) in enumerate(steps, 1):
        looks.append((columns.look(), naive.copy()))
        if what == "gap":
            columns.close_gap(0, value / 2)
            naive[0, naive[0] > value / 2] -= 1.0
        elif what == "of":
            columns = PagedColumns.of(columns.look(), blank)
        else:
            for row in rows:
                columns.put(row, (value, row))
                naive[:, row] = value, row
    for seen, expected in (*looks, (columns.look(), naive)):
        assert seen.all.tolist() == expected.tolist()
