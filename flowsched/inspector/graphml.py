"""A solved network as GraphML, for networkx and other tools: everything that is known of every node and arc."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flowsched.inspector.graph import Graph
from flowsched.inspector.record_view import RecordView
from flowsched.records.record import RECORD_VERSION

if TYPE_CHECKING:
    import networkx as nx

_UNPRINTABLE = re.compile("[^ -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML cannot hold, and line ends, which it would change."""


def to_networkx(recorded: RecordView, graph: Graph, which: str = "") -> nx.MultiDiGraph[str]:
    """The network with attributes as networkx names them, so that ``nx.network_simplex`` solves it as it is. ``which``: its
    title.

    Nodes are named ``kind:name``; the key of an arc is its number in the record, as there are parallel arcs. ``demand`` is
    minus the supply; ``weight`` is the cost of a unit of flow and ``potential`` and ``reduced_cost`` are in the same
    solver units, of which ``cost_scale`` are one unit of cost; ``cost`` and the terms ``term_...`` are those of one task,
    which is ``units`` units of flow; ``distance`` is what the flow costs more than an optimal one. Raises ``ValueError`` if
    no optimal flow is known.
    """
    import networkx as nx  # takes a tenth of a second

    net: nx.MultiDiGraph[str] = nx.MultiDiGraph(
        version=RECORD_VERSION,
        round=recorded.round,
        now_s=recorded.now_s,
        policy=_text(recorded.policy),
        cost_scale=graph.cost_scale,
        optimum=graph.optimum,
        distance=graph.distance,
    )
    if which:
        net.graph["title"] = _text(which)
    names = _unique([_text(graph.label(i)) for i in range(graph.node_count)])
    supplies, potentials = graph.supplies.tolist(), graph.potentials.tolist()
    for i, name in enumerate(names):
        title = {"title": _text(recorded.title(graph.names[i]))} if recorded.titles else {}
        net.add_node(
            name,
            kind=_text(graph.kinds[i]),
            name=_text(graph.names[i]),
            **title,
            supply=supplies[i],
            demand=-supplies[i],
            potential=potentials[i],
        )
    columns = {
        "capacity": graph.capacities.tolist(),
        "weight": graph.unit_costs.tolist(),
        "flow": graph.flow.tolist(),
        "reduced_cost": graph.reduced_costs.tolist(),
        "units": graph.units.tolist(),
        "cost": [graph.cost(k) for k in range(graph.arc_count)],
        **{f"term_{_text(term)}": values.tolist() for term, values in graph.terms.items()},
        **{_text(name): values.tolist() for name, values in graph.columns.items()},
    }
    for k, (tail, head) in enumerate(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True)):
        net.add_edge(names[tail], names[head], key=k, **{name: values[k] for name, values in columns.items()})
    return net


def render_graphml(recorded: RecordView, graph: Graph, which: str = "") -> str:
    """The network as GraphML text; ``which``: its title. Whole numbers stay exact.

    Raises ``ValueError`` if no optimal flow is known.
    """
    import networkx as nx

    lines = nx.generate_graphml(to_networkx(recorded, graph, which), named_key_ids=True)
    return "\n".join(('<?xml version="1.0" encoding="UTF-8"?>', *lines)) + "\n"


def _text(text: str) -> str:
    return _UNPRINTABLE.sub("\ufffd", text)


def _unique(names: list[str]) -> list[str]:
    """The same names, with a number where one stands twice."""
    taken = set(names)
    seen: set[str] = set()
    found = []
    for name in names:
        unique, count = name, 1
        while unique in seen or (count > 1 and unique in taken):
            count += 1
            unique = f"{name} ({count})"
        seen.add(unique)
        found.append(unique)
    return found
