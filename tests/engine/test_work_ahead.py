"""How long a cluster works at tasks that are to start before another one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowsched.cluster.work_ahead import seconds_ahead

TASKS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5) | st.just(math.inf)), max_size=8)
"""Priority and work of each, in the order in which they came."""


@given(TASKS, st.integers(1, 100))
def test_work_of_higher_priority_less_work_or_earlier_arrival_goes_first(
    tasks: list[tuple[int, float]], cores: int
) -> None:
    priority, work_s = np.array(tasks, np.float64).reshape(-1, 2).T

    found = seconds_ahead(priority, work_s, np.arange(len(tasks), dtype=np.float64), float(cores))

    rank = {i: (-p, work, i) for i, (p, work) in enumerate(tasks)}
    for i in rank:
        before = [tasks[k][1] for k in rank if rank[k] < rank[i] and math.isfinite(tasks[k][1])]
        assert found[i] == pytest.approx(sum(before) / cores)
