"""The fair class: run queues of each core, shared by weight, and what moves threads between them.

As the completely fair scheduler of Linux 4.15 and 5.5, which the study used, by its documentation
(``Documentation/scheduler/sched-design-CFS.rst``) and its tunables. What is kept and what is left out is said in
``docs/isolation.md``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from flowsched_models.isolation.board import ASLEEP, NONE, READY
from flowsched_models.isolation.loops import borrowing

if TYPE_CHECKING:
    from flowsched_models.isolation.board import Board

NICE_0 = 1024.0
"""Weight of a thread or group that was given none."""
LEAST_WEIGHT = 2.0


class FairRules(NamedTuple):
    """The tunables, in seconds."""

    latency_s: float
    """So long takes a turn of all ready members of a queue, while they are few."""
    granularity_s: float
    """No thread is preempted at the end of its turn before."""
    wakeup_granularity_s: float
    """Who wakes must be behind by so much virtual time to take over at once."""
    tick_s: float
    balance_s: float
    """Between two looks of a busy core at the loads of the others."""
    imbalance: float
    """Another core must be loaded by more than this factor before a thread is pulled from it."""
    memory_s: float
    """Half of what deadlines took of a core is forgotten after this time."""


def fair_rules(cores: int, tick_s: float = 0.004) -> FairRules:
    """The values Linux computes for a machine: 6, 0.75 and 1 ms times 1 + log2(cores), which counts 8 cores at most."""
    factor = 1.0 + math.floor(math.log2(min(8, cores)))
    return FairRules(0.006 * factor, 0.00075 * factor, 0.001 * factor, tick_s, 0.032 * cores, 1.17, 0.032)


def group_shares(share: float, others: float = NICE_0) -> float:
    """Weight of a group that shall have ``share`` of a core beside ``others``: 19456 for 95 % beside 1024."""
    if not 0.0 < share < 1.0:
        raise ValueError(f"{share:g} is not a share between 0 and 1")
    return others * share / (1.0 - share)


@borrowing
def group_weight(share: float, load: float, total: float) -> float:
    """Weight of a group on one core: its shares, divided over the cores by where its ready threads are."""
    return max(LEAST_WEIGHT, share * load / total) if total > 0.0 else share


@borrowing
def charge(board: Board, thread: int, core: int, elapsed: float) -> None:
    """Let virtual time pass for who runs, at both levels."""
    board.virtual[thread] += elapsed * NICE_0 / board.weight[thread]
    group = board.group[thread]
    if group != NONE:
        weight = group_weight(board.share[group], board.group_load[group, core], board.group_total[group])
        board.group_virtual[group, core] += elapsed * NICE_0 / weight
    board.ran[core] += elapsed


@borrowing
def update_least(board: Board, core: int) -> None:
    """Bring the least virtual times of a core up to now."""
    queue, groups, virtual, load = board.queue, board.group, board.virtual, board.group_load
    group_virtual = board.group_virtual
    least = math.inf
    for thread in range(len(queue)):
        if queue[thread] == core and groups[thread] == NONE:
            least = min(least, virtual[thread])
    for group in range(load.shape[0]):
        if load[group, core] <= 0.0:
            continue
        least = min(least, group_virtual[group, core])
        inner = math.inf
        for thread in range(len(queue)):
            if queue[thread] == core and groups[thread] == group:
                inner = min(inner, virtual[thread])
        if inner < math.inf:
            board.least_group_virtual[group, core] = max(board.least_group_virtual[group, core], inner)
    if least < math.inf:
        board.least_virtual[core] = max(board.least_virtual[core], least)


@borrowing
def enter(board: Board, thread: int, core: int, waking: bool, rules: FairRules) -> None:
    """Put a thread into the queue of ``core``; its virtual time is kept relative to the queue it comes from.

    Who slept stands at most half a turn before the others, and so does a group that comes to a core.
    """
    credit = rules.latency_s / 2.0
    update_least(board, core)
    group, before = board.group[thread], board.core[thread]
    if group == NONE:
        base, origin = board.least_virtual[core], board.least_virtual[before]
    else:
        base, origin = board.least_group_virtual[group, core], board.least_group_virtual[group, before]
        if board.group_load[group, core] <= 0.0:
            start = board.least_virtual[core] - credit
            board.group_virtual[group, core] = max(board.group_virtual[group, core], start)
        board.group_load[group, core] += board.weight[thread]
        board.group_total[group] += board.weight[thread]
    board.virtual[thread] += base - origin
    if waking:
        board.virtual[thread] = max(board.virtual[thread], base - credit)
    board.core[thread] = core
    board.queue[thread] = core
    board.state[thread] = READY


@borrowing
def leave(board: Board, thread: int, state: int) -> None:
    """Take a thread out of its queue; it is in ``state`` from now on."""
    core, group = board.core[thread], board.group[thread]
    update_least(board, core)
    if group != NONE:
        board.group_load[group, core] = max(0.0, board.group_load[group, core] - board.weight[thread])
        board.group_total[group] = board.group_load[group].sum()
    board.queue[thread] = NONE
    board.state[thread] = state


@borrowing
def outer_virtual(board: Board, thread: int, core: int) -> float:
    """Virtual time of a thread, or of its group, among the members of the root."""
    group = board.group[thread]
    virtual: float = board.virtual[thread] if group == NONE else board.group_virtual[group, core]
    return virtual


@borrowing
def outer_weight(board: Board, thread: int, core: int) -> float:
    """Weight of the same."""
    group = board.group[thread]
    weight: float = board.weight[thread]
    if group != NONE:
        weight = group_weight(board.share[group], board.group_load[group, core], board.group_total[group])
    return weight


@borrowing
def pick(board: Board, core: int) -> int:
    """The thread furthest behind: first among the members of the root, then within the group. NONE: the queue is empty."""
    queue, groups, virtual, group_virtual = board.queue, board.group, board.virtual, board.group_virtual
    best, behind = NONE, math.inf
    for thread in range(len(queue)):
        if queue[thread] != core:
            continue
        group = groups[thread]
        outer = virtual[thread] if group == NONE else group_virtual[group, core]
        same = best != NONE and group != NONE and group == groups[best]
        if best == NONE or (virtual[thread] < virtual[best] if same else outer < behind):
            best, behind = thread, outer
    return best


@borrowing
def takes_over(board: Board, thread: int, current: int, core: int, rules: FairRules) -> bool:
    """Whether a thread that wakes is so far behind who runs that it runs at once."""
    if board.group[thread] != NONE and board.group[thread] == board.group[current]:
        inner: float = board.virtual[current] - board.virtual[thread]
        return bool(inner > rules.wakeup_granularity_s * NICE_0 / board.weight[thread])
    ahead = outer_virtual(board, current, core) - outer_virtual(board, thread, core)
    return ahead > rules.wakeup_granularity_s * NICE_0 / outer_weight(board, thread, core)


@borrowing
def core_weight(board: Board, core: int) -> float:
    """Sum of the weights of the root's members on a core."""
    queue, groups, weight, load = board.queue, board.group, board.weight, board.group_load
    total = 0.0
    for thread in range(len(queue)):
        if queue[thread] == core and groups[thread] == NONE:
            total += weight[thread]
    for group in range(load.shape[0]):
        if load[group, core] > 0.0:
            total += group_weight(board.share[group], load[group, core], board.group_total[group])
    return total


