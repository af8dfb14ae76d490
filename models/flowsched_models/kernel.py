"""One machine run forward to the end, compiled: starts, phase changes and completions.

What :class:`flowsched_models.execution.Execution` does event by event for who wants to look in between, over plain arrays
and for many draws at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flowsched_models.cell import (
    MEMORY,
    MIXED,
    PARALLEL,
    PHI,
    PROGRESS,
    READY,
    SERIAL,
    SERIAL_FIRST,
    WEIGHT,
    Bools,
    Floats,
    Ints,
    cells_of,
)
from flowsched_models.compiled import borrowing, compiled
from flowsched_models.pace import PaceMemory, look_up, no_memory, paces, put_items

_AT_ONCE = 1e-9
"""Seconds: events that are closer together count as one."""
_WAITS, _RUNS, _DONE = 0, 1, 2


class StartingJobs(NamedTuple):
    """The jobs of one run, and when each is bound.

    A job with ``slot`` 0 and ``after`` -1 is there from the start and holds its request already.
    """

    rows: Floats
    """[jobs, JOB_COLUMNS]"""
    kinds: Ints
    """[jobs] kind of each in the memory of paces; not read where that keeps nothing."""
    slot: Ints
    """[jobs] k > 0: bound at the first completion, the k-th or a later one, at which it fits."""
    after: Ints
    """[jobs] j >= 0: bound when job j ends; -1: after no job."""


class StartLimits(NamedTuple):
    """What the jobs that are bound later find on the machine."""

    cores: float
    """Left beside the jobs that are there from the start."""
    memory_mib: float
    """The same of memory."""
    delay_s: float
    """From binding a job to its program's start."""


class RunResult(NamedTuple):
    """Where a run writes what comes of it; with one more axis in front for many runs."""

    ends: Floats
    """[jobs] completions, seconds from now; infinity: never."""
    bound: Floats
    """[jobs] bindings, seconds from now; infinity: never."""
    peak: Floats
    """[services] highest p95 so far, microseconds: never lowered."""


class RunSpace(NamedTuple):
    """Room for one run of so many jobs and services, and for the next one after it: to make an array costs as much as a
    step of a short run. What a run has come to is there while it waits for paces.
    """

    whole: Ints
    """[4, jobs + services] ITEMS, STATE, STAGE and USERS, the jobs whose programs run."""
    parts: Floats
    """[6, jobs + services] READY, PROGRESS, PACE, END, BUSY, P95, by job or service."""
    moment: Floats
    """[MOMENT_NUMBERS] NOW_S, FREE_CORES, FREE_MIB, RUNNING, WAITING, COMPLETIONS, FITS, SEEN and ACTIVE."""


ITEMS, _STATE, STAGE, USERS = range(4)
_READY, _PROGRESS, PACE, _END, BUSY, P95 = range(6)
_NOW_S, _FREE_CORES, _FREE_MIB, _RUNNING, _WAITING, _COMPLETIONS, FITS, _SEEN, ACTIVE = range(9)
MOMENT_NUMBERS = 9


@compiled
def run_space(most: int) -> RunSpace:
    """Room for runs of ``most`` jobs and services."""
    return RunSpace(np.zeros((4, most), np.int64), np.zeros((6, most)), np.zeros(MOMENT_NUMBERS))


@borrowing
def begin_run(jobs: StartingJobs, limits: StartLimits, space: RunSpace, result: RunResult) -> None:
    """Put the jobs of a run where they begin."""
    rows, slot, after, moment = jobs.rows, jobs.slot, jobs.after, space.moment
    state, ready, progress = space.whole[_STATE], space.parts[_READY], space.parts[_PROGRESS]
    ends, bound = result.ends, result.bound
    moment[:] = 0.0
    moment[_FREE_CORES], moment[_FREE_MIB], moment[FITS], moment[ACTIVE] = limits.cores, limits.memory_mib, 1.0, -1.0
    for i in range(len(rows)):
        ends[i] = bound[i] = np.inf
        progress[i] = rows[i, PROGRESS]
        if slot[i] == 0 and after[i] < 0:
            state[i] = _RUNS
            ready[i] = rows[i, READY]
            bound[i] = 0.0
            moment[_RUNNING] += 1.0
        else:
            state[i] = _WAITS
            moment[_WAITING] += 1.0


