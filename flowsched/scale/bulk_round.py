"""A bulk round: thousands of tasks on thousands of machines through one min-cost flow network of classes and groups.

It decides on a cluster that was loaded for it: from machines of Kubernetes, where what runs is known as sums only, and
relations as counts; from a snapshot; or from the record of a round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from flowsched.cluster.settings import Settings
from flowsched.pricing.linear import kernels
from flowsched.scale.bulk_cluster import BulkCluster
from flowsched.scale.bulk_outcome import BulkOutcome, BulkPlacement, Leftover
from flowsched.scale.bulk_prices import BulkPrices
from flowsched.scale.bulk_record import BulkTrace
from flowsched.scale.bulk_settings import bulk_settings
from flowsched.scale.network_trace import PlacedCosts
from flowsched.scale.reasons import PLACE, Cause, Closing, why_all
from flowsched.scale.restricted import coarsen
from flowsched.scale.round import RoundOutcome, Rounds, RoundSettings
from flowsched.scale.scheduler import named_certificate
from flowsched.solvers import Solver
from flowsched.support.arrays import BoolArray, FloatArray, IntArray, rows_of
from flowsched.support.stage_timer import StageTimer

_CAUSES = {"never": Cause.CAPACITY, "held": Cause.CAPACITY, "reserved": Cause.CAPACITY}


def decide(
    cluster: BulkCluster,
    settings: RoundSettings | None = None,
    *,
    solver: Solver,
    now_s: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
    keep_record: bool = False,
) -> BulkOutcome:
    """Place the tasks that wait in a cluster that was loaded for this round; nothing is done yet.

    Without ``settings`` they are the usual ones of ``flow``. Raises ``RuntimeError`` if the solver refuses a network.
    """
    timer, began = StageTimer(clock), clock()
    timer.start("view")
    by_flow = isinstance(cluster.policy, BulkPrices)
    if by_flow:
        coarsen(cluster)
    rounds = Rounds(cluster, solver, settings or bulk_settings(Settings()), clock=clock, canonical=True)
    timer.start(None)
    outcome = rounds.decide(now_s)
    timer.ms.update(outcome.timings_ms)
    timer.start("report")
    closing = Closing.of(cluster, outcome.tasks, outcome.machines)
    reasons = why_all(now_s, cluster, outcome, closing)
    costs = _costs(cluster, outcome, closing)
    placements = _placements(cluster, outcome, costs)
    # Class by class, in the order in which they came.
    waits = outcome.waits[np.argsort(cluster.task_class[outcome.waits], kind="stable")].tolist()
    left = tuple(
        Leftover(
            cluster.task_name(row), _CAUSES.get(reasons[row].cause) or Cause(reasons[row].cause), reasons[row].text
        )
        for row in waits
    )
    counts = dict(outcome.counts)
    for level in outcome.levels:
        if level.network is not None:
            counts |= level.network.kinds()
    timer.start(None)
    timings = {name: ms for name, ms in timer.ms.items() if name != "decide"}
    timings |= {"gather": timer.ms["decide"], "decide": (clock() - began) * 1e3}
    record: Callable[[int | None], Mapping[str, Any]] | None = None
    levels: Callable[[int], list[dict[str, Any]]] | None = None
    if keep_record:
        trace = BulkTrace.of(rounds, outcome, closing, reasons, costs, solver, now_s, counts, timings)
        record, levels = (trace.part, None) if by_flow else (None, trace.parts)
    return BulkOutcome(placements, left, counts, record, timings, partial(named_certificate, cluster, outcome), levels)


def _costs(cluster: BulkCluster, outcome: RoundOutcome, closing: Closing) -> PlacedCosts:
    """What each task paid, if they came one after the other."""
    classes = cluster.task_class[outcome.tasks]
    terms = closing.in_turn(classes, outcome.machines)
    terms = {name: values for name, values in terms.items() if name != PLACE or values.any()}
    cost = np.sum([np.zeros(len(classes)), *terms.values()], axis=0)
    return PlacedCosts(cost, terms, *runners_up(closing, classes, outcome.machines))


def _placements(cluster: BulkCluster, outcome: RoundOutcome, costs: PlacedCosts) -> tuple[BulkPlacement, ...]:
    names = cluster.names
    return tuple(
        BulkPlacement(
            cluster.task_name(task),
            str(names[machine]),
            paid,
            dict(zip(costs.terms, parts, strict=True)),
            None if other < 0 else names[other],
            None if other < 0 else other_cost,
        )
        for task, machine, paid, other, other_cost, *parts in rows_of(
            outcome.tasks, outcome.machines, costs.cost, costs.runner_up, costs.runner_up_cost, *costs.terms.values()
        )
    )


def runners_up(closing: Closing, classes: IntArray, machines: IntArray) -> tuple[IntArray, FloatArray]:
    """For each placement the machine, not its own, where one more task of its class would cost least; -1 for none."""
    present, number = np.unique(classes, return_inverse=True)
    nearest = np.full((len(present), 2), -1, dtype=np.int64)
    price = np.full((len(present), 2), np.inf)

    def find(some: IntArray, closed: BoolArray) -> None:
        found = kernels.two_cheapest(present[some], closed, closing.model, closing.free, closing.readings)
        nearest[some], price[some] = found

    gone, relations = ~closing.cluster.alive, closing.relations
    related = np.array([relations.concerns(c) for c in present.tolist()], dtype=np.bool_)
    find(np.flatnonzero(~related), gone)
    for i in np.flatnonzero(related).tolist():
        refused = [closed for _, closed in relations.refusals(int(present[i]))]
        find(np.array([i]), np.any([gone, *refused], axis=0))
    column = (nearest[number, 0] == machines).astype(np.int64)
    rival = nearest[number, column]
    return rival, np.where(rival < 0, 0.0, price[number, column])
