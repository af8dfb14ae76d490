"""The place of a single task that no relation or task group concerns, without a network: rounds of one task are frequent.

A bulk round puts it on the cheapest machine with room, and of equal ones on the first by rank. That takes two looks at the
machines; a round's ledger, groups and network take two milliseconds however small it is. Whatever is not that plain is left
to the round, and so is the record: it is made by that round when it is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flowsched.cluster.decision import Certificate
from flowsched.scale.bulk_input import BulkInput, BulkPrices
from flowsched.scale.bulk_outcome import BulkOutcome, BulkPlacement
from flowsched.scale.bulk_round import cheapest_two, decide
from flowsched.scale.machine_arrays import FIXED, ties
from flowsched.scale.places import Places
from flowsched.scale.round import SPREAD
from flowsched.scale.task_class import TaskClass
from flowsched.solvers import Solver, make_solver
from flowsched.support.arrays import FloatArray, IntArray

_NEAR = 1e-6
"""A round tells prices apart that differ by less than this, but not in all of its steps."""
_DEAREST = 1e6
"""Larger prices may be too large for a network, which says so."""


@dataclass(frozen=True, eq=False)
class LoneRecord:
    """The record of a lone task's round: that of the ordinary round on the same input, with what this one measured."""

    given: BulkInput
    solver: str
    placement: BulkPlacement
    timings_ms: Mapping[str, float] = field(default_factory=dict)

    def part(self, priority: int | None = None) -> Mapping[str, Any]:
        """Its part of the record. Raises ``RuntimeError`` if the ordinary round decides otherwise, which is a fault."""
        outcome = self._outcome(keep_record=True)
        if outcome.placements != (self.placement,):
            raise RuntimeError(f"{self.placement} was decided for a lone task, and a round says {outcome.placements}")
        assert outcome.record is not None, "the round was asked for its record"
        return {**outcome.record(priority), "timings": dict(self.timings_ms)}

    def certify(self) -> Certificate | None:
        """The certificate of the ordinary round."""
        return self._outcome(keep_record=False).certificate

    def _outcome(self, keep_record: bool) -> BulkOutcome:
        return decide(self.given, solver=make_solver(self.solver), keep_record=keep_record)


def decide_lone(
    given: BulkInput,
    *,
    solver: Solver,
    clock: Callable[[], float] = time.perf_counter,
    keep_record: bool = False,
) -> BulkOutcome | None:
    """What :func:`~flowsched.scale.bulk_round.decide` decides, for a lone task; None if that has to be asked."""
    began = clock()
    if not _is_lone(given):
        return None
    prices = _Prices(given)
    machine = prices.cheapest()
    if machine is None:
        return None
    placement = prices.placement(machine)
    timings = {"decide": (clock() - began) * 1e3}
    record = LoneRecord(given, solver.name, placement, timings)
    return BulkOutcome((placement,), (), {}, record.part if keep_record else None, timings, record.certify)


def _is_lone(given: BulkInput) -> bool:
    if len(given.demands) != 1 or given.model is not None or given.groups or given.relations or not given.names:
        return False
    demand, settings = given.demands[0], given.settings
    return (
        len(demand.tasks) == 1
        and demand.group is None
        and demand.known is None
        and np.isinf(demand.waiting_cost)
        and np.isinf(demand.max_cost)
        and not settings.reservations
        and not settings.exact_tasks
        and settings.settle_looks > 0
    )


class _Prices:
    """What the task would pay on each machine, term by term as the round's compiled code and its report do."""

    def __init__(self, given: BulkInput) -> None:
        self.given = given
        self.demand = demand = given.demands[0]
        self.needs: IntArray = np.array([demand.needs.get(r, 0) for r in given.resources], dtype=np.int64)
        self.places = Places(demand.allowed, demand.eligible, demand.slowness, demand.preference)
        policy = BulkPrices(given.demands)
        paid = policy.price(TaskClass(demand.name, 0, (), demand.sensitivity, demand.pressure), given.kinds)
        self.features = policy.features
        self.coefficients = paid.coefficients
        self.effects: IntArray = np.rint(paid.effects * FIXED).astype(np.int64)
        self.factors = np.array([policy.factors(kind) for kind in given.kinds])
        self.extra = self.places.extra(len(given.names))
        self.price = self._prices(slice(None), given.free, given.readings)
        self.cpu, self.memory = (given.resources.index(r) for r in ("cpu", "memory"))
        self.spread = ties(given.allocatable[:, [self.cpu, self.memory]], True)

    def cheapest(self) -> int | None:
        """The machine that the task gets; None where there is none, or where a network may break the tie in another way."""
        given, price = self.given, self.price
        least = price.min()
        if not least <= _DEAREST:
            return None
        near = np.flatnonzero(price <= least + _NEAR)
        # Machines of one group: a round ranks them as below. Those of different ones may have another order in its network.
        one = near[0]
        told_apart = [given.kind, *given.readings.T]
        told_apart += [v for v in (self.demand.slowness, self.demand.preference) if v is not None]
        if any((values[near] != values[one]).any() for values in told_apart):
            return None
        tie = (self._ranks(given.free) if given.settings.scoring == SPREAD else given.free[:, self.cpu])[near]
        return int(near[np.lexsort((near, tie))[0]])

    def placement(self, machine: int) -> BulkPlacement:
        """Of the task on a machine, with the other machine where one more such task would cost least then."""
        given, rows = self.given, np.array([machine])
        kind, readings = given.kind[rows], given.readings[rows]
        terms = {name: float(values[0]) for name, values in self.places.terms(rows).items()}
        paid = self.coefficients * (readings / FIXED * self.factors[kind])
        terms |= {f.term or f.name: float(value) for f, value in zip(self.features, paid[0], strict=True)}
        free, price = given.free.copy(), self.price.copy()
        free[machine] -= self.needs
        price[rows] = self._prices(rows, free[rows], readings + self.effects)
        best, second = cheapest_two(price, self._ranks(free))
        rival = second if best == machine else best
        there = rival >= 0 and bool(np.isfinite(price[rival]))
        return BulkPlacement(
            self.demand.tasks[0],
            given.names[machine],
            float(np.sum([0.0, *terms.values()])),
            terms,
            given.names[rival] if there else None,
            float(price[rival]) if there else None,
        )

    def _prices(self, rows: slice | IntArray, free: IntArray, readings: IntArray) -> FloatArray:
        """On some machines; infinite where the task has no room or may not run."""
        given, price = self.given, np.zeros(len(readings))
        for f in np.flatnonzero(self.coefficients).tolist():
            price += self.coefficients[f] * self.factors[given.kind[rows], f] * readings[:, f] * (1.0 / FIXED)
        price += self.extra[rows]
        open_ = ((self.needs <= 0) | (free >= self.needs)).all(axis=1)
        if self.effects.any():
            open_ &= ((self.effects == 0) | (readings + self.effects <= given.limits[rows])).all(axis=1)
        return np.where(open_, price, np.inf)

    def _ranks(self, free: IntArray) -> FloatArray:
        tie = self.spread
        ranks: FloatArray = tie[:, 0] + tie[:, 1] * free[:, self.cpu] + tie[:, 2] * free[:, self.memory]
        return ranks
