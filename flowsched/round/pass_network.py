"""The network of one pass: classes of a batch, their cheapest option on every machine, and the unscheduled node.

    class --price of its cheapest option there--> machine --capacity 1--> sink
    class --unscheduled price--> unscheduled -----------------------------> sink

At most one task arrives at a machine, so every flow can be carried out as it is and each price is the exact change of one
machine's cost. A tie goes to the option that starts earlier, is narrower and is on the machine that comes first in the order
of ties (:mod:`flowsched.round.ties`), and one between an option and waiting goes to the option: the order stands in the last
bits of the arcs' costs, not in the solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowsched.network.network import Network
from flowsched.round.machine_states import MachineStates
from flowsched.round.options import ClassOptions
from flowsched.round.ties import in_steps, ranks_of_options
from flowsched.support.arrays import FloatArray, IntArray

_RANKS = 1 << 10
"""Costs keep so many last steps for the order of ties."""
_LARGEST = 1 << 26
TIE = 1e-12
"""Prices that differ by no more are equal: sums of the same terms in other orders."""


@dataclass(frozen=True)
class PassNetwork:
    """A pass as a network, with what its arcs stand for."""

    network: Network
    classes: tuple[int, ...]
    arc_class: IntArray
    """[options] position in ``classes``; the first arcs of the network are the options."""
    arc_machine: IntArray
    """[options] machine of the view."""
    arc_start_after: IntArray
    """[options]"""
    arc_variant: IntArray
    """[options] row of the variant."""
    arc_price: FloatArray
    """[options]"""
    unscheduled: FloatArray
    """[classes] price of waiting; infinity for those that must start."""


def build(
    states: MachineStates,
    classes: Sequence[int],
    counts: Sequence[int],
    options: Sequence[ClassOptions],
    unscheduled: Sequence[float],
) -> PassNetwork:
    """The network of a batch. Node 0 is the sink, node 1 unscheduled, then classes, then machines with an option.

    ``states``: the machines as they are planned so far, which say the order of ties.
    """
    prices = np.array([o.price for o in options])
    there = np.isfinite(prices)
    arcs = arc_class, arc_machine = np.nonzero(there)
    price = prices[arcs]
    stepped = np.array([in_steps(o.price) for o in options])[arcs]
    after = np.array([o.start_after for o in options])[arcs]
    variant = np.array([o.variant for o in options])[arcs]
    waits = np.array(unscheduled, np.float64)
    ranks = ranks_of_options(states, classes, arc_class, arc_machine, (stepped, after, variant))
    rank = np.minimum(ranks, _RANKS - 1)
    present = np.flatnonzero(there.any(axis=0))
    machine_node = np.searchsorted(present, arc_machine)
    nodes = 2 + len(classes) + len(present)
    finite = np.concatenate([np.abs(price), np.abs(waits[np.isfinite(waits)])])
    most = float(finite.max(initial=1e-9))
    # Waiting is possible in the network for those that must start, at more than any plan could save by it.
    dear = np.where(np.isfinite(waits), waits, 4.0 * most * (1 + len(classes)))
    most = max(most, float(dear.max(initial=0.0)))
    tied = np.abs(price - waits[arc_class]) <= TIE
    np.maximum.at(dear, arc_class[tied], stepped[tied])
    # One step above all ranks of options at the same price.
    after_ties = np.zeros(len(classes), np.int64)
    after_ties[arc_class[tied]] = _RANKS
    scale = 2.0 ** np.floor(np.log2(_LARGEST / most))
    class_nodes = 2 + np.arange(len(classes), dtype=np.int64)
    tails = np.concatenate(
        [class_nodes[arc_class], class_nodes, 2 + len(classes) + np.arange(len(present)), [1]]
    ).astype(np.int64)
    heads = np.concatenate(
        [2 + len(classes) + machine_node, np.ones(len(classes)), np.zeros(len(present)), [0]]
    ).astype(np.int64)
    total = int(sum(counts))
    capacities = np.concatenate([np.ones(len(price)), np.array(counts), np.ones(len(present)), [total]]).astype(
        np.int64
    )
    costs = np.concatenate(
        [
            np.rint(stepped * scale).astype(np.int64) * _RANKS + rank,
            np.rint(dear * scale).astype(np.int64) * _RANKS + after_ties,
            np.zeros(len(present) + 1, np.int64),
        ]
    )
    supplies = np.zeros(nodes, np.int64)
    supplies[class_nodes] = counts
    supplies[0] = -total
    network = Network(tails, heads, capacities, costs, supplies, float(scale) * _RANKS)
    return PassNetwork(network, tuple(classes), arc_class, arc_machine, after, variant, price, waits)


def node_names(pass_: PassNetwork, class_names: Sequence[str], machine_names: Sequence[str]) -> tuple[str, ...]:
    """What each node of a pass stands for, as ``kind:name``."""
    present = np.unique(pass_.arc_machine)
    return (
        "sink",
        "unscheduled",
        *(f"class:{class_names[c]}" for c in pass_.classes),
        *(f"machine:{machine_names[m]}" for m in present.tolist()),
    )
