"""A quarter of a minute of what `make soak` does for as long as it is told, and all of it by `make explore`."""

from __future__ import annotations

import contextlib

import pytest
from soak import HOPELESS, soak
from soak_faults import Fault, chosen

SECONDS = 15.0
SEED = 7
"""Decides which disturbances these are, and what comes and goes."""


def test_a_quarter_of_a_minute_of_churn_and_disturbances() -> None:
    found = soak(seed=SEED, seconds=SECONDS, hopeless=300)
    assert not found.violations, found.table()
    assert len(found.recovered_s) > 2, "few disturbances were tried"
    assert found.counts["bindings"] > 20 and found.counts["writes"] > 20 and not found.counts["not done"], found.table()


def test_five_minutes_of_all_disturbances(exploring: bool, capsys: pytest.CaptureFixture[str]) -> None:
    if not exploring:
        pytest.skip("it takes minutes: make explore")
    found = soak(seed=SEED, minutes=5.0, each=True, hopeless=HOPELESS // 10)
    with capsys.disabled():
        print(f"\n{found.table()}")
    assert not found.violations, found.table()
    assert not found.counts["not done"]


def test_seeds_choose_other_disturbances() -> None:
    faults = [Fault(f"fault {number}", contextlib.nullcontext, 1.0 + number % 20) for number in range(40)]
    some = [list(chosen(faults, seed, SECONDS)) for seed in range(20)]
    assert some[3] == list(chosen(faults, 3, SECONDS))
    assert all(len(these) > 1 and sum(fault.takes_s for fault in these) <= SECONDS for these in some)
    assert len({fault.name for these in some for fault in these}) > 10