@borrowing
def turn_is_over(board: Board, core: int, rules: FairRules) -> bool:
    """At a tick: whether the running thread has had its slice, or is too far ahead of one that waits, at either level."""
    queue, groups, virtual, load = board.queue, board.group, board.virtual, board.group_load
    current = board.running[core]
    group = groups[current]
    members, mates = 0, 0
    behind, inner_behind = math.inf, math.inf
    for other in range(load.shape[0]):
        if load[other, core] > 0.0:
            members += 1
            if other != group:
                behind = min(behind, board.group_virtual[other, core])
    for thread in range(len(queue)):
        if queue[thread] != core:
            continue
        if groups[thread] == NONE:
            members += 1
            if thread != current:
                behind = min(behind, virtual[thread])
        elif groups[thread] == group:
            mates += 1
            if thread != current:
                inner_behind = min(inner_behind, virtual[thread])
    if members < 2 and mates < 2:
        return False
    few = rules.latency_s / rules.granularity_s
    part = outer_weight(board, current, core) / core_weight(board, core)
    slice_s = (rules.latency_s if members <= few else rules.granularity_s * members) * part
    if members > 1 and _over(board.ran[core], slice_s, outer_virtual(board, current, core) - behind, rules):
        return True
    if mates < 2:
        return False
    part *= board.weight[current] / load[group, core]
    slice_s = (rules.latency_s if mates <= few else rules.granularity_s * mates) * part
    return _over(board.ran[core], slice_s, virtual[current] - inner_behind, rules)


