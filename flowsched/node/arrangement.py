"""Who is on which virtual CPUs: what the network decides, and what a change costs."""

from __future__ import annotations

from dataclasses import dataclass

Cores = tuple[int, ...]


@dataclass(frozen=True)
class Arrangement:
    """Virtual CPUs of each service and each task, in the order of the moment's services and tasks."""

    services: tuple[int, ...]
    """How many of its cores each service has: always the first ones."""
    tasks: tuple[Cores, ...]
    """Ascending; empty: the task waits or is paused."""

    def with_task(self, index: int, cores: Cores) -> Arrangement:
        """The same with other cores for one task."""
        return Arrangement(self.services, (*self.tasks[:index], cores, *self.tasks[index + 1 :]))

    def changes_from(self, other: Arrangement) -> tuple[int, int]:
        """Tasks that start, stop or move, and services that change."""
        moved = sum(a != b for a, b in zip(self.tasks, other.tasks, strict=True))
        return moved, sum(a != b for a, b in zip(self.services, other.services, strict=True))
