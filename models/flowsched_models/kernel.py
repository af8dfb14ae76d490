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
    Cells,
    Floats,
    Ints,
    cells_of,
)
from flowsched_models.compiled import compiled
from flowsched_models.pace import PaceMemory, no_memory, paces, recall

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


@compiled
def run_once(
    jobs: StartingJobs,
    factor: Floats,
    services: Floats,
    cells: Cells,
    memory: PaceMemory,
    host: int,
    limits: StartLimits,
    result: RunResult,
) -> bool:
    """One run, into ``result``; whether all that starts after another found its room at once.

    Where the ``memory`` has heads, paces are looked up in it by the kinds of jobs on its ``host``; else they follow from the
    ``cells``. A job's work is its row's times its ``factor`` [jobs].

    Every turn of the outer loop is one moment: the jobs whose turn has come are bound, the jobs that run get their stages
    and paces, and time moves on to the first of these that ends or changes its stage.
    """
    rows, slot, after = jobs.rows, jobs.slot, jobs.after
    ends, bound, peak = result.ends, result.bound, result.peak
    free_cores, free_memory, start_delay = limits.cores, limits.memory_mib, limits.delay_s
    count = rows.shape[0]
    n = count + services.shape[0]
    looks_up = memory.heads.shape[0] > 0
    # Few and large: to make an array costs as much as a step of a short run.
    whole = np.zeros((4, n), np.int64)
    items, state, stage, users = whole[0], whole[1], whole[2], whole[3]
    parts = np.zeros((6, n))
    ready, progress, pace, at, busy, p95 = parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]
    running = 0
    waiting = 0
    for i in range(count):
        ends[i] = np.inf
        bound[i] = np.inf
        progress[i] = rows[i, PROGRESS]
        if slot[i] == 0 and after[i] < 0:
            state[i] = _RUNS
            ready[i] = rows[i, READY]
            bound[i] = 0.0
            running += 1
        else:
            waiting += 1
    now = 0.0
    completions = 0
    fits = True
    seen = False
    while running > 0 or waiting > 0 or not seen:
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
                return False  # what is left is larger than the whole machine
            completions = int(later)
        # The jobs whose programs run, in their stages; the first start of another one ends this moment.
        there = 0
        following = np.inf
        for i in range(count):
            if state[i] != _RUNS:
                continue
            if ready[i] > now + _AT_ONCE:
                following = min(following, ready[i])
                continue
            users[there] = i
            there += 1
            if rows[i, SERIAL_FIRST] > 0.0:
                stage[i] = SERIAL if progress[i] < rows[i, PHI] - _AT_ONCE else PARALLEL
            else:
                stage[i] = MIXED if rows[i, PHI] > 0.0 else PARALLEL
        # Their paces while nothing changes, and the p95 of the services.
        active = there
        if looks_up:
            recall(memory, host, jobs.kinds, stage, users[:active], items, pace, p95)
        else:
            for k in range(services.shape[0]):
                users[there] = count + k
                there += 1
            paces(users[:there], stage, rows, services, cells, busy, pace, p95)
        seen = True
        for k in range(services.shape[0]):
            peak[k] = max(peak[k], p95[k])
        if running == 0:
            break
        # Move on to the next change, and end what is done by then.
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
    return fits


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
    fits = True
    for r in range(factors.shape[0]):
        result = RunResult(results.ends[r], results.bound[r], results.peak[r])
        one = run_once(jobs, factors[r], services, cells, memory, host, limits, result)
        fits = fits and one
    return fits
