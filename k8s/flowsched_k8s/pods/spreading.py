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

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flowsched.support.arrays import BoolArray, FloatArray, IntArray
from flowsched_k8s.objects import Pod

HOST_SKEW, ZONE_SKEW = 3, 5
"""``maxSkew`` of the constraints that Kubernetes adds where a pod has none of its own."""
_WORKLOADS = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})
_MOST_SHARES = 32
"""A class is divided into no more; where there are more domains, each share has several."""
_COUNTS = 16
"""Counts of what a round puts on each node, for the network of classes."""
OF_FORECASTS = 64
"""The same for measured pods: arrays by node and count."""
_FIRMLY, _GENTLY = 2.0, 0.75
"""What a pod of the same round costs, of the first one beyond the skew."""


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
    counted: bool = False
    """Whether each that was there before costs as much as one that the round puts there."""

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
        if self.counted:
            cost = per_pod(self.weight, self.skew) * members
            return np.append(cost, self.nowhere)[np.where(self.domain >= 0, self.domain, -1)]
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


def default_wishes(
    rows: Collection[int], zone: IntArray, eligible: BoolArray, weight: float, counted: bool = False
) -> list[SpreadWish]:
    """Kubernetes' default constraints for a pod whose like are on the nodes ``rows`` (one entry for each).

    ``zone``: [rows] number of each node's zone; those without the label are one together. Nodes that are not ``eligible``
    are not counted. On one node as many as ``HOST_SKEW`` allows cost nothing. ``counted``: whether those of the round are.
    """
    there = np.fromiter((row for row in rows if eligible[row]), np.int64)
    by_zone = np.bincount(zone[there], minlength=int(zone.max(initial=0)) + 1)
    on_node = np.bincount(there, minlength=len(zone))
    on_node = np.where(on_node >= HOST_SKEW, on_node if counted else on_node + 1 - HOST_SKEW, 0)
    found = [SpreadWish(zone, by_zone, weight, ZONE_SKEW)]
    if on_node.any():
        found.append(SpreadWish(np.arange(len(zone)), on_node, weight, HOST_SKEW, per_node=True, counted=counted))
    return found


def per_pod(weight: float, skew: int, gentle: bool = False) -> float:
    """What each pod of a kind that a round puts on a node costs the next one there; ``weight`` and ``skew`` of its wish.

    Twice what the first one beyond the skew costs pods that come alone, but less than the weight: a guess of what neighbours
    do is seldom worth another replica. ``gentle``: less than that first one, for pods with reasons of their own for a node.
    """
    return weight * (_GENTLY / skew if gentle else min(_GENTLY, _FIRMLY / skew))


def counts_of(waiting: Mapping[str, int], most: int = _COUNTS) -> dict[str, int]:
    """The number of the count that each kind has in a round. ``waiting``: pods of each that wait; ``most``: of counts.

    Kinds with one pod need none. The largest come first, each to the count with the fewest pods so far.
    """
    load = [0] * most
    found: dict[str, int] = {}
    for kind in sorted((k for k, pods in waiting.items() if pods > 1), key=lambda k: (-waiting[k], k)):
        found[kind] = load.index(min(load))
        load[found[kind]] += waiting[kind]
    return found


def divided(wishes: Sequence[SpreadWish], room: IntArray, count: int) -> list[tuple[IntArray, FloatArray]]:
    """Shares of a class by the wish that can divide it and weighs most, and what all wishes together cost each."""
    if not wishes:
        return [(np.arange(count), np.zeros(len(room)))]
    best = max(range(len(wishes)), key=lambda i: (wishes[i].divides, wishes[i].weight, -i))
    rest = sum((w.cost() for i, w in enumerate(wishes) if i != best), np.zeros(len(room)))
    return [(which, cost + rest) for which, cost in wishes[best].shares(room, count)]
