"""What moving data, waiting and being moved cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class LocalityPrices:
    """Prices in units of cost; defaults in the proportions of Quincy (Isard et al. 2009, sections 4 and 5)."""

    within_rack: float = 1.0
    """Per MB that comes from another machine of the same rack."""
    across_racks: float = 2.0
    """Per MB that comes from another rack."""
    preferred_share: float = 0.1
    """A machine or rack is preferred if it holds at least this share of a task's input."""
    preferred_machines: int = 10
    """At most so many machines are preferred by a task: those with most of its input."""
    preferred_racks: int = 10
    waiting: float = 0.0
    """For leaving a task unscheduled, whatever its age."""
    waiting_per_s: float = 500.0
    """And for every second since it came."""
    running_per_s: float = 500.0
    """Taken off the cost of staying, for every second that a task has run where it runs."""
    cost_scale: float = 1.0
    """Integer costs are true costs times this, rounded."""

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for negative prices, shares outside 0 to 1 and the like."""
        for field in fields(self):
            value = getattr(self, field.name)
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{field.name} is {value}; give a number from 0 up")
        if self.preferred_share > 1.0:
            raise ValueError(f"preferred_share is {self.preferred_share}; give a share from 0 to 1")
        if self.cost_scale == 0.0:
            raise ValueError("cost_scale is 0; costs would all be the same")
