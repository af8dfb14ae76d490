"""A solved network as a person reads it: what nodes stand for, what arcs carry and cost, and the prices that prove it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowsched.network.network import Network, potentials
from flowsched.records.level_types import RecordedNetwork
from flowsched.records.value_types import Wholes
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

LAYERS: Mapping[str, int] = {
    "class": 0,
    "task": 0,
    "running": 0,
    "domain": 1,
    "tier": 2,
    "group": 3,
    "cores": 2,
    "later": 2,
    "machine": 3,
    "unscheduled": 3,
    "sink": 4,
}
"""Where a drawing puts each kind of node, from left to right."""


@dataclass(frozen=True, kw_only=True)
class Graph(Network):
    """A network with the flow that solved it: arrays by node and by arc."""

    terms: Mapping[str, FloatArray]
    """By term, its part of the true cost of one task on each arc; all terms of an arc add up to its cost."""
    units: IntArray
    flow: IntArray
    columns: Mapping[str, IntArray]
    """``slot`` and ``width_milli`` of the option that each arc is, -1 where it is none; empty for networks of groups. Of the
    network of a round also ``own``: 1 for options on the machine that the task is on, or planned for."""
    members: Mapping[int, tuple[str, ...]]
    """Tasks or machines that one node stands for, where it is more than one; of places in a machine always the machines."""
    best: IntArray | None = None
    """An optimal flow, where ``flow``, which was decided, is not."""
    proof: IntArray | None = None
    """Potentials that prove the flow optimal, in solver units, where they are known from how the network was made."""

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Kind of each node: a key of ``LAYERS``."""
        return tuple(label.partition(":")[0] for label in self.nodes)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The rest of its label, unique within its kind; empty for the sink."""
        return tuple(label.partition(":")[2] for label in self.nodes)

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return len(self.nodes)

    @cached_property
    def potentials(self) -> IntArray:
        """Dual price of every node, in solver units; raises ``ValueError`` if the flow is not optimal.

        Where ``best`` is given they are those of it.
        """
        return potentials(self, self.optimal_flow) if self.proof is None else self.proof

    @cached_property
    def reduced_costs(self) -> IntArray:
        """Unit cost of every arc plus its tail's potential minus its head's, in solver units.

        At least 0 on arcs with room, at most 0 on arcs with flow: by how much a unit more on the arc would miss.
        """
        return self.unit_costs + self.potentials[self.tails] - self.potentials[self.heads]

    @property
    def optimal_flow(self) -> IntArray:
        """``best``, or the flow where it is optimal itself."""
        return self.flow if self.best is None else self.best

    @cached_property
    def optimum(self) -> int:
        """Cost of an optimal flow, in solver units; exact."""
        return self.cost_of(self.optimal_flow)

    @property
    def distance(self) -> float:
        """What the flow costs more than an optimal one, in units of cost."""
        return self.in_cost(self.cost_of(self.flow) - self.optimum)

    def label(self, node: int) -> str:
        """``kind:name``, as the record has it."""
        return f"{self.kinds[node]}:{self.names[node]}" if self.names[node] else self.kinds[node]

    def node(self, kind: str, name: str = "") -> int | None:
        """Number of the node that is, or stands for, something of a kind and name; None if there is none."""
        return self._numbers.get((kind, name))

    def cost(self, arc: int) -> float:
        """True cost of one task on an arc: the sum of its terms."""
        return float(sum(values[arc] for values in self.terms.values()))

    def terms_of(self, arc: int) -> dict[str, float]:
        """The terms of an arc that are not 0."""
        return {name: float(values[arc]) for name, values in self.terms.items() if values[arc]}

    def true_cost(self, arc: int) -> float:
        """Cost of one task on an arc as the solver saw it: rounded to whole solver units."""
        return float(self.unit_costs[arc] * self.units[arc] / self.cost_scale)

    def in_cost(self, solver_units: int | float) -> float:
        """An amount in solver units per unit of flow, in units of cost."""
        return float(solver_units) / self.cost_scale

    def members_of(self, node: int) -> tuple[str, ...]:
        """What a node stands for: itself, or all that are equal to it."""
        return self.members.get(node, (self.names[node],))

    def machines_of(self, arc: int, own: str | None) -> tuple[str, ...]:
        """Machines that an option is on, each at the same price. ``own``: the one that its task is on, or planned for."""
        machines = self.members_of(int(self.heads[arc]))
        if "own" not in self.columns or own is None:
            return machines
        return (own,) if self.columns["own"][arc] else tuple(m for m in machines if m != own)

    def leaving(self, node: int) -> IntArray:
        """Arcs whose tail is a node."""
        return self._leaving.get(node, np.zeros(0, dtype=np.int64))

    def arcs_by_kind(self, which: BoolArray | slice = slice(None)) -> dict[str, int]:
        """How many arcs, or how many of some, run from each kind of node to each, as ``kind -> kind``."""
        counts: dict[str, int] = {}
        for tail, head in zip(self.tails[which].tolist(), self.heads[which].tolist(), strict=True):
            key = f"{self.kinds[tail]} -> {self.kinds[head]}"
            counts[key] = counts.get(key, 0) + 1
        return counts

    def path(self, node: int) -> list[int]:
        """Arcs from a node to the sink along positive flow, the largest at every step."""
        arcs: list[int] = []
        seen = {node}
        while True:
            onward = [k for k in self.leaving(node).tolist() if self.flow[k] > 0]
            if not onward:
                return arcs
            best = max(onward, key=lambda k: (int(self.flow[k]), -k))
            arcs.append(best)
            node = int(self.heads[best])
            if node in seen:
                return arcs
            seen.add(node)

    def faults(self) -> Iterator[str]:
        """What is wrong: conservation, capacities, complementary slackness, sums of terms; nothing for a sound record."""
        flow = self.optimal_flow
        for each in (self.flow,) if self.best is None else (self.flow, self.best):
            balance = self.supplies.copy()
            np.subtract.at(balance, self.tails, each)
            np.add.at(balance, self.heads, each)
            for i in np.flatnonzero(balance).tolist():
                yield f"{self.label(i)}: {int(balance[i])} units stay"
            for k in np.flatnonzero((each < 0) | (each > self.capacities)).tolist():
                yield f"arc {k}: flow {int(each[k])} of {int(self.capacities[k])}"
        try:
            reduced = self.reduced_costs
        except ValueError as error:
            yield str(error)
            return
        for k in np.flatnonzero((flow < self.capacities) & (reduced < 0)).tolist():
            yield f"arc {k} has room and reduced cost {int(reduced[k])}"
        for k in np.flatnonzero((flow > 0) & (reduced > 0)).tolist():
            yield f"arc {k} has flow and reduced cost {int(reduced[k])}"
        total = np.sum(list(self.terms.values()), axis=0) if self.terms else np.zeros(self.arc_count)
        rounding = 0.5 * self.units / self.cost_scale + 1e-9 * np.abs(total)
        wrong = np.abs(total - self.unit_costs * (self.units / self.cost_scale)) > rounding * (1.0 + 1e-6)
        for k in np.flatnonzero(wrong).tolist():
            yield f"arc {k}: terms add up to {total[k]}, its cost is {self.true_cost(k)}"

    @cached_property
    def _numbers(self) -> dict[tuple[str, str], int]:
        inside = {(self.kinds[i], name): i for i, names in self.members.items() for name in names}
        return inside | {key: i for i, key in enumerate(zip(self.kinds, self.names, strict=True))}

    @cached_property
    def _leaving(self) -> dict[int, IntArray]:
        return _by_node(self.tails)


def _by_node(ends: IntArray) -> dict[int, IntArray]:
    order = np.argsort(ends, kind="stable")
    nodes, starts = np.unique(ends[order], return_index=True)
    return dict(zip(nodes.tolist(), np.split(order, starts[1:]), strict=True)) if len(nodes) else {}


def read_graph(plain: RecordedNetwork) -> Graph:
    """A network of a record."""

    def whole(values: Wholes) -> IntArray:
        return np.asarray(values, dtype=np.int64)

    nodes = tuple(map(str, plain["nodes"]))
    return Graph(
        whole(plain["tails"]),
        whole(plain["heads"]),
        whole(plain["capacities"]),
        whole(plain["unit_costs"]),
        whole(plain["supplies"]),
        float(plain["cost_scale"]),
        nodes,
        terms={name: np.asarray(values, dtype=np.float64) for name, values in plain["terms"].items()},
        units=whole(plain["units"]),
        flow=whole(plain["flow"]),
        columns={name: whole(values) for name, values in plain.get("columns", {}).items()},
        members={},
    )
