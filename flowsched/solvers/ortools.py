"""OR-tools' cost-scaling min-cost flow, by its bulk array interface: the default."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from flowsched.network.network import Network
from flowsched.solvers.guards import common_divisor, divided, guarded, largest
from flowsched.solvers.solver import Capabilities, Requirement, Solution, Status, without_flow
from flowsched.solvers.worker import Worker

_LARGEST = (1 << 63) - 1


class OrtoolsSolver:
    """Goldberg's cost-scaling push-relabel algorithm as OR-tools implements it.

    It multiplies unit costs by the number of nodes, and prices are sums of these; what would leave 64 bits then is refused,
    unless all unit costs have a divisor that makes them small enough. It cannot be stopped: under a time limit it solves in
    a process of its own.
    """

    name = "ortools"
    capabilities: ClassVar[Capabilities] = Capabilities(
        largest_cost=1 << 46, requires=(Requirement("ortools", "pip install ortools"),)
    )

    def __init__(self) -> None:
        """Nothing is started."""
        self._worker = Worker(self.name)

    def solve(self, network: Network, *, time_limit_s: float | None = None) -> Solution:
        """Solve from scratch."""
        given = guarded(network)
        if isinstance(given, Solution):
            return given
        refusal = self._refusal(given)
        if refusal is not None:
            return refusal
        if time_limit_s is not None:
            return self._worker.solve(given, time_limit_s)
        from ortools.graph.python import min_cost_flow

        small = divided(given, common_divisor(given))
        engine = min_cost_flow.SimpleMinCostFlow()
        arcs = engine.add_arcs_with_capacity_and_unit_cost(small.tails, small.heads, small.capacities, small.unit_costs)
        engine.set_nodes_supplies(np.arange(len(small.supplies)), small.supplies)
        status = engine.solve()
        if status == engine.OPTIMAL:
            flow = np.asarray(engine.flows(arcs), dtype=np.int64)
            return Solution(Status.OPTIMAL, flow, network.cost_of(flow))
        if status in (engine.INFEASIBLE, engine.UNBALANCED):
            return without_flow(network, Status.INFEASIBLE, "the supplies cannot reach the demands")
        # Long ways add up to prices beyond 64 bits too; OR-tools notices that while it solves.
        most, nodes = largest(network.unit_costs), len(network.supplies)
        text = f"OR-tools answers {str(status).rpartition('.')[2]}: {nodes} nodes, unit costs up to {most}"
        return without_flow(network, Status.REFUSED, text)

    def _refusal(self, network: Network) -> Solution | None:
        most = largest(network.unit_costs)
        # OR-tools adds a source and a sink, scales by one more than the nodes and keeps twice that within 64 bits.
        limit = _LARGEST // (2 * (len(network.supplies) + 3))
        if most <= limit or most // common_divisor(network) <= limit:
            return None
        text = (
            f"a unit cost of {most} is beyond {limit}, the most that OR-tools takes with {len(network.supplies)} nodes"
        )
        return without_flow(network, Status.REFUSED, text)
