"""Networks for other tools: the same network, the same optimum; drawings that show what is there, always the same bytes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import networkx as nx
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from inspected import bulk, on_kubernetes, searched

from flowsched.cli import flowsched
from flowsched.inspector.condensed_graph import ROWS, STACKS, condense
from flowsched.inspector.dimacs import render_dimacs
from flowsched.inspector.dot import render_dot
from flowsched.inspector.drawing import draw_up, render_drawing
from flowsched.inspector.graph import Graph, read_graph
from flowsched.inspector.graphml import render_graphml
from flowsched.inspector.layout import NOTE, Rect, lay_out
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.round_network import round_network_or_none
from flowsched.inspector.source import open_records
from flowsched.network.network import Network, NetworkBuilder
from flowsched.records.record_file import write_record
from flowsched.solvers import Status, make_solver
from flowsched_models.document import InputError
from flowsched_models.extras import install_extra
from requirements_on_machine import needs

ODD = (
    'quo"te',
    "back\\slash\\N",
    "<b>&amp;</b>",
    "line\nend",
    "bell\a\x00",
    "Umlaut-Ärger",
    "}; node",
    "%s",
    "$\\undefined{$",
    "",
)
"""Names that formats might trip over."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> list[RecordView]:
    """The records of a demo run."""
    folder = tmp_path_factory.mktemp("demo")
    words = ["simulate", "parsec-memcached-2024", "--policy", "flow", "--set", "exact_limit=0"]
    done = CliRunner().invoke(flowsched, [*words, "--records", str(folder / "records"), "--json"])
    assert done.exit_code == 0, done.output
    return open_records(folder / "records")[0]


def all_graphs(records: list[RecordView]) -> list[tuple[RecordView, Graph, str]]:
    found = [(a, g, name) for a in records for part in a.parts for name, g in part.graphs.items()]
    made = [
        (a, made.graph) for a in records for part in a.parts if (made := round_network_or_none(a, part)) is not None
    ]
    return [*found, *((a, graph, "network of the round") for a, graph in made)]


def samples() -> list[tuple[RecordView, Graph, str]]:
    records = [searched(), searched("makespan"), bulk(), bulk(40, 30, 2), on_kubernetes()]
    return all_graphs([RecordView(record, "sample") for record in records])


def parse_dimacs(text: str) -> tuple[Network, int]:
    """A small reader of the format: the network, and the optimum that it claims."""
    supplies: list[int] = []
    arcs: list[list[int]] = []
    optimum = None
    for line in text.splitlines():
        words = line.split()
        match words[0]:
            case "c":
                if words[1] == "optimum":
                    optimum = int(words[2])
            case "p":
                assert words[1] == "min" and not arcs
                supplies, announced = [0] * int(words[2]), int(words[3])
            case "n":
                supplies[int(words[1]) - 1] = int(words[2])
            case "a":
                tail, head, low, high, cost = map(int, words[1:])
                assert low == 0
                arcs.append([tail - 1, head - 1, high, cost])
            case _:
                raise AssertionError(line)
    assert len(arcs) == announced and optimum is not None
    columns = np.array(arcs, dtype=np.int64).reshape(-1, 4).T
    return Network(*columns, np.array(supplies, dtype=np.int64), 1.0), optimum


def lemon(text: str) -> int | None:
    """The optimum that LEMON finds; None if it finds no flow."""
    solver = needs("dimacs-solver", "to check exports with LEMON (Debian package liblemon-utils)")
    done = subprocess.run([solver, "-long"], input=text, capture_output=True, text=True, timeout=60, check=True)
    found = re.search(r"Min flow cost: (-?\d+)", done.stdout + done.stderr)
    return int(found[1]) if found else None


def resolved(net: nx.MultiDiGraph) -> int:
    cost, _ = nx.network_simplex(net)
    return int(cost)


# GraphML


def test_networkx_solves_the_graphml_of_a_demo_run_to_the_same_optimum(demo: list[RecordView]) -> None:
    graphs = all_graphs(demo)
    assert len(graphs) >= 4
    for recorded, graph, _ in graphs:
        net = nx.parse_graphml(render_graphml(recorded, graph), force_multigraph=True)
        assert net.is_multigraph() and net.is_directed()
        assert resolved(net) == net.graph["optimum"] == graph.optimum
        assert net.graph["round"] == recorded.round


