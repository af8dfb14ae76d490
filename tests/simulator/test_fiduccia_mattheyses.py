"""Two halves of a graph: balanced, deterministic, and cut where GPU topologies have the least weight."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowsched_models.profiles import load_catalogue
from flowsched_simulator.baselines.fiduccia_mattheyses import Weights, bisected, cut_weight

TOPOLOGIES = load_catalogue().gpu_topologies
Graph = tuple[list[int], dict[tuple[int, int], int]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Up to nine vertices, and weights of some of the edges between them."""
    vertices = sorted(draw(st.sets(st.integers(0, 20), max_size=9)))
    edges = list(combinations(vertices, 2))
    chosen = draw(st.lists(st.sampled_from(edges), unique=True)) if edges else []
    return vertices, {edge: draw(st.integers(1, 9)) for edge in chosen}


def weight(halves: tuple[tuple[int, ...], tuple[int, ...]], weights: Weights) -> int:
    return cut_weight({v: side for side, half in enumerate(halves) for v in half}, weights)


def least_weight(vertices: list[int], weights: Weights) -> int:
    """By trying all balanced halves."""
    halves = (
        (half, tuple(v for v in vertices if v not in half)) for half in combinations(vertices, len(vertices) // 2)
    )
    return min(weight(one, weights) for one in halves)


@given(graph=graphs())
def test_halves_are_balanced_and_no_worse_than_the_first_half_by_number(graph: Graph) -> None:
    vertices, weights = graph
    first, second = bisected(vertices, weights)

    assert sorted(first + second) == vertices
    assert abs(len(first) - len(second)) <= 1
    half = (len(vertices) + 1) // 2
    assert weight((first, second), weights) <= weight((tuple(vertices[:half]), tuple(vertices[half:])), weights)
    assert not vertices or first[0] == vertices[0]
    assert bisected(vertices[::-1], weights) == (first, second)


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
@given(data=st.data())
def test_the_cut_of_gpus_is_minimal_whatever_their_numbers_and_whichever_are_looked_at(
    name: str, data: st.DataObject
) -> None:
    topology = TOPOLOGIES[name]
    number = data.draw(st.permutations(range(topology.count)))
    near = {
        (min(number[u], number[v]), max(number[u], number[v])): round(1000 / float(topology.distance[u, v]))
        for u, v in combinations(range(topology.count), 2)
    }
    vertices = sorted(data.draw(st.sets(st.sampled_from(range(topology.count)), min_size=1)))

    assert weight(bisected(vertices, near), near) == least_weight(vertices, near)


def test_a_pass_leaves_a_state_that_no_single_move_or_swap_improves_at_once() -> None:
    """Two triangles that begin dealt out: both pairs have to change sides before anything is won."""
    edges = [(0, 2), (2, 4), (0, 4), (1, 3), (3, 5), (1, 5)]
    assert bisected(range(6), dict.fromkeys(edges, 1)) == ((0, 2, 4), (1, 3, 5))


def test_nothing_and_one_vertex_have_halves_too() -> None:
    assert bisected((), {}) == ((), ())
    assert bisected((7,), {}) == ((7,), ())
