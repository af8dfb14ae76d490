"""Conservative backfilling."""

from __future__ import annotations

from flowsched.cluster.knowledge import Knowledge
from flowsched_simulator.baselines.backfilling import Backfilling


class ConservativeBackfilling(Backfilling):
    """Order of arrival; what delays none of the tasks before it may start before them.

    The rule: A. W. Mu'alem, D. G. Feitelson, "Utilization, Predictability, Workloads, and User Runtime Estimates in
    Scheduling the IBM SP2 with Backfilling", IEEE Trans. Parallel and Distributed Systems 12(6), 2001, pp. 529-543: every
    task that waits has a reservation.
    """

    name = "conservative"
    description = "Conservative backfilling: every task that waits has a reservation that no later one delays"
    told = (Knowledge.RUN_TIMES,)
    reads_progress = False
    depth = None
