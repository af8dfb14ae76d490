"""Spreading that may be broken: what a place costs where others of its kind are, and how the pods of one round mind each
other.

A network of classes has one price for all pods of a class on a node. Were all priced by what is there before the round, they
would all go to the emptiest zone. So a class is divided: its k-th pod belongs to the zone that would have the fewest after
k - 1 others, as far as there is room, and pays in each zone what one pod more would cost there at the end. At these prices
no pod gains by another zone; the network still sends it to one where that is worth it.

On single nodes, of which there are too many for that, what a round puts there is counted as the round goes on, by a feature
of the linear prices: each pod of a kind that is there costs the next one the same. Kinds share a few such counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flowsched.support.arrays import BoolArray, FloatArray, IntArray
from flowsched_k8s.objects import Pod

HOST_SKEW, ZONE_SKEW = 3, 5
"""``maxSkew`` of the constraints that Kubernetes adds where a pod has none of its own."""
_WORKLOADS = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})
_MOST_SHARES = 32
"""A class is divided into no more; where there are more domains, each share has several."""
_COUNTS = 8
"""Counts of what a round puts on each node."""
_OF_WISH = 0.75
"""What a pod of the same round costs, of what one that was there costs: with 1, pods of a round go to a node with two of
their kind rather than to one that the round has put one of them on.
"""


@dataclass(frozen=True, eq=False)
class SpreadWish:
    """A wish to be where few others of a kind are."""

    domain: IntArray
    """[rows] number of each node's domain; below 0 for a node in none."""
    members: IntArray
    """[domains] of the kind that are there."""
    weight: float
    """What a place in the fullest domain costs, but for the skew."""
    skew: int = 1
    """The larger, the less few members matter: the fullest domain counts as if it had so many more, less one."""
    nowhere: float = 0.0
    """What a node in no domain costs."""
    own: bool = True
    """Whether the pods that wish it are of the kind themselves."""
    per_node: bool = False
    """Whether no domain has two nodes."""

    @property
    def divides(self) -> bool:
        """Whether the pods of one class mind each other in domains of several nodes."""
        return self.own and not self.per_node

    def cost(self) -> FloatArray:
        """[rows] what a place costs beside those that are there."""
        return self._by_row(self.members)

    def shares(self, room: IntArray, count: int) -> list[tuple[IntArray, FloatArray]]:
        """The pods of a class, by position, for each domain that gets some, and what places cost them [rows].

        ``room``: [rows] how many of them a node would take. One share of all where nothing is to be divided. Where more
        domains get some than there may be shares, each share has every so-manieth of these domains.
        """
        inside = self.domain >= 0
        places = np.bincount(self.domain[inside], weights=room[inside], minlength=len(self.members)).astype(np.int64)
        used = np.flatnonzero(places)
        if not self.divides or count < 2 or len(used) < 2:
            return [(np.arange(count), self.cost())]
        turns = np.minimum(places[used], count)
        domain = np.repeat(used, turns)
        height = self.members[domain] + np.arange(len(domain)) - np.repeat(np.cumsum(turns) - turns, turns)
        order = np.lexsort((domain, -places[domain], height))[:count]
        # Those for whom there is no room come last and belong to the domain that would be next.
        belongs = np.concatenate([domain[order], np.full(count - len(order), domain[order[-1]])])
        final = self.members + np.bincount(domain[order], minlength=len(self.members))
        found = []
        theirs = np.array(list(dict.fromkeys(belongs.tolist())), dtype=np.int64)
        for first in range(min(len(theirs), _MOST_SHARES)):
            mine = theirs[first::_MOST_SHARES]
            others = final.copy()
            others[mine] -= 1
            found.append((np.flatnonzero(np.isin(belongs, mine)), self._by_row(others, int(final.max()))))
        return found

    def _by_row(self, members: IntArray, fullest: int | None = None) -> FloatArray:
        most = max(1, int(members.max(initial=0)) if fullest is None else fullest) + self.skew - 1
        return np.append(self.weight * members / most, self.nowhere)[np.where(self.domain >= 0, self.domain, -1)]


def workload_of(pod: Pod) -> str | None:
    """Uid of the controller whose pods Kubernetes spreads by default; None for a pod with constraints of its own.

    Only those of ReplicaSets, StatefulSets and ReplicationControllers: a pod's Services select at least these.
    """
    if pod.spec.topology_spread_constraints:
        return None
    owners = pod.metadata.owner_references or ()
    return next((o.uid for o in owners if o.controller and o.kind in _WORKLOADS), None)


def default_wishes(rows: Collection[int], zone: IntArray, eligible: BoolArray, weight: float) -> list[SpreadWish]:
    """Kubernetes' default constraints for a pod whose like are on the nodes ``rows`` (one entry for each).

    ``zone``: [rows] number of each node's zone; those without the label are one together. Nodes that are not ``eligible``
    are not counted. On one node as many as ``HOST_SKEW`` allows cost nothing.
    """
    there = np.fromiter((row for row in rows if eligible[row]), np.int64)
    by_zone = np.bincount(zone[there], minlength=int(zone.max(initial=0)) + 1)
    on_node = np.maximum(0, np.bincount(there, minlength=len(zone)) + 1 - HOST_SKEW)
    found = [SpreadWish(zone, by_zone, weight, ZONE_SKEW)]
    if on_node.any():
        found.append(SpreadWish(np.arange(len(zone)), on_node, weight, HOST_SKEW, per_node=True))
    return found


@dataclass(frozen=True)
class RoundCount:
    """In which count of what a round puts on each node the pods of a kind are."""

    number: int
    pods: int
    """Of the kind, those that wait and those that are there."""

    def per_pod(self, weight: float, skew: int, nodes: int) -> float:
        """What each that is there costs a pod more that may go to ``nodes`` nodes; ``weight`` and ``skew`` of its wish."""
        return _OF_WISH * weight / (max(1.0, self.pods / max(1, nodes)) + skew - 1)


def counts_of(waiting: Mapping[str, int], there: Callable[[str], int]) -> dict[str, RoundCount]:
    """The count of each kind in a round. ``waiting``: pods of each that wait; ``there``: how many of one are there.

    Kinds with one pod need none. The largest come first, each to the count with the fewest pods so far.
    """
    load = [0] * _COUNTS
    found: dict[str, RoundCount] = {}
    for kind in sorted((k for k, pods in waiting.items() if pods > 1), key=lambda k: (-waiting[k], k)):
        number = load.index(min(load))
        found[kind] = RoundCount(number, waiting[kind] + there(kind))
        load[number] += waiting[kind]
    return found


def divided(wishes: Sequence[SpreadWish], room: IntArray, count: int) -> list[tuple[IntArray, FloatArray]]:
    """Shares of a class by the wish that can divide it and weighs most, and what all wishes together cost each."""
    if not wishes:
        return [(np.arange(count), np.zeros(len(room)))]
    best = max(range(len(wishes)), key=lambda i: (wishes[i].divides, wishes[i].weight, -i))
    rest = sum((w.cost() for i, w in enumerate(wishes) if i != best), np.zeros(len(room)))
    return [(which, cost + rest) for which, cost in wishes[best].shares(room, count)]
