"""A plan as a value: who runs where, on which cores, with how many threads and what weight, and after whom."""

from __future__ import annotations

from dataclasses import dataclass

LEVEL = 0.9
"""Share of the draws inside a :class:`Spread`: what ``flowsched predict`` tells unless asked for another."""


@dataclass(frozen=True)
class Spread:
    """A value over draws from the models' uncertainty; in seconds."""

    median: float
    low: float
    high: float
    """:data:`LEVEL` of the draws lie between ``low`` and this."""


@dataclass(frozen=True)
class PlannedTask:
    """One task of a plan; times in seconds on the clock of the snapshot that was planned."""

    task: str
    machine: str
    cores: tuple[int, ...]
    threads: int
    width_milli: int
    """Its CPU request, and its weight where cores are shared."""
    after: str | None
    """The task on the same machine after whose end it is bound; None: as soon as it is submitted."""
    bound_s: float
    start_s: float
    """When its program runs, a start delay after it is bound."""
    end_s: float
    end_range_s: Spread | None = None
    """Its end over draws from the models' uncertainty."""
    runs: bool = False
    """Whether it ran already when the plan was made, and stays as it was."""


@dataclass(frozen=True)
class Plan:
    """A plan of everything that waits, and what the models predict of it."""

    tasks: tuple[PlannedTask, ...]
    makespan_s: float
    """From now to the last end."""
    completion_s: float
    """Sum over the tasks of the time from submission to end."""
    p95_us: tuple[tuple[str, float, float], ...]
    """Of each service its name, highest p95 and goal."""
    makespan_range_s: Spread | None = None
    completion_range_s: Spread | None = None
    """The two over draws from the models' uncertainty."""
    quantile_s: float | None = None
    """The quantile of the objective that a robust search minimised."""
    feasible: bool = True
    """Whether everything fits and every service keeps its goal."""
