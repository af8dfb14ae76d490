"""What is wrong with a network of a record: every record that a test makes is looked at."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowsched.inspector.graph import Graph


def faults(graph: Graph) -> Iterator[str]:
    """What is wrong: conservation, capacities, complementary slackness, sums of terms; nothing for a sound record."""
    balance = graph.supplies.copy()
    np.subtract.at(balance, graph.tails, graph.flow)
    np.add.at(balance, graph.heads, graph.flow)
    for i in np.flatnonzero(balance).tolist():
        yield f"{graph.label(i)}: {int(balance[i])} units stay"
    for k in np.flatnonzero((graph.flow < 0) | (graph.flow > graph.capacities)).tolist():
        yield f"arc {k}: flow {int(graph.flow[k])} of {int(graph.capacities[k])}"
    try:
        reduced = graph.reduced_costs
    except ValueError as error:
        yield str(error)
        return
    for k in np.flatnonzero((graph.flow < graph.capacities) & (reduced < 0)).tolist():
        yield f"arc {k} has room and reduced cost {int(reduced[k])}"
    for k in np.flatnonzero((graph.flow > 0) & (reduced > 0)).tolist():
        yield f"arc {k} has flow and reduced cost {int(reduced[k])}"
    total = np.sum(list(graph.terms.values()), axis=0) if graph.terms else np.zeros(graph.arc_count)
    rounding = 0.5 * graph.units / graph.cost_scale + 1e-9 * np.abs(total)
    wrong = np.abs(total - graph.unit_costs * (graph.units / graph.cost_scale)) > rounding * (1.0 + 1e-6)
    for k in np.flatnonzero(wrong).tolist():
        yield f"arc {k}: terms add up to {total[k]}, its cost is {graph.true_cost(k)}"
