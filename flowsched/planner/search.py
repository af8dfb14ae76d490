"""The search: simulated annealing in several legs, from the starts and from the best plan so far.

A leg draws moves and takes those that cost less, or more with a chance of exp(-difference / temperature), while the
temperature falls (Kirkpatrick, Gelatt, Vecchi: Optimization by Simulated Annealing. Science 220, 1983). Only the machines
that a move changes are run forward again, and only if their plan was never seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from flowsched.planner.assignment import Assigner
from flowsched.planner.draft import Draft, make_draft
from flowsched.planner.evaluation import Evaluator
from flowsched.planner.moves import Neighbourhood
from flowsched.planner.objective import Objective
from flowsched.planner.packing import packed_starts
from flowsched.planner.problem import Problem
from flowsched.planner.random_buffer import RandomBuffer
from flowsched.planner.robust import Draws
from flowsched.planner.start import Seated

_PER_JOB, _PER_JOB_APART = 6_000, 12_000
"""Plans looked at for every job unless the rules say how many, with shared cores and with cores of their own."""
_LEAST = 10_000
_LEG = 2_500
"""Plans that a leg looks at, at least."""
_LEGS, _LEGS_APART = 12, 24
_FIRST = 0.4
"""Share of the effort before assignments are looked at, with cores of their own."""
_PACKED = 8
"""Starts that cut machines into blocks, with cores of their own."""
_HOT, _COLD = 0.1, 0.0004
"""First and last temperature, relative to the cost of the best plan."""
_ROBUST_SHARE = 16
"""A plan costs so much more with draws that only one in so many is looked at with them."""
_TICK = 256
_STEP = 32
_STREAM = 17


@dataclass(frozen=True)
class Progress:
    """How far a search is."""

    evaluations: int
    most: int
    """Evaluations allowed; 0 if time is what limits it."""
    seconds: float
    best_s: float
    """Objective of the best plan."""


@dataclass(frozen=True)
class Searched:
    """What a search found."""

    draft: Draft
    start: Draft
    """The first start, as the rules allow it."""
    evaluations: int
    """Plans looked at."""
    seconds: float
    interrupted: bool
    quantile_s: float | None = None
    """The quantile that a robust search minimised."""


class _Budget:
    """Evaluations and seconds that are left."""

    def __init__(
        self,
        evaluations: int,
        time_limit_s: float | None,
        clock: Callable[[], float],
        report: Callable[[Progress], None] | None,
    ) -> None:
        self.most = evaluations
        self.used = 0
        self.best_s = math.inf
        self.interrupted = False
        self.limit_s = time_limit_s
        self._clock = clock
        self._began = clock()
        self._report = report
        self._spent = False

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    def part(self) -> float:
        """Share of the budget that is used."""
        if self.limit_s is not None:
            return min(1.0, self.seconds / self.limit_s) if self.limit_s > 0 else 1.0
        return min(1.0, self.used / self.most) if self.most else 1.0

    def spent(self) -> bool:
        if self.limit_s is None:
            return self.used >= self.most
        if self.used % _TICK == 0:
            self._spent = self.seconds >= self.limit_s
        return self._spent

    def tick(self) -> None:
        self.used += 1
        if self._report is not None and self.used % _TICK == 0:
            self._report(Progress(self.used, 0 if self.limit_s else self.most, self.seconds, self.best_s))


def search_plan(
    problem: Problem,
    starts: Sequence[Seated],
    *,
    clock: Callable[[], float],
    report: Callable[[Progress], None] | None = None,
    evaluator: Evaluator | None = None,
) -> Searched:
    """The best plan found from some starts within the rules' effort. Ctrl-C ends it with the best so far.

    ``clock`` gives seconds; it decides nothing unless the rules have a time limit. ``starts`` are tried in turn, the first
    is what the result is compared with. The best plan is never worse than any start.
    """
    rules = problem.rules
    plain = evaluator or Evaluator(problem)
    objective = Objective(rules.objective, None, len(problem.jobs))
    rng = RandomBuffer(np.random.default_rng([rules.seed, _STREAM]))
    robust = rules.quantile is not None
    share = 0.5 if robust else 1.0
    limit = rules.time_limit_s
    evaluations = default_evaluations(problem) if rules.evaluations is None else rules.evaluations
    legs = _LEGS if rules.share_cores else _LEGS_APART
    # A longer search begins again more often: long legs stay where short ones do.
    legs = max(legs, evaluations * legs // (2 * max(1, default_evaluations(problem))))
    budget = _Budget(math.ceil(evaluations * share), None if limit is None else limit * share, clock, report)
    packed = [] if rules.share_cores else packed_starts(problem, plain, rng, _PACKED)
    drafts = [make_draft(problem, plain, objective, start) for start in (*starts, *packed)]
    first = drafts[0]
    best = min(drafts, key=lambda d: d.cost).copy()
    if problem.free:
        annealer = _Annealer(problem, plain, objective, best, rng, budget)
        if rules.share_cores or rules.objective != "makespan":
            annealer.run(drafts, legs, 1.0)
        else:
            annealer.run_apart(drafts, legs)
        best = annealer.best
    if not robust:
        return Searched(best, first, budget.used, budget.seconds, budget.interrupted)
    assert rules.quantile is not None
    with_draws = Evaluator(problem, Draws(problem, rules.draws, rules.seed, rules.quantile))
    objective = Objective(rules.objective, rules.quantile, len(problem.jobs))
    again = [_again(problem, with_draws, objective, d) for d in (best, *drafts)]
    second = _Budget(
        evaluations // (2 * _ROBUST_SHARE),
        None if limit is None else max(0.0, limit - budget.seconds),
        clock,
        report,
    )
    chosen = min(again, key=lambda d: d.cost).copy()
    if problem.free and not budget.interrupted:
        annealer = _Annealer(problem, with_draws, objective, chosen, rng, second)
        annealer.run([chosen], 1, 0.3)
        chosen = annealer.best
    return Searched(
        chosen,
        again[1],
        budget.used + second.used,
        budget.seconds,
        budget.interrupted or second.interrupted,
        objective.value_s(chosen.parts),
    )


def default_evaluations(problem: Problem) -> int:
    """How many plans a search looks at unless it is told."""
    each = _PER_JOB if problem.rules.share_cores else _PER_JOB_APART
    return max(_LEAST, each * len(problem.free)) if problem.free else 0


def _again(problem: Problem, evaluator: Evaluator, objective: Objective, draft: Draft) -> Draft:
    """The same plan with another evaluator."""
    seats = [(s, seat) for s, here in enumerate(draft.seats) for seat in here if problem.jobs[seat.job].site is None]
    return make_draft(problem, evaluator, objective, seats)


@dataclass(eq=False)
class _Annealer:
    """Legs of annealing under one budget; keeps the best plan at every moment, so that Ctrl-C loses nothing."""

    problem: Problem
    evaluator: Evaluator
    objective: Objective
    best: Draft
    rng: RandomBuffer
    budget: _Budget

    def __post_init__(self) -> None:
        self.moves = Neighbourhood(self.problem, self.rng)

    def run_apart(self, starts: Sequence[Draft], legs: int) -> None:
        """With cores of their own: legs from the starts, better assignments of the best plan, and legs from there."""
        self.run(starts, legs, 1.0, until=_FIRST)
        if self.budget.interrupted:
            return
        assigner = Assigner(self.problem, self.evaluator, self.objective, self.rng, self.budget.spent, self.budget.tick)
        try:
            assigner.improve(self.best, self._keep)
        except KeyboardInterrupt:
            self.budget.interrupted = True
            return
        self.run([], legs, 1.0)

    def _keep(self, draft: Draft) -> None:
        self.best = draft.copy()
        self.budget.best_s = self.objective.value_s(draft.parts)

    def run(self, starts: Sequence[Draft], legs: int, warm: float, *, until: float = 1.0) -> None:
        """Each start once, then from the best plan, hot and less hot in turn, within a share of the budget."""
        budget = self.budget
        begin = budget.part()
        budget.best_s = self.objective.value_s(self.best.parts)
        if budget.limit_s is None:
            legs = max(1, min(legs, int((until - begin) * budget.most) // _LEG))
        try:
            for leg in range(legs):
                turn = leg - len(starts)
                draft = (starts[leg] if turn < 0 else self.best).copy()
                ends = [begin + (until - begin) * k / legs for k in (leg, leg + 1)]
                self._leg(draft, warm * (1.0 if turn < 0 or turn % 2 else 0.3), ends[0], ends[1])
        except KeyboardInterrupt:
            budget.interrupted = True

    def _leg(self, draft: Draft, heat: float, begin: float, end: float) -> None:
        budget, rng, draw, cost_of = self.budget, self.rng, self.moves.draw, self.objective.cost
        hot, cold = _HOT * heat * self._possible(), _COLD * self._possible()
        temperature = hot
        at = budget.part()
        begin = max(begin, at)
        while not budget.spent():
            if budget.used % _STEP == 0:
                at = budget.part()
                if at >= end:
                    break
                temperature = hot * (cold / hot) ** ((at - begin) / max(1e-9, end - begin))
            budget.tick()
            change = draw(draft)
            if change is None:
                continue
            parts = {s: self.evaluator.part(s, seats) for s, seats in change.items()}
            every = list(draft.parts)
            for s, part in parts.items():
                every[s] = part
            cost = cost_of(every)
            if cost < draft.cost or rng.uniform() < math.exp((draft.cost - cost) / temperature):
                draft.apply(change, parts, cost)
                if cost < self.best.cost - 1e-9:
                    self._keep(draft)

    def _possible(self) -> float:
        """The scale of costs: that of the best plan without what is impossible about it."""
        return max(1e-6, self.objective.value_s(self.best.parts) / self.objective.unit)
