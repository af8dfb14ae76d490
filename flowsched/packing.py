"""From a flow between classes and groups to whole tasks on machines: widest first, best fit, every resource exact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flowsched.resource import Amounts, covers, without


@dataclass
class Room:
    """What is free on one machine."""

    cpu_milli: int
    memory_mib: int
    resources: Mapping[str, int] = field(default_factory=dict)

    def takes(self, width_milli: int, memory_mib: int, resources: Amounts = ()) -> bool:
        """Whether a task fits."""
        return width_milli <= self.cpu_milli and memory_mib <= self.memory_mib and covers(self.resources, resources)

    def take(self, width_milli: int, memory_mib: int, resources: Amounts = ()) -> None:
        """Give a task its share; it must fit."""
        self.cpu_milli -= width_milli
        self.memory_mib -= memory_mib
        self.resources = without(self.resources, resources)

    def count(self, width_milli: int, memory_mib: int, resources: Amounts = ()) -> int:
        """How many tasks of this size fit."""
        if not self.takes(width_milli, memory_mib, resources):
            return 0
        counts = [self.cpu_milli // width_milli]
        counts += [self.memory_mib // memory_mib] if memory_mib else []
        counts += [self.resources[name] // units for name, units in resources if units > 0]
        return min(counts)


@dataclass(frozen=True)
class Parcel:
    """Whole tasks of one class that a flow sends to one group."""

    task_class: int
    count: int
    width_milli: int
    memory_mib: int
    resources: tuple[tuple[str, int], ...] = ()


def pack(
    parcels: list[Parcel],
    rooms: Mapping[int, Room],
    permits: Callable[[int, int], bool] | None = None,
    note: Callable[[int, int], None] | None = None,
) -> list[tuple[int, int]]:
    """(class, machine) for every task that fits; ``rooms`` are used up. What does not fit is left out.

    ``permits`` says whether a task of a class may go to a machine beside its fit; ``note`` hears of every task placed.

    Widest first is what makes the tier capacities sufficient for dividing widths; the fullest machine that still takes a
    task (best fit) keeps the others whole.
    """
    placed = []
    for parcel in sorted(parcels, key=lambda p: (-p.width_milli, -p.memory_mib, p.task_class)):
        for _ in range(parcel.count):
            fitting = [
                m
                for m, room in rooms.items()
                if room.takes(parcel.width_milli, parcel.memory_mib, parcel.resources)
                and (permits is None or permits(parcel.task_class, m))
            ]
            if not fitting:
                break
            machine = min(fitting, key=lambda m: (rooms[m].cpu_milli, rooms[m].memory_mib, m))
            rooms[machine].take(parcel.width_milli, parcel.memory_mib, parcel.resources)
            if note is not None:
                note(parcel.task_class, machine)
            placed.append((parcel.task_class, machine))
    return placed
