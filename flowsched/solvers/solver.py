"""What the engine asks of a solver."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from flowsched.network import IntArray, Network


class Status(StrEnum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    """Supplies cannot reach demands through the capacities."""
    REFUSED = "refused"
    """The solver does not take this network, e.g. for costs beyond its range."""


@dataclass(frozen=True)
class Solution:
    """An outcome. ``flow`` has a value per arc; zeros unless the status is optimal."""

    status: Status
    flow: IntArray
    cost: int
    """In scaled units."""
    report: str = ""


class Solver(Protocol):
    """Finds a minimum-cost flow. Same network, same flow."""

    @property
    def name(self) -> str:
        """The name by which users choose it."""
        ...

    def solve(self, network: Network) -> Solution:
        """Solve from scratch; never raises for a network that cannot be solved."""
        ...
