"""Minimum-cost flow problems in the DIMACS format, read and written.

"The First DIMACS International Algorithm Implementation Challenge: Problem Definitions and Specifications" (1990). Nodes
count from 1 there and from 0 here. ``flowsched inspect --dimacs`` writes the networks of a round with what their nodes
stand for; this is for networks by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from flowsched.network.network import Network
from flowsched.support.arrays import rows_of
from flowsched_models.document import InputError, Problem, read_text

_WORDS = {"p": 4, "n": 3, "a": 6}


def read_dimacs(path: Path) -> Network:
    """The network of a file. Raises :class:`InputError`."""
    return parse_dimacs(read_text(path), str(path))


def parse_dimacs(text: str, source: str = "text") -> Network:
    """The network of a text. Raises :class:`InputError` with the line of the first mistake."""
    supplies: list[int] | None = None
    announced = 0
    arcs: list[tuple[int, int, int, int]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0] == "c":
            continue

        def wrong(message: str, help: str = "", number: int = number) -> InputError:
            return InputError([Problem(source, number, "", message, help)])

        kind = words[0]
        if kind not in _WORDS:
            raise wrong(f"a line begins with {kind}", "lines begin with c, p, n or a")
        if len(words) != _WORDS[kind]:
            raise wrong(f"a line of kind {kind} has {len(words) - 1} words after it, not {_WORDS[kind] - 1}")
        if kind == "p":
            if supplies is not None or words[1] != "min":
                raise wrong("there must be one problem line, of kind min", "p min NODES ARCS")
            nodes, announced = _numbers(words[2:], wrong)
            if nodes < 0 or announced < 0:
                raise wrong("numbers of nodes and arcs are at least 0")
            supplies = [0] * nodes
            continue
        if supplies is None:
            raise wrong("the problem line must come first", "p min NODES ARCS")
        values = _numbers(words[1:], wrong)
        ends = values[:1] if kind == "n" else values[:2]
        for node in ends:
            if not 1 <= node <= len(supplies):
                raise wrong(f"there is no node {node}", f"nodes are 1 to {len(supplies)}")
        if kind == "n":
            supplies[values[0] - 1] = values[1]
            continue
        tail, head, low, high, cost = values
        if low != 0:
            raise wrong(f"an arc has the lower bound {low}", "only 0 is read; move the bound into supplies and demands")
        arcs.append((tail - 1, head - 1, high, cost))
    if supplies is None:
        raise InputError.one(source, "there is no problem line", "p min NODES ARCS")
    if len(arcs) != announced:
        raise InputError.one(source, f"there are {len(arcs)} arcs; the problem line says {announced}")
    columns = np.array(arcs, dtype=np.int64).reshape(-1, 4).T
    tails, heads, capacities, costs = (np.ascontiguousarray(column) for column in columns)
    return Network(tails, heads, capacities, costs, np.array(supplies, dtype=np.int64), 1.0)


def render_network(network: Network, about_arcs: str = "") -> str:
    """The text of a network; ``about_arcs`` is a comment before its arcs."""
    lines = [f"p min {len(network.supplies)} {network.arc_count}"]
    lines += [f"n {i + 1} {supply}" for i, supply in enumerate(network.supplies.tolist()) if supply]
    lines += [f"c {about_arcs}"] if about_arcs else []
    columns = (network.tails + 1, network.heads + 1, network.capacities, network.unit_costs)
    lines += [f"a {t} {h} 0 {u} {c}" for t, h, u, c in rows_of(*columns)]
    return "\n".join(lines) + "\n"


def _numbers(words: list[str], wrong: Callable[[str], InputError]) -> list[int]:
    values = []
    for word in words:
        try:
            value = int(word)
        except ValueError:
            value = 1 << 64
        if abs(value) > (1 << 63) - 1:
            raise wrong(f"'{word}' is not a whole number of 64 bits")
        values.append(value)
    return values
