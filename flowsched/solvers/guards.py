"""What a network must be so that a solver may be asked at all, in exact arithmetic; and large numbers made smaller."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flowsched.network.network import IntArray, Network
from flowsched.solvers.solver import Solution, Status, without_flow

LARGEST_SUM = (1 << 62) - 1
"""Flows and sums of capacities at a node stay below this, so that solvers may add two of them in 64 bits."""


def largest(values: IntArray) -> int:
    """The largest absolute value, also of the most negative integer, whose absolute value 64 bits cannot hold; 0 of none."""
    return max(int(values.max()), -int(values.min())) if len(values) else 0


def guarded(network: Network) -> Network | Solution:
    """The network as solvers may take it, or the answer that needs none: nothing in it, unbalanced, or beyond 64 bits.

    Capacities above what could ever flow are lowered to that, so that "unlimited" ones do not add up beyond 64 bits. Nodes,
    arcs, optimal flows and potentials stay the same.
    """
    answer = _objection(network)
    if answer is not None:
        return answer
    if _node_sums(network) > LARGEST_SUM:
        network = _clipped(network)
        if (most := _node_sums(network)) > LARGEST_SUM:
            return without_flow(
                network,
                Status.REFUSED,
                f"capacities and supply of a node add up to {most:.3g}, beyond {LARGEST_SUM:.3g}",
            )
    return network


def _objection(network: Network) -> Solution | None:
    nodes = len(network.supplies)
    lengths = {len(a) for a in (network.tails, network.heads, network.capacities, network.unit_costs)}
    if len(lengths) != 1:
        return without_flow(network, Status.REFUSED, f"arrays of arcs have different lengths: {sorted(lengths)}")
    if network.arc_count:
        least = min(int(network.tails.min()), int(network.heads.min()))
        most = max(int(network.tails.max()), int(network.heads.max()))
        if least < 0 or most >= nodes:
            wrong = least if least < 0 else most
            return without_flow(
                network, Status.REFUSED, f"an arc ends at node {wrong}; there are nodes 0 to {nodes - 1}"
            )
        if int(network.capacities.min()) < 0:
            return without_flow(network, Status.REFUSED, f"a capacity is negative: {int(network.capacities.min())}")
    balance = _sum(network.supplies)
    if balance:
        side = "supplies exceed demands" if balance > 0 else "demands exceed supplies"
        return without_flow(network, Status.INFEASIBLE, f"{side} by {abs(balance)}")
    if not network.arc_count:
        if network.supplies.any():
            return without_flow(network, Status.INFEASIBLE, "there are supplies and no arcs")
        return Solution(Status.OPTIMAL, np.zeros(0, dtype=np.int64), 0, potentials=np.zeros(nodes, dtype=np.int64))
    return None


def _node_sums(network: Network) -> float:
    """The most that could flow into or out of one node, supplies included; a little more rather than less."""
    weights = network.capacities.astype(np.float64)
    nodes = len(network.supplies)
    supplies = np.abs(network.supplies.astype(np.float64))
    out = np.bincount(network.tails, weights, nodes) + supplies
    into = np.bincount(network.heads, weights, nodes) + supplies
    return max(float(out.max()), float(into.max())) * (1.0 + 1e-9)


def _clipped(network: Network) -> Network:
    """No capacity above what could ever flow.

    An optimal flow is paths from supplies and cycles, and a cycle in it either costs nothing, so that it can be left out, or
    has an arc with a negative cost. So no arc need carry more than all supplies and the capacities of all such arcs
    together. One unit more keeps potentials valid: an arc that pays is not full at the lower capacity.
    """
    negative = network.unit_costs < 0
    most = _sum(network.supplies[network.supplies > 0]) + _sum(network.capacities[negative]) + 1
    if most > LARGEST_SUM:
        return network
    return replace(network, capacities=np.minimum(network.capacities, most))


def common_divisor(network: Network) -> int:
    """The greatest number that divides all unit costs, 1 where all are 0: dividing by it changes no optimum."""
    return max(1, int(np.gcd.reduce(network.unit_costs, initial=0)))


def divided(network: Network, divisor: int) -> Network:
    """The network with unit costs divided exactly."""
    return network if divisor == 1 else replace(network, unit_costs=network.unit_costs // divisor)


def _sum(values: IntArray) -> int:
    """The exact sum, beyond 64 bits too."""
    if largest(values) * max(1, len(values)) < 1 << 62:
        return int(values.sum())
    return sum(values.tolist())
