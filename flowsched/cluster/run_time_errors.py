"""How far run times were from their forecasts so far: one spread for all tasks, learnt from completions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flowsched.cluster.still_running import late_length, run_length, run_lengths, spread_of
from flowsched.support.arrays import FloatArray

_NANO = 10**9


@dataclass(frozen=True, slots=True)
class RunTimeErrors:
    """What :mod:`flowsched.cluster.still_running` takes of the completions so far; without any, profiles' errors count."""

    ends: int = 0
    """Completions."""
    nano_squares: int = 0
    """Sum of the squared logarithms of run times over forecasts, in billionths: whole, so that no order matters."""

    @classmethod
    def of(cls, ends: int, log_squares: float) -> RunTimeErrors:
        """From the numbers as they stand in files."""
        return cls(ends, round(log_squares * _NANO))

    @property
    def log_squares(self) -> float:
        """Sum of the squared logarithms of run times over forecasts."""
        return self.nano_squares / _NANO

    def with_end(self, done: float) -> RunTimeErrors:
        """After one more completion, of a task that ran for ``done`` (above 0) times its forecast.

        Its logarithm counts in whole millionths, so that it is the same wherever the clock began.
        """
        return RunTimeErrors(self.ends + 1, self.nano_squares + round(round(math.log(done), 6) ** 2 * _NANO))

    def length(self, done: float, error: float) -> float:
        """How many times its forecast a running task is estimated to run in all.

        ``done`` is how many times it has run so far, ``error`` what its profile states.
        """
        return float(run_length(done, error, float(self.ends), self.log_squares))

    def spread(self, error: float) -> float:
        """Standard deviation of the logarithm of a run time around its forecast, before it begins."""
        return float(spread_of(0.0, error, float(self.ends), self.log_squares))

    def late_length(self, done: float, error: float, share: float) -> float:
        """The quantile of how many times its forecast it runs in all."""
        return late_length(done, spread_of(done, error, float(self.ends), self.log_squares), share)

    def lengths(self, done: FloatArray, errors: FloatArray) -> FloatArray:
        """[tasks] the same of each."""
        found = np.empty(len(done))
        run_lengths(done, errors, float(self.ends), self.log_squares, found)
        return found
