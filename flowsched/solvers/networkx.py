"""networkx' network simplex: the slow, readable reference."""

from __future__ import annotations

import networkx as nx
import numpy as np

from flowsched.network import Network
from flowsched.solvers.solver import Solution, Status


class NetworkxSolver:
    """Primal network simplex in pure Python, on a multigraph so that parallel arcs keep their own flow."""

    name = "networkx"

    def solve(self, network: Network) -> Solution:
        """Solve from scratch."""
        nothing = np.zeros(network.arc_count, dtype=np.int64)
        if network.arc_count == 0:
            balanced = not np.any(network.supplies)
            return Solution(Status.OPTIMAL if balanced else Status.INFEASIBLE, nothing, 0)
        graph: nx.MultiDiGraph[int] = nx.MultiDiGraph()
        for node, supply in enumerate(network.supplies.tolist()):
            graph.add_node(node, demand=-supply)
        columns = zip(
            network.tails.tolist(),
            network.heads.tolist(),
            network.capacities.tolist(),
            network.unit_costs.tolist(),
            strict=True,
        )
        for arc, (tail, head, capacity, cost) in enumerate(columns):
            graph.add_edge(tail, head, key=arc, capacity=capacity, weight=cost)
        try:
            cost, by_node = nx.network_simplex(graph)
        except nx.NetworkXUnfeasible as e:
            return Solution(Status.INFEASIBLE, nothing, 0, str(e))
        flow = nothing.copy()
        for heads in by_node.values():
            for arcs in heads.values():
                for arc, amount in arcs.items():
                    flow[arc] = amount
        return Solution(Status.OPTIMAL, flow, int(cost))