def test_graphml_keeps_every_number() -> None:
    for recorded, graph, _ in samples():
        net = nx.parse_graphml(render_graphml(recorded, graph), force_multigraph=True)
        assert net.graph["cost_scale"] == graph.cost_scale
        nodes = dict(net.nodes(data=True))
        assert list(nodes) == [graph.label(i) for i in range(graph.node_count)]
        for i, values in enumerate(nodes.values()):
            assert (values["kind"], values.get("name", "") or "") == (graph.kinds[i], graph.names[i])
            assert values["supply"] == -values["demand"] == graph.supplies[i]
            assert values["potential"] == graph.potentials[i]
        names = list(nodes)
        arcs = {
            k: (names.index(tail), names.index(head), values)
            for tail, head, k, values in net.edges(data=True, keys=True)
        }
        assert sorted(arcs) == list(range(graph.arc_count))
        for k, (tail, head, values) in arcs.items():
            assert (tail, head) == (graph.tails[k], graph.heads[k])
            assert all(
                isinstance(values[name], int) and values[name] == column[k]
                for name, column in (
                    ("capacity", graph.capacities),
                    ("weight", graph.unit_costs),
                    ("flow", graph.flow),
                    ("reduced_cost", graph.reduced_costs),
                    ("units", graph.units),
                    *graph.columns.items(),
                )
            )
            assert values["cost"] == graph.cost(k)
            assert {
                n.removeprefix("term_"): v for n, v in values.items() if n.startswith("term_") and v
            } == graph.terms_of(k)


def test_pods_have_their_titles_in_graphml() -> None:
    recorded = RecordView(on_kubernetes(), "sample")
    net = nx.parse_graphml(render_graphml(recorded, recorded.parts[0].first))
    assert net.nodes["class:blackscholes"]["title"] == "shop/blackscholes-pod"


# DIMACS


def test_lemon_solves_the_dimacs_of_a_demo_run_to_the_same_optimum(demo: list[RecordView]) -> None:
    for recorded, graph, name in all_graphs(demo):
        assert lemon(render_dimacs(recorded, graph, name)) == graph.optimum


def test_every_solver_finds_the_optimum_that_the_dimacs_file_claims() -> None:
    for recorded, graph, name in samples():
        text = render_dimacs(recorded, graph, name)
        net, claimed = parse_dimacs(text)
        for column in ("tails", "heads", "capacities", "unit_costs", "supplies"):
            assert np.array_equal(getattr(net, column), getattr(graph, column))
        assert (
            claimed
            == graph.optimum
            == make_solver("ortools").solve(net).cost
            == make_solver("networkx").solve(net).cost
        )
        assert lemon(text) == claimed
        assert all(f"c node {i + 1} " in text for i in range(graph.node_count))


@st.composite
def networks(draw: st.DrawFn) -> Graph:
    """Any network that has a flow, negative costs and parallel arcs included, solved."""
    count = draw(st.integers(2, 6))
    node = st.integers(0, count - 1)
    arc = st.tuples(node, node, st.integers(0, 9), st.integers(-20, 50)).filter(lambda a: a[0] != a[1])
    arcs = draw(st.lists(arc, min_size=1, max_size=14))
    supplies = [0] * count
    for tail, head, amount in draw(st.lists(st.tuples(node, node, st.integers(1, 5)), max_size=3)):
        supplies[tail] += amount
        supplies[head] -= amount
        arcs.append((tail, head, amount, 60) if tail != head else (tail, (head + 1) % count, 0, 0))
    columns = np.array(arcs, dtype=np.int64).T
    net = Network(
        *columns, np.array(supplies), 1.0, tuple(f"tier:m{i}/1000m" for i in range(count)), (), (1,) * len(arcs)
    )
    solution = make_solver("ortools").solve(net)
    assert solution.status is Status.OPTIMAL
    return read_graph({**net.to_plain(solution.flow), "terms": {"waiting": columns[3]}})


