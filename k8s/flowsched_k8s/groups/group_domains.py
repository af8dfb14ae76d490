"""One topology domain for all pods of a group: a rack, or where none has room a block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowsched.cluster.machine_rows import MachineRows
from flowsched.support.arrays import BoolArray, FloatArray, IntArray
from flowsched_k8s.groups.pod_groups import MOST_MEMBERS
from flowsched_k8s.names import GROUP_DOMAIN
from flowsched_k8s.rounds.round_input import ClassInput

_NO_ROOM = 1e9


@dataclass(frozen=True)
class GroupTopology:
    """What is asked for a group, and where some of its pods are already."""

    keys: tuple[str, ...]
    """Node labels: all pods go to one domain of the first one of which a domain has room for all."""
    minimum: int
    """Pods that have to start together, of those that wait."""
    placed: tuple[int, ...] = ()
    """Rows of the nodes of pods that are placed."""
    kept: tuple[int, ...] = ()
    """Rows of nodes that are kept for it, where the pods that have to start have room together."""


@dataclass(frozen=True)
class _Choice:
    rank: int
    """0: room for all; 1: for the minimum; 2: for fewer."""
    key: str
    number: int
    load: float
    """Share of the domain's room that the group counts on."""


class GroupDomains:
    """Domains for the groups of one round: two groups do not count on the same room."""

    def __init__(self, machines: MachineRows) -> None:
        """No group has a domain yet."""
        self._machines = machines
        self._domains: dict[str, tuple[IntArray, int]] = {}
        self._taken: dict[str, FloatArray] = {}

    def restrict(self, classes: Sequence[ClassInput], topology: GroupTopology) -> list[ClassInput]:
        """The classes of a group, each allowed on the nodes of one domain only.

        Of the domains with room for all pods the one that they fill most; where none has, one with room for the minimum,
        else the one that misses least. Room is that of each class by itself, added up as shares of it.
        """
        rooms = [np.where(c.allowed, self._machines.room_for(c.needs, MOST_MEMBERS), 0) for c in classes]
        counts = [len(c.uids) for c in classes]
        # The room of other domains is an estimate, even of those of an earlier label.
        best = next((kept for key in topology.keys if (kept := self._kept(key, topology)) is not None), None)
        for key in topology.keys if best is None else ():
            choice = self._choice(key, topology, rooms, counts)
            if choice is not None and (best is None or choice.rank < best.rank):
                best = choice
        if best is None:
            return [_only(c, np.zeros_like(c.allowed)) for c in classes]
        self._taken[best.key][best.number] += best.load
        inside = self._numbered(best.key)[0] == best.number
        return [_only(c, inside) for c in classes]

    def possible(self, topology: GroupTopology) -> Iterator[tuple[str, BoolArray]]:
        """(label, rows) of every domain that the group may go to, those of the first label first."""
        for key in topology.keys:
            domain, number = self._numbered(key)
            there = {int(domain[row]) for row in topology.placed}
            if len(there) < 2 and -1 not in there:
                yield from ((key, domain == n) for n in sorted(there) or range(number))

    def _kept(self, key: str, topology: GroupTopology) -> _Choice | None:
        """The domain of one label in which all nodes are that are kept for the group; None if they are not in one."""
        domain, number = self._numbered(key)
        here = {int(domain[row]) for row in topology.kept}
        if len(here) != 1 or -1 in here:
            return None
        self._taken.setdefault(key, np.zeros(number))
        return _Choice(0, key, next(iter(here)), 1.0)

    def _choice(
        self, key: str, topology: GroupTopology, rooms: Sequence[IntArray], counts: Sequence[int]
    ) -> _Choice | None:
        """A domain of one label; None where no node has the label, or the group is in several domains already."""
        domain, number = self._numbered(key)
        there = {int(domain[row]) for row in topology.placed}
        if not number or len(there) > 1 or -1 in there:
            return None
        load = self._taken.setdefault(key, np.zeros(number)) + self._load(domain, number, rooms, counts)
        if there:
            load[np.arange(number) != next(iter(there))] = np.inf
        for rank, part in enumerate((1.0, topology.minimum / sum(counts))):
            fitting = load * part <= 1.0
            if fitting.any():
                best = int(np.argmax(np.where(fitting, load, -np.inf)))
                return _Choice(rank, key, best, min(1.0, float(load[best])))
        return _Choice(2, key, int(np.argmin(load)), 1.0)

    @staticmethod
    def _load(domain: IntArray, number: int, rooms: Sequence[IntArray], counts: Sequence[int]) -> FloatArray:
        """[domains] which share of the room the pods would take; a large number where one of them has none."""
        load = np.zeros(number)
        inside = domain >= 0
        for room, count in zip(rooms, counts, strict=True):
            places = np.bincount(domain[inside], weights=room[inside], minlength=number)
            load += np.divide(count, places, out=np.full(number, _NO_ROOM), where=places > 0)
        return load

    def _numbered(self, key: str) -> tuple[IntArray, int]:
        """[rows] number of each node's domain, -1 for none, in the order of the domains' names; and how many there are."""
        if key not in self._domains:
            machines = self._machines
            labels = [machines.labels(name).get(key) if name else None for name in machines.names[: machines.rows]]
            numbers = {label: i for i, label in enumerate(sorted({x for x in labels if x is not None}))}
            self._domains[key] = (
                np.array([-1 if x is None else numbers[x] for x in labels], np.int64),
                len(numbers),
            )
        return self._domains[key]


def within_domains(
    machines: MachineRows, classes: Iterable[ClassInput], topologies: Mapping[str, GroupTopology]
) -> list[ClassInput]:
    """All classes in their order, those of the groups with a topology each in one domain. Higher priorities choose first."""
    found = list(classes)
    domains = GroupDomains(machines)
    of_group: dict[str, list[int]] = {}
    for i, c in enumerate(found):
        if c.group is not None and c.group in topologies:
            of_group.setdefault(c.group, []).append(i)
    for group, mine in sorted(of_group.items(), key=lambda item: (-found[item[1][0]].priority, item[1][0])):
        for i, c in zip(mine, domains.restrict([found[i] for i in mine], topologies[group]), strict=True):
            found[i] = c
    return found


def _only(c: ClassInput, inside: BoolArray) -> ClassInput:
    verdict = np.where((c.verdict == 0) & ~inside, np.int16(len(c.reasons)), c.verdict)
    return replace(c, allowed=c.allowed & inside, verdict=verdict, reasons=[*c.reasons, GROUP_DOMAIN])
