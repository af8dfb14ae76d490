"""The benchmark of estimated starts of pods: the same pods, the same outcomes."""

from __future__ import annotations

import pytest

from benchmarks.pod_start_forecasts import FORECASTS, Stream, measured, play, table
from flowsched.cluster.start_samples import Held

SMALL = Stream(5.0, pods=14, nodes=1)


def test_a_run_judges_starts_and_ends_and_comes_out_the_same_again() -> None:
    found = play(SMALL, 1)

    assert found == play(SMALL, 1)
    row = measured(SMALL.gap_s, found)
    for forecast in FORECASTS:
        assert row[forecast]["forecasts"] == sum(o.weight for o in found if o.forecast == forecast) > 0
        assert sum(row[forecast][held] for held in Held) == pytest.approx(1.0)
    assert len(table([row]).splitlines()) == 3
