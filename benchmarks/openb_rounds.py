"""The openb trace through whole rounds of flow: each pod a round, with forecasts, candidates, records of demand and all.

The study of ``benchmarks.openb`` places one pod at a time by the prices of GPUs alone. Here the engine itself decides: a
pod that a round leaves waiting is withdrawn, as there, and none ever leaves. The demand is what has come.

    python -m benchmarks.openb_rounds --list default --seeds 42
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import click
import numpy as np

from benchmarks.machine import describe_machine, measured_on
from benchmarks.openb import RESULTS, OpenbExperiment, load, play
from benchmarks.openb_checks import faults
from benchmarks.openb_playing import GpuPlacements
from benchmarks.openb_trace import trace_folder
from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.events import MachineAdded, TaskBound, TaskSubmitted, TaskWithdrawn
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Machine, Task
from flowsched.gpu.devices import MachineGpus, TaskGpus
from flowsched.gpu.shapes import GpuShape
from flowsched.round.scheduler import FlowScheduler
from flowsched.solvers import make_solver
from flowsched_models.catalogue import Catalogue
from flowsched_models.given_run_time import fixed_profile
from flowsched_models.machine import MachineType
from flowsched_models.runtime import HostFactory
from flowsched_models.text_table import text_table
from flowsched_simulator.baselines.gpu.registry import GPU_RULES

PERCENT = (50, 80, 90, 95, 100)
"""% of all GPUs asked for by what has arrived, at which allocation is told."""
KEPT = RESULTS / "openb-rounds"


def cluster_of(experiment: OpenbExperiment) -> tuple[ClusterState, Catalogue, list[Machine]]:
    """The machines of the trace, empty, and a profile of pods that disturb nobody."""
    nodes = experiment.nodes
    vcpus = int(nodes.machines.cpu.max()) // 1000
    types = Catalogue({}, {}, {"node": MachineType("node", vcpus, int(nodes.machines.memory.max()))})
    profile = fixed_profile(types, None)
    catalogue = replace(types, jobs={profile.name: profile})
    state = ClusterState(catalogue)
    machines = []
    for m, name in enumerate(nodes.names):
        gpus = MachineGpus(nodes.models[nodes.machines.model[m]], int(nodes.machines.gpus()[m]))
        cpu = int(nodes.machines.cpu[m])
        machine = Machine(name, "node", cpu, int(nodes.machines.memory[m]), -(-cpu // 1000), gpus=gpus)
        state.apply(MachineAdded(machine, ()), 0.0)
        machines.append(machine)
    return state, catalogue, machines


def task_of(name: str, profile: str, shape: GpuShape) -> Task:
    """A pod that stays for good."""
    gpus = TaskGpus(shape.count, shape.share_milli, shape.models) if shape.count else None
    width = max(1, shape.cpu_milli)
    return Task(name, name, profile, 60.0, width, (width,), shape.memory_mib, 0.0, endless=True, gpus=gpus)


def through_rounds(experiment: OpenbExperiment, arrivals: np.ndarray) -> tuple[GpuPlacements, list[float]]:
    """Where rounds of flow place the arrivals, and the CPU time of each round in ms."""
    state, catalogue, machines = cluster_of(experiment)
    scheduler = FlowScheduler(make_solver("ortools"), Settings(slots=1), hosts=HostFactory(catalogue))
    (profile,) = catalogue.jobs
    number = {machine.name: m for m, machine in enumerate(machines)}
    where, device = np.full((2, len(arrivals)), -1, dtype=np.int64)
    cpu_ms = []
    for n, s in enumerate(arrivals.tolist()):
        shape = experiment.pods.shapes[s]
        task = task_of(f"pod-{n}", profile, shape)
        state.apply(TaskSubmitted(task), float(n))
        began = time.process_time()
        decided = scheduler.decide(state.snapshot(float(n)))
        cpu_ms.append(1e3 * (time.process_time() - began))
        for p in decided.placements:
            bound = TaskBound(p.task, p.machine, p.width_milli, p.threads, p.cores, float(n), p.devices)
            state.apply(bound, float(n))
            where[n] = number[p.machine]
            device[n] = p.devices[0] if shape.count and shape.share_milli < 1000 else -1
        if not decided.placements:
            state.apply(TaskWithdrawn(task.name), float(n))
    return GpuPlacements(where, device, sum(cpu_ms) / 1e3), cpu_ms


def rows_of(experiment: OpenbExperiment, until: int) -> Iterator[tuple[str, ...]]:
    """A line for each policy."""
    yield ("policy", *(f"at {percent} %" for percent in PERCENT), "ms a pod", "p99")
    (seed,) = experiment.orders
    outlook, arrivals = experiment.outlook(seed), experiment.arrivals(seed)
    asked = np.cumsum(experiment.pods.gpu_milli()[arrivals])
    capacity = experiment.nodes.machines.gpu_capacity_milli()
    arrivals = arrivals[: int(np.searchsorted(asked, (until / 100 + 0.01) * capacity))]
    cut = replace(experiment, orders={seed: experiment.orders[seed][: len(arrivals)]})
    run, cpu_ms = through_rounds(cut, arrivals)
    whole = faults(outlook.machines, outlook.models, outlook.shapes, arrivals, run.machine, run.device)
    if wrong := [fault for fault in whole if "dropped" in fault]:
        raise AssertionError(f"{len(wrong)} pods wait though they fit: {wrong[0]}")
    curve = cut.curve(seed, run)
    mean, p99 = float(np.mean(cpu_ms)), float(np.percentile(cpu_ms, 99))
    yield ("flow, rounds", *(f"{curve.get(percent, np.nan):.2f}" for percent in PERCENT), f"{mean:.1f}", f"{p99:.1f}")
    for name in ("FGD", "BestFit"):
        curve = cut.curve(seed, play(GPU_RULES[name], outlook, arrivals, "random"))
        yield (name, *(f"{curve.get(percent, np.nan):.2f}" for percent in PERCENT), "", "")


@click.command()
@click.option("--list", "name", default="default", show_default=True)
@click.option("--seed", default=42, show_default=True)
@click.option("--until", default=100, show_default=True, help="% of all GPUs asked for at which it ends.")
@click.option("--keep", is_flag=True, help="Keep the result under benchmarks/results.")
def main(name: str, seed: int, until: int, keep: bool) -> None:
    """One list through rounds of flow, beside FGD and BestFit on the same arrivals."""
    folder = trace_folder(None)
    if folder is None:
        raise click.UsageError("the trace is not here: FLOWSCHED_OPENB names its folder")
    experiment = load(name, (seed,), folder)
    lines = text_table(list(rows_of(experiment, until)), left=(0,))
    title = f"{name}, order {seed}: allocated GPUs in % of all, by % arrived"
    text = "\n".join([title, "", *lines, "", measured_on(describe_machine())])
    click.echo(text)
    if keep:
        KEPT.with_name(f"{KEPT.name}-{name}.txt").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
