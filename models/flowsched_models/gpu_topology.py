"""How the GPUs of one machine are linked: a small graph of devices, sockets and switches, with classes of links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import networkx as nx
    import numpy as np
    from numpy.typing import NDArray

    from flowsched_models.cell import Floats, Ints

End = int | str
"""A device by its number, or another place of the machine by its name: a socket, a switch."""


@dataclass(frozen=True)
class GpuLinks:
    """The links of one class."""

    link_class: str
    weight: float
    """Length of each: qualitative distances, as in equation 3 of M. Amaral's thesis (UPC, 2019)."""
    between: tuple[tuple[End, End], ...]


@dataclass(frozen=True)
class GpuTopology:
    """The GPUs of a kind of machine, its sockets, and the links between them. Devices are numbered from 0."""

    name: str
    sockets: tuple[tuple[int, ...], ...]
    """Devices of each socket."""
    links: tuple[GpuLinks, ...]
    """By class, the fastest first."""

    @property
    def count(self) -> int:
        """Devices."""
        return sum(len(socket) for socket in self.sockets)

    @property
    def link_classes(self) -> tuple[str, ...]:
        """The fastest first."""
        return tuple(links.link_class for links in self.links)

    @cached_property
    def graph(self) -> nx.Graph[End]:
        """Devices and other places; each edge has its ``weight`` and the number of its ``link_class``."""
        import networkx as nx

        graph: nx.Graph[End] = nx.Graph()
        graph.add_nodes_from(range(self.count))
        for number, links in enumerate(self.links):
            for one, other in links.between:
                if not graph.has_edge(one, other) or graph.edges[one, other]["weight"] > links.weight:
                    graph.add_edge(one, other, weight=links.weight, link_class=number)
        return graph

    @cached_property
    def linked(self) -> NDArray[np.bool_]:
        """[devices, devices] whether a path past no third device leads there.

        Computed without networkx: reading profiles needs this, and nothing else that would import it.
        """
        import numpy as np  # an agent's watchdog reads no profiles, and stays small without it

        row = {end: i for i, end in enumerate(dict.fromkeys((*range(self.count), *_ends(self.links))))}
        near = np.eye(len(row), dtype=np.bool_)
        for one, other in (ends for links in self.links for ends in links.between):
            near[row[one], row[other]] = near[row[other], row[one]] = True
        devices, places = near[: self.count], near[self.count :, self.count :]
        for _ in range(len(places).bit_length()):
            places = places @ places
        found: NDArray[np.bool_] = (
            devices[:, : self.count] | devices[:, self.count :] @ places @ devices[:, self.count :].T
        )
        return found

    @cached_property
    def distance(self) -> Floats:
        """[devices, devices] length of the shortest path past no third device; infinity where there is none."""
        return self._paths[0]

    @cached_property
    def slowest(self) -> Ints:
        """[devices, devices] number of the slowest class of link on that path; -1 on the diagonal."""
        return self._paths[1]

    @cached_property
    def socket_of(self) -> tuple[int, ...]:
        """Of each device."""
        found = {device: s for s, socket in enumerate(self.sockets) for device in socket}
        return tuple(found[device] for device in range(self.count))

    def path(self, one: int, other: int) -> tuple[End, ...]:
        """The ends that the shortest path between two devices leads through, both of them included; none without one."""

        def weight(_: End, to: End, edge: Mapping[str, Any]) -> float | None:
            # Memory of a GPU is not reached through a third one. Hiding those edges keeps the order of the others, by
            # which ties are broken; a subgraph of a set of names would not.
            return None if isinstance(to, int) and to != other else edge["weight"]

        import networkx as nx

        try:
            return tuple(nx.dijkstra_path(self.graph, one, other, weight))
        except nx.NetworkXNoPath:
            return ()

    @cached_property
    def _paths(self) -> tuple[Floats, Ints]:
        import numpy as np

        n = self.count
        distance, slowest = np.zeros((n, n)), np.full((n, n), -1, np.int64)
        for one, other in combinations(range(n), 2):
            steps = [self.graph.edges[step] for step in pairwise(self.path(one, other))]
            distance[one, other] = distance[other, one] = sum(s["weight"] for s in steps) if steps else np.inf
            slowest[one, other] = slowest[other, one] = max((s["link_class"] for s in steps), default=-1)
        return distance, slowest

    def spread(self, devices: Sequence[int]) -> float:
        """``t``: sum of the shortest paths between all pairs of some devices (equation 3); 0 for one."""
        return float(sum(self.distance[one, other] for one, other in combinations(devices, 2)))

    def closest(self, devices: Sequence[int], count: int) -> tuple[int, ...]:
        """So many of some devices that are closest to one another; of equal sets the first."""
        return min(combinations(devices, count), key=self.spread)

    def slowest_class(self, devices: Sequence[int]) -> str | None:
        """The slowest class of link that some devices need to reach one another; None for one, and without links."""
        if len(devices) < 2 or not self.links:
            return None
        return self.link_classes[max(int(self.slowest[one, other]) for one, other in combinations(devices, 2))]

    def socket_mask(self, devices: Sequence[int]) -> int:
        """Bits of the sockets that some devices are on."""
        mask = 0
        for device in devices:
            mask |= 1 << self.socket_of[device]
        return mask

    def worst_spread(self, count: int) -> float:
        """``t_w``: the largest ``t`` of any ``count`` devices."""
        return self._worst[count]

    def best_class(self, count: int) -> str | None:
        """The slowest class of link within the ``count`` devices that are closest to one another."""
        return self._best[count]

    @cached_property
    def _worst(self) -> dict[int, float]:
        return {n: max(map(self.spread, combinations(range(self.count), n))) for n in range(1, self.count + 1)}

    @cached_property
    def _best(self) -> dict[int, str | None]:
        return {n: self.slowest_class(self.closest(range(self.count), n)) for n in range(1, self.count + 1)}


def _ends(all_links: Sequence[GpuLinks]) -> Iterator[End]:
    return (end for links in all_links for ends in links.between for end in ends)
