"""Our own network simplex, compiled, with potentials and a time limit: the fastest on the networks of compacted rounds.

The primal network simplex method on a strongly feasible spanning tree (Cunningham, "A network simplex method", 1976), with
an artificial root and a block search for the entering arc (Grigoriadis, "An efficient implementation of the network simplex
method", 1986). Király and Kovács, "Efficient implementations of minimum-cost flow algorithms" (2012) compare the rules.
"""

from __future__ import annotations

import math
import time
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowsched.network.network import IntArray, Network
from flowsched.solvers.feasible import stopped
from flowsched.solvers.guards import guarded, largest
from flowsched.solvers.solver import Capabilities, Solution, Status, without_flow
from flowsched_models.compiled import compiled

_ROOM = 1 << 61
"""Potentials stay below this, so that reduced costs stay within 64 bits."""
_STEP = 1_000_000
"""Work between two looks at the clock: some milliseconds."""


class SimplexSolver:
    """Network simplex from scratch.

    On networks with many equally good ways (convex ladders, more demand than room) it may need very many pivots; ``relay``
    hands over to OR-tools then.
    """

    name = "simplex"
    capabilities: ClassVar[Capabilities] = Capabilities(largest_cost=1 << 46, potentials=True)

    def solve(self, network: Network, *, time_limit_s: float | None = None) -> Solution:
        """Solve from scratch."""
        given = guarded(network)
        if isinstance(given, Solution):
            return given
        end = None if time_limit_s is None else time.monotonic() + time_limit_s
        tree = SpanningTree.of(given)
        if tree is None:
            most = largest(network.unit_costs)
            text = f"a unit cost of {most} with {len(network.supplies)} nodes leads to potentials beyond 64 bits"
            return without_flow(network, Status.REFUSED, text)
        while end is None or time.monotonic() < end:
            if tree.pivot(_STEP):
                return tree.solution(network)
        flow = tree.feasible_flow()
        return stopped(network, self.name, time_limit_s or 0.0, flow)


class _TreeArrays(NamedTuple):
    """A spanning tree as compiled code takes it, changed in place. The last node is the root; the last arcs lead to it.

    Children of a node are a list, linked both ways, that begins at ``child``; -1 ends it.
    """

    tails: IntArray
    """[arcs]"""
    heads: IntArray
    """[arcs]"""
    capacities: IntArray
    """[arcs]"""
    costs: IntArray
    """[arcs] of one unit."""
    flow: IntArray
    """[arcs]"""
    state: NDArray[np.int8]
    """[arcs] 1: empty, 0: in the tree, -1: full."""
    potentials: IntArray
    """[nodes]"""
    parent: IntArray
    """[nodes] -1: the root."""
    arc: IntArray
    """[nodes] the arc to its parent; -1: the root."""
    depth: IntArray
    """[nodes] arcs to the root."""
    child: IntArray
    """[nodes] the first child."""
    following: IntArray
    """[nodes] the next child of its parent."""
    previous: IntArray
    """[nodes] the one before."""
    place: IntArray
    """[1] the arc where the next search for one that pays begins."""


class SpanningTree:
    """A network with a spanning tree that is being improved; the last node is the artificial root.

    Arcs beyond the network's own tie every node to the root, at a cost that no flow pays if there is another one.
    """

    def __init__(self, network: Network, artificial_cost: int) -> None:
        """All supply runs over the root."""
        n, m = len(network.supplies), network.arc_count
        nodes = np.arange(n, dtype=np.int64)
        up = network.supplies >= 0
        self._arcs = m
        self._order = spread(m)
        tails, heads = network.tails[self._order], network.heads[self._order]
        self._flow = np.concatenate([np.zeros(m, dtype=np.int64), np.abs(network.supplies)])
        self._potentials = np.concatenate([np.where(up, 0, artificial_cost), [0]])
        self._tree = _TreeArrays(
            np.concatenate([tails, np.where(up, nodes, n)]),
            np.concatenate([heads, np.where(up, n, nodes)]),
            np.concatenate([network.capacities[self._order], np.full(n, np.iinfo(np.int64).max)]),
            np.concatenate([network.unit_costs[self._order], np.where(up, 0, artificial_cost)]),
            self._flow,
            np.concatenate([np.ones(m, dtype=np.int8), np.zeros(n, dtype=np.int8)]),
            self._potentials,
            np.append(np.full(n, n), -1),
            np.append(m + nodes, -1),
            np.append(np.ones(n, dtype=np.int64), 0),
            np.append(np.full(n, -1), 0 if n else -1),
            np.append(np.where(nodes + 1 < n, nodes + 1, -1), -1),
            np.append(nodes - 1, -1),
            np.zeros(1, dtype=np.int64),
        )
        self.work = 0

    @classmethod
    def of(cls, network: Network) -> SpanningTree | None:
        """The first tree; None where potentials could leave 64 bits."""
        artificial = (largest(network.unit_costs) + 1) * (len(network.supplies) + 1)
        return None if 2 * artificial > _ROOM else cls(network, artificial)

    def pivot(self, work: int) -> bool:
        """Improve the tree by about so much work (arcs and nodes looked at); whether it is optimal."""
        used, done = _pivot(self._tree, self._arcs, work)
        self.work += int(used)
        return bool(done)

    def feasible_flow(self) -> IntArray | None:
        """The flow on the network's own arcs; None while some of it runs over the root."""
        if self._flow[self._arcs :].any():
            return None
        flow = np.empty(self._arcs, dtype=np.int64)
        flow[self._order] = self._flow[: self._arcs]
        return flow

    def solution(self, network: Network) -> Solution:
        """What an optimal tree says."""
        flow = self.feasible_flow()
        if flow is None:
            missing = int(self._flow[self._arcs :].sum() + 1) // 2
            return without_flow(network, Status.INFEASIBLE, f"{missing} units of supply cannot reach any demand")
        return Solution(Status.OPTIMAL, flow, network.cost_of(flow), potentials=self._potentials[:-1].copy())


