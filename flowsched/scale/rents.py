"""What the bound of a level is computed from, as tables by class and machine: for records, off the decision path.

The compiled bound chooses for each machine the tangent of crowding that bounds its rent best; the tables say which, so that
anybody computes the same bound with one formula.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.arrays import BoolArray, FloatArray, IntArray
from flowsched.scale import kernels
from flowsched.scale.certificate import Evidence
from flowsched.scale.ledger import FIXED


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
    may_take: BoolArray
    """By machine: whether the bound counts its rent."""


def dual_tables(evidence: Evidence, pi: FloatArray, rows: IntArray) -> DualTables:
    """The tables at prices ``pi`` for some machines."""
    alpha, crowding, tangents = evidence.crowding
    if len(crowding) < len(evidence.model.factors):
        crowding = np.zeros(len(evidence.model.factors))
    counted: BoolArray = np.isin(rows, evidence.rows)
    tables = DualTables(
        evidence.tier_of,
        evidence.units,
        evidence.largest,
        evidence.unit,
        alpha,
        crowding[evidence.model.kind[rows]],
        np.zeros(len(rows)),
        counted,
    )
    steps = [0.0, *tangents.tolist()]
    if len(steps) == 1:
        return tables
    options = np.array([rents(evidence, pi, rows, tables, theta) for theta in steps])
    taken = np.zeros(len(rows), dtype=np.int64)
    want = np.zeros(len(pi))
    for i in np.flatnonzero(counted & (options[0] > 0.0)).tolist():
        rent = kernels.dual_value(
            pi, evidence.counts, rows[i : i + 1], evidence.model, evidence.free, evidence.readings, evidence.tier_of,
            evidence.largest, evidence.unit, evidence.units, alpha, crowding, tangents, want,
        )  # fmt: skip
        taken[i] = int(np.argmin(np.abs(options[:, i] - rent)))
    tables.tangent[:] = np.array(steps)[taken]
    return tables


def rents(evidence: Evidence, pi: FloatArray, rows: IntArray, tables: DualTables, theta: float) -> FloatArray:
    """Rent of each machine with crowding made linear at ``theta``; classes without CPU are left out."""
    model = evidence.model
    classes = np.flatnonzero((evidence.counts > 0) & (tables.tier_of >= 0))
    kind = model.kind[rows]
    felt = (model.factors[kind] * evidence.readings[rows] / FIXED).T
    price = model.base[classes][:, kind] + model.coefficients[classes] @ felt
    room = np.ones(price.shape, dtype=np.bool_)
    for r in range(model.demands.shape[1]):
        asked = model.demands[classes, r][:, None]
        room &= (asked == 0) | (asked <= evidence.free[rows, r][None, :])
    for f in range(model.effects.shape[1]):
        added = model.effects[classes, f][:, None]
        room &= (added == 0) | (added + evidence.readings[rows, f][None, :] <= model.limits[rows, f][None, :])
    half = tables.crowding / 2.0 if theta > 0.0 else np.zeros(len(rows))
    alpha = tables.alpha[classes][:, None]
    gain = pi[classes][:, None] - price
    # Whoever gains nothing alone gains nothing beside others.
    room &= gain > 0.0
    gain = gain - half * (2.0 * theta * alpha - alpha * alpha)
    gain = np.where(room, np.maximum(gain, 0.0), 0.0) / tables.units[classes][:, None]
    free = np.minimum(tables.largest.shape[1] - 1, np.maximum(0, evidence.free[rows, 0]) // tables.unit)
    total: FloatArray = half * theta * theta
    highest = np.zeros(len(rows))
    for t in reversed(range(len(tables.largest))):
        here = gain[tables.tier_of[classes] == t]
        highest = np.maximum(highest, here.max(axis=0, initial=0.0))
        wider = tables.largest[t - 1, free] if t else 0
        total = total + highest * (tables.largest[t, free] - wider)
    return total
