"""What devices make a place cost in a round, whatever the rule: prices by class and group, and of arrivals together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from flowsched.gpu.devices import TaskGpus
from flowsched.pricing.arrival import Arrival, Colocation, joined
from flowsched.support.arrays import BoolArray, FloatArray

if TYPE_CHECKING:
    from flowsched.cluster.compaction import View


class DevicePrices(ABC):
    """The GPU part of the prices of a round, for the classes and groups of a view. Costs are in units of the objective.

    Later starts cost what the dearest place does: which devices are free then is not known.
    """

    term: ClassVar[str]
    """Name of this part of a price."""
    fits_now: BoolArray
    """[classes, groups] whether a task finds devices beside what runs."""
    price: FloatArray
    """[classes, groups] what a task costs there, the dearest price where it does not fit now."""
    worst: FloatArray
    """[classes] the dearest price of each."""
    waiting: FloatArray
    """[classes] what a task's devices make waiting cost."""

    def __init__(self, view: View) -> None:
        """Nothing is priced yet."""
        self._view = view
        self.shapes = [c.task.gpu_shape for c in view.classes]
        """Of each class."""
        self._wanted: list[TaskGpus | None] = [c.task.gpus for c in view.classes]
        self._losses: dict[tuple[int, tuple[int, ...]], float | None] = {}
        self._known: list[dict[Colocation, tuple[float, bool]]] = [{} for _ in view.groups]

    @abstractmethod
    def devices(self, machine: str, group: int, colocation: Colocation) -> list[tuple[int, ...]]:
        """The devices of each arrival that starts now on a machine, in the order of the co-location; empty for others."""

    @abstractmethod
    def left_after(self, group: int, colocation: Colocation) -> tuple[int, ...]:
        """What is left of each GPU of the group's machines once those have come that start now."""

    @abstractmethod
    def _loss(self, group: int, now: Sequence[Arrival]) -> float | None:
        """What several arrivals that start now cost a machine together; None where they do not find devices."""

    def asks(self, task_class: int) -> bool:
        """Whether a class asks for GPUs."""
        return self._wanted[task_class] is not None

    def fits(self, group: int, colocation: Colocation) -> bool:
        """Whether all that start now find devices on a machine of the group, and all that start later ever could."""
        later = {a.task_class for a in colocation if a.start_after > 0}
        if not all(self._view.supplied(self._view.classes[c].task)[group] for c in later if self.asks(c)):
            return False
        return self._together(group, colocation)[1]

    def cost(self, group: int, colocation: Colocation) -> float:
        """What these arrivals cost a machine of the group."""
        return self._together(group, colocation)[0]

    def marginal(self, group: int, colocation: Colocation, task_class: int) -> tuple[float, bool]:
        """What one more task of a class that starts now costs beside a plan, and whether it finds devices."""
        if not colocation:
            return float(self.price[task_class, group]), bool(self.fits_now[task_class, group])
        one = Arrival(task_class, 0, self.shapes[task_class].cpu_milli)
        total, fits = self._together(group, joined(colocation, one))
        if not fits:
            return float(self.worst[task_class]), False
        return min(float(self.worst[task_class]), max(0.0, total - self.cost(group, colocation))), True

    def left_on(self, group: int) -> tuple[int, ...]:
        """What is left of each GPU on the group's representative machine, by the number of the device."""
        return self._left.get(self._view.groups[group].machine.name, ())

    @cached_property
    def _left(self) -> dict[str, tuple[int, ...]]:
        return self._view.snapshot.devices_left()

    def _order(self, colocation: Colocation) -> list[int]:
        """Arrivals that start now in the order in which they are given devices: whole ones first, then large shares."""
        now = [i for i, a in enumerate(colocation) if a.start_after == 0]
        return sorted(
            now,
            key=lambda i: (
                -self.shapes[colocation[i].task_class].count,
                -self.shapes[colocation[i].task_class].share_milli,
                colocation[i],
            ),
        )

    def _together(self, group: int, colocation: Colocation) -> tuple[float, bool]:
        found = self._known[group].get(colocation)
        if found is None:
            found = self._known[group][colocation] = self._price(group, colocation)
        return found

    def _price(self, group: int, colocation: Colocation) -> tuple[float, bool]:
        later = sum(float(self.price[a.task_class, group]) for a in colocation if a.start_after > 0)
        now = [colocation[i] for i in self._order(colocation)]
        if not now:
            return later, True
        if len(now) == 1:
            c = now[0].task_class
            return later + float(self.price[c, group]), bool(self.fits_now[c, group])
        most = sum(float(self.worst[a.task_class]) for a in now)
        # Widths and cores make no difference to devices.
        key = group, tuple(a.task_class for a in now)
        if key not in self._losses:
            self._losses[key] = self._loss(group, now)
        loss = self._losses[key]
        if loss is None:
            return later + most, False
        return later + min(most, max(0.0, loss)), True
