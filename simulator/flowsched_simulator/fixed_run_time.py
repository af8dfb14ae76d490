"""What policies are told of run times instead of the true ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flowsched_simulator.world import RunTimeError


@dataclass(frozen=True)
class EstimatedRunTimes:
    """Machines on which jobs take longer or shorter than policies are told, by a factor for each."""

    factors: Mapping[str, float]
    """True over estimated run time, by task; 1 for those that are not named."""
    error: RunTimeError
    """What the machines differ by beside that."""

    def factor(self, task: str, machine: str) -> float:
        """Run time of a task on a machine, relative to what the models say of the estimate."""
        return self.factors.get(task, 1.0) * self.error.factor(task, machine)
