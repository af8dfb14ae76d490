"""Where a search begins: what a round of flow decided and planned, or one job after the other where it ends soonest."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from flowsched.cluster.decision import Decisions, Placement
from flowsched.planner.evaluation import Evaluator
from flowsched.planner.plan import PlannedTask
from flowsched.planner.problem import Problem, Seat

Seated = list[tuple[int, Seat]]
"""(machine, seat) of every job that can be planned, in the order of starts."""
_AT_ONCE_S = 1e-6


def from_flow(problem: Problem, evaluator: Evaluator, decisions: Decisions) -> Seated:
    """The plan of a round: who starts now, who is planned for the k-th completion of a machine, and the rest added."""
    index = {problem.jobs[j].task.name: j for j in problem.free}
    sites = {site.machine.name: s for s, site in enumerate(problem.sites)}
    seated: Seated = []
    for placement in decisions.placements:
        j = index[placement.task]
        s = sites[placement.machine]
        seated.append((s, mended(problem, s, Seat(j, placement.threads, placement.cores, placement.width_milli))))
    planned = decisions.plan
    for later in sorted(planned, key=lambda p: (p.slot, p.task)):
        s = sites[later.machine]
        here = _on(problem, s, seated)
        order = _by_end(evaluator, s, here)
        after = order[min(later.slot, len(order)) - 1] if order and later.slot > 0 else -1
        j = index[later.task]
        cores = problem.sites[s].batch_cores
        seated.append(
            (s, Seat(j, problem.threads_of(j, len(cores)), cores, _width(problem, j, later.width_milli), after))
        )
    return greedy_start(problem, evaluator, seated)


def from_played(problem: Problem, evaluator: Evaluator, played: Iterable[tuple[float, Placement]]) -> Seated:
    """The plan that is nearest to a run: machine, cores, threads and width as there, bound when it was bound there.
    ``played`` has this moment, in seconds on the clock of the snapshot, and the place.

    A plan binds a task as soon as it is submitted or after a task on its machine. A run also binds after an end
    elsewhere or an arrival; then it waits for the end that is nearest to that moment. Only what can be carried out is taken.
    """
    index = {problem.jobs[j].task.name: j for j in problem.free}
    sites = {site.machine.name: s for s, site in enumerate(problem.sites)}
    seated: Seated = []
    for bound_s, task in sorted(played, key=lambda pair: (pair[0], pair[1].task)):
        j, s = index[task.task], sites[task.machine]
        here = _on(problem, s, seated)
        plain = mended(problem, s, Seat(j, task.threads, task.cores, task.width_milli))
        best: tuple[float, Seat] | None = None
        for after in (-1, *(seat.job for seat in here)):
            seat = plain._replace(after=after)
            part = evaluator.part(s, (*here, seat))
            if part.violation > 0.0:
                continue
            off = abs(problem.now_s + float(part.bound_s[0, -1]) - bound_s)
            if best is None or off < best[0] - _AT_ONCE_S:
                best = (off, seat)
        if best is not None:
            seated.append((s, best[1]))
    return greedy_start(problem, evaluator, seated)


def carried(problem: Problem, evaluator: Evaluator, plan: Iterable[PlannedTask]) -> Seated:
    """What still waits of a plan made earlier, in the order of starts; the rest added."""
    index = {job.task.name: j for j, job in enumerate(problem.jobs)}
    sites = {site.machine.name: s for s, site in enumerate(problem.sites)}
    seated: Seated = []
    for planned in sorted(plan, key=lambda p: p.bound_s):
        j, s = index.get(planned.task), sites.get(planned.machine)
        if j is None or s is None or problem.jobs[j].site is not None or s not in problem.sites_of[j]:
            continue
        waits = -1 if planned.after is None else index.get(planned.after, -1)
        seated.append((s, mended(problem, s, Seat(j, planned.threads, planned.cores, planned.width_milli, waits))))
    return greedy_start(problem, evaluator, _untangled(problem, seated))


def greedy_start(problem: Problem, evaluator: Evaluator, seated: Iterable[tuple[int, Seat]] = ()) -> Seated:
    """Tasks without a seat, longest first, each where the machine is done soonest: at once or after a task."""
    found = list(seated)
    have = {seat.job for _, seat in found}
    left = [j for j in problem.free if j not in have]
    left.sort(key=lambda j: (-problem.jobs[j].task.scale * problem.jobs[j].profile.work_s, j))
    for j in left:
        best: tuple[tuple[float, float], int, Seat] | None = None
        for s in problem.sites_of[j]:
            here = _on(problem, s, found)
            cores = problem.sites[s].batch_cores or problem.sites[s].cores
            plain = Seat(j, problem.threads_of(j, len(cores)), cores, _width(problem, j, 0))
            for after in (-1, *(seat.job for seat in here)):
                seat = plain._replace(after=after)
                part = evaluator.part(s, (*here, seat))
                rank = (part.violation, float(part.last_s[0]))
                if best is None or rank < best[0]:
                    best = (rank, s, seat)
        if best is None:
            raise ValueError(f"no machine takes {problem.jobs[j].task.name}")
        found.append((best[1], best[2]))
    return found


def mended(problem: Problem, s: int, seat: Seat) -> Seat:
    """A seat with what the rules allow: widths, and core sets of this machine."""
    site = problem.sites[s]
    cores = tuple(c for c in seat.cores if c in site.cores) or site.batch_cores or site.cores
    return seat._replace(cores=cores, width_milli=_width(problem, seat.job, seat.width_milli))


def _width(problem: Problem, job: int, wanted: int) -> int:
    widths = problem.widths_of[job]
    return wanted if wanted in widths else problem.jobs[job].task.widths_milli[0]


def _on(problem: Problem, s: int, seated: Iterable[tuple[int, Seat]]) -> tuple[Seat, ...]:
    running = [job.seat for job in problem.jobs if job.site == s and job.seat is not None]
    return (*running, *(seat for site, seat in seated if site == s))


def _by_end(evaluator: Evaluator, s: int, seats: tuple[Seat, ...]) -> list[int]:
    ends = evaluator.part(s, seats).ends_s[0]
    return [seats[int(i)].job for i in np.argsort(ends, kind="stable")]


def _untangled(problem: Problem, seated: Seated) -> Seated:
    """No task waits for a task on another machine."""
    site_of = {seat.job: s for s, seat in seated}
    site_of |= {j: job.site for j, job in enumerate(problem.jobs) if job.site is not None}
    return [(s, seat if site_of.get(seat.after) == s else seat._replace(after=-1)) for s, seat in seated]
