"""The compiled repair of any min-cost flow: from a flow and prices that fit an earlier network to those that fit this one.

``price[v]`` is the cost of one more unit at ``v`` on its way out, as in ``kernel``. Successive shortest paths with
potentials from nodes with too much to nodes with too little: R. K. Ahuja, T. L. Magnanti, J. B. Orlin, "Network Flows",
sections 9.7 and 9.10.
"""

from __future__ import annotations

import heapq

from flowsched.support.arrays import IntArray
from flowsched_models.compiled import compiled

DONE, NO_WAY, TOO_LONG = 0, -1, -2


@compiled
def repair(
    tails: IntArray,
    heads: IntArray,
    capacities: IntArray,
    costs: IntArray,
    out_start: IntArray,
    out_arcs: IntArray,
    in_start: IntArray,
    in_arcs: IntArray,
    flow: IntArray,
    price: IntArray,
    excess: IntArray,
    budget: int,
) -> int:
    """Route what is too much at some nodes to where it lacks; ``flow``, ``price`` and ``excess`` are changed in place.

    No residual arc may have a negative reduced cost at the start; none has at the end. ``DONE``, ``NO_WAY`` if there is
    no feasible flow, ``TOO_LONG`` once ``budget`` arcs have been looked at.
    """
    nodes = len(price)
    seen = price * 0 - 1
    done = price * 0 - 1
    distance = price * 0
    via = price * 0
    listed = price * 0
    stamp = 0
    looked = 0
    for source in range(nodes):
        while excess[source] > 0:
            stamp += 1
            count = 0
            goal = -1
            reach = 0
            seen[source] = stamp
            distance[source] = 0
            heap = [(reach, source)]
            while len(heap) > 0:
                now, u = heapq.heappop(heap)
                if done[u] == stamp or now > distance[u]:
                    continue
                done[u] = stamp
                listed[count] = u
                count += 1
                if excess[u] < 0:
                    goal = u
                    reach = now
                    break
                looked += out_start[u + 1] - out_start[u] + in_start[u + 1] - in_start[u]
                for i in range(out_start[u], out_start[u + 1]):
                    a = out_arcs[i]
                    v = heads[a]
                    if flow[a] < capacities[a]:
                        far = now + costs[a] + price[v] - price[u]
                        if seen[v] != stamp or far < distance[v]:
                            seen[v] = stamp
                            distance[v] = far
                            via[v] = 2 * a
                            heapq.heappush(heap, (far, v))
                for i in range(in_start[u], in_start[u + 1]):
                    a = in_arcs[i]
                    v = tails[a]
                    if flow[a] > 0:
                        far = now - costs[a] + price[v] - price[u]
                        if seen[v] != stamp or far < distance[v]:
                            seen[v] = stamp
                            distance[v] = far
                            via[v] = 2 * a + 1
                            heapq.heappush(heap, (far, v))
            if goal < 0:
                return NO_WAY
            for i in range(count):
                u = listed[i]
                price[u] += reach - distance[u]
            amount = min(excess[source], -excess[goal])
            v = goal
            while v != source:
                a = via[v] >> 1
                if via[v] & 1:
                    amount = min(amount, flow[a])
                    v = heads[a]
                else:
                    amount = min(amount, capacities[a] - flow[a])
                    v = tails[a]
            v = goal
            while v != source:
                a = via[v] >> 1
                if via[v] & 1:
                    flow[a] -= amount
                    v = heads[a]
                else:
                    flow[a] += amount
                    v = tails[a]
            excess[source] -= amount
            excess[goal] += amount
            if looked > budget:
                return TOO_LONG
    return DONE


@compiled
def lower_prices(
    tails: IntArray,
    heads: IntArray,
    capacities: IntArray,
    costs: IntArray,
    flow: IntArray,
    price: IntArray,
    sweeps: int,
) -> int:
    """Lower prices until no residual arc has a negative reduced cost (Bellman-Ford); the sweeps that took, or -1 if that
    many did not do.
    """
    arcs = len(tails)
    for sweep in range(sweeps):
        changed = False
        for step in range(arcs):
            a = step if sweep % 2 == 0 else arcs - 1 - step
            u, v = tails[a], heads[a]
            if flow[a] < capacities[a] and price[u] > price[v] + costs[a]:
                price[u] = price[v] + costs[a]
                changed = True
            if flow[a] > 0 and price[v] > price[u] - costs[a]:
                price[v] = price[u] - costs[a]
                changed = True
        if not changed:
            return sweep + 1
    return -1
