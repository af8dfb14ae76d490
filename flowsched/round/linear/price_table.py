"""The policy's prices of all classes as arrays, and what is refused about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowsched.cluster.task_class import MachineKind, TaskClass
from flowsched.errors import EventError
from flowsched.pricing.linear.policy import FORBIDDEN, ClassPrices, CostModel
from flowsched.round.linear import cluster_checks
from flowsched.support.arrays import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class PriceTable:
    """The policy's prices of all classes as arrays."""

    base: FloatArray
    """By class and kind."""
    coefficients: FloatArray
    """By class and feature."""
    waiting: FloatArray
    growth: FloatArray
    run_s: FloatArray
    priority: IntArray
    max_cost: FloatArray

    @classmethod
    def of(cls, classes: Sequence[TaskClass], prices: Sequence[ClassPrices], kinds: int, features: int) -> PriceTable:
        """That of these classes, on so many kinds and with so many features."""
        count = len(classes)
        return cls(
            np.array([p.base for p in prices]).reshape(count, kinds),
            np.array([p.coefficients for p in prices]).reshape(count, features),
            np.array([p.waiting for p in prices], dtype=np.float64),
            np.array([p.growth for p in prices], dtype=np.float64),
            np.array([c.run_s for c in classes], dtype=np.float64),
            np.array([c.priority for c in classes], dtype=np.int64),
            np.array([c.max_cost for c in classes], dtype=np.float64),
        )


def checked_prices(policy: CostModel, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
    """A policy's prices of a class, kinds that its selector excludes forbidden.

    Raises :class:`EventError` for numbers below 0, no numbers, and arrays of other shapes.
    """
    prices = policy.price(task_class, kinds)
    base = np.array(prices.base, dtype=np.float64)
    for k, kind in enumerate(kinds):
        if not kind.has(task_class.selector):
            base[k] = FORBIDDEN
    arrays = (base, np.asarray(prices.coefficients), np.asarray(prices.effects))
    width = len(policy.features)
    if base.shape != (len(kinds),) or any(a.shape != (width,) for a in arrays[1:]):
        raise EventError(
            f"policy {policy.name} priced class {task_class.name} with arrays of the shapes "
            f"{', '.join(str(a.shape) for a in arrays)}; expected {len(kinds)} kinds and {width} features"
        )
    # No number fails any comparison.
    if not (base >= 0.0).all() or not all(((a >= 0.0) & (a < FORBIDDEN)).all() for a in arrays[1:]):
        raise EventError(f"policy {policy.name} priced class {task_class.name} with a number below 0 or no number")
    if not (prices.waiting >= 0.0 and 0.0 <= prices.growth < FORBIDDEN):
        raise EventError(
            f"policy {policy.name} priced class {task_class.name} with waiting {prices.waiting} and growth "
            f"{prices.growth}; expected numbers >= 0, and a finite growth"
        )
    cluster_checks.check_effects(task_class.name, arrays[2])
    return ClassPrices(*arrays, prices.waiting, prices.growth)
