"""Paces of the jobs on all hosts of a cluster, kept from forecast to forecast and from round to round.

Hosts and kinds of job are registered once and known by numbers from then on, which compiled forecasts take. What is
remembered decides nothing: the pace of a set is worked out of the set alone, in one order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, TypeVar

import numpy as np

from flowsched_models.cell import CURVE, JOB_COLUMNS
from flowsched_models.forecast import forecast
from flowsched_models.gpu_profile import GpuUse
from flowsched_models.latency import LATENCY_COLUMNS
from flowsched_models.pace import PaceMemory
from flowsched_models.picked_fields import picked
from flowsched_models.runtime import Host, Resident

_ENTRIES = ("heads", "used", "hosts", "counts", "items", "paces")
"""Arrays of the memory that do not depend on what is registered."""
_MOST_MEMBERS = 16
"""Larger sets are not remembered."""
_FIRST_ENTRIES = 16_384
_MOST_ENTRIES = 65_536
"""Sets of jobs whose paces are remembered; a full memory is emptied."""
_MOST_KINDS = 16_384
_MOST_HOSTS = 1024
"""A table with more kinds or hosts starts anew: loads that are measured are never twice the same."""

Answer = TypeVar("Answer")
_Kind = tuple[int, str, int, tuple[int, ...], float, float | None, GpuUse]


class PaceTable:
    """Numbers of hosts and kinds of job, and the compiled model's memory of their paces."""

    def __init__(self) -> None:
        """Nothing is registered."""
        self._hosts: dict[int, int] = {}
        self._kept: list[Host] = []
        self._kinds: dict[_Kind, int] = {}
        self._sets: dict[tuple[int, ...], int] = {}
        """Sets of virtual CPUs."""
        self.memory: PaceMemory = _empty(0, 0, 0, 0, 0, _FIRST_ENTRIES)
        """The arrays that compiled forecasts take. Registering replaces them: ask again afterwards."""
        self._lone_peaks: dict[tuple[int, int], tuple[float, ...]] = {}
        self._remembered: dict[tuple[object, ...], Any] = {}
        self._numbers = count()
        self._alone: dict[tuple[int, tuple[int, ...], str, tuple[int, ...]], float] = {}

    def begin_round(self, hosts: int = 0, kinds: int = 0) -> None:
        """Start anew where too much is registered, and make room where the memory is full. Numbers that were handed out
        before are void. ``hosts``, ``kinds``: at most so many will be asked for again at once.
        """
        known = self.memory
        if len(self._kinds) > max(_MOST_KINDS, 2 * kinds) or len(self._kept) > max(_MOST_HOSTS, 2 * hosts):
            self.__init__()  # type: ignore[misc]
        elif known.used[0] >= len(known.counts):
            entries = len(known.counts)
            entries = 4 * entries if 4 * entries <= _MOST_ENTRIES else entries
            self.memory = _with_entries(known, entries)

    @property
    def generation(self) -> object:
        """Another object once the table has started anew, which makes all its numbers void."""
        return self._kinds

    def host(self, host: Host) -> int:
        """The number of a host: hosts of one factory are the same object if they are equal."""
        found = self._hosts.get(id(host))
        if found is None:
            found = self._hosts[id(host)] = len(self._kept)
            self._kept.append(host)
            self._grow(hosts=len(self._kept), services=len(host.services), cpus=host.may_use(()).shape[1])
            known, rows = self.memory, host.service_rows
            can = host.may_use(())
            known.service_count[found] = len(rows)
            known.services[found, : len(rows)] = rows
            known.service_can[found, :, :] = False
            known.service_can[found, : len(rows), : can.shape[1]] = can
            self._set_siblings(found)
        return found

    def kind(self, host: int, resident: Resident) -> int:
        """The number of a kind of job on a registered host: profile, threads, cores, weight and limit tell kinds apart."""
        key = (host, resident.profile, resident.threads, resident.cores, resident.weight, resident.limit, resident.gpus)
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = len(self._kinds)
            here = self._kept[host]
            cores = self._set(resident.cores)
            self._grow(kinds=len(self._kinds))
            known = self.memory
            known.rows[found] = here.row(here.occupant(_at_the_beginning(resident)))
            known.cores[found] = cores
        return found

    def _set(self, cores: tuple[int, ...]) -> int:
        found = self._sets.get(cores)
        if found is None:
            found = self._sets[cores] = len(self._sets)
            self._grow(sets=len(self._sets), cpus=max(cores, default=-1) + 1)
            self.memory.can[found] = False
            self.memory.can[found, list(cores)] = True
        return found

    def remembered(self, key: tuple[object, ...], make: Callable[[], Answer]) -> Answer:
        """What ``make`` answered when the key was first asked for: for what follows from registered numbers alone."""
        found: Answer | None = self._remembered.get(key)
        if found is None:
            if len(self._remembered) > _MOST_KINDS:
                self._remembered.clear()
            found = self._remembered[key] = make()
        return found

    def number(self, key: tuple[object, ...]) -> int:
        """A number that equal keys share, to be a short part of other keys."""
        found: int = self.remembered(key, partial(next, self._numbers))
        return found

    def alone_s(self, host: Host, cores: tuple[int, ...], profile: str, allowed: tuple[int, ...]) -> float:
        """Run time of a job of scale 1 on these cores alone, in seconds, with the threads that it starts there.

        ``allowed``: thread counts that it may start with, ascending; empty for any.
        """
        key = (id(host), cores, profile, allowed)
        found = self._alone.get(key)
        if found is None:
            self.host(host)  # keeps it, so that its identity stays its own
            threads = host.catalogue.jobs[profile].threads_for(len(cores), allowed)
            found = self._alone[key] = host.alone_s(profile, threads, cores)
        return found

    def lone_peak_p95_us(self, host: int, resident: Resident) -> tuple[float, ...]:
        """Highest p95 of each service of a host while one job, and no other, runs there. Its scale does not matter."""
        key = (host, self.kind(host, resident))
        found = self._lone_peaks.get(key)
        if found is None:
            found = self._lone_peaks[key] = forecast(self._kept[host], [_at_the_beginning(resident)]).peak_p95_us
        return found

    def _set_siblings(self, host: int) -> None:
        cpus = self.memory.sibling.shape[1]
        self.memory.sibling[host] = self._kept[host].siblings(cpus)

    def _grow(self, kinds: int = 0, hosts: int = 0, sets: int = 0, services: int = 0, cpus: int = 0) -> None:
        """Make the arrays large enough, at least by doubling."""
        known = self.memory
        sizes = (len(known.rows), len(known.service_count), len(known.can))
        room = (*sizes, known.services.shape[1], known.can.shape[1])
        wanted = (kinds, hosts, sets, services, cpus)
        if all(w <= r for w, r in zip(wanted, room, strict=True)):
            return
        k, h, o = (max(r, 2 * w) if w > r else r for w, r in zip(wanted[:3], room[:3], strict=True))
        s, c = (max(r, w) for w, r in zip(wanted[3:], room[3:], strict=True))
        larger = _empty(k, h, o, s, c, 0)
        for name in ("rows", "cores", "can", "service_count", "services", "service_can"):
            _copy(getattr(larger, name), getattr(known, name))
        p95 = known.p95
        if s > p95.shape[1]:
            p95 = np.zeros((len(p95), s))
            _copy(p95, known.p95)
        self.memory = larger._replace(**picked(known, "rank", *_ENTRIES), p95=p95)
        for host in range(len(self._kept)):
            self._set_siblings(host)


