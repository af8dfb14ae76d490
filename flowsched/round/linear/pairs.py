"""What two tasks of the same round cost each other on one machine."""

from __future__ import annotations

import numpy as np

from flowsched.pricing.linear.kernels import Model
from flowsched.support.arrays import FloatArray, IntArray


def pair_costs(model: Model, classes: IntArray) -> FloatArray:
    """By kind and two positions in ``classes`` (ascending): what the later served of two tasks pays for the earlier.

    Classes are served in the order of their numbers, so of two classes the one with the higher number pays; two tasks of
    one class cost each other the same either way. Symmetric by construction.
    """
    effects = model.effects[classes] * model.scale
    coefficients = model.coefficients[classes]
    pairs = np.zeros((len(model.factors), len(classes), len(classes)))
    for f in range(coefficients.shape[1]):
        # Row: who pays; column: whom for.
        pays = np.tril(np.outer(coefficients[:, f], effects[:, f]))
        pairs += model.factors[:, f, None, None] * (pays + np.tril(pays, -1).T)
    return pairs