@borrowing
def go_on(
    jobs: StartingJobs,
    factor: Floats,
    services: int,
    memory: PaceMemory,
    host: int,
    start_delay: float,
    space: RunSpace,
    result: RunResult,
) -> bool:
    """Run on to the end, or until paces are needed that the ``memory`` does not have; whether they are.

    They are those of the first ``space.moment[ACTIVE]`` USERS in their STAGE, and of so many ``services`` of the ``host``:
    once PACE and P95 have them, the run goes on from there. A job's work is its row's times its ``factor`` [jobs].

    Every turn of the outer loop is one moment: the jobs whose turn has come are bound, the jobs that run get their stages
    and paces, and time moves on to the first of these that ends or changes its stage.
    """
    rows, slot, after, kinds = jobs.rows, jobs.slot, jobs.after, jobs.kinds
    ends, bound, peak, moment = result.ends, result.bound, result.peak, space.moment
    items, state, stage, users = space.whole[0], space.whole[1], space.whole[2], space.whole[3]
    ready, progress, pace, at, p95 = space.parts[0], space.parts[1], space.parts[2], space.parts[3], space.parts[5]
    heads, hosts, counts, known = memory.heads, memory.hosts, memory.counts, memory.items
    known_paces, known_p95 = memory.paces, memory.p95
    count, looks_up = rows.shape[0], heads.shape[0] > 0
    now, free_cores, free_memory = moment[_NOW_S], moment[_FREE_CORES], moment[_FREE_MIB]
    running, waiting, completions = int(moment[_RUNNING]), int(moment[_WAITING]), int(moment[_COMPLETIONS])
    fits, seen, active = moment[FITS] > 0.0, moment[_SEEN] > 0.0, int(moment[ACTIVE])
    while active >= 0 or running > 0 or waiting > 0 or not seen:
        if active < 0:
            # Bind the jobs whose turn has come: at a completion, or at once where nothing runs that could complete.
            while waiting > 0:
                floor = completions
                if running == 0:
                    lowest = np.inf
                    for i in range(count):
                        if state[i] == _WAITS and after[i] < 0:
                            lowest = min(lowest, slot[i])
                    if lowest < np.inf:
                        floor = max(floor, int(lowest))
                for turn in range(1, floor + 1):
                    for i in range(count):
                        if state[i] != _WAITS or after[i] >= 0 or slot[i] != turn:
                            continue
                        if rows[i, WEIGHT] <= free_cores + _AT_ONCE and rows[i, MEMORY] <= free_memory + _AT_ONCE:
                            state[i] = _RUNS
                            free_cores -= rows[i, WEIGHT]
                            free_memory -= rows[i, MEMORY]
                for i in range(count):
                    if state[i] == _WAITS and after[i] >= 0 and state[after[i]] == _DONE:
                        state[i] = _RUNS
                        free_cores -= rows[i, WEIGHT]
                        free_memory -= rows[i, MEMORY]
                        fits = fits and free_cores >= -_AT_ONCE and free_memory >= -_AT_ONCE
                    if state[i] == _RUNS and bound[i] == np.inf:
                        bound[i] = now
                        ready[i] = now + start_delay
                        running += 1
                        waiting -= 1
                if running > 0:
                    break
                later = np.inf
                for i in range(count):
                    if state[i] == _WAITS and after[i] < 0 and slot[i] > floor:
                        later = min(later, slot[i])
                if later == np.inf:
                    moment[FITS] = 0.0  # what is left is larger than the whole machine
                    return False
                completions = int(later)
            # The jobs whose programs run, in their stages.
            active = 0
            for i in range(count):
                if state[i] != _RUNS or ready[i] > now + _AT_ONCE:
                    continue
                users[active] = i
                active += 1
                if rows[i, SERIAL_FIRST] > 0.0:
                    stage[i] = SERIAL if progress[i] < rows[i, PHI] - _AT_ONCE else PARALLEL
                else:
                    stage[i] = MIXED if rows[i, PHI] > 0.0 else PARALLEL
            # Their paces while nothing changes, and the p95 of the services.
            if looks_up:
                put_items(kinds, stage, users, active, items)
            if not looks_up or not look_up(
                heads, hosts, counts, known, known_paces, known_p95, host, services, users, active, items, pace, p95
            ):
                moment[_NOW_S], moment[_FREE_CORES], moment[_FREE_MIB] = now, free_cores, free_memory
                moment[_RUNNING], moment[_WAITING], moment[_COMPLETIONS] = running, waiting, completions
                moment[FITS], moment[_SEEN], moment[ACTIVE] = 1.0 if fits else 0.0, 1.0 if seen else 0.0, active
                return True
        seen = True
        for k in range(services):
            peak[k] = max(peak[k], p95[k])
        if running == 0:
            break
        # Move on to the next change, the start of a program, a stage or an end, and end what is done by then.
        following = np.inf
        for i in range(count):
            if state[i] == _RUNS and ready[i] > now + _AT_ONCE:
                following = min(following, ready[i])
        for a in range(active):
            i = users[a]
            mark = rows[i, PHI] if stage[i] == SERIAL else 1.0
            at[i] = now + max(0.0, mark - progress[i]) / pace[i] * factor[i]
            following = min(following, at[i])
        step = following - now
        now = following
        for a in range(active):
            i = users[a]
            mark = rows[i, PHI] if stage[i] == SERIAL else 1.0
            if at[i] > now + _AT_ONCE:
                progress[i] = min(mark, progress[i] + pace[i] * step / factor[i])
                continue
            progress[i] = mark
            if stage[i] != SERIAL:
                state[i] = _DONE
                ends[i] = now
                free_cores += rows[i, WEIGHT]
                free_memory += rows[i, MEMORY]
                running -= 1
                completions += 1
        active = -1
    moment[FITS] = 1.0 if fits else 0.0
    return False


