"""The completions of a class of tasks on a machine type, as sums of whole numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

MOST_RUNS = 64
"""Completions of a class on a machine type that are counted before older ones count half."""
MICRO, NANO = 10**6, 10**9


class ClassRuns(NamedTuple):
    """The completions of a class on a machine type."""

    run_class: str
    machine_type: str
    runs: int
    micro_logs: int
    """Sum of the logarithms of run times over forecasts, in millionths."""
    nano_squares: int
    """Sum of their squares, in billionths."""
    last: int = 0
    """Number of its last completion, counted over all classes: those with the least are forgotten first."""

    @classmethod
    def of(
        cls, run_class: str, machine_type: str, runs: int, log_sum: float, log_squares: float, last: int = 0
    ) -> ClassRuns:
        """From the numbers as they stand in files."""
        return cls(run_class, machine_type, runs, round(log_sum * MICRO), round(log_squares * NANO), last)

    @property
    def log_sum(self) -> float:
        """Sum of the logarithms of run times over forecasts."""
        return self.micro_logs / MICRO

    @property
    def log_squares(self) -> float:
        """Sum of their squares."""
        return self.nano_squares / NANO

    def with_end(self, done: float, last: int) -> ClassRuns:
        """After one more completion, number ``last``, of a task that ran for ``done`` (above 0) times its forecast."""
        micro = round(math.log(done) * MICRO)
        square = round(micro * micro * NANO / MICRO**2)
        runs, logs, squares = self.runs, self.micro_logs, self.nano_squares
        if runs >= MOST_RUNS:
            # By one divisor for all three, so that mean and variance stay.
            runs, logs, squares = runs // 2, round(logs * (runs // 2) / runs), round(squares * (runs // 2) / runs)
        return ClassRuns(self.run_class, self.machine_type, runs + 1, logs + micro, squares + square, last)
