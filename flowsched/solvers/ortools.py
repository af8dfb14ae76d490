"""OR-tools' cost-scaling min-cost flow, by its bulk array interface: the default."""

from __future__ import annotations

import numpy as np
from ortools.graph.python import min_cost_flow

from flowsched.network import COST_LIMIT, Network
from flowsched.solvers.solver import Solution, Status


class OrtoolsSolver:
    """Goldberg's cost-scaling push-relabel algorithm as OR-tools implements it."""

    name = "ortools"

    def solve(self, network: Network) -> Solution:
        """Solve from scratch."""
        nothing = np.zeros(network.arc_count, dtype=np.int64)
        if network.arc_count == 0:
            balanced = not np.any(network.supplies)
            return Solution(Status.OPTIMAL if balanced else Status.INFEASIBLE, nothing, 0)
        largest = int(np.abs(network.unit_costs).max())
        if largest > COST_LIMIT:
            return Solution(Status.REFUSED, nothing, 0, f"a unit cost of {largest} is beyond {COST_LIMIT}")
        engine = min_cost_flow.SimpleMinCostFlow()
        arcs = engine.add_arcs_with_capacity_and_unit_cost(
            network.tails, network.heads, network.capacities, network.unit_costs
        )
        engine.set_nodes_supplies(np.arange(len(network.supplies)), network.supplies)
        status = engine.solve()
        if status == engine.OPTIMAL:
            flow = np.asarray(engine.flows(arcs), dtype=np.int64)
            return Solution(Status.OPTIMAL, flow, network.cost_of(flow))
        if status in (engine.INFEASIBLE, engine.UNBALANCED):
            return Solution(Status.INFEASIBLE, nothing, 0, str(status))
        return Solution(Status.REFUSED, nothing, 0, str(status))
