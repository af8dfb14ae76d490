"""A min-cost flow network as arrays: what every solver takes and every record keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]

COST_LIMIT = 1 << 38
"""Largest unit cost handed to a solver: OR-tools multiplies costs by the number of nodes and refuses what overflows."""
_TARGET = 1 << 30


@dataclass(frozen=True)
class Network:
    """Nodes are 0..n-1; arc i runs from ``tails[i]`` to ``heads[i]``. Costs are integers: ``cost_scale`` per unit."""

    tails: IntArray
    heads: IntArray
    capacities: IntArray
    unit_costs: IntArray
    supplies: IntArray
    cost_scale: float
    """Unit costs are true costs times this, rounded."""
    nodes: tuple[str, ...] = ()
    """What each node stands for, as ``kind:name``; empty unless asked for."""
    terms: tuple[Mapping[str, float], ...] | Mapping[str, NDArray[np.float64]] = ()
    """The cost terms, in true units, for ``units`` units of flow together: of each arc, or arrays by term; empty where
    not asked for."""
    units: tuple[int, ...] | IntArray = ()
    """Units of flow that one task is on each arc; empty unless asked for."""

    @property
    def arc_count(self) -> int:
        """Number of arcs."""
        return len(self.tails)

    def cost_of(self, flow: IntArray) -> int:
        """Cost of a flow, in scaled units. Exact: Python integers where 64 bits might not do."""
        # The sum in doubles: in whole numbers it could itself leave 64 bits, as the absolute value of the least one does.
        most = max(int(self.unit_costs.max()), -int(self.unit_costs.min())) if self.arc_count else 0
        if most * float(np.abs(flow).sum(dtype=np.float64)) >= 1 << 61:
            return sum(int(c) * int(f) for c, f in zip(self.unit_costs, flow, strict=True))
        return int(self.unit_costs @ flow)

    def to_plain(self, flow: IntArray, columns: Mapping[str, IntArray] | None = None) -> dict[str, Any]:
        """What a record keeps, arrays as they are, with the flow that solved it; ``columns``: further values by arc."""
        return {
            "nodes": list(self.nodes),
            "supplies": self.supplies,
            "tails": self.tails,
            "heads": self.heads,
            "capacities": self.capacities,
            "unit_costs": self.unit_costs,
            "cost_scale": self.cost_scale,
            "terms": self.terms if isinstance(self.terms, Mapping) else term_columns(self.terms),
            "units": np.asarray(self.units, dtype=np.int64),
            "flow": flow,
            **({"columns": dict(columns)} if columns is not None else {}),
        }


def term_columns(terms: Sequence[Mapping[str, float]]) -> dict[str, NDArray[np.float64]]:
    """Terms arc by arc as one array for each term, 0 where an arc has none of it."""
    columns: dict[str, NDArray[np.float64]] = {}
    for k, mapping in enumerate(terms):
        for name, value in mapping.items():
            if name not in columns:
                columns[name] = np.zeros(len(terms))
            columns[name][k] = value
    return columns


@dataclass
class NetworkBuilder:
    """Collects arcs with true costs and scales them once all are known."""

    nodes: list[str] = field(default_factory=list)
    supplies: list[int] = field(default_factory=list)
    _arcs: list[tuple[int, int, int, float, int]] = field(default_factory=list)
    _terms: dict[int, Mapping[str, float]] = field(default_factory=dict)

    def node(self, label: str, supply: int = 0) -> int:
        """A new node; its number."""
        self.nodes.append(label)
        self.supplies.append(supply)
        return len(self.nodes) - 1

    def arc(
        self,
        tail: int,
        head: int,
        capacity: int,
        cost: float = 0.0,
        units: int = 1,
        terms: Mapping[str, float] | None = None,
    ) -> int:
        """A new arc; its number. ``cost`` is for ``units`` units of flow together, so the unit cost is their quotient."""
        arc = len(self._arcs)
        self._arcs.append((tail, head, capacity, cost, units))
        if terms:
            self._terms[arc] = terms
        return arc

    def capacity(self, arc: int) -> int:
        """Capacity of an arc that was added."""
        return self._arcs[arc][2]

    def build(self, sink: int) -> Network:
        """The network, with the sink's supply set so that supplies add up to 0.

        The scale is a power of two times the least common multiple of the units, so that costs per task stay as exact
        as integers allow and no unit cost passes ``COST_LIMIT``.
        """
        supplies = np.array(self.supplies, dtype=np.int64)
        supplies[sink] = 0
        supplies[sink] = -supplies.sum()
        # Numbers of nodes, capacities and units are far below 2^53.
        arcs = np.array(self._arcs, dtype=np.float64).reshape(len(self._arcs), 5)
        tails, heads, capacities, units = (arcs[:, i].astype(np.int64) for i in (0, 1, 2, 4))
        costs = arcs[:, 3]
        scale = _cost_scale(costs, units)
        return Network(
            tails,
            heads,
            capacities,
            np.rint(costs / units * scale).astype(np.int64),
            supplies,
            scale,
            tuple(self.nodes),
            tuple(self._terms.get(arc, {}) for arc in range(len(arcs))) if self._terms else (),
            units,
        )


def _cost_scale(costs: NDArray[np.float64], units: IntArray) -> float:
    multiple = math.lcm(*set(units.tolist()))
    if multiple > 1 << 16:
        multiple = 1  # widths with little in common: rounding the quotient is finer than such a scale would allow
    largest = float(np.abs(costs / units).max(initial=0.0)) * multiple
    power = 0 if largest == 0.0 else int(np.floor(np.log2(_TARGET) - np.log2(largest)))
    return float(multiple) * 2.0 ** min(power, 30)


def potentials(network: Network, flow: Sequence[int] | IntArray) -> IntArray:
    """Node potentials that prove a flow optimal: no residual arc has a negative reduced cost.

    Distances *to* the sink's side, negated: where a node's own arcs and a tier are both full, the tier gets the price.
    Bellman-Ford over the residual network, so O(nodes * arcs): for small networks and for readers of records, off the
    decision path.

    Raises ``ValueError`` if the flow is not optimal (a residual cycle has negative cost).
    """
    flow = np.asarray(flow, dtype=np.int64)
    forward = flow < network.capacities
    backward = flow > 0
    heads = np.concatenate([network.tails[forward], network.heads[backward]])
    tails = np.concatenate([network.heads[forward], network.tails[backward]])
    costs = np.concatenate([network.unit_costs[forward], -network.unit_costs[backward]])
    distance = np.zeros(len(network.supplies), dtype=np.int64)
    for _ in range(len(network.supplies) + 1):
        reached = distance.copy()
        np.minimum.at(reached, heads, distance[tails] + costs)
        if np.array_equal(reached, distance):
            return -distance
        distance = reached
    raise ValueError("the flow is not optimal: a residual cycle has negative cost")
