"""How the GPUs of a run were used over time: what was given away, and what of the rest was in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class GpuUse:
    """Allocation and fragmentation of all GPUs of a cluster, as values that change in steps."""

    capacity_milli: int
    """All devices together."""
    t_s: tuple[float, ...]
    """When a value changes, in order; the first is the first submission."""
    allocated_milli: tuple[int, ...]
    """From each of these times on: what running tasks hold of all devices."""
    fragmented_milli: tuple[float, ...]
    """From each of these times on: what is idle and of no use to typical tasks, in expectation."""
    end_s: float
    """When the last values end: with the run."""

    @property
    def mean_allocation(self) -> float | None:
        """Share of all GPUs that tasks held, the mean over the time of the run; None for a run that took no time."""
        return self._mean(self.allocated_milli)

    @property
    def mean_fragmentation(self) -> float | None:
        """Share of all GPUs that was idle and of no use to typical tasks, in the same way."""
        return self._mean(self.fragmented_milli)

    def _mean(self, values: Sequence[float]) -> float | None:
        if not self.t_s or self.end_s <= self.t_s[0]:
            return None
        until = (*self.t_s[1:], self.end_s)
        total = sum(value * (end - start) for value, start, end in zip(values, self.t_s, until, strict=True))
        return total / (self.capacity_milli * (self.end_s - self.t_s[0]))

    def to_json(self) -> dict[str, Any]:
        """The values as plain data."""
        return {
            "capacity_milli": self.capacity_milli,
            "t_s": list(self.t_s),
            "allocated_milli": list(self.allocated_milli),
            "fragmented_milli": [round(value, 3) for value in self.fragmented_milli],
        }
