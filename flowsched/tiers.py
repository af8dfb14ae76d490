"""Width tiers: how many cores tasks of at least a width can take of machines that are not identical.

For dividing widths and machines with free cores ``f_m``, a set of tasks can be packed exactly when, for every width w, the
cores taken by tasks at least w wide are at most ``sum over m of floor(f_m / w) * w``. For arbitrary widths the capacity of a
tier is ``sum over m of S_m(w)``, the largest sum not above ``f_m`` of repeatable widths at least w. It equals the former for
dividing widths and no packable set violates it, but it no longer suffices: packing checks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


def tier_capacities(free_milli: Sequence[int], widths_milli: Sequence[int]) -> dict[int, int]:
    """Capacity in milli-CPU of every width's tier, over all machines of a group.

    ``free_milli``: one value per machine. ``widths_milli``: the distinct widths present.
    """
    widths = sorted(set(widths_milli))
    counts: dict[int, int] = {}
    for free in free_milli:
        counts[free] = counts.get(free, 0) + 1
    return {
        w: sum(n * largest_sum(max(free, 0), tuple(widths[i:])) for free, n in counts.items())
        for i, w in enumerate(widths)
    }


@lru_cache(maxsize=65536)
def largest_sum(free: int, widths: tuple[int, ...]) -> int:
    """The largest sum of repeatable ``widths`` that is not above ``free``."""
    if not widths or free < min(widths):
        return 0
    unit = math.gcd(*widths)
    room = free // unit
    steps = [w // unit for w in widths]
    if len(steps) == 1:
        return room // steps[0] * steps[0] * unit
    reachable: NDArray[np.bool_] = np.zeros(room + 1, dtype=np.bool_)
    reachable[0] = True
    for step in steps:
        for start in range(step, room + 1, step):
            stop = min(start + step, room + 1)
            reachable[start:stop] |= reachable[start - step : stop - step]
    return int(np.flatnonzero(reachable)[-1]) * unit