def spread(arcs: int) -> IntArray:
    """The order in which arcs are looked at: steps of about the golden section, so that every block of them has arcs from
    everywhere. As they come, a block is one node's arcs, and its best one is worth little: several times the pivots.
    """
    step = max(1, int(arcs * 0.6180339887498949))
    while math.gcd(step, arcs) != 1:
        step += 1
    return np.arange(arcs, dtype=np.int64) * step % arcs


@compiled
def _pivot(tree: _TreeArrays, arcs: int, budget: int) -> tuple[int, bool]:
    """Pivots until the tree is optimal or the ``budget`` is used up; (work done, whether it is optimal).

    ``arcs``: the network's own, which may enter the tree.
    """
    tails, heads, capacities, costs, flow, state, potentials, parent, arc, depth, child, following, previous, place = (
        tree
    )
    block = max(10, int(np.sqrt(arcs)))
    stack = np.empty(len(parent), np.int64)
    work = 0
    while work < budget:
        # The worst arc of the first block that has one which pays.
        entering, worst = -1, 0
        k = place[0]
        left = block
        seen = 0
        while seen < arcs:
            if state[k] != 0:
                gain = state[k] * (costs[k] + potentials[tails[k]] - potentials[heads[k]])
                if gain < worst:
                    entering, worst = k, gain
            seen += 1
            k += 1
            if k == arcs:
                k = 0
            left -= 1
            if left == 0:
                if entering >= 0:
                    break
                left = block
        work += seen
        place[0] = k
        if entering < 0:
            return work, True
        # The cycle: from the join down to `first`, over the arc to `second`, and up to the join.
        if state[entering] > 0:
            first, second = tails[entering], heads[entering]
        else:
            first, second = heads[entering], tails[entering]
        amount = capacities[entering]
        side, out = 0, -1
        # The last arc of the cycle, seen from the join, that blocks leaves: this keeps the tree strongly feasible.
        u, v = first, second
        while u != v:
            if depth[u] >= depth[v]:
                e = arc[u]
                room = flow[e] if tails[e] == u else capacities[e] - flow[e]
                if room < amount:
                    amount, side, out = room, 1, u
                u = parent[u]
            else:
                e = arc[v]
                room = capacities[e] - flow[e] if tails[e] == v else flow[e]
                if room <= amount:
                    amount, side, out = room, 2, v
                v = parent[v]
            work += 1
        join = u
        if amount > 0:
            flow[entering] += amount if state[entering] > 0 else -amount
            u = first
            while u != join:
                e = arc[u]
                flow[e] += -amount if tails[e] == u else amount
                u = parent[u]
            v = second
            while v != join:
                e = arc[v]
                flow[e] += amount if tails[e] == v else -amount
                v = parent[v]
        if side == 0:
            state[entering] = -state[entering]
            continue
        leaving = arc[out]
        state[leaving] = 1 if flow[leaving] == 0 else -1
        state[entering] = 0
        # What hangs below the leaving arc is hung on the entering one: the way from its end up to `out` turns round.
        u, above = (first, second) if side == 1 else (second, first)
        e = entering
        below = u
        while True:
            old, old_arc = parent[u], arc[u]
            if previous[u] >= 0:
                following[previous[u]] = following[u]
            else:
                child[old] = following[u]
            if following[u] >= 0:
                previous[following[u]] = previous[u]
            following[u], previous[u] = child[above], -1
            if child[above] >= 0:
                previous[child[above]] = u
            child[above] = u
            parent[u], arc[u] = above, e
            if u == out:
                break
            above, u, e = u, old, old_arc
        # Its potentials and depths follow from the new arc.
        top = parent[below]
        new = potentials[top] + (-costs[entering] if tails[entering] == below else costs[entering])
        shift = new - potentials[below]
        stack[0] = below
        filled = 1
        while filled:
            filled -= 1
            u = stack[filled]
            potentials[u] += shift
            depth[u] = depth[parent[u]] + 1
            work += 1
            v = child[u]
            while v >= 0:
                stack[filled] = v
                filled += 1
                v = following[v]
    return work, False
