"""Machines in racks, each with slots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.support.arrays import IntArray


@dataclass(frozen=True)
class Machines:
    """M machines as arrays. Racks are numbered from 0; a rack may be empty."""

    racks: IntArray
    """M: the rack of each machine."""
    slots: IntArray
    """M: tasks that each takes at once, in units of a core; 0 for a machine that is away."""

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for arrays of unequal lengths, negative racks or slots, or no machine at all."""
        if len(self.racks) != len(self.slots) or len(self.racks) == 0:
            raise ValueError(
                f"{len(self.racks)} racks for {len(self.slots)} slots of machines; give one each, at least 1"
            )
        if int(self.racks.min()) < 0 or int(self.slots.min()) < 0:
            worst = int(np.argmin(np.minimum(self.racks, self.slots)))
            raise ValueError(f"machine {worst} has rack {self.racks[worst]} and {self.slots[worst]} slots; not below 0")

    @property
    def count(self) -> int:
        """Number of machines."""
        return len(self.racks)

    @property
    def rack_count(self) -> int:
        """Number of racks."""
        return int(self.racks.max()) + 1