@settings(max_examples=25)
@given(networks())
def test_lemon_networkx_and_ortools_agree_on_any_network(graph: Graph) -> None:
    recorded = RecordView(searched())
    assert lemon(render_dimacs(recorded, graph, "first")) == graph.optimum
    assert resolved(nx.parse_graphml(render_graphml(recorded, graph), force_multigraph=True)) == graph.optimum


@pytest.mark.parametrize(
    "render", [render_graphml, lambda a, g: render_dimacs(a, g, "first")], ids=["graphml", "dimacs"]
)
def test_a_flow_that_is_not_optimal_has_no_optimum_to_claim(render: Any) -> None:
    recorded = RecordView(searched(), "sample")
    graph = recorded.parts[0].first
    costs = graph.unit_costs.copy()
    costs[np.flatnonzero(graph.flow > 0)[0]] += 10**12
    with pytest.raises(ValueError, match="not optimal"):
        render(recorded, replace(graph, unit_costs=costs))


# Names


def odd_graph() -> Graph:
    """A class for every odd name, all on one machine of such a name."""
    builder = NetworkBuilder()
    sink = builder.node("sink")
    tier = builder.node(f"tier:{ODD[0]}{ODD[1]}/1000m")
    builder.arc(tier, sink, 100)
    for name in (*ODD, ODD[0]):
        builder.arc(builder.node(f"class:{name}", 1), tier, 1, 0.5, terms={"run_time": 0.5})
    net = builder.build(sink)
    return read_graph(net.to_plain(make_solver("ortools").solve(net).flow))


