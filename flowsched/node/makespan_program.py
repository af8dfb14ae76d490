"""The linear program behind the prices of progress.

The least makespan of what is left, over *arrangements* in *regimes*, loads that the services usually have::

    min  sum_qa (1 + c_qa) x_qa                     x_qa seconds spent in arrangement a while the load is q
    s.t. sum_qa r_pqa x_qa >= a_p                   for every piece p of work that is left, r_pqa its progress per second
         sum_a x_qa = w_q sum_ra x_ra               w_q the share of time that the load is q

with ``c`` what the services' goals cost more than without any task. Its dual prices ``y_p`` turn "end soonest" into one
number per second: an arrangement of a shortest schedule is worth ``sum_p y_p r_pqa - c_qa = z_q``, every other less, and the
``z_q`` are 1 on average. New arrangements are found by the network that decides at every tick, priced with the current ``y``
(column generation), so prices, network and decision speak of the same thing.

Work of a task that may not share a core with a service can also be left for later, at ``1.1`` seconds for a second of it
alone on the idle machine: that services need all their cores at every load known so far is no reason to break their goals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flowsched.node.arrangement import Arrangement
from flowsched.node.makespan_prices import MakespanPrices, Regime, Spell
from flowsched.node.moment import Moment, Piece
from flowsched.node.node import NodeService
from flowsched.node.search import search, without_cores
from flowsched.solvers import Solver
from flowsched_models.runtime import Stage

MOST_KEPT = 80
"""Arrangements that are remembered for the next question."""
MOST_SEARCHES = 60
"""Searches for one question; then its prices have to do."""
_MOST_COMBINED = 2
"""Tasks with two stages left of which all combinations are looked at."""
_PASSES, _STEPS = 3, 2
_WORTH_IT = 2e-3
"""A new arrangement must beat the present ones by so much, in seconds per second."""
_LEAST_S = 1e-6
_DEAREST = 1e8
"""No arrangement costs the goals more, in seconds per second: beside 1e12 of an overload the program could not be solved."""
_LATER = 1.1
"""Seconds that a second of work alone is taken to cost at a load that has not been seen yet."""
_NOTHING = MakespanPrices({}, 0.0, (), True)

Known = tuple[tuple[Piece, ...], Arrangement]
Column = tuple[int, tuple[Piece, ...], Arrangement]
"""Regime, stages, arrangement."""


@dataclass
class _Question:
    """Work that is left, and the columns found for it so far."""

    regimes: Sequence[Regime]
    amounts: dict[Piece, float]
    variants: dict[tuple[int, tuple[Piece, ...]], Moment]
    columns: dict[Column, tuple[NDArray[np.float64], float]]
    """Progress per second of every piece, and the goals' cost."""
    waiting: list[tuple[int, tuple[Piece, ...]]]
    """Variants that are to be searched."""
    searches: int
    values: dict[Piece, float]
    levels: NDArray[np.float64]
    """[regimes] what an arrangement must be worth to join."""
    answer: MakespanPrices

    def add(self, regime: int, stages: tuple[Piece, ...], arrangement: Arrangement) -> bool:
        """One more column, where it is new and its stages are looked at."""
        moment = self.variants.get((regime, stages))
        if moment is None:
            return False
        arrangement = moment.apart.put_right(arrangement)
        if (regime, stages, arrangement) in self.columns:
            return False
        index = {piece: p for p, piece in enumerate(self.amounts)}
        progress = np.zeros(len(index))
        for piece, rate in zip(stages, moment.rates(arrangement), strict=True):
            progress[index[piece]] = rate
        # What the goals cost without any task is not saved by ending soon.
        cost = moment.slo_cost(arrangement) - moment.slo_cost(_no_task(moment)) + moment.crowd_cost(arrangement)
        self.columns[regime, stages, arrangement] = progress, min(max(0.0, cost), _DEAREST)
        return True


