"""What the engine asks of a solver, and what a solver says about itself."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from typing import ClassVar, Protocol

import numpy as np

from flowsched.network.network import IntArray, Network


class Status(StrEnum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    """Stopped at the time limit with a feasible flow; the report says so."""
    INFEASIBLE = "infeasible"
    """Supplies cannot reach demands through the capacities."""
    REFUSED = "refused"
    """The solver does not take this network, e.g. for costs beyond its range."""

    @property
    def has_flow(self) -> bool:
        """Whether the flow keeps to supplies and capacities, so that it can be read off."""
        return self in (Status.OPTIMAL, Status.FEASIBLE)


@dataclass(frozen=True)
class Solution:
    """An outcome. ``flow`` has a value per arc; zeros unless the status has a flow."""

    status: Status
    flow: IntArray
    cost: int
    """In scaled units."""
    report: str = ""
    """For the user: who answered, what struck, or what is wrong with the network; empty if there is nothing to say."""
    potentials: IntArray | None = None
    """A value per node that proves an optimal flow optimal: ``unit_costs + pi[tails] - pi[heads]`` is at least 0 where the
    flow could grow and at most 0 where it could shrink. None from solvers that keep none
    (``flowsched.network.network.potentials`` derives them)."""
    bound: int | None = None
    """A lower bound of the cost of every feasible flow, in scaled units, where one is known and the flow is not optimal."""


@dataclass(frozen=True)
class Requirement:
    """One thing that must be installed. Presence is looked up, nothing is imported or started."""

    name: str
    """Name of a Python module, or of a program on the search path."""
    hint: str
    """What to install, as the end of a sentence: ``pip install highspy``."""
    program: bool = False

    @property
    def present(self) -> bool:
        """Whether it is there."""
        if self.program:
            return shutil.which(self.name) is not None
        try:
            return find_spec(self.name) is not None
        except (ImportError, ValueError):  # a parent package is missing, or sys.modules holds something odd
            return False


@dataclass(frozen=True)
class Capabilities:
    """What a solver can do. The conformance suite asks of it what stands here, and no more."""

    exact: bool = True
    """Ends with an optimal flow unless a time limit strikes."""
    negative_costs: bool = True
    """Takes negative unit costs, cycles of negative cost with finite capacities included."""
    largest_cost: int = (1 << 62) - 1
    """Unit costs up to this absolute value are taken by small networks (up to a hundred nodes); larger ones may be."""
    warm_start: bool = False
    """Uses what it knows from its last solve: cheaper for a network that differs little, and the flow among several optimal
    ones may depend on what was solved before."""
    repeatable: bool = True
    """The same network gives the same flow, not only the same cost."""
    time_limit: bool = True
    """Keeps to ``time_limit_s`` and answers with a feasible flow when it strikes; otherwise the limit is ignored."""
    potentials: bool = False
    """Optimal solutions come with potentials, at least where unit costs are up to ``largest_cost``."""
    requires: tuple[Requirement, ...] = ()
    """Any one of these must be present; none: always usable."""

    @property
    def missing(self) -> str:
        """Why the solver cannot be used here, as ``needs A (install hint) or B (install hint)``; empty if it can."""
        if not self.requires or any(r.present for r in self.requires):
            return ""
        needed = [f"{'the program' if r.program else 'the module'} {r.name} ({r.hint})" for r in self.requires]
        return f"needs {' or '.join(needed)}"


class Solver(Protocol):
    """Finds a minimum-cost flow. Made without arguments; may keep state between solves if it says ``warm_start``."""

    capabilities: ClassVar[Capabilities]

    @property
    def name(self) -> str:
        """The name by which users choose it."""
        ...

    def solve(self, network: Network, *, time_limit_s: float | None = None) -> Solution:
        """A solution; never raises for a network that cannot be solved.

        ``time_limit_s``: stop after so many seconds of wall clock with the best feasible flow known; 0 asks for a quick
        feasible flow, None for the optimum however long it takes.
        """
        ...


def without_flow(network: Network, status: Status, report: str) -> Solution:
    """A solution without a flow: infeasible or refused, and why."""
    return Solution(status, np.zeros(network.arc_count, dtype=np.int64), 0, report)
