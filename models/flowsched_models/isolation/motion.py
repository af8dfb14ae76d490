"""The event loop: from one moment at which something happens to the next. Times in seconds."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from flowsched_models.isolation.board import ASLEEP, DONE, NONE, READY, THROTTLED, Board, Indices, Numbers
from flowsched_models.isolation.constant_bandwidth import choose_earliest, replenish, wake_server
from flowsched_models.isolation.fair_share import (
    FairRules,
    charge,
    enter,
    leave,
    move,
    pick,
    place,
    pull,
    takes_over,
    turn_is_over,
    waits,
)
from flowsched_models.isolation.loops import borrowing, compiled

LEAST_S = 1e-10
"""A thread that needs less CPU than this is done: sums of times lose digits."""


class Plan(NamedTuple):
    """What the threads shall do. First index: thread."""

    period_s: float
    relative_sleep: bool
    interval_s: float
    window_s: float
    end_s: float
    duration_s: Numbers
    phase_s: Numbers
    usage: Numbers
    """[thread, interval]: CPUs asked for."""
    factor: Numbers
    """[thread, job]"""
    wakeup_s: Numbers
    """[thread, job]"""
    runtime_s: Numbers
    """[thread, interval] of the reservation; 0 without one."""
    reserve_period_s: Numbers


class Log(NamedTuple):
    """What came out; filled in by :func:`run`."""

    used_s: Numbers
    """[thread, window]: CPU time."""
    release_s: Numbers
    """[thread, job]: NaN for a job that was never released."""
    work_s: Numbers
    """[thread, job]"""
    end_s: Numbers
    """[thread, job]: NaN for a job that is not done at the end."""
    counts: Indices
    """Switches of threads on cores, threads pulled from one core to another."""


SWITCHES, PULLS = 0, 1


@borrowing
def _begin_job(board: Board, plan: Plan, log: Log, thread: int, job: int, release: float) -> None:
    interval = min(plan.usage.shape[1] - 1, int(release / plan.interval_s))
    work = plan.usage[thread, interval] * plan.period_s * plan.factor[thread, job]
    log.release_s[thread, job] = release
    log.work_s[thread, job] = work
    board.left[thread] = work


@borrowing
def _runtime(plan: Plan, thread: int, now: float) -> float:
    runtime: float = plan.runtime_s[thread, min(plan.usage.shape[1] - 1, int(now / plan.interval_s))]
    return runtime


@borrowing
def _wake(board: Board, plan: Plan, rules: FairRules, thread: int, now: float, look: Indices) -> None:
    """A thread whose job is there stands in a queue. ``look`` [core] is set to 1 where the fair queue must choose anew."""
    if board.reserved[thread] == 1:
        wake_server(board, thread, now, _runtime(plan, thread, now), plan.reserve_period_s[thread])
        board.state[thread] = READY
        return
    core = place(board, thread)
    enter(board, thread, core, True, rules)
    current = board.running[core]
    if current == NONE or (board.reserved[current] == 0 and takes_over(board, thread, current, core, rules)):
        look[core] = 1


@borrowing
def _settle(
    board: Board, rules: FairRules, look: Indices, wanted: Indices, chosen: Indices, counts: Indices, any_reserved: bool
) -> None:
    """Put the right thread on every core."""
    cores = len(board.running)
    wanted[:] = NONE
    if any_reserved:
        choose_earliest(board, wanted, chosen)
    for core in range(cores):
        before = board.running[core]
        if wanted[core] != NONE:
            board.core[wanted[core]] = core
            if before != wanted[core]:
                board.running[core] = wanted[core]
                counts[SWITCHES] += 1
            continue
        if before != NONE and look[core] == 0 and board.queue[before] == core:
            continue
        chosen_one = pick(board, core)
        if chosen_one == NONE:
            pulled = pull(board, core, rules)
            if pulled != NONE:
                move(board, pulled, core, rules)
                counts[PULLS] += 1
                chosen_one = pulled
        if chosen_one != before:
            board.running[core] = chosen_one
            board.ran[core] = 0.0
            counts[SWITCHES] += 1
    look[:] = 0


@compiled
def run(board: Board, plan: Plan, rules: FairRules, log: Log) -> None:
    """Move the board from 0 to the end of the plan. ``log`` is filled in."""
    threads, cores = len(board.state), len(board.running)
    job = np.zeros(threads, dtype=np.int64)
    timer = plan.phase_s + plan.wakeup_s[:, 0]
    released = plan.phase_s.copy()
    tick = np.empty(cores)
    balance = np.empty(cores)
    for core in range(cores):
        tick[core] = rules.tick_s * (core + 1) / cores
        balance[core] = rules.balance_s * (core + 1) / cores
    look = np.zeros(cores, dtype=np.int64)
    wanted = np.empty(cores, dtype=np.int64)
    chosen = np.empty(cores, dtype=np.int64)
    any_reserved = False
    for thread in range(threads):
        any_reserved = any_reserved or board.reserved[thread] == 1
        if released[thread] >= plan.duration_s[thread]:
            board.state[thread] = DONE
    now, window = 0.0, 0
    windows = log.used_s.shape[1]
    while now < plan.end_s:
        # The next moment at which something happens.
        upcoming = min(plan.end_s, (window + 1) * plan.window_s)
        for thread in range(threads):
            if board.state[thread] == ASLEEP:
                upcoming = min(upcoming, timer[thread])
            elif board.state[thread] == THROTTLED:
                upcoming = min(upcoming, board.deadline[thread])
        for core in range(cores):
            upcoming = min(upcoming, tick[core])
            thread = board.running[core]
            if thread != NONE:
                upcoming = min(upcoming, now + board.left[thread])
                if board.reserved[thread] == 1:
                    upcoming = min(upcoming, now + board.budget[thread])
        elapsed = max(0.0, upcoming - now)
        now = max(now, upcoming)
        for core in range(cores):
            thread = board.running[core]
            if thread == NONE:
                continue
            board.left[thread] -= elapsed
            log.used_s[thread, min(window, windows - 1)] += elapsed
            if board.reserved[thread] == 1:
                board.budget[thread] -= elapsed
            else:
                charge(board, thread, core, elapsed)
        if now >= (window + 1) * plan.window_s:
            window += 1
        # Jobs that are done, and budgets that are used up.
        for core in range(cores):
            thread = board.running[core]
            if thread == NONE:
                continue
            if board.left[thread] <= LEAST_S:
                log.end_s[thread, job[thread]] = now
                if plan.relative_sleep:
                    work = log.work_s[thread, job[thread]]
                    released[thread] = now + max(0.0, plan.period_s - work)
                else:
                    released[thread] += plan.period_s
                job[thread] += 1
                finished = released[thread] >= plan.duration_s[thread] or job[thread] >= plan.factor.shape[1]
                if not finished and released[thread] <= now:
                    _begin_job(board, plan, log, thread, job[thread], released[thread])  # late: goes on at once
                else:
                    state = DONE if finished else ASLEEP
                    if board.reserved[thread] == 1:
                        board.state[thread] = state
                    else:
                        leave(board, thread, state)
                    if not finished:
                        timer[thread] = released[thread] + plan.wakeup_s[thread, job[thread]]
            if board.reserved[thread] == 1 and board.state[thread] == READY and board.budget[thread] <= LEAST_S:
                board.state[thread] = THROTTLED
            if board.state[thread] != READY:
                board.running[core] = NONE
        for thread in range(threads):
            if board.state[thread] == THROTTLED and board.deadline[thread] <= now:
                replenish(board, thread, now, _runtime(plan, thread, now), plan.reserve_period_s[thread])
                board.state[thread] = READY
            elif board.state[thread] == ASLEEP and timer[thread] <= now:
                _begin_job(board, plan, log, thread, job[thread], released[thread])
                _wake(board, plan, rules, thread, now, look)
        for core in range(cores):
            if tick[core] > now:
                continue
            tick[core] += rules.tick_s
            current = board.running[core]
            if any_reserved:
                keep = math.pow(0.5, rules.tick_s / rules.memory_s)
                held = 1.0 if current != NONE and board.reserved[current] == 1 else 0.0
                board.taken[core] = board.taken[core] * keep + held * (1.0 - keep)
            if current == NONE or (board.reserved[current] == 0 and turn_is_over(board, core, rules)):
                look[core] = 1
            if balance[core] <= now:
                balance[core] += rules.balance_s
                if waits(board, core):
                    pulled = pull(board, core, rules)
                    if pulled != NONE:
                        move(board, pulled, core, rules)
                        log.counts[PULLS] += 1
                        if current == NONE or (
                            board.reserved[current] == 0 and takes_over(board, pulled, current, core, rules)
                        ):
                            look[core] = 1
        _settle(board, rules, look, wanted, chosen, log.counts, any_reserved)
    # Jobs that should have begun while their thread was late are released all the same.
    for thread in range(threads):
        if board.state[thread] == DONE:
            continue
        release = released[thread]
        while release < min(plan.end_s, plan.duration_s[thread]) and job[thread] < plan.factor.shape[1]:
            log.release_s[thread, job[thread]] = release
            job[thread] += 1
            if plan.relative_sleep:
                break
            release += plan.period_s