class MakespanProgram:
    """Answers at once with what it has, and better with every search that it is granted.

    Remembers arrangements from one question to the next: most of them stay good.
    """

    def __init__(self, solver: Solver) -> None:
        """Nothing is asked yet."""
        self._solver = solver
        self._kept: tuple[Known, ...] = ()
        self._kept_of: tuple[tuple[NodeService, ...], tuple[str, ...]] = ((), ())
        """Services and tasks of the arrangements that are remembered."""
        self._question: _Question | None = None

    def ask(self, regimes: Sequence[Regime], left: Sequence[Sequence[tuple[Stage, float]]]) -> MakespanPrices:
        """A new question. The regimes have the same tasks; ``left``: of each its stages and what is left of them."""
        first = regimes[0].moment
        names = tuple(c.task.name for c in first.candidates)
        if not names:
            self._question = None
            return _NOTHING
        amounts = {(n, stage): max(a, 1e-6) for n, parts in zip(names, left, strict=True) for stage, a in parts}
        variants = {(q, at.stages): at for q, regime in enumerate(regimes) for at in _at_stages(regime.moment, left)}
        question = _Question(regimes, amounts, variants, {}, list(variants), 0, {}, np.zeros(len(regimes)), _NOTHING)
        for (q, stages), at in variants.items():
            for arrangement in _plain(at):
                question.add(q, stages, arrangement)
            for known, arrangement in self._recall(first.services, names):
                if known == stages:
                    question.add(q, stages, arrangement)
        self._question = question
        return self._solve(question, names)

    def go_on(self) -> MakespanPrices:
        """One search: for the variant whose turn it is, the best arrangement at the present prices."""
        question = self._question
        if question is None or not question.waiting:
            return _NOTHING if question is None else question.answer
        q, stages = question.waiting.pop(0)
        question.searches += 1
        at = question.variants[q, stages]
        priced = replace(
            at,
            candidates=tuple(
                replace(c, value=question.values[piece]) for c, piece in zip(at.candidates, stages, strict=True)
            ),
        )
        found = search(priced, _no_task(at), self._solver, _PASSES, _STEPS)
        if found.worth + at.slo_cost(_no_task(at)) > question.levels[q] + _WORTH_IT and question.add(
            q, stages, found.arrangement
        ):
            question.waiting += [v for v in question.variants if v not in question.waiting]
            return self._solve(question, tuple(c.task.name for c in at.candidates))
        if not question.waiting:
            question.answer = replace(question.answer, settled=True)
        return question.answer

    def _solve(self, question: _Question, names: tuple[str, ...]) -> MakespanPrices:
        seconds = _solve_master(question)
        spells = [Spell(float(x), *key) for key, x in zip(question.columns, seconds, strict=True) if x > _LEAST_S]
        spells.sort(key=lambda s: -s.seconds)
        kept: dict[Known, None] = dict.fromkeys((s.stages, s.arrangement) for s in spells)
        for _, stages, arrangement in reversed(list(question.columns)):
            if len(kept) >= MOST_KEPT:
                break
            kept[stages, arrangement] = None
        self._kept, self._kept_of = tuple(kept), (question.regimes[0].moment.services, names)
        if question.searches >= MOST_SEARCHES:
            question.waiting.clear()
        question.answer = MakespanPrices(
            dict(question.values), float(seconds.sum()), tuple(spells), settled=not question.waiting
        )
        return question.answer

    def _recall(self, services: tuple[NodeService, ...], names: tuple[str, ...]) -> Iterator[Known]:
        """What was remembered of these services, less the tasks that are gone."""
        served, before = self._kept_of
        if services != served or not set(names) <= set(before):
            return
        at = [before.index(name) for name in names]
        for stages, arrangement in self._kept:
            tasks = tuple(arrangement.tasks[k] for k in at)
            if any(tasks):
                yield tuple(stages[k] for k in at), Arrangement(arrangement.services, tasks)


def _no_task(moment: Moment) -> Arrangement:
    return Arrangement(tuple(len(s.cores) for s in moment.services), ((),) * len(moment.candidates))


def _plain(moment: Moment) -> Iterator[Arrangement]:
    """Arrangements that every program starts from: no task, all on all cores, each alone; all also off the services."""
    empty = _no_task(moment)
    every = moment.node.cores
    yield empty
    starts = [Arrangement(empty.services, (every,) * len(empty.tasks))]
    starts += [empty.with_task(k, every) for k in range(len(empty.tasks))]
    for start in starts:
        yield start
        apart = start
        for service in moment.services:
            apart = without_cores(apart, service.cores)
        yield apart
    yield from moment.apart.making_room(empty)


