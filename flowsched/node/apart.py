"""Tasks that may not share a core with a service: where they can be, and arrangements put right for them.

Who cannot be given the lowest weight would take half of a service's core. Which of the two gets a core is decided by the
same prices as everything else; that they do not get it together is a limit that no price moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from flowsched.node.arrangement import Arrangement, Cores
from flowsched.node.node import NodeService


@dataclass(frozen=True)
class Apart:
    """The limit for one company of services and tasks. Without such tasks everything is left exactly as it is."""

    cores: Cores
    """Of the node."""
    services: tuple[NodeService, ...]
    shares: tuple[bool, ...]
    """Of each task, whether it may share."""
    gone: frozenset[str] = frozenset()
    """Services that are not there."""

    @cached_property
    def tasks(self) -> tuple[int, ...]:
        """Those that may not share, by index."""
        return tuple(k for k, shares in enumerate(self.shares) if not shares)

    @cached_property
    def room(self) -> Cores:
        """Cores that such tasks have at most: all but the fewest of each service."""
        return self._without(self.fewest)

    @cached_property
    def never_served(self) -> Cores:
        """Cores that no service can have."""
        return self._without(tuple(len(s.cores) for s in self.services))

    @cached_property
    def fewest(self) -> tuple[int, ...]:
        """Cores of each service when it makes all the room that it can."""
        return tuple(min(s.fewest, len(s.cores)) for s in self.services)

    def free(self, arrangement: Arrangement) -> Cores:
        """Cores that no service has."""
        return self._without(arrangement.services)

    def kept(self, arrangement: Arrangement) -> bool:
        """Whether none of them shares a core with a service."""
        if not self.tasks:
            return True
        free = set(self.free(arrangement))
        return all(free.issuperset(arrangement.tasks[k]) for k in self.tasks)

    def put_right(self, arrangement: Arrangement) -> Arrangement:
        """The same with such tasks taken off the services' cores."""
        if self.kept(arrangement):
            return arrangement
        free = set(self.free(arrangement))
        tasks = list(arrangement.tasks)
        for k in self.tasks:
            tasks[k] = tuple(c for c in tasks[k] if c in free)
        return Arrangement(arrangement.services, tuple(tasks))

    def making_room(self, arrangement: Arrangement) -> Iterator[Arrangement]:
        """Every service in turn leaves cores to one of these tasks, or to all of them."""
        if not self.tasks:
            return
        for s, count in enumerate(arrangement.services):
            if self.services[s].name in self.gone:
                continue
            for fewer in range(self.fewest[s], count):
                services = (*arrangement.services[:s], fewer, *arrangement.services[s + 1 :])
                smaller = Arrangement(services, arrangement.tasks)
                left = set(self.services[s].cores[fewer:count]) & set(self.free(smaller))
                every = smaller
                for k in self.tasks:
                    cores = tuple(sorted(left | set(arrangement.tasks[k])))
                    every = every.with_task(k, cores)
                    yield smaller.with_task(k, cores)
                if len(self.tasks) > 1:
                    yield every

    def _without(self, counts: tuple[int, ...]) -> Cores:
        taken: set[int] = set()
        for service, count in zip(self.services, counts, strict=True):
            if service.name not in self.gone:
                taken |= set(service.cores[: max(count, service.fewest)])
        return tuple(c for c in self.cores if c not in taken)
