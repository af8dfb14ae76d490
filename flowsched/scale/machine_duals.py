"""What the bound of a level is computed from, as tables by class and machine: for records, off the decision path.

The compiled bound chooses for each machine the tangent of crowding that bounds its rent best; the tables say which, so that
any reader computes the same bound with one formula.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.scale import bound_kernels
from flowsched.scale.certificate import Evidence
from flowsched.support.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class DualTables:
    """Arrays by class have all classes of the evidence; arrays by machine one value for each of the rows asked for."""

    tier_of: IntArray
    """Tier of each class, 0 the widest; -1 for those that ask for no CPU."""
    units: FloatArray
    largest: IntArray
    """By tier and free units."""
    unit: int
    """Milli-CPU of a unit."""
    alpha: FloatArray
    crowding: FloatArray
    """By machine: what two alphas of 1 cost each other there."""
    tangent: FloatArray
    """By machine: where crowding is made linear; 0 where it is left out."""
    constant: FloatArray
    """By machine: what that adds to the rent, whatever tasks come."""
    may_take: BoolArray
    """By machine: whether the bound counts its rent."""


def dual_tables(evidence: Evidence, pi: FloatArray, rows: IntArray) -> DualTables:
    """The tables at prices ``pi`` for some machines."""
    alpha, crowding, tangents, equal = evidence.crowding
    if len(crowding) < len(evidence.model.factors):
        crowding = np.zeros(len(evidence.model.factors))
    counted: BoolArray = np.isin(rows, evidence.rows)
    shown = np.zeros((len(rows), 2))
    bound_kernels.dual_value(
        pi, evidence.counts, rows, evidence.model, evidence.free, evidence.readings, evidence.tier_of,
        evidence.largest, evidence.unit, evidence.units, alpha, equal, crowding, tangents, np.zeros(len(pi)), shown,
    )  # fmt: skip
    shown[~counted] = 0.0
    return DualTables(
        evidence.tier_of,
        evidence.units,
        evidence.largest,
        evidence.unit,
        alpha,
        crowding[evidence.model.kind[rows]],
        shown[:, 0],
        shown[:, 1],
        counted,
    )
