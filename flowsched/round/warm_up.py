"""Loads the compiled code of rounds, or compiles it, before anything waits for an answer."""

from __future__ import annotations

from functools import cache

from flowsched.cluster.compaction import compact
from flowsched.cluster.learnt_run_times import NOTHING_LEARNT
from flowsched.cluster.run_time_errors import RunTimeErrors
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Machine, Running, Snapshot, Task
from flowsched.gpu.devices import MachineGpus, TaskGpus
from flowsched.round.candidates import draw
from flowsched.round.scheduler import FlowScheduler, begin_round, make_plan
from flowsched.solvers import make_solver
from flowsched_models.catalogue import Catalogue
from flowsched_models.estimated_executions import EstimatedExecutions
from flowsched_models.forecast import forecast
from flowsched_models.machine import MachineType
from flowsched_models.profile import JobProfile, PhaseOrder
from flowsched_models.runtime import HostFactory, Resident


@cache
def warm_up() -> None:
    """Decide one small round in which every compiled function is called, but for those of GPUs; and those of estimates."""
    now = _small_cluster(None, (None, None))
    hosts, settings, job = HostFactory(now.catalogue), Settings(), Resident("any", 1.0, 1, (0,), 1.0)
    forecast(hosts.host("any"), [job])
    estimates = EstimatedExecutions()
    estimates.add("any", hosts.host("any"), [(0.0, 0, job)])
    estimates.progress_of("any", 0)
    estimates.progress()
    view = compact(now, hosts, draw(now, hosts, settings))
    make_plan(begin_round(view, hosts, settings), make_solver("ortools"), settings)


@cache
def warm_up_gpus() -> None:
    """Decide one small round in which those of GPUs are called too: one task starts, the others are priced beside it."""
    asked = TaskGpus(share_milli=500), TaskGpus(), TaskGpus(share_milli=500)
    FlowScheduler(make_solver("ortools")).decide(_small_cluster(MachineGpus("any", 2), asked))


def _small_cluster(gpus: MachineGpus | None, asked: tuple[TaskGpus | None, ...]) -> Snapshot:
    """One machine; something runs there only where it has no GPUs, since tasks would wait for its end."""
    vcpus = 1 if gpus is None else 4
    profile = JobProfile("any", 1.0, 0.0, PhaseOrder.MIXED, 1.0, 0.0, 0.0, 1)
    catalogue = Catalogue({"any": profile}, {}, {"any": MachineType("any", vcpus, 1)})

    def task(name: str, wanted: TaskGpus | None = None) -> Task:
        return Task(name, name, "any", 1.0, 1000, (1000,), 1, 0.0, gpus=wanted, run_class="any")

    return Snapshot(
        now_s=0.0,
        catalogue=catalogue,
        machines=(Machine("any", "any", 1000 + 1000 * vcpus, 16, vcpus, gpus=gpus),),
        running=(Running(task("a"), "any", 1000, 1, (0,), 0.0, 0.0, 0.5),) if gpus is None else (),
        pending=tuple(task(f"b-{i}", wanted) for i, wanted in enumerate(asked)),
        run_time_errors=RunTimeErrors(),
        learnt_run_times=NOTHING_LEARNT.with_end("any", "any", 1.0),
    )
