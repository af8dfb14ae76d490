"""Who goes to which machine, where cores are exclusive: jobs change machines, then both machines are planned anew.

On exclusive cores a plan of a machine is a packing that fits its jobs only: a job that moves alone nearly always makes
both machines worse, however good the new assignment is. So an assignment is judged by what a short search makes of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain, combinations

from flowsched.planner.bound import alone_s, core_seconds, physical_cores
from flowsched.planner.draft import Draft
from flowsched.planner.evaluation import Evaluator, MachineOutcome, Seats
from flowsched.planner.moves import Neighbourhood
from flowsched.planner.objective import Objective
from flowsched.planner.packing import packed_starts
from flowsched.planner.problem import Problem
from flowsched.planner.random_buffer import RandomBuffer

_PER_JOB = 250
"""Plans looked at for one machine, for each job there."""
_STARTS = 4
_MOST = 400
"""Most assignments that are looked at closely beside one plan."""
_HOT, _COLD = 0.05, 0.001
_LESS = 1e-6

Planned = tuple[float, Seats]
"""Last end of a machine (infinity where nothing feasible was found), and its seats."""


class Assigner:
    """Better assignments of jobs to machines, for the makespan. What one machine makes of a set of jobs is remembered."""

    def __init__(
        self,
        problem: Problem,
        evaluator: Evaluator,
        objective: Objective,
        rng: RandomBuffer,
        spent: Callable[[], bool],
        tick: Callable[[], None],
    ) -> None:
        """``tick`` counts a plan that is looked at; ``spent`` says when to stop."""
        self._problem = problem
        self._evaluator = evaluator
        self._objective = objective
        self._rng = rng
        self._spent = spent
        self._tick = tick
        self._known: dict[tuple[int, frozenset[int]], Planned] = {}
        self._alone = {(j, s): alone_s(problem, j, s) for j in problem.free for s in problem.sites_of[j]}
        self._need = {(j, s): core_seconds(problem.sites[s], problem.jobs[j]) for j, s in self._alone}
        self._rooms = [physical_cores(site) for site in problem.sites]

    def improve(self, best: Draft, better: Callable[[Draft], None]) -> None:
        """From the best plan, as long as that finds something; calls ``better`` with every plan that is."""
        draft = best
        while not self._spent():
            found = self._step(draft)
            if found is None:
                return
            better(found)
            draft = found

    def _step(self, draft: Draft) -> Draft | None:
        last = self._objective.makespan_s(draft.parts)
        for change in self._promising(draft, last):
            seats: dict[int, Seats] = {}
            for s, jobs in change:
                end, planned = self._plan(s, jobs)
                if end >= last - _LESS or self._spent():
                    break
                seats[s] = planned
            else:
                found = draft.copy()
                parts = {s: self._evaluator.part(s, here) for s, here in seats.items()}
                every: list[MachineOutcome] = [parts.get(s, part) for s, part in enumerate(found.parts)]
                found.apply(seats, parts, self._objective.cost(every))
                if found.cost < draft.cost - _LESS:
                    return found
            if self._spent():
                return None
        return None

    def _promising(self, draft: Draft, last: float) -> list[list[tuple[int, frozenset[int]]]]:
        """Changes of assignment that could end sooner, the most hopeful first."""
        sets = [
            frozenset(seat.job for seat in seats if self._problem.jobs[seat.job].site is None) for seats in draft.seats
        ]
        worst = max(range(len(sets)), key=lambda s: (draft.parts[s].violation, draft.parts[s].last_s[0]))
        ranked: list[tuple[float, int, int, list[tuple[int, frozenset[int]]]]] = []
        for other in range(len(sets)):
            if other == worst:
                continue
            for gives, takes in _exchanges(sets[worst], sets[other]):
                mine, theirs = (sets[worst] - gives) | takes, (sets[other] - takes) | gives
                hope = max(self._least(worst, mine), self._least(other, theirs))
                if hope < last - _LESS:
                    ranked.append((hope, len(gives) + len(takes), len(ranked), [(worst, mine), (other, theirs)]))
        ranked.sort(key=lambda item: item[:3])
        # The machine itself may do better with what it has.
        return [[(worst, sets[worst])], *(change for *_, change in ranked[:_MOST])]

    def _least(self, s: int, jobs: frozenset[int]) -> float:
        """What no plan of a machine beats: what is known of it, the longest job, and all work over all cores."""
        if not jobs:
            return 0.0
        known = self._known.get((s, jobs))
        if known is not None:
            return known[0]
        if any((j, s) not in self._alone for j in jobs):
            return math.inf
        begin = min(self._problem.jobs[j].ready_s for j in jobs)
        longest = max(self._alone[j, s] + self._problem.jobs[j].ready_s for j in jobs)
        return max(longest, begin + sum(self._need[j, s] for j in jobs) / max(1e-9, self._rooms[s]))

    def _plan(self, s: int, jobs: frozenset[int]) -> Planned:
        """A short search of a machine for these jobs."""
        known = self._known.get((s, jobs))
        if known is not None:
            return known
        problem, evaluator, objective, rng = self._problem, self._evaluator, self._objective, self._rng
        running = tuple(job.seat for job in problem.jobs if job.site == s and job.seat is not None)
        if not jobs:
            return -math.inf, running

        def cost_of(part: MachineOutcome) -> float:
            return objective.cost([part])

        best: tuple[float, Seats] | None = None
        for start in packed_starts(problem, evaluator, rng, _STARTS, site=s, jobs=jobs):
            seats = (*running, *(seat for _, seat in start))
            cost = cost_of(evaluator.part(s, seats))
            self._tick()
            if best is None or cost < best[0]:
                best = (cost, seats)
        if best is None:
            return math.inf, running
        moves = Neighbourhood(problem, rng, tuple(sorted(jobs)))
        count = _PER_JOB * len(jobs)
        now, seats = best
        scale = max(1e-6, min(now, 1e4))
        draft = Draft([()] * len(problem.sites), [s] * len(problem.jobs), [], 0.0)
        for k in range(count):
            if self._spent():
                break
            temperature = scale * _HOT * (_COLD / _HOT) ** (k / count)
            self._tick()
            draft.seats[s] = seats
            change = moves.draw(draft)
            if change is None:
                continue
            cost = cost_of(evaluator.part(s, change[s]))
            if cost < now or rng.uniform() < math.exp((now - cost) / temperature):
                now, seats = cost, change[s]
                if now < best[0] - _LESS:
                    best = (now, seats)
        part = evaluator.part(s, best[1])
        end = float(part.last_s[0]) if part.violation == 0.0 else math.inf
        self._known[s, jobs] = end, best[1]
        return end, best[1]


def _exchanges(mine: frozenset[int], theirs: frozenset[int]) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
    """Up to two jobs for up to two, in a fixed order."""
    for gives in _few(mine):
        for takes in _few(theirs):
            if gives or takes:
                yield frozenset(gives), frozenset(takes)


def _few(jobs: frozenset[int]) -> Iterator[tuple[int, ...]]:
    ordered = sorted(jobs)
    return chain.from_iterable(combinations(ordered, n) for n in range(3))
