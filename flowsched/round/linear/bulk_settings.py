"""Which of an operator's settings bulk rounds have."""

from __future__ import annotations

from functools import lru_cache

from flowsched.cluster.settings import Settings
from flowsched.round.linear.linear_round import RoundSettings

BOUND_STEPS = 20
"""Every record has a bound, and rounds are seconds apart: most of what a hundred steps prove, in a fifth of their time."""


def bulk_settings(settings: Settings) -> RoundSettings:
    """Those of rounds at the linear prices of ``flow``."""
    return _round_settings(settings.resolves, settings.scoring)


@lru_cache(maxsize=8)
def _round_settings(resolves: int, scoring: str) -> RoundSettings:
    return RoundSettings(resolves=resolves, scoring=scoring, reservations=False, bound_steps=BOUND_STEPS)


def model_settings(settings: Settings) -> RoundSettings:
    """Those of rounds of a cost model beside ``flow``; the rest as in ``solve``. What is reserved is not looked at: a
    machine that is held is none of those that a task names.
    """
    return RoundSettings(
        due_age_s=settings.due_age_s, scoring=settings.scoring, reservations=False, bound_steps=BOUND_STEPS
    )
