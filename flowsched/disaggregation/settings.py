"""Settings of the policies that place jobs with GPUs on other machines, and what a place and waiting cost (equations 11-13).

M. Amaral, PhD thesis, UPC 2019, sections 5.3.2 and 5.6.5.1. The thesis gives no value of P, z, of the step of W nor of what
makes a job late: those here were not fitted to anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

UNKNOWN_COST = 1.0
"""Of a job of which no model is known (section 5.4, the inference engine)."""


@dataclass(frozen=True)
class DisaggregationSettings:
    """How remote places, waiting and the load of the network are priced."""

    remote_price: float = 1.5
    """P of a GPU on another machine than its job's CPU; on the same one it is 1."""
    wait_step: float = 1.0
    """What W grows by with every round that leaves a job waiting."""
    importance: float = 1.0
    """z of equation 11, 1 (most important) to 10: how much being late takes from the utility."""
    slack: float = 1.5
    """Completion goal of jobs without ``goal_s``, relative to their run time alone."""
    most_postponements: int = 10
    """How often a network-aware round may postpone a job whose placement would miss its goal."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense, in a sentence that begins with the setting."""
        for field in fields(self):
            if not math.isfinite(getattr(self, field.name)):
                raise ValueError(f"{field.name} must be a finite number, got {getattr(self, field.name)}")
        if self.remote_price < 1.0:
            raise ValueError(f"remote_price must be >= 1 (1: no preference), got {self.remote_price:g}")
        if self.wait_step <= 0.0:
            raise ValueError(f"wait_step must be > 0, got {self.wait_step:g}: W grows, or jobs starve")
        if not 1.0 <= self.importance <= 10.0:
            raise ValueError(f"importance must be 1 (most important) to 10, got {self.importance:g}")
        if self.slack < 1.0:
            raise ValueError(f"slack must be >= 1 (1: no slower than alone), got {self.slack:g}")
        if self.most_postponements < 0:
            raise ValueError(f"most_postponements must be >= 0, got {self.most_postponements}")


def utility(expected_s: float, goal_s: float, importance: float) -> float:
    """Equation 11: 1 for a job that would end at once, 0 for one that ends at its goal, less for later ones."""
    gained = (goal_s - expected_s) / goal_s
    return gained if gained >= 0.0 else gained * (10.0 - importance) / 9.0


def place_cost(usefulness: float, preference: float) -> float:
    """Equation 12."""
    return (1.0 - usefulness) * preference


def waiting_cost(usefulness: float, rounds_waited: int, step: float) -> float:
    """Equation 13 with P of the best place. W counts the present round too: else it would be a tie with that place."""
    return 1.0 - usefulness + step * (rounds_waited + 1)
