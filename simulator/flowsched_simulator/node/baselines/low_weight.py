"""Controllers that run all jobs at the lowest CPU weight, on the service's cores too."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from flowsched.node import LOWEST_WEIGHT, Allocation, Node, Reading, TaskGrant, TaskReading


class Part(StrEnum):
    """A part of the machine."""

    ALL = "all virtual CPUs"
    SERVICE = "those that the service may have"
    OTHERS = "all others"


PUBLISHED_ORDER: Mapping[str, tuple[Part, ...]] = MappingProxyType(
    {
        "freqmine": (Part.ALL,),
        "canneal": (Part.OTHERS,),
        "ferret": (Part.SERVICE,),
        "blackscholes": (Part.OTHERS,),
        "dedup": (Part.OTHERS,),
        "radix": (Part.OTHERS,),
        "vips": (Part.SERVICE, Part.OTHERS),
    }
)
"""Jobs in their order, each with the parts on which it may run."""


class LowWeight:
    """A fixed order on fixed cores at the lowest CPU weight; nothing is read but which jobs are done.

    The design of the repository frikai/cca-2024-part4 (course Cloud Computing Architecture, ETH Zurich, spring 2024),
    whose runs were the shortest of that year: all containers have 2 CPU shares, where memcached has the default of
    1024 and two virtual CPUs forever. freqmine runs first and alone, on all virtual CPUs; then ferret on memcached's
    two, and beside it canneal, blackscholes, dedup, radix and vips, one after the other, on the other two. Once a
    second one job is started, the first of the order that may run on a free virtual CPU; if none may, the one that was
    started last gets those that are free (ferret, at the end). No job is ever paused.

    Jobs that the published order does not name come after it, in order of submission, on the cores that the service may
    not have; on all, where services may have all.
    """

    period_s = 1.0

    def __init__(self, node: Node) -> None:
        """``node``: the machine."""
        self._node = node
        self._on: dict[str, tuple[int, ...]] = {}
        """Virtual CPUs of the jobs that were started and are not done, in order of their start."""

    def decide(self, reading: Reading) -> Allocation | None:
        """At most one job more; None: nothing changes."""
        before = dict(self._on)
        alive = {t.task.name for t in reading.tasks}
        self._on = {name: cores for name, cores in self._on.items() if name in alive}
        used = {c for cores in self._on.values() for c in cores}
        free = tuple(c for c in self._node.cores if c not in used)
        if free:
            parts = self._parts(reading)
            for task in sorted((t for t in reading.tasks if t.task.name not in self._on), key=self._place):
                cores = next((own for own in self._choices(task, parts) if set(own) & set(free)), None)
                if cores is not None:
                    self._on[task.task.name] = cores
                    break
            else:
                if self._on:
                    last = next(reversed(self._on))
                    self._on[last] += free
        changed = {name: cores for name, cores in self._on.items() if before.get(name) != cores}
        return Allocation(tasks={n: TaskGrant(True, c, LOWEST_WEIGHT) for n, c in changed.items()}) if changed else None

    def _parts(self, reading: Reading) -> dict[Part, tuple[int, ...]]:
        own = {c for s in reading.services for c in s.service.cores}
        return {
            Part.ALL: self._node.cores,
            Part.SERVICE: tuple(c for c in self._node.cores if c in own),
            Part.OTHERS: tuple(c for c in self._node.cores if c not in own) or self._node.cores,
        }

    def _choices(self, task: TaskReading, parts: Mapping[Part, tuple[int, ...]]) -> list[tuple[int, ...]]:
        key = self._key(task)
        return [parts[part] for part in ((Part.OTHERS,) if key is None else PUBLISHED_ORDER[key])]

    def _place(self, task: TaskReading) -> int:
        key = self._key(task)
        return len(PUBLISHED_ORDER) if key is None else list(PUBLISHED_ORDER).index(key)

    def _key(self, task: TaskReading) -> str | None:
        return next((name for name in (task.task.name, task.task.profile) if name in PUBLISHED_ORDER), None)


class LowWeightAll:
    """All jobs at once, at the lowest CPU weight, on all virtual CPUs; never paused.

    Not a published design: :class:`LowWeight` without its order, as the kernel alone would share the machine.
    """

    period_s = 0.1

    def __init__(self, node: Node) -> None:
        """``node``: the machine."""
        self._node = node
        self._known: set[str] = set()

    def decide(self, reading: Reading) -> Allocation | None:
        """Start what was submitted since the last reading."""
        new = [t.task.name for t in reading.tasks if t.task.name not in self._known]
        self._known.update(new)
        return Allocation(tasks={n: TaskGrant(True, self._node.cores, LOWEST_WEIGHT) for n in new}) if new else None
