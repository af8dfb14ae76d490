"""Starts for a search with cores of their own: machines cut into blocks of cores, jobs queued at them by list scheduling.

Graham: Bounds on multiprocessing timing anomalies. SIAM J. Appl. Math. 17, 1969; longest first where the last end counts,
shortest first where the sum of ends does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import cache, lru_cache
from itertools import product

from flowsched.planner.evaluation import Evaluator
from flowsched.planner.problem import Problem, Seat, Site
from flowsched.planner.random_buffer import RandomBuffer
from flowsched.planner.start import Seated

Blocks = tuple[tuple[int, ...], ...]
"""A machine's cores, cut into blocks."""

_MOST_BLOCKS = 3
_MOST_CUTS = 400
"""Ways to cut all machines that are tried; more than those are drawn at random."""


def packed_starts(
    problem: Problem,
    evaluator: Evaluator,
    rng: RandomBuffer,
    count: int,
    *,
    site: int | None = None,
    jobs: Collection[int] | None = None,
) -> list[Seated]:
    """The best ``count`` list schedules over ways to cut the machines, best first, by run times alone on a block.

    With ``site`` and ``jobs``, of these jobs on that machine.
    """
    running = {job.site for job in problem.jobs if job.site is not None}
    cuts: list[tuple[Blocks, ...]] = [
        () if site is not None and site != s else ((here.cores,),) if s in running else cut_up(here)
        for s, here in enumerate(problem.sites)
    ]
    cuts = [ways or ((),) for ways in cuts]
    among = problem.free if jobs is None else tuple(sorted(jobs))

    @cache
    def alone_s(j: int, s: int, block: tuple[int, ...]) -> float:
        seat = Seat(j, problem.threads_of(j, len(block)), block, problem.widths_of[j][0])
        part = evaluator.part(s, (seat,))
        return float(part.ends_s[0, 0]) - problem.jobs[j].ready_s if part.violation == 0.0 else math.inf

    if math.prod(len(ways) for ways in cuts) <= _MOST_CUTS:
        chosen = list(product(*cuts))
    else:
        chosen = [tuple(rng.pick(ways) for ways in cuts) for _ in range(_MOST_CUTS)]
    found = []
    for k, blocks in enumerate(chosen):
        value, seated = _list_schedule(problem, alone_s, among, blocks, rng)
        if seated is not None:
            found.append((value, k, seated))
    found.sort(key=lambda item: item[:2])
    return [seated for _, _, seated in found[:count]]


def cut_up(site: Site) -> tuple[Blocks, ...]:
    """Ways to cut a machine's cores into up to three blocks, siblings together and, where there are any, apart."""
    if not site.cores:
        return ((),)
    together = tuple(c for unit in site.units for c in unit)
    found: dict[Blocks, None] = {}
    for order in dict.fromkeys((together, site.cores)):
        for sizes in _sizes(len(order), _MOST_BLOCKS, len(order)):
            blocks, first = [], 0
            for size in sizes:
                blocks.append(tuple(sorted(order[first : first + size])))
                first += size
            found[tuple(blocks)] = None
    return tuple(found)


@lru_cache(maxsize=4096)
def _sizes(total: int, most: int, largest: int) -> tuple[tuple[int, ...], ...]:
    """Ways to write a number as a sum of at most ``most`` numbers, largest first; large numbers in steps."""
    if total == 0:
        return ((),)
    if most == 0:
        return ()
    step = max(1, total // 16)
    return tuple(
        (first, *rest)
        for first in range(min(total, largest), 0, -step)
        for rest in _sizes(total - first, most - 1, first)
    )


def _list_schedule(
    problem: Problem,
    alone_s: Callable[[int, int, tuple[int, ...]], float],
    jobs: Sequence[int],
    blocks: Sequence[Blocks],
    rng: RandomBuffer,
) -> tuple[float, Seated | None]:
    """Each job in turn to the block where it ends first; None where some job has no block at all.

    ``alone_s``: how long a job runs alone on a block of a machine.
    """
    delay = problem.start_delay.after_waiting_s
    until = [[0.0] * len(mine) for mine in blocks]
    for job in problem.jobs:
        if job.site is not None and blocks[job.site]:
            # How long those who run still do is the search's business; they only come first.
            until[job.site] = [u + job.profile.work_s * (1.0 - job.progress) for u in until[job.site]]
    makespan = problem.rules.objective == "makespan"
    sign = -1.0 if makespan else 1.0
    order = sorted(
        jobs,
        key=lambda j: sign * problem.jobs[j].task.scale * problem.jobs[j].profile.work_s * (1.0 + 0.3 * rng.uniform()),
    )
    seated: Seated = []
    total = 0.0
    for j in order:
        best: tuple[float, int, int] | None = None
        for s in problem.sites_of[j]:
            for b, block in enumerate(blocks[s]):
                begin = max(until[s][b] + delay if until[s][b] > 0.0 else 0.0, problem.jobs[j].ready_s)
                end = begin + alone_s(j, s, block)
                if best is None or end < best[0]:
                    best = (end, s, b)
        if best is None or math.isinf(best[0]):
            return math.inf, None
        end, s, b = best
        until[s][b] = end
        total += end
        block = blocks[s][b]
        seated.append((s, Seat(j, problem.threads_of(j, len(block)), block, problem.widths_of[j][0])))
    last = max((u for mine in until for u in mine), default=0.0)
    return (last if makespan else total), seated
