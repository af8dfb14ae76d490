"""The cheapest plan of a small round, by CP-SAT: which co-location each machine gets.

A *co-location* is so many tasks of each class that may join a machine together, at what they cost there. CP-SAT gives every
machine one of them, so that each task is in one or waits; machines that are alike share their variables. What is possible
and what it costs is a matter of those who ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flowsched.support.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

DETERMINISTIC_LIMIT = 20.0
"""CP-SAT's own measure of work, so that the answer does not depend on the speed of the machine."""
SCALE = 1_000_000.0
"""Units of its whole numbers in one of cost."""


@dataclass(frozen=True, eq=False)
class Colocations:
    """What machines that are alike may take."""

    machines: IntArray
    """Their rows."""
    counts: IntArray
    """[co-locations, classes] tasks; one of them is that none comes."""
    cost: FloatArray
    """[co-locations] finite."""

    def counted(self, task_class: IntArray, machine: IntArray) -> IntArray:
        """How many of the machines have each co-location in a plan, given as class and machine of each task.

        What a machine has that is none of these is not counted.
        """
        found = np.zeros(len(self.cost), dtype=np.int64)
        for m in self.machines.tolist():
            here = np.bincount(task_class[machine == m], minlength=self.counts.shape[1])
            found[np.flatnonzero((self.counts == here).all(axis=1))[:1]] += 1
        return found


@dataclass(frozen=True)
class WaitingPrice:
    """Up to so many tasks of a class may wait, at a cost each."""

    cost: float
    tasks: int


@dataclass(frozen=True, eq=False)
class ColocationPlan:
    """What CP-SAT found."""

    chosen: tuple[IntArray, ...]
    """By set of machines that are alike: how many have each co-location."""
    waits: tuple[tuple[int, ...], ...]
    """By class and price: how many wait."""
    bound: float
    """No plan costs less: each summand was rounded once."""
    proven: bool
    """Whether no plan is cheaper, but for that rounding."""


def cheapest_plan(
    alike: Sequence[Colocations],
    tasks: Sequence[int],
    waits: Sequence[Sequence[WaitingPrice]],
    *,
    scale: float = SCALE,
    limit: float = DETERMINISTIC_LIMIT,
    hint: Sequence[IntArray] | None = None,
) -> ColocationPlan | None:
    """The cheapest way to give machines their co-locations, or the best that is found within ``limit``; None if none is.

    ``tasks`` and ``waits`` by class, cheapest price first. Costs are counted in whole 1/``scale``: their sum must stay below
    2**62 of these. ``hint``: how many machines have each co-location in a plan that is known.
    """
    from ortools.sat.python import cp_model  # takes most of a second

    program = cp_model.CpModel()
    uses: list[list[cp_model.LinearExprT]] = [[] for _ in tasks]
    objective: list[cp_model.LinearExprT] = []
    chosen: list[list[cp_model.IntVar]] = []
    placed = np.zeros(len(tasks), dtype=np.int64)
    for n, colocations in enumerate(alike):
        members = len(colocations.machines)
        variables = [program.new_int_var(0, members, "") for _ in range(len(colocations.cost))]
        program.add(sum(variables) == members)
        if hint is not None:
            placed += hint[n] @ colocations.counts
            for variable, known in zip(variables, hint[n].tolist(), strict=True):
                program.add_hint(variable, known)
        for i, c in np.argwhere(colocations.counts > 0).tolist():
            uses[c].append(int(colocations.counts[i, c]) * variables[i])
        objective += [round(cost * scale) * v for cost, v in zip(colocations.cost.tolist(), variables, strict=True)]
        chosen.append(variables)
    waiting: list[list[cp_model.IntVar]] = []
    for c, prices in enumerate(waits):
        rest = tasks[c] - int(placed[c])
        variables = [program.new_int_var(0, price.tasks, "") for price in prices]
        for variable, price in zip(variables, prices, strict=True):
            if hint is not None:
                program.add_hint(variable, min(price.tasks, rest))
                rest -= min(price.tasks, rest)
            objective.append(round(price.cost * scale) * variable)
        program.add(sum([*uses[c], *variables]) == tasks[c])
        waiting.append(variables)
    program.minimize(sum(objective))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.linearization_level = 2
    solver.parameters.max_deterministic_time = limit
    status = solver.solve(program)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    summands = sum(len(colocations.machines) for colocations in alike) + sum(tasks)
    return ColocationPlan(
        tuple(np.array([solver.value(v) for v in variables], dtype=np.int64) for variables in chosen),
        tuple(tuple(solver.value(v) for v in variables) for variables in waiting),
        solver.best_objective_bound / scale - summands * 0.5 / scale,
        status == cp_model.OPTIMAL,
    )
