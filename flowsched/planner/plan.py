"""A plan as a value: who runs where, on which cores, with how many threads and what weight, and after whom."""

from __future__ import annotations

from dataclasses import dataclass


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
    low_s: float | None = None
    """Its end in the 10th percentile of draws from the models' uncertainty."""
    high_s: float | None = None
    """The same in the 90th."""
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
    makespan_low_s: float | None = None
    makespan_high_s: float | None = None
    """The 10th and 90th percentile of the makespan over draws from the models' uncertainty."""
    completion_low_s: float | None = None
    completion_high_s: float | None = None
    quantile_s: float | None = None
    """The quantile of the objective that a robust search minimised."""
    feasible: bool = True
    """Whether everything fits and every service keeps its goal."""
