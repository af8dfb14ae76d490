"""The deadline class: a constant bandwidth server per thread, and the earliest deadlines first over all cores.

Sources: L. Abeni, G. Buttazzo, "Integrating Multimedia Applications in Hard Real-Time Systems", RTSS 1998 (the server); the
kernel's ``Documentation/scheduler/sched-deadline.rst`` (the rule at wake-up; a server that is out of budget waits for its
deadline, and is then given a runtime and one period more). Bandwidth that others leave unused is not given to any thread
(no ``SCHED_FLAG_RECLAIM``), and threads move between cores at no cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowsched_models.isolation.board import NONE, READY
from flowsched_models.isolation.loops import borrowing

if TYPE_CHECKING:
    from flowsched_models.isolation.board import Board, Indices


@borrowing
def wake_server(board: Board, thread: int, now: float, runtime: float, period: float) -> None:
    """At a wake-up: keep budget and deadline if the rest can be used up at the reserved pace, else begin a new period."""
    left = board.deadline[thread] - now
    if left <= 0.0 or board.budget[thread] * period > left * runtime:
        board.deadline[thread] = now + period
        board.budget[thread] = runtime


@borrowing
def replenish(board: Board, thread: int, now: float, runtime: float, period: float) -> None:
    """At the deadline of a throttled thread: one runtime more, one period later."""
    board.budget[thread] = min(runtime, board.budget[thread] + runtime)
    board.deadline[thread] += period
    if board.deadline[thread] <= now or board.budget[thread] <= 0.0:
        board.deadline[thread] = now + period
        board.budget[thread] = runtime


@borrowing
def choose_earliest(board: Board, wanted: Indices, chosen: Indices) -> None:
    """Fill ``wanted`` [core] with the threads of the earliest deadlines, or NONE; equal deadlines: the lower index.

    A running thread stays where it is. Others go to the core of last time if no deadline holds it, else to an idle core,
    else to the first that no deadline holds. ``chosen`` [core] is room for the choice itself.
    """
    cores = len(wanted)
    wanted[:] = NONE
    chosen[:] = NONE
    for place in range(cores):
        best = NONE
        for thread in range(len(board.state)):
            if board.reserved[thread] == 0 or board.state[thread] != READY:
                continue
            known = False
            for earlier in range(place):
                known = known or chosen[earlier] == thread
            if not known and (best == NONE or board.deadline[thread] < board.deadline[best]):
                best = thread
        if best == NONE:
            break
        chosen[place] = best
        if board.running[board.core[best]] == best:
            wanted[board.core[best]] = best
    for place in range(cores):
        thread = chosen[place]
        if thread == NONE or board.running[board.core[thread]] == thread:
            continue
        target = board.core[thread]
        if wanted[target] != NONE:
            target = NONE
            for core in range(cores):
                idle = board.running[core] == NONE
                if wanted[core] == NONE and (target == NONE or (idle and board.running[target] != NONE)):
                    target = core
        wanted[target] = thread
