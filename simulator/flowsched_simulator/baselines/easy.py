"""EASY backfilling."""

from __future__ import annotations

from flowsched.cluster.knowledge import Knowledge
from flowsched_simulator.baselines.backfilling import Backfilling


class EasyBackfilling(Backfilling):
    """Order of arrival; what must not delay the first task that waits may start before it.

    The rule: D. A. Lifka, "The ANL/IBM SP Scheduling System", Job Scheduling Strategies for Parallel Processing (JSSPP),
    1995, pp. 295-303; A. W. Mu'alem, D. G. Feitelson, "Utilization, Predictability, Workloads, and User Runtime Estimates
    in Scheduling the IBM SP2 with Backfilling", IEEE Trans. Parallel and Distributed Systems 12(6), 2001, pp. 529-543. The
    head of the queue has a reservation, at the earliest time that the estimates of what runs allow, on the machine that
    is free first; all others are tried in order.
    """

    name = "easy"
    description = "EASY backfilling: order of arrival; what does not delay the first that waits may start before it"
    told = (Knowledge.RUN_TIMES,)
    reads_progress = False
    depth = 1
