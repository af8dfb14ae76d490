"""A minute of what `make soak` does for as long as it is told."""

from __future__ import annotations

import pytest
from soak import FAKETIME, soak, table

from requirements_on_machine import needs


def test_a_minute_of_churn_and_disturbances(capsys: pytest.CaptureFixture[str]) -> None:
    needs("faketime", "to step the clock of the schedulers")
    found = soak(1.0, seed=1)
    assert not found.violations, table(found)
    assert len(found.recovered_s) > 4, "few disturbances were tried"
    assert found.counts["looked at"] > 20
    assert not any("clock" in skipped for skipped in found.skipped), FAKETIME