def _empty(kinds: int, hosts: int, sets: int, services: int, cpus: int, entries: int) -> PaceMemory:
    return PaceMemory(
        np.zeros((kinds, JOB_COLUMNS)),
        np.zeros(kinds, np.int64),
        np.zeros((sets, cpus), np.bool_),
        np.zeros(hosts, np.int64),
        np.zeros((hosts, services, CURVE + LATENCY_COLUMNS)),
        np.zeros((hosts, services, cpus), np.bool_),
        np.full((hosts, cpus), -1, np.int64),
        np.zeros(0),
        np.full(2 * entries, -1, np.int64),
        np.zeros(1, np.int64),
        np.zeros(entries, np.int64),
        np.zeros(entries, np.int64),
        np.zeros((entries, _MOST_MEMBERS), np.int64),
        np.zeros((entries, _MOST_MEMBERS)),
        np.zeros((entries, services)),
    )


def _with_entries(known: PaceMemory, entries: int) -> PaceMemory:
    """The same registrations with an empty memory of so many entries."""
    fresh = _empty(0, 0, 0, known.services.shape[1], 0, entries)
    return known._replace(**picked(fresh, *_ENTRIES, "p95"))


def _copy(to: np.ndarray, what: np.ndarray) -> None:
    to[tuple(slice(0, n) for n in what.shape)] = what


def _at_the_beginning(resident: Resident) -> Resident:
    """What paces depend on: neither the amount of work nor how much of it is done."""
    return replace(resident, scale=1.0, memory_mib=0, progress=0.0, ready_s=0.0)
