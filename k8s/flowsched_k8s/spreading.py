"""Spreading that may be broken: what a place costs where others of its kind are, and how the pods of one round share zones.

A network of classes has one price for all pods of a class on a node. Were all priced by what is there before the round, they
would all go to the emptiest zone. So a class is divided: its k-th pod belongs to the zone that would have the fewest after
k - 1 others, as far as there is room, and pays in each zone what one pod more would cost there at the end. At these prices
no pod gains by another zone; the network still sends it to one where that is worth it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from flowsched.support.arrays import BoolArray, FloatArray, IntArray
from flowsched_k8s.objects import Pod

HOST_SKEW, ZONE_SKEW = 3, 5
"""``maxSkew`` of the constraints that Kubernetes adds where a pod has none of its own."""
_WORKLOADS = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})
_MOST_DOMAINS = 32
"""Classes are not divided among more: on single nodes, ties spread."""


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

    @property
    def divides(self) -> bool:
        """Whether the pods of one class mind each other, in few domains."""
        return self.own and len(self.members) <= _MOST_DOMAINS

    def cost(self) -> FloatArray:
        """[rows] what a place costs beside those that are there."""
        return self._by_row(self.members)

    def shares(self, room: IntArray, count: int) -> list[tuple[IntArray, FloatArray]]:
        """The pods of a class, by position, for each domain that gets some, and what places cost them [rows].

        ``room``: [rows] how many of them a node would take. One share of all where nothing is to be divided.
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
        for d in dict.fromkeys(belongs.tolist()):
            others = final.copy()
            others[d] -= 1
            found.append((np.flatnonzero(belongs == d), self._by_row(others, int(final.max()))))
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
    found = [SpreadWish(zone, by_zone, weight, ZONE_SKEW)]
    on_node = np.maximum(0, np.bincount(there, minlength=len(zone)) + 1 - HOST_SKEW)
    if on_node.any():
        found.append(SpreadWish(np.arange(len(zone)), on_node, weight, HOST_SKEW))
    return found


def divided(wishes: Sequence[SpreadWish], room: IntArray, count: int) -> list[tuple[IntArray, FloatArray]]:
    """Shares of a class by the wish that can divide it and weighs most, and what all wishes together cost each."""
    if not wishes:
        return [(np.arange(count), np.zeros(len(room)))]
    best = max(range(len(wishes)), key=lambda i: (wishes[i].divides, wishes[i].weight, -i))
    rest = sum((w.cost() for i, w in enumerate(wishes) if i != best), np.zeros(len(room)))
    return [(which, cost + rest) for which, cost in wishes[best].shares(room, count)]
