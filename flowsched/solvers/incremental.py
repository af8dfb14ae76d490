"""Re-optimisation from the last flow: worth it when the same network comes again with small changes.

The first network, and one that shares too little with the last, is solved by OR-tools and given prices; after that, what
changed is repaired by shortest paths. Nodes and arcs are recognised by their numbers or, where the nodes have names, by
those.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import numpy as np

from flowsched.network.network import Network
from flowsched.solvers.flow_repair import DONE, NO_WAY, lower_prices, repair
from flowsched.solvers.guards import guarded, largest
from flowsched.solvers.ortools import OrtoolsSolver
from flowsched.solvers.solver import Capabilities, Requirement, Solution, Status
from flowsched.support.arrays import IntArray

LOOKED_PER_ARC = 20
"""Arcs that a repair may look at for each arc of the network, before the network is solved from scratch."""
_CHUNK = 2_000_000
_SWEEPS = 200
_RANGE = 1 << 60
_PARALLEL = 1 << 16


class Rebuild(StrEnum):
    """Why a network was solved from scratch."""

    FIRST = "first"
    NODES_CHANGED = "nodes-changed"
    ARCS_CHANGED = "arcs-changed"
    SEARCHES_TOO_LONG = "searches-too-long"
    COSTS_TOO_LARGE = "costs-too-large"
    """Prices might leave 64 bits."""
    NO_PRICES = "no-prices"
    """No prices were found for the last flow in the sweeps allowed."""


@dataclass(frozen=True)
class _Last:
    network: Network
    flow: IntArray
    price: IntArray


class IncrementalSolver:
    """Keeps the last flow and its prices. ``rebuilds`` counts the solves from scratch by reason."""

    name = "incremental"
    capabilities: ClassVar[Capabilities] = Capabilities(
        largest_cost=1 << 46,
        warm_start=True,
        repeatable=False,
        potentials=True,
        requires=(Requirement("ortools", "pip install ortools"),),
    )

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is known yet; ``clock`` counts seconds for time limits."""
        self._clock = clock
        self._last: _Last | None = None
        self._no_prices = False
        self._scratch = OrtoolsSolver()
        self.rebuilds: Counter[str] = Counter()
        self.repairs = 0
        """Networks solved from the flow of the one before."""

    def solve(self, network: Network, *, time_limit_s: float | None = None) -> Solution:
        """Repair the last flow, or solve from scratch; the report says which, and why."""
        given = guarded(network)
        if isinstance(given, Solution):
            return given
        until = None if time_limit_s is None else self._clock() + time_limit_s
        start = self._start(given)
        reason = start if isinstance(start, Rebuild) else None
        if not isinstance(start, Rebuild):
            flow, price = start
            done = _repaired(given, flow, price, until, self._clock)
            if done == DONE:
                self.repairs += 1
                return self._keep(network, given, flow, price, "repaired from the last flow")
            reason = Rebuild.SEARCHES_TOO_LONG
            if done == NO_WAY:
                self._last = None
                return Solution(
                    Status.INFEASIBLE,
                    np.zeros(network.arc_count, dtype=np.int64),
                    0,
                    "supplies cannot reach the demands",
                )
        self.rebuilds[str(reason)] += 1
        left = None if until is None else max(0.0, until - self._clock())
        solution = self._scratch.solve(network, time_limit_s=left)
        text = f"solved from scratch: {reason}"
        if solution.status is not Status.OPTIMAL:
            self._last = None
            return solution
        price = np.zeros(len(given.supplies), dtype=np.int64)
        if reason is Rebuild.COSTS_TOO_LARGE or not _priced(given, solution.flow, price):
            self._last = None
            self._no_prices = reason is not Rebuild.COSTS_TOO_LARGE
            return Solution(solution.status, solution.flow, solution.cost, text)
        return self._keep(network, given, solution.flow, price, text)

    def _keep(self, network: Network, given: Network, flow: IntArray, price: IntArray, report: str) -> Solution:
        self._last = _Last(given, flow.copy(), price)
        self._no_prices = False
        return Solution(Status.OPTIMAL, flow, network.cost_of(flow), report, -price)

    def _start(self, network: Network) -> tuple[IntArray, IntArray] | Rebuild:
        """Flow and prices to begin with, on this network's arcs and nodes."""
        if largest(network.unit_costs) * (len(network.supplies) + 1) >= _RANGE:
            return Rebuild.COSTS_TOO_LARGE
        if self._last is None:
            return Rebuild.NO_PRICES if self._no_prices else Rebuild.FIRST
        last = self._last.network
        if largest(self._last.price) >= _RANGE:
            return Rebuild.COSTS_TOO_LARGE
        same_nodes = last.nodes == network.nodes and len(last.supplies) == len(network.supplies)
        if same_nodes and np.array_equal(last.tails, network.tails) and np.array_equal(last.heads, network.heads):
            return self._last.flow.copy(), self._last.price.copy()
        if not network.nodes or len(set(network.nodes)) < len(network.nodes) or not last.nodes:
            return Rebuild.ARCS_CHANGED if same_nodes else Rebuild.NODES_CHANGED
        return _carried(self._last, network)


