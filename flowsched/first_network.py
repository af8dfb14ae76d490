"""The round's first network: classes at one width each, tiers of groups, the unscheduled nodes, the sink.

    class --cost--> (group, tier w) -> (group, next narrower tier) -> ... -> sink
    class --waiting cost--> unscheduled of its job -> sink

Flow is counted in core units, so a task of width w is w units (the greatest common divisor of all widths is one unit). A
flow may split a task over groups; rounding floors it to whole tasks, packs them and solves again for what is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from flowsched.assignment import Assignment, Column, Newcomer
from flowsched.census import Census
from flowsched.compaction import View
from flowsched.network import IntArray, Network, NetworkBuilder
from flowsched.packing import Parcel, Room, pack
from flowsched.policies.policy import FORBIDDEN, Prices
from flowsched.snapshot import Task
from flowsched.solvers import Solution, Solver
from flowsched.tiers import tier_capacities


@dataclass(frozen=True)
class FirstNetwork:
    """The network with what is needed to read a flow back."""

    network: Network
    unit_milli: int
    arcs: dict[int, tuple[int, int]]
    """Arc number to (class, group)."""
    widths_milli: tuple[int, ...]
    """The width at which each class enters."""
    tiers: dict[tuple[int, int], int] = field(default_factory=dict)
    """(group, width) to the arc that leaves the tier."""

    def whole_tasks(self, flow: IntArray) -> dict[tuple[int, int], int]:
        """Whole tasks per (class, group): the flow floored to multiples of the class's width."""
        counts = {}
        for arc, (c, g) in self.arcs.items():
            tasks = int(flow[arc]) * self.unit_milli // self.widths_milli[c]
            if tasks:
                counts[c, g] = tasks
        return counts


