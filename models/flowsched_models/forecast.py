"""When everything on one machine completes, given who is there and who starts there later.

A pure function of one machine, without news from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flowsched_models.execution import Execution
from flowsched_models.runtime import Host, Resident

_TINY = 1e-9
_NEVER = float("inf")


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
    """Run the machine forward from time 0 until everybody is done.

    ``free_cores`` and ``free_memory_mib`` are what is left beside the residents now. A waiting job is bound at the
    first completion, its slot's or a later one, at which it fits; on an idle machine those with the lowest slot start
    at once. Its program runs ``start_delay_s`` after that.
    """
    count = len(residents)
    everyone = [*residents, *(w.resident for w in waiting)]
    done_at = [_NEVER] * len(everyone)
    bound_at = [_NEVER] * len(everyone)
    queue = sorted(range(count, len(everyone)), key=lambda i: (waiting[i - count].slot, i))
    machine: Execution[int] = Execution(host)
    for i, resident in enumerate(residents):
        machine.start(i, resident)
    peak = list(machine.p95_us)
    active = count
    completions = 0

    while active or queue:
        floor = completions if active else max(completions, waiting[queue[0] - count].slot)
        if queue and waiting[queue[0] - count].slot <= floor:
            for i in tuple(queue):
                if waiting[i - count].slot > floor:
                    break
                entry = everyone[i]
                if entry.weight <= free_cores + _TINY and entry.memory_mib <= free_memory_mib:
                    queue.remove(i)
                    active += 1
                    free_cores -= entry.weight
                    free_memory_mib -= entry.memory_mib
                    bound_at[i] = machine.now_s
                    machine.start(i, replace(entry, ready_s=machine.now_s + start_delay_s))
            if not active:
                later = [waiting[i - count].slot for i in queue if waiting[i - count].slot > floor]
                if not later:
                    break  # what is left is larger than the whole machine
                completions = min(later)
                continue
        while True:
            for k, p95 in enumerate(machine.p95_us):
                if p95 > peak[k]:
                    peak[k] = p95
            finished = machine.advance(machine.next_event_s())
            if finished:
                break
        for i in finished:
            done_at[i] = machine.now_s
            free_cores += everyone[i].weight
            free_memory_mib += everyone[i].memory_mib
        active -= len(finished)
        completions += len(finished)
    return Forecast(tuple(done_at[:count]), tuple(done_at[count:]), tuple(bound_at[count:]), tuple(peak))
