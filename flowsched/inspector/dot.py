"""A solved network in the language of Graphviz, layer by layer from left to right."""

from __future__ import annotations

import numpy as np

from flowsched.inspector.graph import LAYERS, Graph
from flowsched.inspector.record_view import RecordView
from flowsched_models.text_table import when

_WIDEST = 6.0
"""Points of the arc with the most flow; the thinnest with any is one point."""
_SHAPES = {"class": "box", "task": "box", "sink": "doublecircle", "unscheduled": "octagon"}


def render_dot(recorded: RecordView, graph: Graph, all_arcs: bool = False, which: str = "") -> str:
    """The network as text for ``dot``; only arcs with flow and their ends, or all of them. ``which``: its title.

    Arcs are labelled with flow/capacity and the cost of one task; their tooltips have the terms.
    """
    arcs = np.arange(graph.arc_count) if all_arcs else np.flatnonzero(graph.flow > 0)
    nodes = range(graph.node_count) if all_arcs else np.union1d(graph.tails[arcs], graph.heads[arcs]).tolist()
    title = f"round {recorded.round} at {when(recorded.now_s)}, policy {recorded.policy}"
    title += f", {which}" if which else ""
    left_out = f", {graph.arc_count - len(arcs):,} arcs without flow left out" if len(arcs) < graph.arc_count else ""
    lines = [
        "digraph flowsched {",
        "  rankdir=LR;",
        f"  label={_quoted(title + left_out)};",
        '  fontname="Helvetica"; fontsize=11; nodesep=0.15; ranksep=1.2;',
        '  node [shape=box, style=rounded, fontname="Helvetica", fontsize=10, height=0.3, margin="0.1,0.04"];',
        '  edge [fontname="Helvetica", fontsize=8, arrowsize=0.6, color="#264653"];',
    ]
    layers: dict[int | str, list[int]] = {}
    for i in nodes:
        kind = graph.kinds[i]
        # Unscheduled nodes stand in a rank of their own, wherever dot finds room for it.
        layers.setdefault(kind if kind == "unscheduled" else LAYERS.get(kind, 2), []).append(i)
    for layer in sorted(layers, key=str):
        lines.append("  { rank=same;")
        lines += [f"    {_node(recorded, graph, i)}" for i in layers[layer]]
        lines.append("  }")
    most = max(1, int(graph.flow[arcs].max(initial=0)))
    lines += [f"  {_arc(graph, k, most)}" for k in arcs.tolist()]
    lines.append("}")
    return "\n".join(lines) + "\n"


def _node(recorded: RecordView, graph: Graph, node: int) -> str:
    kind, name = graph.kinds[node], graph.names[node]
    supply = int(graph.supplies[node])
    label = recorded.title(name) if name else kind
    if kind not in ("class", "task", "sink") and name:
        label = f"{kind}\n{label}"
    attributes = [f"label={_quoted(label)}", f"tooltip={_quoted(f'{graph.label(node)}, supply {supply}')}"]
    if kind in _SHAPES:
        attributes.append(f"shape={_SHAPES[kind]}")
    if kind == "unscheduled":
        attributes.append('style="dashed"')
    elif supply > 0:
        attributes.append('style="rounded,bold"')
    return f"n{node} [{', '.join(attributes)}];"


def _arc(graph: Graph, arc: int, most: int) -> str:
    flow, capacity = int(graph.flow[arc]), int(graph.capacities[arc])
    cost = graph.true_cost(arc)
    label = f"{flow}/{capacity}" + (f"\n{cost:.3f}" if cost else "")
    terms = graph.terms_of(arc)
    told = "\n".join([f"cost of one task {cost:.6g}", *(f"{t.replace('_', ' ')} {v:.6g}" for t, v in terms.items())])
    attributes = [f"label={_quoted(label)}", f"tooltip={_quoted(told)}", f"labeltooltip={_quoted(told)}"]
    if flow:
        attributes.append(f"penwidth={1.0 + (_WIDEST - 1.0) * flow / most:.2f}")
    else:
        attributes.append('style=dashed, color="#9a9a9a", fontcolor="#6b6b6b"')
    return f"n{graph.tails[arc]} -> n{graph.heads[arc]} [{', '.join(attributes)}];"


def _quoted(text: str) -> str:
    """A string of the language: Graphviz reads backslashes and HTML entities in labels, so they are made harmless."""
    printable = "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)
    escaped = printable.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;").replace("\n", "\\n")
    return f'"{escaped}"'
