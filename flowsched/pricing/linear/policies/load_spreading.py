"""``load-spreading``: the price of a machine rises with what it runs, so that load spreads evenly over cores.

After Firmament's load-spreading policy (I. Gog, M. Schwarzkopf, A. Gleave, R. N. M. Watson, S. Hand, "Firmament: Fast,
Centralized Cluster Scheduling at Scale", OSDI 2016, figure 6a; ``OctopusCostModel`` in its source), where a machine costs as
much as tasks run there already. Here a machine of size s with load L (tasks or cores) counts for
``weight * L^2 / (2 s)``, and a task costs exactly what it adds to that: ``weight * l * (L + l / 2) / s``. The sum is least
where load per core is the same everywhere. Larger machines get more; Firmament's are all of one size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flowsched.cluster.knowledge import Knowledge
from flowsched.cluster.task_class import MachineKind, TaskClass
from flowsched.pricing.linear.policies.checks import above_zero, number, yes_or_no
from flowsched.pricing.linear.policy import ClassPrices, Feature

LOAD = "load"
TASKS, CORES = "tasks", "cores"


@dataclass(frozen=True)
class LoadSpreadingPolicy:
    """Equal load per core on all machines."""

    count: str = TASKS
    """What load is: ``tasks``, whatever their width, or ``cores`` that they are granted."""
    by_size: bool = True
    """Load counts per core of a machine's kind; otherwise every machine gets the same."""
    weight: float = 1.0
    """Price of one unit of load more per core."""
    bucket: float = 0.0
    """Machines whose loads differ by less are one group; 0 keeps them apart unless equal."""
    waiting: float = 10_000.0
    """Cost of leaving a task; far above any load, so that nothing waits beside free room."""
    growth: float = 10_000.0
    """What is added to it by the due age."""

    name: ClassVar[str] = "load-spreading"
    told: ClassVar[tuple[Knowledge, ...]] = ()

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for a value that it cannot take."""
        if self.count not in (TASKS, CORES):
            raise ValueError(f"count is {self.count!r}; give {TASKS} or {CORES}")
        yes_or_no("by_size", self.by_size)
        above_zero("weight", self.weight)
        number("bucket", self.bucket)
        number("waiting", self.waiting, endless=True)
        number("growth", self.growth)

    @property
    def features(self) -> tuple[Feature, ...]:
        """What runs on a machine."""
        return (Feature(LOAD, self.bucket),)

    def factors(self, kind: MachineKind) -> Sequence[float]:
        """Load counts per core."""
        return (1.0 / self._size(kind),)

    def price(self, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
        """Half a task's own load as it comes, and all of what is there."""
        load = 1.0 if self.count == TASKS else task_class.width_milli / 1000.0
        cost = self.weight * load
        base = np.array([cost * load / 2.0 / self._size(kind) for kind in kinds])
        return ClassPrices(base, np.array([cost]), np.array([load]), self.waiting, self.growth)

    def _size(self, kind: MachineKind) -> float:
        return kind.cores if self.by_size else 1.0
