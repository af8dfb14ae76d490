"""Machines in motion as arrays, compiled: bit by bit what an :class:`Execution` for estimates does on each of them.

What its methods say is not said again here: the functions have their names.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flowsched_models.cell import Floats, Ints
from flowsched_models.compiled import borrowing, compiled
from flowsched_models.pace import PaceMemory, recall

TINY = 1e-9
LEAST_SCALE = 1e-12
"""For paces alone: a job without work ends as it begins."""
DIGITS = 9
"""Decimals of seconds that are kept of a product: what is left of 10 s after 3 s has to be 7 s, in floats 10 (1 - 0.3)."""
TICKS_PER_S = 10.0**DIGITS
"""A job's progress follows from whole nanoseconds, so that it is the same wherever the clock began."""

# Columns of a job's row.
DONE, SINCE, PACE, MARK, RATE, AT, READY, SCALE, SERIAL_UNTIL, OWN_RATE = range(10)
NO_JOB = (0.0, 0.0, 0.0, np.inf, 0.0, np.inf, 0.0, 0.0, 0.0, np.nan)
# Columns of a job's numbers.
KIND, STAGE, LAST_STAGE = range(3)
# Columns of a machine's moments, and of its numbers.
NOW, NEXT = range(2)
HOST, COUNT, DEPENDENT, SETTLED = range(4)
# Columns of a change: what, on which machine, and when; of a job that starts all that it begins with.
WHAT, MACHINE, JOB, AT_S, JOB_NUMBERS, JOB_FLOATS = 0, 1, 2, 3, 4, 7
ADD, REMOVE, START, STOP = range(4)
# Machines that get to a moment, beside a single one.
ALL, NONE = -1, -2
_WHOLE = 2.0**23
"""Seconds: of more no float has a billionth part."""
_HALVES = 2.0**27 + 1.0
"""Splits a float into two halves, whose products are exact."""


class MovingMachines(NamedTuple):
    """Machines in motion, and the jobs on them."""

    jobs: Floats
    """[rows, 10] as :class:`Execution` has them; the own rate is no number where neighbours have a say in it."""
    kinds: Ints
    """[rows, 3] of each job its kind, its stage and its last stage."""
    moments: Floats
    """[machines, 2] where each is on its clock, and when something happens there next."""
    numbers: Ints
    """[machines, 4] host, jobs, jobs whose rates depend on their neighbours, and whether all have the rates that they have
    beside each other."""
    slots: Ints
    """[machines, most] rows of its jobs."""


@borrowing
def what_is_left(part: float, seconds: float) -> float:
    """A part of some seconds, rounded to 9 decimals as Python does it: right to the last bit."""
    left = part * seconds
    if not left < _WHOLE:
        return left
    ticks = left * TICKS_PER_S
    whole = np.rint(ticks)
    if abs(ticks - whole) == 0.5:
        # Whether the product itself was rounded to that half, and from which side.
        shifted = _HALVES * left
        high = shifted - (shifted - left)
        error = (high * TICKS_PER_S - ticks) + (left - high) * TICKS_PER_S
        if error != 0.0:
            whole = np.ceil(ticks) if error > 0.0 else np.floor(ticks)
    found: float = whole / TICKS_PER_S
    return found


@borrowing
def progress(jobs: Floats, job: int, now_s: float) -> float:
    """Share of a job's work that is done."""
    step_s = np.rint(max(0.0, now_s - jobs[job, SINCE]) * TICKS_PER_S) / TICKS_PER_S
    found: float = min(jobs[job, MARK], jobs[job, DONE] + jobs[job, PACE] * step_s)
    return found


