"""From a flow between classes and groups to whole tasks on machines: widest first, best fit, every resource exact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass
class Room:
    """What is free on one machine."""

    cpu_milli: int
    memory_mib: int

    def takes(self, width_milli: int, memory_mib: int) -> bool:
        """Whether a task fits."""
        return width_milli <= self.cpu_milli and memory_mib <= self.memory_mib

    def take(self, width_milli: int, memory_mib: int) -> None:
        """Give a task its share; it must fit."""
        self.cpu_milli -= width_milli
        self.memory_mib -= memory_mib


@dataclass(frozen=True)
class Parcel:
    """Whole tasks of one class that a flow sends to one group."""

    task_class: int
    count: int
    width_milli: int
    memory_mib: int


def pack(parcels: list[Parcel], rooms: Mapping[int, Room]) -> list[tuple[int, int]]:
    """(class, machine) for every task that fits; ``rooms`` are used up. What does not fit is left out.

    Widest first is what makes the tier capacities sufficient for dividing widths; the fullest machine that still takes a
    task (best fit) keeps the others whole.
    """
    placed = []
    for parcel in sorted(parcels, key=lambda p: (-p.width_milli, -p.memory_mib, p.task_class)):
        for _ in range(parcel.count):
            fitting = [m for m, room in rooms.items() if room.takes(parcel.width_milli, parcel.memory_mib)]
            if not fitting:
                break
            machine = min(fitting, key=lambda m: (rooms[m].cpu_milli, rooms[m].memory_mib, m))
            rooms[machine].take(parcel.width_milli, parcel.memory_mib)
            placed.append((parcel.task_class, machine))
    return placed
