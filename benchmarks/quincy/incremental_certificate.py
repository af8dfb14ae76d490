"""Proof that a flow is feasible and optimal, by complementary slackness: vectorised, off the decision path."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.network.network import Network
from flowsched.support.arrays import IntArray


@dataclass(frozen=True)
class FlowCertificate:
    """How far a flow and prices are from proving each other; all 0 in a proof."""

    unbalanced: int
    """Units by which nodes' supplies and flows differ, summed."""
    out_of_bounds: int
    """Arcs with less than nothing or more than their capacity."""
    slack: int
    """Arcs on which more flow would pay, or on which there is flow that does not pay, by reduced costs."""

    @property
    def proves(self) -> bool:
        """Whether the flow is feasible and of least cost."""
        return self.unbalanced == 0 and self.out_of_bounds == 0 and self.slack == 0


def certify(network: Network, flow: IntArray, prices: IntArray) -> FlowCertificate:
    """Check a flow against prices: the cost of one more unit at each node on its way out.

    R. K. Ahuja, T. L. Magnanti, J. B. Orlin, "Network Flows", theorem 9.3.
    """
    balance = network.supplies.copy()
    np.subtract.at(balance, network.tails, flow)
    np.add.at(balance, network.heads, flow)
    reduced = network.unit_costs + prices[network.heads] - prices[network.tails]
    pays = (reduced < 0) & (flow < network.capacities)
    wasted = (reduced > 0) & (flow > 0)
    return FlowCertificate(
        int(np.abs(balance).sum()),
        int(np.count_nonzero((flow < 0) | (flow > network.capacities))),
        int(np.count_nonzero(pays | wasted)),
    )