@borrowing
def _over(ran: float, slice_s: float, ahead: float, rules: FairRules) -> bool:
    if ran > slice_s:
        return True
    return ran >= rules.granularity_s and ahead > slice_s


@borrowing
def place(board: Board, thread: int) -> int:
    """Where a thread that wakes goes: the core of last time if it is idle, else any idle one, else the one of last time."""
    last = int(board.core[thread])
    if is_idle(board, last):
        return last
    for core in range(len(board.running)):
        if is_idle(board, core):
            return core
    return last


@borrowing
def is_idle(board: Board, core: int) -> bool:
    """Whether no thread runs there or waits for it."""
    return board.running[core] == NONE and not waits(board, core)


@borrowing
def waits(board: Board, core: int) -> bool:
    """Whether a thread stands in the queue of a core."""
    queue = board.queue
    for thread in range(len(queue)):  # noqa: SIM110 - the compiled form of any()
        if queue[thread] == core:
            return True
    return False


@borrowing
def pull(board: Board, core: int, rules: FairRules) -> int:
    """The waiting thread that ``core`` takes from another, or NONE.

    An idle core takes the heaviest that waits anywhere. A busy one compares its load (weight over what deadlines leave of
    the core) with that of the most loaded core, and takes the heaviest thread that weighs no more than half the
    difference.
    """
    queue, groups, load, running = board.queue, board.group, board.group_load, board.running
    idle = not waits(board, core)
    source, most = NONE, math.inf
    if not idle:
        mine = core_weight(board, core) / _room(board, core)
        heaviest = mine * rules.imbalance
        for other in range(len(running)):
            there = core_weight(board, other) / _room(board, other)
            if other != core and there > heaviest:
                source, heaviest = other, there
        if source == NONE:
            return NONE
        most = (heaviest - mine) / 2.0
    best, weight = NONE, 0.0
    for thread in range(len(queue)):
        place_of = queue[thread]
        if place_of in (NONE, core) or running[place_of] == thread or not (idle or place_of == source):
            continue
        own = board.weight[thread]
        group = groups[thread]
        if group != NONE:
            whole = group_weight(board.share[group], load[group, place_of], board.group_total[group])
            own *= whole / load[group, place_of]
        if weight < own <= most:
            best, weight = thread, own
    return best


@borrowing
def _room(board: Board, core: int) -> float:
    room: float = max(0.05, 1.0 - board.taken[core])
    return room


@borrowing
def move(board: Board, thread: int, core: int, rules: FairRules) -> None:
    """Take a waiting thread to another core."""
    leave(board, thread, ASLEEP)  # counted nowhere while the other queue is brought up to now
    enter(board, thread, core, False, rules)
