"""One machine and what runs there, asked many times what happens if somebody joins: all answers of a batch in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from flowsched_models.catalogue import Catalogue
from flowsched_models.cell import MEMORY, PROGRESS, READY, Floats, Ints
from flowsched_models.forecast import forecast
from flowsched_models.kernel import run_companies
from flowsched_models.machine import MachineType
from flowsched_models.pace import Book, empty_book
from flowsched_models.profile import JobProfile, PhaseOrder
from flowsched_models.runtime import Host, Resident

_ENTRIES = 4096
"""Sets of jobs whose paces are remembered. Beyond it new ones are worked out each time."""
_MOST_MEMBERS = 16
"""Larger sets are not remembered."""


@dataclass(frozen=True)
class Futures:
    """Outcomes of B companies; times in seconds from now. Row b of the joiners is ``first[b]`` to ``first[b + 1]``."""

    first: Ints
    """[B + 1] where each company's joiners begin."""
    standing_s: Floats
    """[B, standing jobs] completions of those who are there already."""
    joiners_s: Floats
    """[joiners] completions, in the order given; infinity for one that never fits."""
    starts_s: Floats
    """[joiners] when each is bound."""
    peak_p95_us: Floats
    """[B, services] highest p95 of each service until the last completion."""


class Forecaster:
    """Runs one machine forward beside any company, as :func:`flowsched_models.forecast.forecast` does.

    Jobs that may join are registered once, as kinds. How fast a set of jobs in given stages progresses is worked out
    once, whichever companies it occurs in and in whatever order they are given.
    """

    def __init__(
        self,
        host: Host,
        standing: Sequence[Resident],
        *,
        free_cores: float,
        free_memory_mib: float,
        start_delay_s: float,
    ) -> None:
        """``free_cores`` and ``free_memory_mib`` are what is left beside those who are there."""
        self._host = host
        # Of one type always: another one would be compiled once more.
        self._free_cores = float(free_cores)
        self._free_memory_mib = float(free_memory_mib)
        self._start_delay_s = float(start_delay_s)
        self._residents: list[Resident] = []
        self._kinds: dict[Resident, int] = {}
        self._book: Book | None = None
        self._standing_kinds = np.array([self.kind(_at_the_beginning(r)) for r in standing], np.int64)
        self._standing = np.array([self._row(r) for r in standing]).reshape(len(standing), host.columns)

    def kind(self, resident: Resident) -> int:
        """The number of a kind of job: equal ones have the same. Its progress is where it starts, if it joins now."""
        found = self._kinds.get(resident)
        if found is None:
            found = self._kinds[resident] = len(self._residents)
            self._residents.append(resident)
            self._book = None
        return found

    def run(self, kinds: Ints, slots: Ints, first: Ints) -> Futures:
        """Futures of the companies ``first[b]`` to ``first[b + 1]`` of ``kinds`` and ``slots``.

        Slot 0 joins now, ready at its kind's ``ready_s``; a later one is bound as ``forecast`` says. Those who join now
        are not checked for room.
        """
        batch, there = len(first) - 1, len(self._standing)
        ends = np.empty(len(kinds) + batch * there)
        bound = np.empty_like(ends)
        services = self._host.service_rows
        peak = np.zeros((batch, len(services)))
        run_companies(
            self._book if self._book is not None else self._new_book(),
            self._standing,
            self._standing_kinds,
            kinds,
            slots,
            first,
            services,
            self._free_cores,
            self._free_memory_mib,
            self._start_delay_s,
            ends,
            bound,
            peak,
        )
        if not there:
            return Futures(first, np.empty((batch, 0)), ends, bound, peak)
        standing = (first[:-1] + there * np.arange(batch))[:, None] + np.arange(there)
        joins = np.ones(len(ends), np.bool_)
        joins[standing] = False
        return Futures(first, ends[standing], ends[joins], bound[joins], peak)

    def _row(self, resident: Resident) -> Floats:
        row = self._host.row(self._host.occupant(resident), resident.scale).copy()
        row[PROGRESS], row[READY], row[MEMORY] = resident.progress, resident.ready_s, resident.memory_mib
        return row

    def _new_book(self) -> Book:
        """Kinds are registered before the first run as a rule: nothing is lost by starting over."""
        masks = self._host.may_use(tuple(r.cores for r in self._residents))
        rows = np.array([self._row(r) for r in self._residents]).reshape(len(self._residents), self._host.columns)
        split = len(self._residents)
        sibling = self._host.siblings(masks.shape[1])
        self._book = empty_book(rows, masks[:split], masks[split:], sibling, _ENTRIES, _MOST_MEMBERS)
        return self._book


@cache
def prepare() -> None:
    """Load what is compiled, or compile it, before somebody measures how long an answer takes."""
    profile = JobProfile("any", 1.0, 0.0, PhaseOrder.MIXED, 1.0, 0.0, 0.0, 1)
    host = Host(Catalogue({"any": profile}, {}, {"any": MachineType("any", 1, 1)}), "any")
    job = Resident("any", 1.0, 1, (0,), 1.0)
    asked = Forecaster(host, [job], free_cores=1.0, free_memory_mib=1.0, start_delay_s=0.0)
    asked.run(np.array([asked.kind(job)]), np.zeros(1, np.int64), np.array([0, 1]))
    forecast(host, [job])
    host.alone_s("any", 1, (0,))


def _at_the_beginning(resident: Resident) -> Resident:
    """What the model's paces depend on: neither how far somebody is nor when it begins."""
    return Resident(
        resident.profile,
        resident.scale,
        resident.threads,
        resident.cores,
        resident.weight,
        limit=resident.limit,
    )