def build_first_network(
    view: View,
    prices: Prices,
    widths_milli: Sequence[int],
    counts: Sequence[int],
    rooms: Sequence[Room],
    census: Census | None = None,
    barred: frozenset[int] = frozenset(),
) -> FirstNetwork:
    """The network for ``counts[c]`` tasks of each class at ``widths_milli[c]`` on machines with these rooms.

    ``census``: who is counted by relations so far, None without any; ``barred``: classes that may not start.
    """
    unit = math.gcd(*(w for w, n in zip(widths_milli, counts, strict=True) if n)) or 1
    present = sorted({w for w, n in zip(widths_milli, counts, strict=True) if n}, reverse=True)
    builder = NetworkBuilder()
    sink = builder.node("sink")
    tier_of: dict[tuple[int, int], int] = {}
    tier_arc: dict[tuple[int, int], int] = {}
    for g, group in enumerate(view.groups):
        capacity = tier_capacities([rooms[m].cpu_milli for m in group.members], present)
        for w in present:
            tier_of[g, w] = builder.node(f"tier:{group.machine.name}/{w}m")
        for w, narrower in zip(present, [*present[1:], None], strict=False):
            head = sink if narrower is None else tier_of[g, narrower]
            tier_arc[g, w] = builder.arc(tier_of[g, w], head, capacity[w] // unit)
    arcs: dict[int, tuple[int, int]] = {}
    unscheduled: dict[str, int] = {}
    for c, cls in enumerate(view.classes):
        if not counts[c]:
            continue
        units = widths_milli[c] // unit
        node = builder.node(f"class:{cls.task.name}", counts[c] * units)
        for g, group in enumerate(view.groups):
            if not view.allowed(c, group.members[0]) or c in barred:
                continue
            fits = _whole_tasks(view, g, cls.task, widths_milli[c], rooms, census)
            if not fits:
                continue
            company = (Newcomer(c, 0, widths_milli[c]),)
            cost = prices.machine_cost(g, company)
            if cost == FORBIDDEN:
                continue
            price = cost - prices.machine_cost(g, ())
            terms = prices.machine_terms(g, company, 0)
            arc = builder.arc(node, tier_of[g, widths_milli[c]], min(fits, counts[c]) * units, price, units, terms)
            arcs[arc] = (c, g)
        job = cls.task.job
        if job not in unscheduled:
            unscheduled[job] = builder.node(f"unscheduled:{job}")
        builder.arc(node, unscheduled[job], counts[c] * units, prices.waiting_cost(c), units, prices.waiting_terms(c))
    total = sum(builder.supplies)
    for node in unscheduled.values():
        builder.arc(node, sink, total)
    return FirstNetwork(builder.build(sink), unit, arcs, tuple(widths_milli), tier_arc)


@dataclass(frozen=True)
class FirstSolution:
    """The first network solved and rounded."""

    first: FirstNetwork
    solution: Solution
    assignment: Assignment
    """Whole tasks on machines; what is left stays unscheduled."""
    solves: int


def solve_first(
    view: View,
    prices: Prices,
    solver: Solver,
    resolves: int,
    blocked: frozenset[int],
    barred: frozenset[int] = frozenset(),
) -> FirstSolution:
    """Solve, floor to whole tasks, pack, and solve again for leftovers. ``blocked`` machines take nobody, and tasks of
    ``barred`` classes do not start.

    Raises ``RuntimeError`` if the solver refuses the network: unscheduled arcs make every network feasible.
    """
    widths = [cls.task.widths_milli[0] for cls in view.classes]
    rooms = [_room(view, m) if m not in blocked else Room(0, -1) for m in range(len(view.machines))]
    waiting = {c: list(cls.members) for c, cls in enumerate(view.classes)}
    assignment = Assignment([None] * len(view.tasks), view.class_of, len(view.machines))
    census = view.census.copy() if view.census.relations else None
    first: FirstNetwork | None = None
    kept: Solution | None = None
    solves = 0
    for _ in range(1 + resolves):
        counts = [len(waiting[c]) for c in range(len(view.classes))]
        if not any(counts):
            break
        network = build_first_network(view, prices, widths, counts, rooms, census, barred)
        solution = solver.solve(network.network)
        solves += 1
        if not solution.status.has_flow:
            raise RuntimeError(f"{solver.name} answers {solution.status} to the first network: {solution.report}")
        if first is None:
            first, kept = network, solution
        placed = _place(view, network, solution.flow, rooms, census)
        for c, m in placed:
            assignment.move(waiting[c].pop(0), Column(m, 0, widths[c]))
        if not placed:
            break
    if first is None or kept is None:
        first = build_first_network(view, prices, widths, [0] * len(view.classes), rooms)
        kept = solver.solve(first.network)
    return FirstSolution(first, kept, assignment, solves)


def _place(
    view: View, network: FirstNetwork, flow: IntArray, rooms: Sequence[Room], census: Census | None
) -> list[tuple[int, int]]:
    by_group: dict[int, list[Parcel]] = {}
    for (c, g), count in network.whole_tasks(flow).items():
        task = view.classes[c].task
        parcel = Parcel(c, count, network.widths_milli[c], task.memory_mib, task.resources)
        by_group.setdefault(g, []).append(parcel)

    def permits(c: int, m: int) -> bool:
        return census is None or census.refusal(view.classes[c].task, view.machines[m].name) is None

    def note(c: int, m: int) -> None:
        if census is not None:
            census.add(view.classes[c].task, view.machines[m].name)

    placed = []
    for g, parcels in by_group.items():
        placed += pack(parcels, {m: rooms[m] for m in view.groups[g].members}, permits, note)
    return placed


def _room(view: View, machine: int) -> Room:
    group = view.groups[view.group_of[machine]]
    return Room(group.free_milli, group.free_memory_mib, group.free_resources)


def _whole_tasks(
    view: View, group: int, task: Task, width_milli: int, rooms: Sequence[Room], census: Census | None
) -> int:
    """Whole tasks that a group takes at most: machine by machine what fits, and what relations leave each domain."""
    members = view.groups[group].members
    fits = [rooms[m].count(width_milli, task.memory_mib, task.resources) for m in members]
    if census is None or not census.concerns(task):
        return sum(fits)
    alone = sum(
        min(n, census.room(task, view.machines[m].name, local=True)) for n, m in zip(fits, members, strict=True)
    )
    # The members have the same labels, so they are in the same domains.
    return min(alone, census.room(task, view.machines[members[0]].name, local=False))
