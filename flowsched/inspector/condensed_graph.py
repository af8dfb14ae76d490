"""What a drawing shows of a network: all of a small one; of a large one what carries flow, the rest gathered and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowsched.inspector.graph import Graph
from flowsched.inspector.record_view import Part, RecordView
from flowsched_models.quantity import count_cores
from flowsched_models.text_table import printable

WHOLE = 60
"""Networks of so many nodes are drawn with all nodes; of larger ones only those with flow."""
STACKS = 12
"""So many groups of machines are drawn with a box for every tier; more of them with one box each."""
ROWS = 24
"""Boxes of one kind below each other at most; what has least flow is gathered into one."""
UNSCHEDULED = 4
"""More unscheduled nodes with flow are drawn as one."""
_LONGEST = 30
_PLURALS = {"class": "classes", "unscheduled": "unscheduled nodes"}


@dataclass(frozen=True)
class Cell:
    """A box of a drawing: a node, or several that are drawn as one."""

    kind: str
    """A kind of node; ``group`` also where the tiers of a group are drawn as one."""
    label: str
    note: str
    """A second, smaller line; may be empty."""
    lane: str
    """The machine group that a tier belongs to; empty elsewhere."""
    flow: int
    """Units that leave it; into the sink: that enter it."""
    gathered: bool = False
    """Whether it stands for what had no row of its own."""


@dataclass(frozen=True)
class Bundle:
    """A line of a drawing: all shown arcs between two boxes."""

    tail: int
    head: int
    arcs: tuple[int, ...]
    flow: int
    capacity: int
    cost: float | None
    """Of one task: of the arcs with flow, the mean unit; without any, of the cheapest. None where boxes gather nodes."""


@dataclass(frozen=True)
class CondensedGraph:
    """Boxes and lines, and what is left out, in words."""

    cells: tuple[Cell, ...]
    bundles: tuple[Bundle, ...]
    left_out: tuple[str, ...]


def condense(recorded: RecordView, part: Part, graph: Graph, all_arcs: bool = False) -> CondensedGraph:
    """The part of a network that fits a drawing: arcs with flow, or all of them."""
    return _Chooser(recorded, part, graph, all_arcs).choose()


class _Chooser:
    def __init__(self, recorded: RecordView, part: Part, graph: Graph, all_arcs: bool) -> None:
        self.recorded = recorded
        self.part = part
        self.graph = graph
        self.all_arcs = all_arcs
        self.arcs = np.arange(graph.arc_count) if all_arcs else np.flatnonzero(graph.flow > 0)
        if all_arcs or graph.node_count <= WHOLE:
            self.nodes: list[int] = list(range(graph.node_count))
        else:
            ends = np.concatenate([graph.tails[self.arcs], graph.heads[self.arcs]])
            self.nodes = np.unique(ends).tolist()
        passing = np.bincount(graph.tails, weights=graph.flow, minlength=graph.node_count)
        arriving = np.bincount(graph.heads, weights=graph.flow, minlength=graph.node_count)
        self.flow = np.maximum(passing, arriving).astype(np.int64)

    def choose(self) -> CondensedGraph:
        cell_of = self._gather()
        self.tiers = Counter(lane_of(self.graph, i) for i in self.nodes)
        order: dict[str, int] = {}
        members: list[list[int]] = []
        for node in self.nodes:
            cell = order.setdefault(cell_of[node], len(order))
            if cell == len(members):
                members.append([])
            members[cell].append(node)
        cells = tuple(self._cell(key, nodes) for key, nodes in zip(order, members, strict=True))
        number = {node: order[cell_of[node]] for node in self.nodes}
        return CondensedGraph(cells, tuple(self._bundles(number)), tuple(self._left_out()))

    def _gather(self) -> dict[int, str]:
        """The key of the cell that every shown node is drawn in."""
        graph = self.graph
        lanes = {lane_of(graph, i) for i in self.nodes} - {""}
        stacked = len(lanes) <= STACKS
        key = {}
        columns: dict[str, dict[str, int]] = {}
        for i in self.nodes:
            kind, lane = graph.kinds[i], lane_of(graph, i)
            key[i] = f"lane {lane}" if lane and not stacked else f"node {i}"
            if not lane or not stacked:
                flows = columns.setdefault("group" if lane else kind, {})
                flows[key[i]] = max(flows.get(key[i], 0), int(self.flow[i]))
        replaced: dict[str, str] = {}
        for kind, flows in columns.items():
            ranked = sorted(flows, key=lambda k: -flows[k])
            rest = ranked[ROWS - 1 :] if len(ranked) > ROWS else []
            if kind == "unscheduled":
                idle = [] if self.all_arcs else [k for k in ranked if not flows[k]]
                rest = ranked if len(ranked) - len(idle) > UNSCHEDULED else idle if len(idle) > 1 else []
            replaced |= dict.fromkeys(rest, f"rest {kind} {len(rest)}")
        return {i: replaced.get(k, k) for i, k in key.items()}

    def _cell(self, key: str, nodes: Sequence[int]) -> Cell:
        graph, (how, _, what) = self.graph, key.partition(" ")
        node = nodes[0]
        kind, name = graph.kinds[node], graph.names[node]
        if how == "rest":
            kind, _, count = what.partition(" ")
            flow = sum(int(self.flow[i]) for i in nodes if kind != "group" or graph.kinds[i] == "group")
            if kind == "unscheduled":
                return Cell(kind, "unscheduled", f"{int(count):,} nodes", "", flow, True)
            return Cell(kind, f"{int(count):,} more {_PLURALS.get(kind, kind + 's')}", "", "", flow, True)
        if how == "lane":
            return Cell("group", shortened(what), self._machines(what), "", int(self.flow[list(nodes)].max()))
        flow, lane = int(self.flow[node]), lane_of(graph, node)
        if lane:
            milli = name.rpartition("/")[2].removesuffix("m")
            told = count_cores(int(milli)) if milli.isdigit() else milli
            if kind == "group":
                told = "group"
            if self.tiers[lane] > 1:
                return Cell(kind, told, "", lane, flow)
            machines = self._machines(lane)
            return Cell(kind, shortened(lane), f"{told}, {machines}" if machines else told, "", flow)
        if kind == "stay":
            return Cell(kind, "stays", "as planned", "", flow)
        if kind == "domain":
            task_class, _, number = name.rpartition("/")
            return Cell(kind, f"domain {number}", shortened(self.recorded.title(task_class)), "", flow)
        label = shortened(self.recorded.title(name)) if name else kind
        if kind == "class":
            tasks = self._class_sizes.get(name, 1)
            note = f"{tasks:,} tasks" if tasks > 1 else ""
            # A pass has a part of a class only.
            if self.part.by_forecasts and graph.supplies[node] < tasks:
                note = f"{int(graph.supplies[node]):,} of {tasks:,} tasks"
            return Cell(kind, label, note, "", flow)
        note = {"unscheduled": "unscheduled", "arrive": "arrives"}.get(kind, "")
        if node in graph.members:
            note = f"{len(graph.members[node]):,} {'machines' if kind == 'arrive' else 'tasks'}"
        return Cell(kind, label, note, "", flow)

    def _bundles(self, number: Mapping[int, int]) -> list[Bundle]:
        graph = self.graph
        gathered: dict[tuple[int, int], list[int]] = {}
        for k in self.arcs.tolist():
            ends = number[int(graph.tails[k])], number[int(graph.heads[k])]
            if ends[0] != ends[1]:
                gathered.setdefault(ends, []).append(k)
        found = []
        for (tail, head), arcs in gathered.items():
            flow = [int(graph.flow[k]) for k in arcs]
            ends_here = {(int(graph.tails[k]), int(graph.heads[k])) for k in arcs}
            cost: float | None = None
            if len(ends_here) == 1:
                if sum(flow):
                    cost = sum(graph.true_cost(k) * f for k, f in zip(arcs, flow, strict=True)) / sum(flow)
                else:
                    cost = min(graph.true_cost(k) for k in arcs)
            capacity = sum(int(graph.capacities[k]) for k in arcs)
            found.append(Bundle(tail, head, tuple(arcs), sum(flow), capacity, cost))
        return found

    def _left_out(self) -> list[str]:
        graph, shown = self.graph, set(self.nodes)
        hidden: dict[str, set[str]] = {}
        lanes_shown = {lane_of(graph, i) for i in self.nodes}
        for i in range(graph.node_count):
            lane = lane_of(graph, i)
            if i not in shown and not (lane and lane in lanes_shown):
                kind = "group" if lane else graph.kinds[i]
                hidden.setdefault(kind, set()).add(lane or graph.names[i])
        told = [
            f"+{len(names):,} {kind if len(names) == 1 else _PLURALS.get(kind, kind + 's')} without flow"
            for kind, names in hidden.items()
        ]
        if arcs := graph.arc_count - len(self.arcs):
            told.append(f"+{arcs:,} arc{'' if arcs == 1 else 's'} without flow")
        return told

    def _machines(self, group: str) -> str:
        size = self._group_sizes.get(group, 1)
        return f"{size:,} machines" if size > 1 else ""

    @cached_property
    def _class_sizes(self) -> dict[str, int]:
        return {c.name: len(c.members) for c in self.part.classes}

    @cached_property
    def _group_sizes(self) -> dict[str, int]:
        return {g.name: len(g.members) for g in self.part.groups}


def lane_of(graph: Graph, node: int) -> str:
    """The group of machines that a tier or group node belongs to; empty for other nodes."""
    kind, name = graph.kinds[node], graph.names[node]
    if kind == "tier":
        return name.rpartition("/")[0] or name
    return name if kind == "group" else ""


def shortened(name: str) -> str:
    """A long name without its middle."""
    name = printable(name)
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 14]}…{name[-13:]}"
