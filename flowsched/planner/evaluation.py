"""What comes of a plan of one machine, remembered by what the machine and its tasks are."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from flowsched.cluster.resource import without
from flowsched.cluster.snapshot import MILLI
from flowsched.planner.problem import Problem, Seat, Site
from flowsched.planner.robust import Draws
from flowsched.support.arrays import FloatArray
from flowsched_models.lookahead import Entry, Lookahead

Seats = tuple[Seat, ...]
"""The plan of one machine. Where cores are exclusive, its order is the order of starts."""

_MOST_REMEMBERED = 400_000
_SETTLING = 6
"""Most rounds of finding out who waits for whom on exclusive cores."""
_AT_ONCE = 1e-9
_EVERYTHING = 1e12


@dataclass(frozen=True, slots=True)
class MachineOutcome:
    """What one machine adds to a plan; times in seconds from now, [R] with draws and a single number in [1] without."""

    last_s: FloatArray
    """[R] the last end of a task there; 0 without any."""
    total_s: FloatArray
    """[R] sum of the times from submission to end."""
    violation: float
    """0 for a plan that can be carried out; else how far it is from that."""
    ends_s: FloatArray
    """[R, seats] in the order of the seats."""
    bound_s: FloatArray
    """[R, seats] when each is bound."""
    after: tuple[int, ...]
    """Index of the seat that each waits for, or -1."""
    peak_p95_us: FloatArray
    """[R, services]."""


class Evaluator:
    """Parts of plans. Machines and jobs that are equal to the models share what is remembered."""

    def __init__(self, problem: Problem, draws: Draws | None = None) -> None:
        """``draws``: evaluate for all of them; else once, as the models say."""
        self.problem = problem
        self._draws = draws
        self._memory: dict[Hashable, MachineOutcome] = {}
        delay = problem.start_delay.after_waiting_s
        self._lookaheads = [
            Lookahead(
                site.host,
                _EVERYTHING if problem.timed else site.cpu_milli / MILLI,
                _EVERYTHING if problem.timed else site.memory_mib,
                delay,
            )
            for site in problem.sites
        ]
        self._site_kind: list[Hashable] = [
            s
            if draws is not None
            else (id(site.host), site.limits_us, site.cpu_milli, site.memory_mib, tuple(sorted(site.resources.items())))
            for s, site in enumerate(problem.sites)
        ]
        kinds: dict[Hashable, int] = {}
        self._job_kind = [
            kinds.setdefault(
                j
                if draws is not None
                else (
                    job.task.profile,
                    job.task.scale,
                    job.task.memory_mib,
                    job.task.resources,
                    job.submit_s,
                    job.ready_s,
                    job.progress,
                    job.site is None,
                ),
                len(kinds),
            )
            for j, job in enumerate(problem.jobs)
        ]

    def part(self, site: int, seats: Seats) -> MachineOutcome:
        """What comes of a machine with these seats."""
        at = {seat.job: i for i, seat in enumerate(seats)}
        kind = self._job_kind
        key = (
            self._site_kind[site],
            tuple([(kind[s.job], s.threads, s.cores, s.width_milli, at.get(s.after, -1)) for s in seats]),
        )
        found = self._memory.get(key)
        if found is None:
            if len(self._memory) >= _MOST_REMEMBERED:
                self._memory.clear()
            found = self._memory[key] = self._run(site, seats, [at.get(s.after, -1) for s in seats])
        return found

    def _run(self, s: int, seats: Seats, after: list[int]) -> MachineOutcome:
        site = self.problem.sites[s]
        if not self.problem.rules.share_cores:
            after = self._turns(seats)
        # In the order in which the simulator adds them up: the last digits of shared cores depend on it.
        order = sorted(range(len(seats)), key=lambda i: self._order(seats[i]))
        place = [0] * len(seats)
        for k, i in enumerate(order):
            place[i] = k
        factors = None
        if self._draws is not None:
            factors = self._draws.factors(s, [seats[i].job for i in order])
        for attempt in range(_SETTLING):
            entries = [self._entry(seats[i], -1 if after[i] < 0 else place[after[i]]) for i in order]
            outcome = self._lookaheads[s].run(entries, factors)
            ends = outcome.ends_s[:, place] if seats else outcome.ends_s
            if self.problem.rules.share_cores:
                break
            turns = self._turns(seats, ends[0])
            if turns == after or attempt == _SETTLING - 1:
                break
            after = turns
        bound = outcome.starts_s[:, place] if seats else outcome.starts_s
        jobs = [self.problem.jobs[seat.job] for seat in seats]
        if any(job.submit_s > 0.0 for job in jobs):
            bound = np.maximum(bound, [job.bound_s if after[i] < 0 else 0.0 for i, job in enumerate(jobs)])
        violation = self._violation(site, seats, ends, bound, outcome.peak_p95_us, outcome.fits)
        if not seats:
            nothing = np.zeros(1 if self._draws is None else self._draws.count)
            return MachineOutcome(nothing, nothing, violation, ends, bound, (), outcome.peak_p95_us)
        submitted = sum(job.submit_s for job in jobs)
        return MachineOutcome(
            ends.max(axis=1), ends.sum(axis=1) - submitted, violation, ends, bound, tuple(after), outcome.peak_p95_us
        )

    def _order(self, seat: Seat) -> tuple[object, ...]:
        return (self.problem.jobs[seat.job].task.profile, seat.threads, seat.cores, seat.width_milli, seat.job)

    def _entry(self, seat: Seat, after: int) -> Entry:
        job = self.problem.jobs[seat.job]
        return Entry(
            job.task.profile,
            job.task.scale,
            seat.threads,
            seat.cores,
            seat.width_milli / MILLI,
            job.task.memory_mib,
            job.progress,
            job.ready_s if after < 0 else 0.0,
            after=after,
        )

    def _turns(self, seats: Seats, ends: FloatArray | None = None) -> list[int]:
        """Whom each waits for on cores of its own: of those before it that need one of its cores, the last to end."""
        turns = []
        for i, seat in enumerate(seats):
            mine = set(seat.cores)
            rivals = [k for k in range(i) if not mine.isdisjoint(seats[k].cores)]
            if self.problem.jobs[seat.job].site is not None or not rivals:
                turns.append(-1)
            else:
                turns.append(rivals[-1] if ends is None else max(rivals, key=lambda k: (ends[k], k)))
        return turns

    def _violation(
        self, site: Site, seats: Seats, ends: FloatArray, bound: FloatArray, peak: FloatArray, fits: bool
    ) -> float:
        """How far a plan is from one that can be carried out."""
        found = 0.0 if fits else 1.0
        for k, limit in enumerate(site.limits_us):
            p95 = float(peak[0, k]) if self._draws is None else self._draws.p95_us(site, k, peak[:, k])
            # A service that misses its SLO without any task is not the fault of the plan.
            if p95 > limit and seats:
                found += min(10.0, p95 / limit - 1.0) + 0.01
        if not np.isfinite(ends).all():
            return found + len(seats)
        jobs = self.problem.jobs
        if self.problem.timed:
            for i, seat in enumerate(seats):
                if bound[0, i] < jobs[seat.job].bound_s - _AT_ONCE:
                    found += 1.0
            for i in range(len(seats)):
                there = [k for k in range(len(seats)) if bound[0, k] <= bound[0, i] + _AT_ONCE < ends[0, k]]
                found += self._overfull(site, [seats[k] for k in there])
        if not self.problem.rules.share_cores:
            for i, seat in enumerate(seats):
                for k in range(i):
                    both = not set(seat.cores).isdisjoint(seats[k].cores)
                    apart = bound[0, i] >= ends[0, k] - _AT_ONCE or bound[0, k] >= ends[0, i] - _AT_ONCE
                    fixed = jobs[seat.job].site is not None and jobs[seats[k].job].site is not None
                    found += 1.0 if both and not apart and not fixed else 0.0
        return found

    def _overfull(self, site: Site, seats: Sequence[Seat]) -> float:
        """Whether those who are there at one moment ask for more than there is."""
        tasks = [self.problem.jobs[seat.job].task for seat in seats]
        if sum(seat.width_milli for seat in seats) > site.cpu_milli:
            return 1.0
        if sum(task.memory_mib for task in tasks) > site.memory_mib:
            return 1.0
        left = without(dict(site.resources), *(task.resources for task in tasks))
        return 1.0 if any(amount < 0 for amount in left.values()) else 0.0
