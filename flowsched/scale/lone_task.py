"""The place of a single task that no relation or task group concerns, without a network: rounds of one task are frequent.

A bulk round puts it on the cheapest machine with room, and of equal ones on the first by rank. That takes two looks at the
machines; a round's cluster, groups and network take two milliseconds however small it is. Whatever is not that plain is left
to the round, and so is the record: it is made by that round when it is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from flowsched.cluster.decision import Certificate
from flowsched.scale.bulk_input import BulkInput, BulkPrices
from flowsched.scale.bulk_outcome import BulkOutcome, BulkPlacement
from flowsched.scale.bulk_round import decide
from flowsched.scale.lone_kernels import lone_place
from flowsched.scale.machine_arrays import FIXED
from flowsched.scale.policies.flow import linear
from flowsched.scale.round import SPREAD
from flowsched.solvers import Solver, make_solver

_ANYWHERE, _ALIKE = np.zeros(0, dtype=np.bool_), np.zeros(0)
"""No difference between machines."""


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
    placement = _placement(given)
    if placement is None:
        return None
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


def _placement(given: BulkInput) -> BulkPlacement | None:
    """The machine that the task gets; None where there is none, or where a network may break the tie in another way.

    Machines of one group are ranked by a round as they are here; those of different ones maybe in another way.
    """
    demand = given.demands[0]
    places = demand.places
    coefficients, effects = linear(demand.sensitivity, demand.pressure)
    policy = BulkPrices(given.demands)
    factors = np.array([policy.factors(kind) for kind in given.kinds])
    machine, rival, rival_cost = lone_place(
        given.settings.scoring == SPREAD,
        given.resources.index("cpu"),
        given.resources.index("memory"),
        given.allocatable,
        given.free,
        given.kind,
        given.readings,
        given.limits,
        factors,
        np.array([demand.needs.get(r, 0) for r in given.resources]),
        coefficients,
        np.rint(effects * FIXED).astype(np.int64),
        _ANYWHERE if places.allowed is None else places.allowed,
        _ALIKE if places.slowness is None else places.slowness,
        _ALIKE if places.preference is None else places.preference,
    )
    if machine < 0:
        return None
    terms = {name: value.item() for name, value in places.terms(np.array([machine])).items()}
    paid = coefficients * (given.readings[machine] / FIXED * factors[given.kind[machine]])
    terms |= {f.term: value for f, value in zip(policy.features, paid.tolist(), strict=True)}
    there = np.isfinite(rival_cost)
    return BulkPlacement(
        demand.tasks[0],
        given.names[machine],
        reduce(add, terms.values(), 0.0),
        terms,
        given.names[rival] if there else None,
        rival_cost if there else None,
    )