def _at_stages(moment: Moment, left: Sequence[Sequence[tuple[Stage, float]]]) -> tuple[Moment, ...]:
    """The moment with its tasks at one of their stages each: all combinations of few, else the telling ones."""
    two = [k for k, parts in enumerate(left) if len(parts) > 1]
    first, last = (tuple(parts[i][0] for parts in left) for i in (0, -1))
    if len(two) <= _MOST_COMBINED:
        mixes = {
            tuple(last[k] if k in two and bits >> two.index(k) & 1 else first[k] for k in range(len(left)))
            for bits in range(1 << len(two))
        }
    else:
        mixes = {first, last}
        mixes |= {(*last[:k], first[k], *last[k + 1 :]) for k in two}
    return tuple(
        replace(
            moment,
            candidates=tuple(
                replace(c, stage=s, waiting=0.0, due=False) for c, s in zip(moment.candidates, stages, strict=True)
            ),
        )
        for stages in sorted(mixes)
    )


def _later_s(moment: Moment, pieces: Iterable[Piece]) -> dict[Piece, float]:
    """Seconds that a unit of progress costs later, for the work that may not share a core with a service."""
    host = moment.hosts.host(moment.node.machine_type)
    found = {}
    apart = {moment.candidates[k].task.name: moment.candidates[k] for k in moment.apart.tasks}
    for name, stage in pieces:
        if name in apart:
            alone = replace(apart[name], stage=stage).occupant(moment.node.cores)
            found[name, stage] = _LATER * apart[name].task.scale / host.rates((alone,)).progress[alone]
    return found


def _solve_master(question: _Question) -> NDArray[np.float64]:
    """Seconds [columns] of the best mix; sets the question's prices."""
    # What model_builder calls for its models; itself it also loads pandas, which takes ten times as long and 70 MiB.
    from ortools.linear_solver.python.model_builder_helper import ModelBuilderHelper, ModelSolverHelper, SolveStatus

    model = ModelBuilderHelper()
    keys = list(question.columns)
    progress = np.stack([question.columns[key][0] for key in keys])
    costs = np.array([question.columns[key][1] for key in keys])
    regime = np.array([key[0] for key in keys])

    def variable(cost: float) -> int:
        number = model.add_var()
        model.set_var_lower_bound(number, 0.0)
        model.set_var_upper_bound(number, float("inf"))
        model.set_var_objective_coefficient(number, cost)
        return int(number)

    def constraint(variables: list[int], coefficients: list[float], least: float, most: float) -> int:
        number = model.add_linear_constraint()
        model.set_constraint_lower_bound(number, least)
        model.set_constraint_upper_bound(number, most)
        for one, coefficient in zip(variables, coefficients, strict=True):
            model.add_term_to_constraint(number, one, coefficient)
        return int(number)

    seconds = [variable(cost) for cost in (1.0 + costs).tolist()]
    done = []
    later_s = _later_s(question.regimes[0].moment, question.amounts)
    for p, (piece, amount) in enumerate(question.amounts.items()):
        who = np.flatnonzero(progress[:, p])
        made, by = [seconds[k] for k in who], progress[who, p].tolist()
        if piece in later_s:
            made, by = [*made, variable(later_s[piece])], [*by, 1.0]
        done.append(constraint(made, by, amount, float("inf")))
    mixed = []
    for q, r in enumerate(question.regimes):
        mixed.append(constraint(seconds, ((regime == q) - r.share).tolist(), 0.0, 0.0))
    solver = ModelSolverHelper("GLOP")
    solver.solve(model)
    if (status := solver.status()) != SolveStatus.OPTIMAL:
        raise ArithmeticError(f"the linear program of one machine's work ended as {status}")
    question.values = dict(zip(question.amounts, (max(0.0, solver.dual_value(row)) for row in done), strict=True))
    # Reduced cost of a column: 1 + c - y r - (u_q - sum_r w_r u_r); so it is worth z_q = 1 - u_q + sum_r w_r u_r at least.
    u = np.array([solver.dual_value(row) for row in mixed])
    question.levels = 1.0 - u + sum(r.share * x for r, x in zip(question.regimes, u.tolist(), strict=True))
    return np.array([solver.variable_value(x) for x in seconds])
