"""When everything on one machine completes, given what runs there and what starts there later.

A pure function of one machine, without news from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowsched_models.lookahead import play
from flowsched_models.runtime import Host, Resident


@dataclass(frozen=True)
class Waiting:
    """A job that shall start on the machine after ``slot`` >= 1 completions there, or later if it does not fit."""

    resident: Resident
    slot: int


@dataclass(frozen=True)
class Forecast:
    """Outcome on one machine; times in seconds from now."""

    residents_s: tuple[float, ...]
    """Completion of each resident, in the order given."""
    waiting_s: tuple[float, ...]
    """Completion of each waiting job, in the order given; infinity for one that never fits."""
    starts_s: tuple[float, ...]
    """When each waiting job is bound."""
    peak_p95_us: tuple[float, ...]
    """Highest p95 of each service of the host until the last completion."""


def forecast(
    host: Host,
    residents: Sequence[Resident],
    waiting: Sequence[Waiting] = (),
    *,
    free_cores: float = 0.0,
    free_memory_mib: float = 0.0,
    start_delay_s: float = 0.0,
) -> Forecast:
    """Run the machine forward from time 0 until everything is done.

    ``free_cores`` and ``free_memory_mib`` are what is left beside the residents now. A waiting job is bound at the
    first completion, its slot's or a later one, at which it fits; on an idle machine those with the lowest slot start
    at once. Its program runs ``start_delay_s`` after that.
    """
    count = len(residents)
    together = [*residents, *(w.resident for w in waiting)]
    slot = np.array([0] * count + [w.slot for w in waiting], dtype=np.int64)
    after, factors = np.full(len(together), -1, np.int64), np.ones((1, len(together)))
    room = (free_cores, free_memory_mib, start_delay_s)
    found = play(host, together, slot, after, factors, *room)
    done_at, bound_at, peak = found.ends_s[0].tolist(), found.starts_s[0].tolist(), found.peak_p95_us[0].tolist()
    return Forecast(tuple(done_at[:count]), tuple(done_at[count:]), tuple(bound_at[count:]), tuple(peak))
