"""Names for the arrays that vectorised code passes around."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

__all__ = ["BoolArray", "FloatArray", "IntArray"]