@borrowing
def _go(machines: MovingMachines, job: int, now_s: float, rate: float) -> None:
    of = machines.jobs[job]
    if rate == of[RATE]:
        return
    done = progress(machines.jobs, job, now_s)
    mark = of[SERIAL_UNTIL] if machines.kinds[job, STAGE] != machines.kinds[job, LAST_STAGE] else np.inf
    of[DONE], of[SINCE], of[RATE] = done, max(now_s, of[READY]), rate
    of[PACE], of[MARK] = rate / max(of[SCALE], LEAST_SCALE), mark
    part = max(0.0, mark - done)
    of[AT] = of[SINCE] + (part * of[SCALE] if done == 0.0 else what_is_left(part, of[SCALE])) / rate


@borrowing
def _go_alone(machines: MovingMachines, job: int, now_s: float) -> float:
    of = machines.jobs[job]
    if of[RATE] == 0.0:
        if of[READY] > now_s + TINY:
            ready_s: float = of[READY]
            return ready_s
        _go(machines, job, now_s, of[OWN_RATE])
    at_s: float = of[AT]
    return at_s


@borrowing
def _all_alone(machines: MovingMachines, machine: int) -> float:
    soonest = np.inf
    for k in range(machines.numbers[machine, COUNT]):
        soonest = min(soonest, _go_alone(machines, machines.slots[machine, k], machines.moments[machine, NOW]))
    return soonest


@compiled
def settle(memory: PaceMemory, machines: MovingMachines, machine: int) -> None:
    """Rates and the next event for what is on a machine now."""
    numbers = machines.numbers[machine]
    if numbers[SETTLED]:
        return
    numbers[SETTLED] = 1
    if not numbers[COUNT]:
        # Its host may not be registered yet.
        machines.moments[machine, NEXT] = np.inf
        return
    if not numbers[DEPENDENT] and not memory.service_count[numbers[HOST]]:
        machines.moments[machine, NEXT] = _all_alone(machines, machine)
        return
    now_s, jobs = machines.moments[machine, NOW], machines.jobs
    here = np.empty(numbers[COUNT], np.int64)
    count, soonest = 0, np.inf
    for k in range(numbers[COUNT]):
        job = machines.slots[machine, k]
        if jobs[job, READY] <= now_s + TINY:
            here[count] = job
            count += 1
        else:
            soonest = min(soonest, jobs[job, READY])
    running = here[:count]
    kinds, stages, active, items = (
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.arange(count),
        np.empty(count, np.int64),
    )
    for k in range(count):
        kinds[k], stages[k] = machines.kinds[running[k], KIND], machines.kinds[running[k], STAGE]
    rates = np.empty(count)
    if count:
        recall(memory, numbers[HOST], kinds, stages, active, items, rates, np.empty(memory.services.shape[1]))
    for k in range(count):
        own = jobs[running[k], OWN_RATE]
        _go(machines, running[k], now_s, rates[k] if np.isnan(own) else own)
        soonest = min(soonest, jobs[running[k], AT])
    machines.moments[machine, NEXT] = soonest


@compiled
def move(memory: PaceMemory, machines: MovingMachines, machine: int, to_s: float) -> None:
    """Let a machine go on to a moment, from event to event."""
    moments, jobs = machines.moments[machine], machines.jobs
    while moments[NOW] < to_s:
        settle(memory, machines, machine)
        moments[NOW] = min(to_s, moments[NEXT])
        if moments[NOW] < moments[NEXT]:
            continue
        machines.numbers[machine, SETTLED] = 0
        for k in range(machines.numbers[machine, COUNT]):
            job = machines.slots[machine, k]
            if moments[NOW] >= jobs[job, AT]:
                jobs[job, DONE], jobs[job, SINCE] = jobs[job, MARK], moments[NOW]
                jobs[job, PACE], jobs[job, MARK], jobs[job, RATE], jobs[job, AT] = 0.0, np.inf, 0.0, np.inf
                machines.kinds[job, STAGE] = machines.kinds[job, LAST_STAGE]


@borrowing
def _stays_settled(memory: PaceMemory, machines: MovingMachines, machine: int) -> bool:
    numbers, moments = machines.numbers[machine], machines.moments[machine]
    depends = numbers[DEPENDENT] > 0 or memory.service_count[numbers[HOST]] > 0
    return bool(numbers[SETTLED] and not depends and moments[NEXT] > moments[NOW] + TINY)


