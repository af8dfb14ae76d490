"""Looks whether running pods should be elsewhere, with the arithmetic in another thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from flowsched.round.scheduler import FlowScheduler
from flowsched.solvers import Solver
from flowsched_k8s.configuration.configuration import RebalancingSettings
from flowsched_k8s.instructions import Instruction
from flowsched_k8s.rebalancing.move_plan import MovePlan, confirmed, plan_moves
from flowsched_k8s.rebalancing.rebalancing import Rebalancing
from flowsched_k8s.records.records import Records
from flowsched_k8s.threads import Threads

LOG = logging.getLogger(__name__)


class RebalancingLooks:
    """Of one process."""

    def __init__(
        self,
        rebalancing: Rebalancing,
        settings: RebalancingSettings,
        solver: Solver,
        threads: Threads,
        records: Records,
        dispatch: Callable[[Sequence[Instruction]], None],
        clock: Callable[[], float],
    ) -> None:
        """``dispatch`` carries out what comes of a look."""
        self._rebalancing = rebalancing
        self._settings = settings
        self._solver = solver
        self._threads = threads
        self._records = records
        self._dispatch = dispatch
        self._clock = clock

    async def look(self, engine: FlowScheduler, now: float) -> None:
        """Look whether running pods should be elsewhere, and ask for their eviction."""
        rebalancing, settings = self._rebalancing, self._settings
        try:
            self._dispatch(rebalancing.restore(now))
            questions = iter(rebalancing.questions(now))
            refused: list[str] = []
            while True:
                plan, why = await self._threads.run(plan_moves, questions, self._solver, engine, settings)
                refused += why
                check = None if plan is None else rebalancing.check(plan, self._clock())
                if plan is None or check is None:
                    break
                found = await self._threads.run(confirmed, plan, check, self._solver, engine, settings)
                if isinstance(found, MovePlan):
                    plan = found
                    break
                refused.append(f"{check.what}: {found}")
        except Exception:  # A fault of ours must not stop the scheduling of pods.
            LOG.exception("rebalancing failed", extra={"look": rebalancing.looks})
            return
        now, name = self._clock(), f"rebalancing-{rebalancing.looks}"
        if plan is not None and plan.record is not None:
            self._records.add(name, now, plan.record, pods=plan.pods, asked=True)
        self._dispatch(rebalancing.carry_out(plan, refused, name, now))
