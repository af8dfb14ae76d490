"""A quick feasible flow, with a lower bound of every flow's cost: the answer when a time limit strikes.

The primal-dual method (Ford and Fulkerson, "Flows in Networks", 1962, chapter III) on costs rounded down to a coarse grid:
prices rise by the distance to the nearest open demand, then blocking flows in layers (Dinic, "Algorithm for solution of a
problem of maximum flow in networks with power estimation", 1970) fill the arcs that are tight. A coarse grid has few
distances, so the steps are few; what is left after the last one goes wherever there is room. By weak duality the prices
bound the cost of every flow from below, and where the grid is 1 and the steps were enough, the flow is optimal.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from flowsched.network.network import IntArray, Network
from flowsched.solvers.guards import largest
from flowsched.solvers.solver import Solution, Status, without_flow
from flowsched_models.compiled import compiled

_GRID, _FINE = 32, 4_000_000
"""Steps of the grid up to the cost that nine of ten arcs do not pass: the finer, the better and the slower. At least the
first; with few arcs the second divided by their number."""
_WORK = 300
"""How often each arc may be looked at while prices rise, on average. If that is not enough, a coarser grid is tried."""
_COARSER = 2
"""Most coarser grids, 8 times each; after the last one the rest of the supply takes the shortest way."""
_UNREACHED = 1 << 62


class _FlowState(NamedTuple):
    """A network with a flow and prices, as compiled code takes it; ``price``, ``flow`` and ``excess`` change in place."""

    tails: IntArray
    """[arcs]"""
    heads: IntArray
    """[arcs]"""
    capacities: IntArray
    """[arcs]"""
    costs: IntArray
    """[arcs] of one unit, in steps of the grid."""
    price: IntArray
    """[nodes]"""
    flow: IntArray
    """[arcs]"""
    excess: IntArray
    """[nodes] supply that has still to go; below 0: demand that is not met."""
    starts: IntArray
    """[nodes] a node's first entry in ``order``,"""
    ends: IntArray
    """[nodes] and the one after its last."""
    order: IntArray
    """[2 arcs] the arcs of each node, counted on from the arcs for backward ones."""


@dataclass(frozen=True)
class QuickFlow:
    """A flow that keeps to supplies and capacities, or as much of one as there is."""

    flow: IntArray
    unserved: int
    """Supply that cannot reach any demand, whatever the flow: 0 unless the network is infeasible."""
    bound: int
    """No feasible flow costs less, in scaled units."""


