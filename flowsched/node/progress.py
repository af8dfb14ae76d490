"""How far each task is believed to be: integrated from the run-time model, never beyond what its end will prove."""

from __future__ import annotations

from flowsched_models.catalogue import Catalogue
from flowsched_models.profile import PhaseOrder
from flowsched_models.runtime import Stage

CEILING = 0.98
"""A task counts as done only when the operating system says so."""


class ProgressBook:
    """Beliefs by task."""

    def __init__(self, catalogue: Catalogue) -> None:
        """No task has started."""
        self._catalogue = catalogue
        self._progress: dict[str, float] = {}

    def __getitem__(self, task: str) -> float:
        """Share of the work that is believed to be done."""
        return self._progress.get(task, 0.0)

    def add(self, task: str, amount: float) -> None:
        """A task has come further."""
        self._progress[task] = min(CEILING, self[task] + amount)

    def forget_but(self, tasks: set[str]) -> None:
        """Keep these only."""
        for gone in set(self._progress) - tasks:
            del self._progress[gone]

    def stage(self, task: str, profile: str) -> Stage:
        """What the task does now."""
        job = self._catalogue.jobs[profile]
        if job.phase_order is PhaseOrder.MIXED:
            return Stage.MIXED if job.serial_fraction > 0.0 else Stage.PARALLEL
        return Stage.SERIAL if self[task] < job.serial_fraction - 1e-9 else Stage.PARALLEL

    def pieces(self, task: str, profile: str) -> tuple[tuple[Stage, float], ...]:
        """What is left: stages in order, each with the progress that it still has to make."""
        job = self._catalogue.jobs[profile]
        done = self[task]
        if job.phase_order is PhaseOrder.SERIAL_FIRST and done < job.serial_fraction - 1e-9:
            return ((Stage.SERIAL, job.serial_fraction - done), (Stage.PARALLEL, 1.0 - job.serial_fraction))
        return ((self.stage(task, profile), 1.0 - done),)
