"""What the simulator and the agent ask of a controller."""

from __future__ import annotations

from typing import Protocol

from flowsched.node.allocation import Allocation
from flowsched.node.reading import Reading


class NodeController(Protocol):
    """Decides from readings alone; it never sees the future of the load."""

    @property
    def period_s(self) -> float:
        """Seconds between two readings that it wants."""
        ...

    def decide(self, reading: Reading) -> Allocation | None:
        """The allocation from now on; None: leave everything as it is."""
        ...
