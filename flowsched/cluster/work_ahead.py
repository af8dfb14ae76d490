"""How long a cluster works at tasks that are to start before another one.

A round plans a waiting task for one of the next completions of a machine, and later rounds mostly give that place to a task
with less work. Where less work goes first, a task starts once all waiting tasks with less have had what they need: their
work over all cores (the part of the wait that is due to tasks which are there already: A. Cobham, "Priority Assignment in
Waiting Line Problems", Operations Research 2, 1954). Tasks that come later and go first make it longer by a factor that
errors of earlier forecasts tell (:mod:`flowsched.cluster.start_errors`).
"""

from __future__ import annotations

import numpy as np

from flowsched.support.arrays import FloatArray


def seconds_ahead(priority: FloatArray, work_s: FloatArray, came: FloatArray, cores: float) -> FloatArray:
    """[tasks] seconds that ``cores`` need for the tasks before each: those of higher priority, then those with less work.

    ``work_s`` [tasks]: core-seconds, infinite for a task without an end, which comes last and delays none. ``came`` [tasks]:
    grows with the time of arrival, by which tasks of equal work are in order.
    """
    order = np.lexsort((came, work_s, -priority))
    done = np.where(np.isfinite(work_s), work_s, 0.0)[order]
    found = np.empty(len(order))
    found[order] = np.cumsum(done) - done
    return found / max(cores, 1.0)
