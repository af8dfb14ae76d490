"""One network for jobs with one GPU: a unit of flow is a job, and passes its GPU and then its CPU.

::

    job -> class -> GPUs of m -> CPU of m -> sink                (local)
                    GPUs of m -> X -> CPU of m' -> sink          (remote)
    job -> unscheduled -> sink

A place is priced on the arc from a job's class to the GPUs, as in the phases; what a remote one costs more stands on the
arc to X, and is the mean of the jobs' where it differs between them. The jobs of one network ask for equally much CPU and
memory, so that the capacities are numbers of jobs and every flow is a set of places that there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flowsched.cluster.snapshot import Task
from flowsched.disaggregation.coupled import CoupledJob
from flowsched.disaggregation.free_room import FreeRoom
from flowsched.disaggregation.phase_network import SolvedNetwork, demand, flow_of, handed_out
from flowsched.disaggregation.prices import Prices
from flowsched.network.network import NetworkBuilder
from flowsched.solvers.solver import Solver


@dataclass(frozen=True)
class Pair:
    """Where a job goes: its CPU and memory, and its GPU."""

    job: CoupledJob
    cpu: str
    gpu: str


def batches(jobs: Sequence[CoupledJob]) -> list[list[CoupledJob]]:
    """Jobs with one remote-capable GPU by what their first sub-task asks for and where it may be; oldest first."""
    found: dict[tuple[object, ...], list[CoupledJob]] = {}
    for job in jobs:
        if len(job.parts) == 1:
            found.setdefault((demand(job.first), job.first.machines), []).append(job)
    return list(found.values())


def solved_jointly(
    jobs: Sequence[CoupledJob], room: FreeRoom, prices: Prices, solver: Solver
) -> tuple[list[Pair], SolvedNetwork]:
    """Places of those jobs of a batch that get one, and the network that found them."""
    builder = NetworkBuilder()
    sink = builder.node("sink:sink")
    first = jobs[0].first
    cpu_times = {m.name: room.times(first, m.name) for m in room.machines}
    gpus: dict[str, tuple[int, int]] = {}
    aggregator = builder.node("aggregator:remote")
    surcharge = sum(_surcharge(job.parts[0], prices) for job in jobs) / len(jobs)

    def inside(part: Task, name: str) -> int:
        """The node of a machine's GPUs, with so many devices after it."""
        if name not in gpus:
            taken, given = builder.node(f"gpus:{name}"), builder.node(f"gpu:{name}")
            builder.arc(taken, given, room.times(part, name))
            gpus[name] = taken, given
        return gpus[name][0]

    entering: list[tuple[int, tuple[object, ...], str]] = []
    classes: dict[tuple[object, ...], int] = {}
    leaving: list[tuple[int, CoupledJob, tuple[object, ...]]] = []
    for job in jobs:
        part = job.parts[0]
        kind = prices.class_of(part)
        if kind not in classes:
            classes[kind] = builder.node(f"class:{len(classes)}")
            for m in room.machines:
                if room.times(part, m.name):
                    arc = builder.arc(classes[kind], inside(part, m.name), len(jobs), prices.place(part, m.name))
                    entering.append((arc, kind, m.name))
        node = builder.node(f"job:{job.first.name}", 1)
        leaving.append((builder.arc(node, classes[kind], 1), job, kind))
        waits = builder.node(f"unscheduled:{job.first.name}")
        builder.arc(node, waits, 1, prices.waiting(part))
        builder.arc(waits, sink, 1)
    outward = []
    inward = []
    for m in room.machines:
        if cpu_times[m.name]:
            cpu = builder.node(f"cpu:{m.name}")
            builder.arc(cpu, sink, min(cpu_times[m.name], len(jobs)))
            inward.append((builder.arc(aggregator, cpu, len(jobs)), m.name))
            if m.name in gpus:
                builder.arc(gpus[m.name][1], cpu, len(jobs))
    for name, (_, given) in gpus.items():
        outward.append((builder.arc(given, aggregator, len(jobs), surcharge), name))
    network = builder.build(sink)
    flow = flow_of(network, solver)
    at = handed_out(entering, flow)
    by_gpu: dict[str, list[CoupledJob]] = {}
    for arc, job, kind in leaving:
        if flow[arc]:
            by_gpu.setdefault(next(at[kind]), []).append(job)
    remote_of = {name: int(flow[arc]) for arc, name in outward}
    afar = [name for arc, name in inward for _ in range(int(flow[arc]))]
    pairs: list[Pair] = []
    for name, mine in by_gpu.items():
        # Those that lose least by being remote are remote.
        order = sorted(mine, key=lambda job: (_surcharge(job.parts[0], prices), job.age))
        remote, local = order[: remote_of.get(name, 0)], order[remote_of.get(name, 0) :]
        pairs += [Pair(job, name, name) for job in local]
        pairs += [Pair(job, afar.pop(0), name) for job in remote]
    names = tuple(task.name for job in jobs for task in job.tasks)
    found: dict[str, str] = {}
    paid: dict[str, float] = {}
    rivals: dict[str, float] = {}
    for pair in pairs:
        part = pair.job.parts[0]
        away = 0.0 if pair.cpu == pair.gpu else surcharge
        others = [prices.place(part, m.name) for m in room.machines if m.name != pair.gpu and room.times(part, m.name)]
        for task, machine in ((pair.job.first, pair.cpu), (part, pair.gpu)):
            found[task.name] = machine
            paid[task.name] = prices.place(part, pair.gpu) + away
            rivals[task.name] = min(others, default=math.inf)
    solved = SolvedNetwork(network, flow, names, found, paid, rivals)
    return sorted(pairs, key=lambda pair: pair.job.age), solved


def _surcharge(part: Task, prices: Prices) -> float:
    """What a remote GPU costs a job more than a local one, where it is best."""
    return (prices.settings.remote_price - 1.0) * prices.best_cost(part)
