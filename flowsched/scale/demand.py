"""What a bulk round is asked to place: classes of equal tasks, with what they need and what they would cost where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flowsched.cluster.task_class import TaskClass
from flowsched.scale.places import ANYWHERE, Places

ALWAYS_WORTH_IT = float("inf")
"""Waiting cost of tasks that take any place rather than wait."""


@dataclass(frozen=True, eq=False)
class Demand:
    """One class: tasks that neither a cost nor a constraint can tell apart. Arrays of ``places`` are by machine.

    A task on machine m costs, in units of relative slow-down,

        slowness[m] + sensitivity q[m] pressure[m] + pressure q[m] sensitivity[m] + pressure slope[m] + preference[m]
            + sum over counts k of price[k] count[k, m]

    with the sums over all that is on m when it comes, q the machine's bandwidth factor, and counts of the tasks that the
    round has put there and that are in ``counted``.
    """

    name: str
    tasks: tuple[str, ...]
    """In the order in which they are served."""
    needs: Mapping[str, int]
    """By resource; ``cpu`` in milli-CPU is the width."""
    places: Places = ANYWHERE
    sensitivity: float = 0.0
    """Relative slow-down per unit of neighbours' pressure."""
    pressure: float = 0.0
    """What one task adds to its neighbours' pressure: per core, times its cores."""
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
    counted: tuple[tuple[int, float], ...] = ()
    """(number of a count, price): the tasks count there, and each that does costs one more of them so much."""
    known: TaskClass | None = None
    """All that a cost model beside ``flow`` looks at; what this class has more, such as needs and relations, counts."""