@borrowing
def _start(memory: PaceMemory, machines: MovingMachines, machine: int, change: Floats) -> None:
    numbers, job = machines.numbers[machine], int(change[JOB])
    for k in range(machines.kinds.shape[1]):
        machines.kinds[job, k] = int(change[JOB_NUMBERS + k])
    for k in range(machines.jobs.shape[1]):
        machines.jobs[job, k] = change[JOB_FLOATS + k]
    machines.slots[machine, numbers[COUNT]] = job
    numbers[COUNT] += 1
    numbers[DEPENDENT] += np.isnan(machines.jobs[job, OWN_RATE])
    if _stays_settled(memory, machines, machine):
        soonest = _go_alone(machines, job, machines.moments[machine, NOW])
        machines.moments[machine, NEXT] = min(machines.moments[machine, NEXT], soonest)
    else:
        numbers[SETTLED] = 0


@borrowing
def _stop(memory: PaceMemory, machines: MovingMachines, machine: int, job: int) -> None:
    numbers, moments, jobs, slots = machines.numbers[machine], machines.moments[machine], machines.jobs, machines.slots
    numbers[COUNT] -= 1
    for k in range(numbers[COUNT]):
        if slots[machine, k] == job:
            slots[machine, k] = slots[machine, numbers[COUNT]]
    if not _stays_settled(memory, machines, machine):
        numbers[SETTLED] = 0
    elif (jobs[job, AT] if jobs[job, RATE] > 0.0 else jobs[job, READY]) <= moments[NEXT] < np.inf:
        moments[NEXT] = _all_alone(machines, machine)
    numbers[DEPENDENT] -= np.isnan(jobs[job, OWN_RATE])
    _blank(jobs, job)


@borrowing
def _blank(jobs: Floats, job: int) -> None:
    for k in range(jobs.shape[1]):
        jobs[job, k] = NO_JOB[k]


@compiled
def apply(memory: PaceMemory, machines: MovingMachines, changes: Floats) -> None:
    """Let changes happen, in their order; ``changes`` [changes, 17]."""
    numbers, slots = machines.numbers, machines.slots
    for change in changes:
        machine = int(change[MACHINE])
        if change[WHAT] == ADD:
            numbers[machine, HOST], numbers[machine, SETTLED] = int(change[JOB]), 0
            numbers[machine, COUNT], numbers[machine, DEPENDENT] = 0, 0
            machines.moments[machine, NOW], machines.moments[machine, NEXT] = change[AT_S], np.inf
            continue
        if change[WHAT] == REMOVE:
            for k in range(numbers[machine, COUNT]):
                _blank(machines.jobs, slots[machine, k])
            numbers[machine, COUNT] = 0
            machines.moments[machine, NEXT] = np.inf
            numbers[machine, SETTLED] = 1
            continue
        move(memory, machines, machine, change[AT_S])
        if change[WHAT] == START:
            _start(memory, machines, machine, change)
        else:
            _stop(memory, machines, machine, int(change[JOB]))


@compiled
def look(memory: PaceMemory, machines: MovingMachines, changes: Floats, machine: int, now_s: float) -> None:
    """Changes happen, and a machine gets to a moment; or ``ALL`` on which something has happened by then, while on others
    jobs go on at their paces; or ``NONE``. One function for all three: each that Python calls takes 6 MiB.
    """
    apply(memory, machines, changes)
    if machine >= 0:
        move(memory, machines, machine, now_s)
    elif machine == ALL:
        for each in range(machines.numbers.shape[0]):
            if not machines.numbers[each, SETTLED]:  # asked here too: a call takes longer than most machines need
                settle(memory, machines, each)
            if machines.moments[each, NEXT] <= now_s:
                move(memory, machines, each, now_s)
