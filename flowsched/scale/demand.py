"""What a bulk round is asked to place: classes of equal tasks, with what they need and what they would cost where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from flowsched.scale.task_class import TaskClass
from flowsched.support.arrays import BoolArray, FloatArray

ALWAYS_WORTH_IT = float("inf")
"""Waiting cost of tasks that take any place rather than wait."""


@dataclass(frozen=True, eq=False)
class Demand:
    """One class: tasks that neither a cost nor a constraint can tell apart. Arrays are by machine.

    A task on machine m costs, in units of relative slow-down,

        slowness[m] + sensitivity q[m] pressure[m] + pressure q[m] sensitivity[m] + pressure slope[m] + preference[m]

    with the sums over all that is on m when it comes, and q the machine's bandwidth factor.
    """

    name: str
    tasks: tuple[str, ...]
    """In the order in which they are served."""
    needs: Mapping[str, int]
    """By resource; ``cpu`` in milli-CPU is the width."""
    allowed: BoolArray | None = None
    """Machines that may take them; None for all."""
    eligible: BoolArray | None = None
    """Machines that their spreads compare; None for all."""
    preference: FloatArray | None = None
    """Cost of each machine, at least 0; infinite where it may not go."""
    sensitivity: float = 0.0
    """Relative slow-down per unit of neighbours' pressure."""
    pressure: float = 0.0
    """What one task adds to its neighbours' pressure: per core, times its cores."""
    slowness: FloatArray | None = None
    """Run time on each machine over the best one's, minus 1."""
    holds: tuple[str, ...] = ()
    """Names of the relations that they demand."""
    joins: tuple[str, ...] = ()
    """Names of the relations that count them."""
    group: str | None = None
    """The task group they are placed with, all or none."""
    waiting_cost: float = ALWAYS_WORTH_IT
    """Cost of leaving one task for a later round; no dearer place is taken."""
    max_cost: float = float("inf")
    """Dearer places are not offered."""
    since_s: tuple[float, ...] = ()
    """When each of the tasks came, for cost models whose waiting costs grow; empty if no price depends on it."""
    known: TaskClass | None = None
    """All that a cost model beside ``flow`` looks at; what this class has more, such as needs and relations, counts."""


_BY_MACHINE = ("allowed", "eligible", "preference", "slowness")


def by_machine(demand: Demand, change: Callable[[Any], Any]) -> Demand:
    """A demand with its arrays changed: for other machines, or the same in another order."""
    arrays = {name: getattr(demand, name) for name in _BY_MACHINE}
    return replace(demand, **{name: change(values) for name, values in arrays.items() if values is not None})
