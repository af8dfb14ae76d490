"""networkx' network simplex: the slow, readable reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flowsched.network.network import Network
from flowsched.solvers.guards import guarded
from flowsched.solvers.solver import Capabilities, Requirement, Solution, Status, without_flow
from flowsched.solvers.worker import Worker
from flowsched.support.arrays import rows_of

if TYPE_CHECKING:
    import networkx as nx


class NetworkxSolver:
    """Primal network simplex in pure Python, on a multigraph so that parallel arcs keep their own flow.

    Python's integers have no end, so no cost is too large. Under a time limit it solves in a process of its own.
    """

    name = "networkx"
    capabilities: ClassVar[Capabilities] = Capabilities(requires=(Requirement("networkx", "pip install networkx"),))

    def __init__(self) -> None:
        """Nothing is started."""
        self._worker = Worker(self.name)

    def solve(self, network: Network, *, time_limit_s: float | None = None) -> Solution:
        """Solve from scratch."""
        given = guarded(network)
        if isinstance(given, Solution):
            return given
        if time_limit_s is not None:
            return self._worker.solve(given, time_limit_s)
        import networkx as nx

        graph: nx.MultiDiGraph[int] = nx.MultiDiGraph()
        for node, supply in enumerate(given.supplies.tolist()):
            graph.add_node(node, demand=-supply)
        arcs = rows_of(given.tails, given.heads, given.capacities, given.unit_costs)
        for arc, (tail, head, capacity, cost) in enumerate(arcs):
            graph.add_edge(tail, head, key=arc, capacity=capacity, weight=cost)
        try:
            cost, by_node = nx.network_simplex(graph)
        except nx.NetworkXUnfeasible as e:
            return without_flow(network, Status.INFEASIBLE, str(e))
        flow = np.zeros(network.arc_count, dtype=np.int64)
        for heads in by_node.values():
            for amounts in heads.values():
                for arc, amount in amounts.items():
                    flow[arc] = amount
        return Solution(Status.OPTIMAL, flow, int(cost))
