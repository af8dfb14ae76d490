"""The network of one phase: each sub-task to a machine, or to the unscheduled node of its job (thesis, figure 22).

Sub-tasks reach machines over an aggregator for all that are alike; the thesis draws one, as its jobs are. Arcs that lead
from a sub-task to a machine of its own are preferences. What runs is not moved, so machines have what it leaves.

Flow counts sub-tasks. Where all of a phase ask for equally much, a machine takes as many as fit; else it takes one, and the
phase is solved again with what is left: every flow is a set of places that there are. (The thesis adds up resources, each
relative to the most that a machine has, its equation 10; such a flow may stand for places that there are not.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from flowsched.cluster.snapshot import Task
from flowsched.disaggregation.free_room import FreeRoom
from flowsched.network.network import Network, NetworkBuilder
from flowsched.solvers.solver import Solver
from flowsched.support.arrays import IntArray

K = TypeVar("K")


@dataclass(frozen=True)
class SolvedNetwork:
    """A network of a round with its flow, and what it says."""

    network: Network
    flow: IntArray
    batch: tuple[str, ...]
    """Tasks that it could place."""
    found: Mapping[str, str]
    """Machines by task, of those that its flow placed."""
    paid: Mapping[str, float]
    """What each of them costs at its machine."""
    rivals: Mapping[str, float]
    """The price of the cheapest other machine; infinity where there is none."""


@dataclass(frozen=True)
class Wish:
    """A sub-task in a phase."""

    task: Task
    job: str
    kind: tuple[object, ...]
    """What tells it from sub-tasks that cost the same everywhere."""
    waiting: float
    """Price of its job's unscheduled node."""
    preferred: tuple[str, float] | None = None
    """A machine with a price of its own."""


def demand(task: Task) -> tuple[object, ...]:
    """What a task takes of a machine."""
    gpus = None if task.gpus is None else (task.gpus.count, task.gpus.share_milli)
    return task.widths_milli[0], task.memory_mib, task.resources, gpus


def has_one_demand(tasks: Sequence[Task]) -> bool:
    """Whether tasks take equally much, so that a machine's room is a number of them."""
    return len({demand(task) for task in tasks}) == 1


def solved_phase(
    wishes: Sequence[Wish], room: FreeRoom, price: Callable[[Task, str], float], solver: Solver
) -> SolvedNetwork:
    """Machines for those sub-tasks that get one. ``price``: of a place without preference."""
    builder = NetworkBuilder()
    sink = builder.node("sink:sink")
    exact = has_one_demand([w.task for w in wishes])
    unscheduled: dict[str, int] = {}
    machines: dict[str, int] = {}
    kinds: dict[tuple[object, ...], int] = {}
    examples: dict[int, Task] = {}
    direct: list[tuple[int, Wish]] = []
    shared: list[tuple[int, Wish, int]] = []
    sizes: dict[str, int] = {}
    for wish in wishes:
        sizes[wish.job] = sizes.get(wish.job, 0) + 1

    def machine(name: str, task: Task) -> int:
        if name not in machines:
            machines[name] = builder.node(f"machine:{name}")
            builder.arc(machines[name], sink, room.times(task, name) if exact else 1)
        return machines[name]

    for wish in wishes:
        if wish.job not in unscheduled:
            unscheduled[wish.job] = builder.node(f"unscheduled:{wish.job}")
            builder.arc(unscheduled[wish.job], sink, sizes[wish.job])
        node = builder.node(f"task:{wish.task.name}", 1)
        builder.arc(node, unscheduled[wish.job], 1, wish.waiting)
        if wish.preferred is not None and room.fits(wish.task, wish.preferred[0]):
            name, cost = wish.preferred
            direct.append((builder.arc(node, machine(name, wish.task), 1, cost), wish))
        if wish.kind not in kinds:
            kinds[wish.kind] = builder.node(f"aggregator:{len(kinds)}")
            examples[kinds[wish.kind]] = wish.task
        shared.append((builder.arc(node, kinds[wish.kind], 1), wish, kinds[wish.kind]))
    onward: list[tuple[int, int, str]] = []
    prices: dict[int, dict[str, float]] = {kind: {} for kind in examples}
    for kind, task in examples.items():
        for place in room.machines:
            most = room.times(task, place.name) if exact else min(1, room.times(task, place.name))
            if most:
                cost = prices[kind][place.name] = price(task, place.name)
                arc = builder.arc(kind, machine(place.name, task), most, cost)
                onward.append((arc, kind, place.name))
    network = builder.build(sink)
    flow = flow_of(network, solver)
    found = {wish.task.name: wish.preferred[0] for arc, wish in direct if wish.preferred and flow[arc]}
    places = handed_out(onward, flow)
    found |= {wish.task.name: next(places[kind]) for arc, wish, kind in shared if flow[arc]}
    paid: dict[str, float] = {}
    rivals: dict[str, float] = {}
    for _, wish, kind in shared:
        name = wish.task.name
        if name not in found:
            continue
        known = dict(prices[kind])
        if wish.preferred is not None and room.fits(wish.task, wish.preferred[0]):
            known[wish.preferred[0]] = min(wish.preferred[1], known.get(wish.preferred[0], math.inf))
        paid[name] = known[found[name]]
        rivals[name] = min((cost for place, cost in known.items() if place != found[name]), default=math.inf)
    return SolvedNetwork(network, flow, tuple(wish.task.name for wish in wishes), found, paid, rivals)


def flow_of(network: Network, solver: Solver) -> IntArray:
    """The flow of a network in which every task may wait. Raises ``RuntimeError`` if the solver finds none."""
    solution = solver.solve(network)
    if not solution.status.has_flow:
        raise RuntimeError(f"{solver.name} found no flow in a network that has one: {solution.report}")
    return solution.flow


def handed_out(onward: Iterable[tuple[int, K, str]], flow: IntArray) -> dict[K, Iterator[str]]:
    """Machines one by one for the tasks of each kind, as ``(arc, kind, machine)`` of its arcs to machines carry flow."""
    places: dict[K, list[str]] = {}
    for arc, kind, name in onward:
        places.setdefault(kind, []).extend([name] * int(flow[arc]))
    return {kind: iter(names) for kind, names in places.items()}
