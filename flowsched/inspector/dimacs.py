"""A solved network in the DIMACS format for minimum-cost flows, for checking one solver against another."""

from __future__ import annotations

from flowsched.inspector.graph import Graph
from flowsched.inspector.record_view import RecordView
from flowsched.network.dimacs_file import render_network
from flowsched_models.text_table import printable, when


def render_dimacs(recorded: RecordView, graph: Graph, which: str) -> str:
    """The network, its optimum and what its nodes stand for as comments. ``which``: its title, for the heading.

    Nodes count from 1. Costs are those of a unit of flow, in whole solver units; lower bounds are 0. Where the decision is
    no optimal flow, its cost is a comment too. Raises ``ValueError`` if no optimal flow is known.
    """
    _ = graph.potentials  # the proof that the flow is optimal
    decided = graph.cost_of(graph.flow)
    lines = [
        f"c flowsched: {which} of round {recorded.round} at {when(recorded.now_s)}, "
        f"policy {printable(recorded.policy)}",
        "c a minimum-cost flow problem in DIMACS format",
        f"c optimum {graph.optimum}",
        *([f"c decision {decided} (distance {graph.distance:.9g})"] if decided != graph.optimum else []),
        f"c cost_scale {graph.cost_scale:.17g} (costs here are true costs of a unit of flow times this, rounded)",
        "c nodes: number, supply, kind:name",
    ]
    supplies = graph.supplies.tolist()
    lines += [f"c node {i + 1} {supplies[i]} {printable(graph.label(i))}" for i in range(graph.node_count)]
    return "\n".join(lines) + "\n" + render_network(graph, "arcs: tail, head, lower bound, capacity, cost")
