"""A plan in the making: the seats of every machine, and what comes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flowsched.planner.evaluation import Evaluator, MachineOutcome, Seats
from flowsched.planner.objective import Objective
from flowsched.planner.problem import Problem, Seat


@dataclass
class Draft:
    """Changed in place by a search; ``copy`` before keeping it."""

    seats: list[Seats]
    where: list[int]
    """Machine of each job."""
    parts: list[MachineOutcome]
    cost: float

    def copy(self) -> Draft:
        """An independent copy."""
        return Draft(list(self.seats), list(self.where), list(self.parts), self.cost)

    def apply(self, change: Mapping[int, Seats], parts: Mapping[int, MachineOutcome], cost: float) -> None:
        """Take over a change of some machines."""
        for site, seats in change.items():
            self.seats[site] = seats
            self.parts[site] = parts[site]
            for seat in seats:
                self.where[seat.job] = site
        self.cost = cost

    def seat(self, job: int) -> Seat:
        """A job's seat."""
        return next(seat for seat in self.seats[self.where[job]] if seat.job == job)


def make_draft(
    problem: Problem, evaluator: Evaluator, objective: Objective, seats: Iterable[tuple[int, Seat]]
) -> Draft:
    """A draft from (machine, seat) of every job that can be planned, in the order of starts."""
    by_site: list[list[Seat]] = [[] for _ in problem.sites]
    for job in problem.jobs:
        if job.site is not None and job.seat is not None:
            by_site[job.site].append(job.seat)
    for site, seat in seats:
        by_site[site].append(seat)
    where = [-1] * len(problem.jobs)
    for s, here in enumerate(by_site):
        for seat in here:
            where[seat.job] = s
    parts = [evaluator.part(s, tuple(here)) for s, here in enumerate(by_site)]
    return Draft([tuple(here) for here in by_site], where, parts, objective.cost(parts))