def quick_flow(network: Network) -> QuickFlow:
    """A feasible flow of a network that :func:`flowsched.solvers.guards.guarded` lets pass; same network, same flow."""
    starts, ends, order = _incidence(network)
    # In one piece each, so that code is compiled once, not once for every layout in memory.
    tails, heads, capacities = (np.ascontiguousarray(a) for a in (network.tails, network.heads, network.capacities))
    steps = max(_GRID, _FINE // max(1, network.arc_count))
    usual = int(np.quantile(np.abs(network.unit_costs), 0.9, method="lower")) if network.arc_count else 0
    nodes = len(network.supplies)
    grid = max(1, usual // steps, largest(network.unit_costs) * (nodes + 2) >> 60)
    budget = _WORK * (network.arc_count + nodes)
    bounds = []
    for attempt in range(1 + _COARSER):
        costs = network.unit_costs // grid
        price = _distances(tails, heads, capacities, costs, np.ascontiguousarray(network.supplies))
        flow = np.where(costs + price[heads] < price[tails], capacities, 0)
        # Multiples of 2^64 that sums may run through cancel: each true excess is within 64 bits or refused before.
        excess = network.supplies.copy()
        np.subtract.at(excess, tails, flow)
        np.add.at(excess, heads, flow)
        work = np.zeros(1, dtype=np.int64)
        state = _FlowState(tails, heads, capacities, costs, price, flow, excess, starts, ends, order)
        _raise_prices(state, budget, work)
        bounds.append(_bound(network, price, grid))
        if work[0] < budget or attempt == _COARSER:
            unserved = int(_route(state, False, work))
            break
        grid *= 8
    return QuickFlow(flow, unserved, max(bounds))


def stopped(network: Network, who: str, time_limit_s: float, flow: IntArray | None = None) -> Solution:
    """The answer of a solver that a time limit stopped: the cheaper of its own feasible flow, if any, and a quick one."""
    quick = quick_flow(network)
    if quick.unserved:
        return without_flow(network, Status.INFEASIBLE, f"{quick.unserved} units of supply cannot reach any demand")
    kept, cost = quick.flow, network.cost_of(quick.flow)
    if flow is not None and network.cost_of(flow) <= cost:
        kept, cost = flow, network.cost_of(flow)
    scale = network.cost_scale
    report = (
        f"{who} was stopped after {time_limit_s:g} s; the flow is feasible and costs {cost / scale:.6g}, "
        f"at most {(cost - quick.bound) / scale:.6g} above the optimum (best lower bound known: {quick.bound / scale:.6g})"
    )
    return Solution(Status.FEASIBLE, kept, cost, report, bound=quick.bound)


def _incidence(network: Network) -> tuple[IntArray, IntArray, IntArray]:
    """Arcs by node, both directions: entry k of a node is arc ``order[k]``, counted on from the arcs for backward ones."""
    ends = np.concatenate([network.tails, network.heads])
    order = np.argsort(ends, kind="stable").astype(np.int64)
    counts = np.bincount(ends, minlength=len(network.supplies))
    last = np.cumsum(counts).astype(np.int64)
    return last - counts, last, order


def _bound(network: Network, price: IntArray, grid: int) -> int:
    """Supplies at their prices, and what arcs cheaper than their prices can save: weak duality."""
    unit_costs: Any = network.unit_costs
    if largest(unit_costs) * (len(network.supplies) + 2) >= 1 << 60:  # sums of three might leave 64 bits
        unit_costs, price = unit_costs.astype(object), price.astype(object)
    true = price * grid
    reduced = unit_costs + true[network.heads] - true[network.tails]
    cheap = np.flatnonzero(reduced < 0)
    return _dot(network.supplies, true) + _dot(network.capacities[cheap], reduced[cheap])


def _dot(a: IntArray, b: IntArray) -> int:
    """The exact sum of products."""
    if largest(a) * largest(b) * max(1, len(a)) < 1 << 62:
        return int(a @ b)
    return sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))


@compiled
def _distances(tails: Any, heads: Any, capacities: Any, costs: Any, supplies: Any) -> Any:
    """Distance to the nearest demand for every node, by sweeps over the arcs (Bellman-Ford) while they change anything and
    at most as often as there are nodes, or 50 times: what is not settled by then only makes the bound looser.
    """
    nodes = len(supplies)
    price = np.full(nodes, _UNREACHED)
    for v in range(nodes):
        if supplies[v] < 0:
            price[v] = 0
    for _ in range(min(nodes, 50)):
        changed = False
        for k in range(len(tails)):
            if capacities[k] > 0 and price[heads[k]] != _UNREACHED:
                offer = costs[k] + price[heads[k]]
                if offer < price[tails[k]]:
                    price[tails[k]] = offer
                    changed = True
        if not changed:
            break
    most = 0
    for v in range(nodes):
        if price[v] != _UNREACHED:
            most = max(most, price[v])
    for v in range(nodes):
        if price[v] == _UNREACHED:
            price[v] = most
    return price