def test_odd_names_break_no_format() -> None:
    recorded, graph = RecordView(searched(), "sample"), odd_graph()
    part = recorded.parts[0]
    net = nx.parse_graphml(render_graphml(recorded, graph), force_multigraph=True)
    assert net.number_of_nodes() == graph.node_count
    assert resolved(net) == graph.optimum
    assert {'class:quo"te', 'class:quo"te (2)', "class:Umlaut-Ärger", "class:<b>&amp;</b>"} <= set(net)
    assert parse_dimacs(render_dimacs(recorded, graph, "first"))[1] == graph.optimum
    ElementTree.fromstring(render_drawing(recorded, part, graph, "first", "svg"))
    svg = drawn_by_dot(render_dot(recorded, graph))
    texts = {"".join(t.itertext()) for t in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert {'quo"te', "back\\slash\\N", "<b>&amp;</b>", "Umlaut-Ärger", "}; node", "%s"} <= texts


# DOT


def drawn_by_dot(text: str) -> ElementTree.Element:
    dot = needs("dot", "to check what Graphviz makes of exports")
    done = subprocess.run(
        [dot, "-Tsvg"], input=text, capture_output=True, text=True, encoding="utf-8", timeout=60, check=True
    )
    assert done.stderr == ""
    return ElementTree.fromstring(done.stdout.encode())


def shapes(svg: ElementTree.Element) -> Counter[str]:
    return Counter(g.get("class", "") for g in svg.iter("{http://www.w3.org/2000/svg}g"))


@pytest.mark.parametrize("all_arcs", [False, True])
def test_dot_draws_the_arcs_that_carry_flow_or_all(all_arcs: bool) -> None:
    for recorded, graph, _ in samples():
        drawn = shapes(drawn_by_dot(render_dot(recorded, graph, all_arcs)))
        carrying = np.flatnonzero(graph.flow > 0)
        assert drawn["edge"] == (graph.arc_count if all_arcs else len(carrying))
        ends = np.union1d(graph.tails[carrying], graph.heads[carrying])
        assert drawn["node"] == (graph.node_count if all_arcs else len(ends))


def test_dot_puts_each_layer_in_a_rank() -> None:
    recorded = RecordView(bulk(), "sample")
    graph = recorded.parts[0].first
    dot = needs("dot", "to check what Graphviz makes of exports")
    text = render_dot(recorded, graph, all_arcs=True)
    done = subprocess.run([dot, "-Tplain"], input=text, capture_output=True, text=True, timeout=60, check=True)
    at: dict[str, set[float]] = {}
    for line in done.stdout.splitlines():
        words = line.split()
        if words[0] == "node":
            at.setdefault(graph.kinds[int(words[1].removeprefix("n"))], set()).add(float(words[2]))
    assert all(len(places) == 1 for places in at.values())
    order = [next(iter(at[kind])) for kind in ("class", "domain", "tier", "group", "sink")]
    assert order == sorted(order)


def test_dot_widens_with_flow_and_dashes_what_carries_none() -> None:
    recorded = RecordView(searched(), "sample")
    graph = recorded.parts[0].first
    arcs = re.findall(r"n(\d+) -> n(\d+) \[(.*)\];", render_dot(recorded, graph, all_arcs=True))
    assert len(arcs) == graph.arc_count
    width = {}
    for k, (tail, head, attributes) in enumerate(arcs):
        assert (int(tail), int(head)) == (graph.tails[k], graph.heads[k])
        assert f'label="{graph.flow[k]}/{graph.capacities[k]}' in attributes
        assert ("dashed" in attributes) == (graph.flow[k] == 0)
        if graph.flow[k]:
            width[k] = float(re.search(r"penwidth=([\d.]+)", attributes)[1])  # type: ignore[index]
    assert max(width, key=lambda k: width[k]) == int(np.argmax(graph.flow))


# Drawings


def label_boxes(layout: Any) -> list[Rect]:
    import matplotlib.textpath

    found = []
    for curve in layout.curves:
        if curve.label:
            path = matplotlib.textpath.TextPath((0, 0), curve.label, size=NOTE)
            wide, high = path.get_extents().width / 72, path.get_extents().height / 72
            found.append(Rect(curve.at[0] - wide / 2, curve.at[1] - high / 2, wide, high))
    return found


@pytest.mark.parametrize("all_arcs", [False, True])
def test_nothing_in_a_drawing_covers_anything_else(all_arcs: bool) -> None:
    for recorded in (
        RecordView(searched()),
        RecordView(searched("makespan")),
        RecordView(bulk()),
        RecordView(bulk(40, 30, 2)),
    ):
        part = recorded.parts[0]
        for graph in part.graphs.values():
            layout = draw_up(recorded, part, graph, all_arcs)
            boxes = list(layout.boxes)
            for rect in (*boxes, *(f.rect for f in layout.frames)):
                assert rect.x >= 0 and rect.right <= layout.width and rect.y >= 0 and rect.top <= layout.height
            labels = label_boxes(layout)
            for i, rect in enumerate(boxes):
                assert not any(rect.overlap(other) for other in boxes[:i])
            for i, rect in enumerate(labels):
                assert not any(rect.overlap(other) for other in labels[:i]), layout.curves[i].label
                assert not any(rect.overlap(other) for other in boxes)


def test_a_drawing_of_a_large_network_stays_of_a_size() -> None:
    recorded = RecordView(bulk(200, 40, 6), "sample")
    part = recorded.parts[0]
    layout = draw_up(recorded, part, part.first, all_arcs=True)
    assert max(Counter(rect.x for rect in layout.boxes).values()) <= ROWS + 1
    assert layout.height < 16
    assert any("more groups" in cell.label for cell in layout.condensed.cells)
    shown = {k for bundle in condense(recorded, part, part.first).bundles for k in bundle.arcs}
    assert all(part.first.flow[k] > 0 for k in shown)


@st.composite
def wide_graphs(draw: st.DrawFn) -> Graph:
    """Classes over tiers of many groups, or of few, some without flow."""
    builder = NetworkBuilder()
    sink = builder.node("sink")
    waits = builder.node("unscheduled:all")
    builder.arc(waits, sink, 10_000)
    tiers = []
    for m in range(draw(st.integers(1, STACKS + 20))):
        broad, narrow = builder.node(f"tier:m{m}/2000m"), builder.node(f"tier:m{m}/1000m")
        builder.arc(broad, narrow, draw(st.integers(0, 3)) * 2)
        builder.arc(narrow, sink, draw(st.integers(0, 6)))
        tiers.append((broad, narrow))
    for c in range(draw(st.integers(1, 5))):
        node = builder.node(f"class:c{c}", draw(st.integers(0, 9)))
        builder.arc(node, waits, 100, 9.0)
        for pair in tiers:
            if draw(st.booleans()):
                builder.arc(node, pair[c % 2], draw(st.integers(0, 4)), draw(st.floats(0, 5)))
    net = builder.build(sink)
    return read_graph(net.to_plain(make_solver("ortools").solve(net).flow))


@settings(max_examples=40)
@given(wide_graphs(), st.booleans())
def test_a_drawing_shows_all_flow_and_counts_what_it_leaves_out(graph: Graph, all_arcs: bool) -> None:
    recorded = RecordView(searched())
    found = condense(recorded, recorded.parts[0], graph, all_arcs)
    balance = np.zeros(len(found.cells), dtype=np.int64)
    for bundle in found.bundles:
        assert bundle.flow == graph.flow[list(bundle.arcs)].sum()
        balance[bundle.tail] += bundle.flow
        balance[bundle.head] -= bundle.flow
    for cell, surplus in zip(found.cells, balance.tolist(), strict=True):
        if cell.kind not in ("class", "sink"):
            assert surplus == 0, cell
    assert sum(s for s in balance if s > 0) == graph.supplies.clip(0).sum()
    left_out = sum(int(re.match(r"\+([\d,]+) arc", text)[1]) for text in found.left_out if " arc" in text)  # type: ignore[index]
    assert left_out == (0 if all_arcs else int((graph.flow == 0).sum()))
    layout = lay_out(found, lambda text, size: len(text) * size / 120, {})
    assert layout == lay_out(found, lambda text, size: len(text) * size / 120, {})
    assert not any(a.overlap(b) for i, a in enumerate(layout.boxes) for b in layout.boxes[:i])


def test_drawings_are_what_they_say() -> None:
    for recorded, graph, name in samples()[:3]:
        part = recorded.parts[0]
        svg = render_drawing(recorded, part, graph, name, "svg")
        assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
        assert b"<dc:date>" not in svg
        assert render_drawing(recorded, part, graph, name, "png").startswith(b"\x89PNG\r\n")


def test_an_empty_round_can_be_drawn_and_exported() -> None:
    net = NetworkBuilder()
    sink = net.node("sink")
    built = net.build(sink)
    graph = read_graph(built.to_plain(np.zeros(0, dtype=np.int64)))
    recorded = RecordView(searched(), "sample")
    render_drawing(recorded, recorded.parts[0], graph, "first", "svg")
    assert nx.parse_graphml(render_graphml(recorded, graph)).number_of_nodes() == 1
    assert parse_dimacs(render_dimacs(recorded, graph, "first"))[1] == 0
    assert shapes(drawn_by_dot(render_dot(recorded, graph, all_arcs=True)))["node"] == 1


def test_without_matplotlib_a_drawing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    recorded = RecordView(searched(), "sample")
    with pytest.raises(InputError, match=re.escape(install_extra("plots"))) as refused:
        render_drawing(recorded, recorded.parts[0], recorded.parts[0].first, "first", "svg")
    assert str(refused.value).startswith("--svg: drawing needs matplotlib")


def test_the_same_record_gives_the_same_bytes_wherever_it_is_opened(tmp_path: Path) -> None:
    """Here and in a process with another order of sets, in a folder with another style of drawings."""
    write_record(bulk(), tmp_path / "bulk.json")
    kinds = ("dot", "graphml", "dimacs", "svg", "png")
    folders = tmp_path / "here", tmp_path / "there"
    commands = []
    for folder in folders:
        folder.mkdir()
        options = [x for kind in kinds for x in (f"--{kind}", str(folder / f"drawing.{kind}"))]
        commands.append(["inspect", str(tmp_path / "bulk.json"), *options])
    done = CliRunner().invoke(flowsched, commands[0])
    assert done.exit_code == 0, done.output
    (folders[1] / "matplotlibrc").write_text(
        "font.size: 30\nlines.linewidth: 9\nsvg.fonttype: none\nsavefig.bbox: tight\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"}
    command = [sys.executable, "-m", "flowsched.cli", *commands[1]]
    subprocess.run(command, cwd=folders[1], env=environment, check=True, capture_output=True, timeout=120)
    for kind in kinds:
        one, other = ((folder / f"drawing.{kind}").read_bytes() for folder in folders)
        assert one == other, kind
