"""Two halves of a small graph with little weight between them.

C. M. Fiduccia, R. M. Mattheyses, "A Linear-Time Heuristic for Improving Network Partitions", Proc. 19th Design Automation
Conference (DAC), 1982, pp. 175-181: vertices move one at a time, each once a pass, the one with the largest gain first as
long as the halves stay balanced; of all states that a pass goes through the best is kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations

Halves = tuple[tuple[int, ...], tuple[int, ...]]
Weights = Mapping[tuple[int, int], int]
"""Of the edges between two vertices, the smaller first. Integers, so that equal gains are equal."""


def bisected(vertices: Sequence[int], weights: Weights) -> Halves:
    """Two halves, the one with the smallest vertex first; their sizes differ by one at most.

    A pass improves what it begins with, and may end in a local minimum. So there is one start for each vertex: the half
    that begins with it, in the order given. Of equal cuts the first stays.
    """
    order = sorted(vertices)
    half = (len(order) + 1) // 2
    starts = [sorted((order[k:] + order[:k])[:half]) for k in range(len(order))]
    found = [_improved({v: int(v not in start) for v in order}, weights) for start in starts]
    best = min(found, key=lambda side: cut_weight(side, weights), default={})
    first = best[order[0]] if order else 0
    return tuple(v for v in order if best[v] == first), tuple(v for v in order if best[v] != first)


def cut_weight(side: Mapping[int, int], weights: Weights) -> int:
    """Weight of the edges between the two sides."""
    return sum(weights.get((u, v), 0) for u, v in combinations(sorted(side), 2) if side[u] != side[v])


def _improved(side: dict[int, int], weights: Weights) -> dict[int, int]:
    """Passes until one brings nothing."""
    while True:
        moves = _best_moves(side, weights)
        if not moves:
            return side
        side = {v: 1 - s if v in moves else s for v, s in side.items()}


def _best_moves(side: Mapping[int, int], weights: Weights) -> frozenset[int]:
    """One pass: the vertices that it is best to move; none where nothing lowers the cut."""
    now = dict(side)
    sizes = [sum(s == which for s in now.values()) for which in (0, 1)]
    gain = {v: _gain(v, now, weights) for v in now}
    buckets: dict[int, list[int]] = defaultdict(list)
    for u in sorted(now):
        buckets[gain[u]].append(u)
    moved: list[int] = []
    total, best, kept = 0, 0, 0
    while (v := _next(buckets, now, sizes)) is not None:
        buckets[gain[v]].remove(v)
        sizes[now[v]] -= 1
        now[v] = 1 - now[v]
        sizes[now[v]] += 1
        moved.append(v)
        total += gain.pop(v)
        if total > best and abs(sizes[0] - sizes[1]) <= 1:
            best, kept = total, len(moved)
        for u in gain:
            buckets[gain[u]].remove(u)
            # The edge between them was cut and is not any more, or the reverse: its weight changes its sign.
            gain[u] += (-2 if now[u] == now[v] else 2) * weights.get((min(u, v), max(u, v)), 0)
            buckets[gain[u]].append(u)
            buckets[gain[u]].sort()
    return frozenset(moved[:kept])


def _next(buckets: Mapping[int, Sequence[int]], side: Mapping[int, int], sizes: Sequence[int]) -> int | None:
    """The vertex with the largest gain that may move: only the smaller half grows, so that they differ by two at most."""
    for gain in sorted(buckets, reverse=True):
        for v in buckets[gain]:
            if sizes[1 - side[v]] <= sizes[side[v]]:
                return v
    return None


def _gain(v: int, side: Mapping[int, int], weights: Weights) -> int:
    """By how much the cut becomes lighter if a vertex moves to the other side."""
    return sum(weights.get((min(u, v), max(u, v)), 0) * (1 if side[u] != side[v] else -1) for u in side if u != v)