@compiled
def _route(state: _FlowState, tight: bool, work: IntArray) -> int:
    """Send excess to deficits, along arcs that are tight at these prices only or along any; what is left over."""
    tails, heads, capacities, costs, price, flow, excess, starts, ends, order = state
    nodes, arcs = len(excess), len(tails)
    level = np.empty(nodes, np.int64)
    queue = np.empty(nodes, np.int64)
    current = np.empty(nodes, np.int64)
    path = np.empty(nodes + 1, np.int64)
    while True:
        # Layers from every node with excess, until the first layer that has a deficit is complete.
        level[:] = -1
        filled = 0
        left = 0
        for v in range(nodes):
            if excess[v] > 0:
                level[v] = 0
                queue[filled] = v
                filled += 1
                left += excess[v]
        if left == 0:
            return left
        goal = -1
        taken = 0
        while taken < filled:
            v = queue[taken]
            taken += 1
            if goal >= 0 and level[v] >= goal:
                break
            work[0] += ends[v] - starts[v]
            for i in range(starts[v], ends[v]):
                k = order[i]
                if k < arcs:
                    if flow[k] >= capacities[k] or (tight and costs[k] + price[heads[k]] != price[v]):
                        continue
                    w = heads[k]
                else:
                    k -= arcs
                    if flow[k] <= 0 or (tight and costs[k] + price[v] != price[tails[k]]):
                        continue
                    w = tails[k]
                if level[w] < 0:
                    level[w] = level[v] + 1
                    queue[filled] = w
                    filled += 1
                    if excess[w] < 0 and goal < 0:
                        goal = level[w]
        if goal < 0:
            return left
        # A blocking flow: from each source, down the layers, giving up entries that lead nowhere.
        current[:] = starts
        for j in range(filled):
            source = queue[j]
            if level[source] != 0:
                break
            depth = 0
            v = source
            while excess[source] > 0:
                if excess[v] < 0:
                    amount = min(excess[source], -excess[v])
                    for d in range(depth):
                        k = path[d]
                        amount = min(amount, capacities[k] - flow[k] if k < arcs else flow[k - arcs])
                    for d in range(depth):
                        k = path[d]
                        if k < arcs:
                            flow[k] += amount
                        else:
                            flow[k - arcs] -= amount
                    excess[source] -= amount
                    excess[v] += amount
                    depth = 0
                    v = source
                    continue
                advanced = False
                while current[v] < ends[v]:
                    k = order[current[v]]
                    if k < arcs:
                        w = heads[k]
                        usable = flow[k] < capacities[k] and not (tight and costs[k] + price[w] != price[v])
                    else:
                        w = tails[k - arcs]
                        usable = flow[k - arcs] > 0 and not (tight and costs[k - arcs] + price[v] != price[w])
                    if usable and level[w] == level[v] + 1:
                        path[depth] = k
                        depth += 1
                        v = w
                        advanced = True
                        break
                    current[v] += 1
                    work[0] += 1
                if advanced:
                    continue
                if depth == 0:
                    break
                depth -= 1
                k = path[depth]
                v = tails[k] if k < arcs else heads[k - arcs]
                current[v] += 1
    return 0


@compiled
def _raise_prices(state: _FlowState, budget: int, work: IntArray) -> None:
    """Send excess along tight arcs, and make more of them tight, until nothing is left or the budget of work is used up."""
    tails, heads, capacities, costs, price, flow, excess, starts, ends, order = state
    nodes, arcs = len(excess), len(tails)
    distance = np.empty(nodes, np.int64)
    while work[0] < budget:
        if _route(state, True, work) == 0:
            return
        # Distances from all excess together, as far as the nearest deficit (Dijkstra).
        distance[:] = _UNREACHED
        heap = [(0, 0)]
        heap.pop()
        for v in range(nodes):
            if excess[v] > 0:
                distance[v] = 0
                heappush(heap, (0, v))
        nearest = -1
        while len(heap) > 0:
            d, v = heappop(heap)
            if d > distance[v]:
                continue
            if excess[v] < 0:
                nearest = d
                break
            work[0] += ends[v] - starts[v]
            for i in range(starts[v], ends[v]):
                k = order[i]
                if k < arcs:
                    if flow[k] >= capacities[k]:
                        continue
                    w = heads[k]
                    length = costs[k] + price[w] - price[v]
                else:
                    k -= arcs
                    if flow[k] <= 0:
                        continue
                    w = tails[k]
                    length = price[w] - costs[k] - price[v]
                if d + length < distance[w]:
                    distance[w] = d + length
                    heappush(heap, (d + length, w))
        if nearest < 0:
            return
        for v in range(nodes):
            price[v] += nearest - min(distance[v], nearest)
