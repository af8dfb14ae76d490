"""Drawings of how GPUs are linked: everything is there once, nothing covers anything, whatever the topology."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.inspector.link_layout import LEAST_WIDTH, LinkBox, LinkLayout, LinkLine, link_layout
from flowsched_models.gpu_topology import End, GpuLinks, GpuTopology
from flowsched_models.profiles import load_catalogue

BUNDLED = load_catalogue().gpu_topologies


@st.composite
def topologies(draw: st.DrawFn) -> GpuTopology:
    """Up to 16 devices on up to four sockets, and any links between them and up to six other places."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    devices = iter(range(sum(sizes)))
    sockets = tuple(tuple(next(devices) for _ in range(size)) for size in sizes)
    ends: list[End] = [*range(sum(sizes)), *draw(st.lists(st.sampled_from("abcdef"), unique=True))]
    pairs = st.lists(st.tuples(st.sampled_from(ends), st.sampled_from(ends)), max_size=30)
    links = tuple(GpuLinks(name, weight, tuple(draw(pairs))) for name, weight in (("fast", 1.0), ("slow", 20.0)))
    return GpuTopology("any", sockets, links)


def points(line: LinkLine) -> list[tuple[float, float]]:
    """Along a line; of an arc the cubic that its path is."""
    (x, y), (to_x, to_y) = line.start, line.stop
    if not line.bend:
        return [(x + (to_x - x) * n / 20, y + (to_y - y) * n / 20) for n in range(21)]
    height = y + line.bend / 0.75
    at = [n / 20 for n in range(21)]
    return [
        (
            (1 - t) ** 2 * (1 + 2 * t) * x + t**2 * (3 - 2 * t) * to_x,
            ((1 - t) ** 3 + t**3) * y + 3 * t * (1 - t) * height,
        )
        for t in at
    ]


def covers(box: LinkBox, x: float, y: float, slack: float = 0.2) -> bool:
    return box.x + slack < x < box.x + box.width - slack and box.y + slack < y < box.y + box.height - slack


def assert_readable(topology: GpuTopology, layout: LinkLayout) -> None:
    ends = [box.end for box in layout.boxes]
    assert len(ends) == len(set(ends)) and set(ends) == {*topology.graph}
    drawn = [frozenset(line.ends) for line in layout.lines]
    assert len(drawn) == len(set(drawn))
    assert set(drawn) == {frozenset(edge) for edge in topology.graph.edges if edge[0] != edge[1]}
    for line in layout.lines:
        assert line.link_class == topology.graph.edges[line.ends]["link_class"]
    for box in [*layout.boxes, *(frame.box for frame in layout.frames)]:
        assert box.x >= 0 and box.x + box.width <= layout.width
        assert box.y >= 0 and box.y + box.height <= layout.height
        assert box.width > 0 and box.height > 0
    for some in (layout.boxes, [frame.box for frame in layout.frames]):
        for one, other in combinations(some, 2):
            beside = one.x + one.width <= other.x + 0.2 or other.x + other.width <= one.x + 0.2
            assert beside or one.y + one.height <= other.y or other.y + other.height <= one.y
    for n, socket in enumerate(topology.sockets):
        frame = layout.frames[n].box
        inside = {box.end for box in layout.boxes if covers(frame, box.x, box.y) and isinstance(box.end, int)}
        assert inside == {*socket}
    for line in layout.lines:
        for x, y in points(line):
            assert 0 <= x <= layout.width and 0 <= y <= layout.height
            assert not any(covers(box, x, y) for box in layout.boxes), f"{line.ends} runs through a box"


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_topologies_fit_the_panel(name: str) -> None:
    layout = link_layout(BUNDLED[name])
    assert_readable(BUNDLED[name], layout)
    assert layout.width == LEAST_WIDTH
    assert layout == link_layout(BUNDLED[name])


@given(topologies())
@settings(max_examples=150, deadline=None)
def test_any_topology_can_be_read(topology: GpuTopology) -> None:
    assert_readable(topology, link_layout(topology))


@pytest.mark.parametrize("name", BUNDLED)
def test_the_lines_between_two_devices_are_their_path_and_its_class(name: str) -> None:
    topology = BUNDLED[name]
    layout = link_layout(topology)
    for pair in combinations(range(topology.count), 2):
        lines = [layout.lines[n] for n in layout.paths[pair]]
        assert [frozenset(line.ends) for line in lines] == [frozenset(step) for step in pairwise(topology.path(*pair))]
        assert topology.slowest_class(pair) == topology.link_classes[max(line.link_class for line in lines)]
        assert sum(topology.links[line.link_class].weight for line in lines) == topology.distance[pair]


def test_a_socket_is_named_once() -> None:
    assert [frame.labelled for frame in link_layout(BUNDLED["minsky"]).frames] == [False, False], (
        "its place has the name"
    )
    assert [frame.labelled for frame in link_layout(BUNDLED["nvswitch"]).frames] == [True, True]


def test_of_equal_paths_the_first_link_in_the_file_is_taken() -> None:
    """Names of places come in no order of their own: the same topology has the same paths in every process."""
    links = tuple((device, place) for place in "zyxwvutsr" for device in (0, 1))
    topology = GpuTopology("many", ((0, 1),), (GpuLinks("fast", 1.0, links),))
    assert topology.path(0, 1) == (0, "z", 1)
