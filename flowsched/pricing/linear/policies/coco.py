"""``coco``: co-location classes. Every task is a devil, a rabbit, a sheep or a turtle, and every pair has its penalty.

The classes are those of Y. Xie, G. H. Loh, "Dynamic Classification of Program Memory Behaviors in CMPs" (CMP-MSI 2008):
turtles hardly use the shared cache, sheep use it and do not mind others, rabbits run fast and need it, devils fill it for
all. The penalties are those of Firmament's co-ordinated co-location model (CoCo; M. Schwarzkopf, "Operating System
Support for Warehouse-Scale Computing", PhD thesis, University of Cambridge 2015; ``CocoCostModel`` in its source, function
``GetInterferenceScoreForTask``), per core of the machine as there. That what a task asks for fits is a constraint of the
engine, counted machine by machine.

There a newcomer pays what those who run already hold against it. Here a pair costs the mean of what the two hold against
each other, in whatever order they came, so that a price is exactly what a task adds to the sum over all pairs of a machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flowsched.cluster.knowledge import Knowledge
from flowsched.cluster.task_class import MachineKind, TaskClass
from flowsched.pricing.linear.policies.checks import above_zero, number
from flowsched.pricing.linear.policy import ClassPrices, Feature

TURTLE, SHEEP, RABBIT, DEVIL = CLASSES = ("turtle", "sheep", "rabbit", "devil")
PENALTIES = (
    (50.0, 50.0, 50.0, 50.0),
    (10.0, 50.0, 100.0, 200.0),
    (10.0, 50.0, 200.0, 1000.0),
    (10.0, 200.0, 1000.0, 200.0),
)
"""What one that runs (row) holds against one that comes (column), in the order of ``CLASSES``."""


@dataclass(frozen=True)
class CocoPolicy:
    """Devils away from rabbits, turtles in between."""

    penalties: tuple[tuple[float, ...], ...] = PENALTIES
    """Four rows of four, in the order turtle, sheep, rabbit, devil."""
    devil_pressure: float = 0.1
    """Tasks that do not say their class are devils from this pressure per core,"""
    rabbit_sensitivity: float = 0.8
    """else rabbits from this sensitivity,"""
    sheep_pressure: float = 0.02
    """else sheep from this pressure per core, else turtles."""
    bucket: float = 0.0
    """Machines whose counts of each class differ by less are one group; 0 keeps them apart unless equal."""
    waiting: float = 4_000.0
    """Cost of leaving a task: 1,000 for each of four resources, as in the source."""
    growth: float = 6_000.0
    """What is added by the due age: 1 per 0.1 s, as in the source, in 600 s."""

    name: ClassVar[str] = "coco"
    told: ClassVar[tuple[Knowledge, ...]] = (Knowledge.INTERFERENCE,)

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for a value that it cannot take."""
        if np.shape(np.array(self.penalties, dtype=object)) != (4, 4):
            raise ValueError(f"penalties is {self.penalties!r}; give four rows of four, {', '.join(CLASSES)} each")
        for row, against in zip(self.penalties, CLASSES, strict=True):
            for value, newcomer in zip(row, CLASSES, strict=True):
                number(f"the penalty of a {newcomer} beside a {against}", value)
        above_zero("devil_pressure", self.devil_pressure)
        above_zero("rabbit_sensitivity", self.rabbit_sensitivity)
        above_zero("sheep_pressure", self.sheep_pressure)
        number("bucket", self.bucket)
        number("waiting", self.waiting, endless=True)
        number("growth", self.growth)

    @property
    def features(self) -> tuple[Feature, ...]:
        """How many of each class run on a machine."""
        return tuple(Feature(one, self.bucket, f"beside_{one}") for one in CLASSES)

    def factors(self, kind: MachineKind) -> Sequence[float]:
        """Penalties count per core: the same neighbours matter less on a larger machine."""
        return (1.0 / kind.cores,) * len(CLASSES)

    def price(self, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
        """The penalties of its pairs; an empty machine costs nothing. Raises ``ValueError`` for a class that is none."""
        own = CLASSES.index(self.interference_class(task_class))
        table = np.array(self.penalties)
        effects = np.zeros(len(CLASSES))
        effects[own] = 1.0
        return ClassPrices(np.zeros(len(kinds)), (table[own] + table[:, own]) / 2.0, effects, self.waiting, self.growth)

    def interference_class(self, task_class: TaskClass) -> str:
        """What it says it is, else what its profile makes it. Raises ``ValueError`` for a class that is none."""
        said = task_class.interference_class
        if said:
            if said not in CLASSES:
                raise ValueError(f"class {task_class.name} is a {said!r}; policy coco knows {', '.join(CLASSES)}")
            return said
        per_core = task_class.pressure / (task_class.width_milli / 1000.0 or 1.0)
        if per_core >= self.devil_pressure:
            return DEVIL
        if task_class.sensitivity >= self.rabbit_sensitivity:
            return RABBIT
        return SHEEP if per_core >= self.sheep_pressure else TURTLE
