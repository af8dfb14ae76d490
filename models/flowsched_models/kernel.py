"""One machine run forward to the end, compiled: starts, phase changes and completions.

What :class:`flowsched_models.execution.Execution` does event by event for who wants to look in between, over plain arrays
and for many draws at once.
"""

from __future__ import annotations

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
from flowsched_models.compiled import compiled
from flowsched_models.pace import PaceMemory, no_memory, paces, recall

_AT_ONCE = 1e-9
"""Seconds: events that are closer together count as one."""
_WAITS, _RUNS, _DONE = 0, 1, 2


@compiled
def run_once(
    jobs: Floats,
    slot: Ints,
    after: Ints,
    factor: Floats,
    services: Floats,
    members: Bools,
    size: Floats,
    sibling_cell: Ints,
    own: Floats,
    kinds: Ints,
    memory: PaceMemory,
    host: int,
    free_cores: float,
    free_memory: float,
    start_delay: float,
    ends: Floats,
    bound: Floats,
    peak: Floats,
) -> bool:
    """One run. Into ``ends`` and ``bound`` [jobs] seconds (infinity: never), ``peak`` [services]; whether all that starts
    after another found its room at once.

    A job with ``slot`` 0 and ``after`` -1 is there from the start and holds its request already. One with a slot k > 0 is
    bound at the first completion, the k-th or a later one, at which it fits. One with ``after`` j is bound when job j ends.

    Where the ``memory`` has heads, paces are looked up in it by ``kinds`` [jobs] on its ``host``; else they follow from the
    cells. A job's work is its row's times its ``factor``.
    """
    count = jobs.shape[0]
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
        progress[i] = jobs[i, PROGRESS]
        if slot[i] == 0 and after[i] < 0:
            state[i] = _RUNS
            ready[i] = jobs[i, READY]
            bound[i] = 0.0
            running += 1
        else:
            waiting += 1
    now = 0.0
    completions = 0
    fits = True
    seen = False
    while running > 0 or waiting > 0 or not seen:
        # Those whose turn has come: at a completion, or at once where nothing runs that could complete.
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
                    if jobs[i, WEIGHT] <= free_cores + _AT_ONCE and jobs[i, MEMORY] <= free_memory + _AT_ONCE:
                        state[i] = _RUNS
                        free_cores -= jobs[i, WEIGHT]
                        free_memory -= jobs[i, MEMORY]
            for i in range(count):
                if state[i] == _WAITS and after[i] >= 0 and state[after[i]] == _DONE:
                    state[i] = _RUNS
                    free_cores -= jobs[i, WEIGHT]
                    free_memory -= jobs[i, MEMORY]
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
            if jobs[i, SERIAL_FIRST] > 0.0:
                stage[i] = SERIAL if progress[i] < jobs[i, PHI] - _AT_ONCE else PARALLEL
            else:
                stage[i] = MIXED if jobs[i, PHI] > 0.0 else PARALLEL
        active = there
        if looks_up:
            recall(memory, host, kinds, stage, users[:active], items, pace, p95)
        else:
            for k in range(services.shape[0]):
                users[there] = count + k
                there += 1
            paces(users[:there], stage, jobs, services, members, size, sibling_cell, own, busy, pace, p95)
        seen = True
        for k in range(services.shape[0]):
            peak[k] = max(peak[k], p95[k])
        if running == 0:
            break
        for a in range(active):
            i = users[a]
            mark = jobs[i, PHI] if stage[i] == SERIAL else 1.0
            at[i] = now + max(0.0, mark - progress[i]) / pace[i] * factor[i]
            following = min(following, at[i])
        step = following - now
        now = following
        for a in range(active):
            i = users[a]
            mark = jobs[i, PHI] if stage[i] == SERIAL else 1.0
            if at[i] > now + _AT_ONCE:
                progress[i] = min(mark, progress[i] + pace[i] * step / factor[i])
                continue
            progress[i] = mark
            if stage[i] != SERIAL:
                state[i] = _DONE
                ends[i] = now
                free_cores += jobs[i, WEIGHT]
                free_memory += jobs[i, MEMORY]
                running -= 1
                completions += 1
    return fits


@compiled
def run_draws(
    jobs: Floats,
    slot: Ints,
    after: Ints,
    factors: Floats,
    services: Floats,
    can: Bools,
    sibling: Ints,
    free_cores: float,
    free_memory: float,
    start_delay: float,
    ends: Floats,
    bound: Floats,
    peak: Floats,
) -> bool:
    """A run for every row of ``factors`` [R, jobs], run-time factors; into ``ends`` and ``bound`` [R, jobs], ``peak``
    [R, services]. ``can`` [jobs + services, C] and ``sibling`` [C] as for ``cells_of``.
    """
    members, size, sibling_cell, own = cells_of(can, sibling)
    kinds = np.zeros(jobs.shape[0], np.int64)
    # The sets of one plan are few: looking them up would cost what it saves.
    memory = no_memory()
    host = int(np.int64(0))  # a plain 0 is a type of its own, for which all that is called would be compiled once more
    fits = True
    for r in range(factors.shape[0]):
        one = run_once(
            jobs,
            slot,
            after,
            factors[r],
            services,
            members,
            size,
            sibling_cell,
            own,
            kinds,
            memory,
            host,
            free_cores,
            free_memory,
            start_delay,
            ends[r],
            bound[r],
            peak[r],
        )
        fits = fits and one
    return fits
