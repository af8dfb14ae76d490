"""CPU bandwidth that a critical task is owed: so much run time in every period."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Deadline:
    """``runtime`` of CPU in every ``period``, both in microseconds; the deadline is the end of the period."""

    runtime_us: float
    period_us: float

    @property
    def bandwidth(self) -> float:
        """CPUs: runtime / period."""
        return self.runtime_us / self.period_us