def _carried(last: _Last, network: Network) -> tuple[IntArray, IntArray] | Rebuild:
    """The last flow and prices by the names of nodes: an arc is the same if its ends, and its rank among those between
    the same ends, are.
    """
    number = {name: node for node, name in enumerate(network.nodes)}
    found = np.array([number.get(name, -1) for name in last.network.nodes], dtype=np.int64)
    if np.count_nonzero(found >= 0) * 2 < len(network.nodes):
        return Rebuild.NODES_CHANGED
    price = np.zeros(len(network.supplies), dtype=np.int64)
    price[found[found >= 0]] = last.price[found >= 0]
    keys, order = _arc_keys(network.tails, network.heads, len(network.supplies))
    tails, heads = found[last.network.tails], found[last.network.heads]
    kept = np.flatnonzero((tails >= 0) & (heads >= 0))
    old_keys, old_order = _arc_keys(tails[kept], heads[kept], len(network.supplies))
    flow = np.zeros(network.arc_count, dtype=np.int64)
    _, new, old = np.intersect1d(_ranked(keys), _ranked(old_keys), assume_unique=True, return_indices=True)
    flow[order[new]] = last.flow[kept[old_order[old]]]
    return flow, price


def _arc_keys(tails: IntArray, heads: IntArray, nodes: int) -> tuple[IntArray, IntArray]:
    """Ascending keys of arcs by their ends, and the order that makes them ascend."""
    keys = tails * nodes + heads
    order = np.argsort(keys, kind="stable")
    return keys[order], order


def _ranked(keys: IntArray) -> IntArray:
    """Ascending keys made unique by their rank among equals; arcs beyond 65,535 parallel ones count as new."""
    rank = np.arange(len(keys)) - np.searchsorted(keys, keys)
    return np.where(rank < _PARALLEL, keys * _PARALLEL + rank, -1 - np.arange(len(keys)))


def _repaired(
    network: Network, flow: IntArray, price: IntArray, until: float | None, clock: Callable[[], float]
) -> int:
    """Make flow and prices fit the network, in place; as ``repair``, where a passed time limit counts as too long."""
    nodes = len(network.supplies)
    reduced = network.unit_costs + price[network.heads] - price[network.tails]
    wanted = np.minimum(flow, network.capacities)
    flow[:] = np.where(reduced > 0, 0, np.where(reduced < 0, network.capacities, wanted))
    excess = network.supplies.copy()
    np.subtract.at(excess, network.tails, flow)
    np.add.at(excess, network.heads, flow)
    out_start, out_arcs = by_hub(network.tails, nodes)
    in_start, in_arcs = by_hub(network.heads, nodes)
    budget = LOOKED_PER_ARC * network.arc_count + 10_000
    done = DONE
    while budget > 0:
        chunk = min(budget, _CHUNK)
        budget -= chunk
        done = repair(
            network.tails, network.heads, network.capacities, network.unit_costs,
            out_start, out_arcs, in_start, in_arcs, flow, price, excess, chunk,
        )  # fmt: skip
        if done in (DONE, NO_WAY) or (until is not None and clock() >= until):
            break
    return done


def _priced(network: Network, flow: IntArray, price: IntArray) -> bool:
    """Find prices that prove the flow, in place."""
    arcs = (network.tails, network.heads, network.capacities, network.unit_costs)
    return lower_prices(*arcs, flow, price, min(len(price) + 1, _SWEEPS)) > 0


def by_hub(ends: IntArray, hubs: int) -> tuple[IntArray, IntArray]:
    """Arcs grouped by one of their ends: where each hub's part begins (hubs + 1), and the arcs."""
    starts = np.zeros(hubs + 1, dtype=np.int64)
    np.cumsum(np.bincount(ends, minlength=hubs), out=starts[1:])
    return starts, np.argsort(ends, kind="stable").astype(np.int64)
