"""Loads the compiled code of rounds, or compiles it, before anything waits for an answer."""

from __future__ import annotations

from functools import cache

from flowsched.cluster.compaction import compact
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Machine, Running, Snapshot, Task
from flowsched.round.scheduler import begin_round, decide
from flowsched.solvers import make_solver
from flowsched_models.catalogue import Catalogue
from flowsched_models.forecast import forecast
from flowsched_models.machine import MachineType
from flowsched_models.profile import JobProfile, PhaseOrder
from flowsched_models.runtime import HostFactory, Resident


@cache
def warm_up() -> None:
    """Decide one small round in which every compiled function is called."""
    profile = JobProfile("any", 1.0, 0.0, PhaseOrder.MIXED, 1.0, 0.0, 0.0, 1)
    catalogue = Catalogue({"any": profile}, {}, {"any": MachineType("any", 1, 1)})

    def task(name: str) -> Task:
        return Task(name, name, "any", 1.0, 1000, (1000,), 1, 0.0)

    now = Snapshot(
        now_s=0.0,
        catalogue=catalogue,
        machines=(Machine("any", "any", 2000, 16, 1),),
        running=(Running(task("a"), "any", 1000, 1, (0,), 0.0, 0.0),),
        pending=(task("b"), task("c")),
    )
    hosts, settings = HostFactory(catalogue), Settings()
    forecast(hosts.host("any"), [Resident("any", 1.0, 1, (0,), 1.0)])
    decide(begin_round(compact(now, hosts), hosts, settings), make_solver("ortools"), settings)
