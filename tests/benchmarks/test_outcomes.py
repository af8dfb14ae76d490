"""What the engine decides on known inputs is what it decided before; `python -m benchmarks.outcomes` has all of them."""

from __future__ import annotations

import pytest

from benchmarks.outcomes import EVENTS, cases, differences, digests, stored

CASES = cases()
STORED = stored()
LONG = ("thesis-", "tight-goal flow", "flood", "open-cluster", *(f"draw {seed}" for seed in range(3, 10)))
QUICK = [name for name in CASES if not any(part in name for part in LONG)]


def test_every_case_is_stored() -> None:
    assert sorted(STORED) == sorted(CASES)
    assert len(list(EVENTS.iterdir())) >= 8


@pytest.mark.parametrize("name", QUICK)
def test_the_outcome_is_the_stored_one(name: str) -> None:
    found = differences(STORED[name], CASES[name]())
    assert not found, "\n".join([*found, "if it was meant to change: python -m benchmarks.outcomes --write"])


def test_what_differs_is_named() -> None:
    name = "waiting.yaml flow"
    rounds = list(CASES[name]())
    other = digests([rounds[0]._replace(causes=())])
    assert differences(digests(rounds), rounds) == []
    told = differences(other, rounds)
    assert "causes differ" in told[0]
    assert "the first round that differs is 0" in told[1]
    assert told[2:] == [f"  {line}" for line in (*rounds[0].places, *rounds[0].causes)][:20]
