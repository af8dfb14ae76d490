"""What a plan is judged by and what it may do."""

from __future__ import annotations

from dataclasses import dataclass

WEIGHTS_MILLI = (100, 250, 500, 1000, 2000, 4000)
"""CPU weights that a search with free weights tries, besides a task's own widths."""


@dataclass(frozen=True)
class PlanRules:
    """Objective, freedoms and effort of a search."""

    objective: str = "makespan"
    """``makespan``: the last end. ``completion``: the sum of all times from submission to end."""
    share_cores: bool = True
    """Whether tasks that run at the same time may share cores; else their core sets are disjoint."""
    weights: str = "widths"
    """``equal``: every task has the narrowest of its widths. ``widths``: any of its widths, as ``flow`` chooses them.
    ``free``: any weight."""
    service_cores: bool | None = None
    """Whether tasks may use the cores of services, as far as p95 stays within its goal; None: where the cluster
    allows it or weights are free. Never on cores of their own."""
    slo_margin: float = 0.95
    """Share of its goal that a service's p95 may be brought to, as predicted. A search goes to whatever edge there is."""
    quantile: float | None = None
    """Plan for this quantile of the objective over the models' uncertainty; None: for the models as they are."""
    draws: int = 64
    """Draws of the run-time factors that the quantile and all intervals are taken over."""
    evaluations: int | None = None
    """Plans looked at, at most; None: by the size of the problem."""
    time_limit_s: float | None = None
    """Stop after so many seconds instead; the result then depends on the machine."""
    seed: int = 0