@compiled
def run_draws(
    jobs: StartingJobs,
    factors: Floats,
    services: Floats,
    can: Bools,
    sibling: Ints,
    limits: StartLimits,
    results: RunResult,
) -> bool:
    """A run for every row of ``factors`` [R, jobs], run-time factors, into ``results`` [R, ...]; whether all that starts
    after another found its room at once in every run. ``can`` [jobs + services, C] and ``sibling`` [C] as for ``cells_of``.
    """
    cells = cells_of(can, sibling)
    # The sets of one plan are few: looking them up would cost what it saves.
    memory = no_memory()
    host = int(np.int64(0))  # a plain 0 is a type of its own, for which all that is called would be compiled once more
    rows, count = jobs.rows, len(jobs.rows)
    space = run_space(count + len(services))
    users, stage = space.whole[USERS], space.whole[STAGE]
    pace, busy, p95 = space.parts[PACE], space.parts[BUSY], space.parts[P95]
    fits = True
    for r in range(factors.shape[0]):
        result = RunResult(results.ends[r], results.bound[r], results.peak[r])
        begin_run(jobs, limits, space, result)
        while go_on(jobs, factors[r], len(services), memory, host, limits.delay_s, space, result):
            there = int(space.moment[ACTIVE])
            for k in range(len(services)):
                users[there + k] = count + k
            paces(users[: there + len(services)], stage, rows, services, cells, busy, pace, p95)
        fits = fits and space.moment[FITS] > 0.0
    return fits
