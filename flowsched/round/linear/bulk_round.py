"""A bulk round: thousands of tasks on thousands of machines through one min-cost flow network of classes and groups.

It decides on a cluster that was loaded for it from machines of Kubernetes, or from the record of such a round: what runs is
known as sums only, and relations as counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from flowsched.cluster.settings import Settings
from flowsched.round.linear.bulk_outcome import BulkOutcome, BulkPlacement, Leftover
from flowsched.round.linear.bulk_prices import BulkPrices
from flowsched.round.linear.bulk_settings import bulk_settings
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.level_record import linear_levels
from flowsched.round.linear.linear_round import RoundOutcome, Rounds, RoundSettings
from flowsched.round.linear.network_scheduler import named_certificate
from flowsched.round.linear.network_trace import NetworkTrace, RoundHead, counts_of
from flowsched.round.linear.placed_costs import PlacedCosts
from flowsched.round.linear.reasons import Closing, why_all
from flowsched.round.linear.restricted import coarsen
from flowsched.solvers import Solver
from flowsched.support.arrays import rows_of
from flowsched.support.stage_timer import StageTimer


def decide(
    cluster: ClusterRows,
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
    if isinstance(cluster.classes.policy, BulkPrices):
        coarsen(cluster)
    rounds = Rounds(cluster, solver, settings or bulk_settings(Settings()), clock=clock)
    timer.start(None)
    outcome = rounds.decide(now_s)
    timer.ms.update(outcome.timings_ms)
    timer.start("report")
    closing = Closing.of(cluster, outcome.tasks, outcome.machines)
    reasons = why_all(now_s, cluster, outcome, closing)
    costs = PlacedCosts.in_turn(outcome, closing)
    placements = _placements(cluster, outcome, costs)
    # Class by class, in the order in which they came.
    waits = outcome.waits[np.argsort(cluster.tasks.task_class[outcome.waits], kind="stable")].tolist()
    left = tuple(Leftover(cluster.tasks.name(row), reasons[row].cause, reasons[row].text) for row in waits)
    timer.start(None)
    timings = {name: ms for name, ms in timer.ms.items() if name != "decide"}
    timings |= {"gather": timer.ms["decide"], "decide": (clock() - began) * 1e3}
    record = None
    if keep_record:
        head = RoundHead(0, now_s, cluster.classes.policy.name, solver.name, rounds.settings, {}, timings)
        trace = NetworkTrace.of(rounds, outcome, reasons, costs, head)
        record = partial(linear_levels, trace)
    certify = partial(named_certificate, cluster, outcome)
    return BulkOutcome(placements, left, counts_of(outcome), record, timings, certify)


def _placements(cluster: ClusterRows, outcome: RoundOutcome, costs: PlacedCosts) -> tuple[BulkPlacement, ...]:
    names = cluster.machines.names
    return tuple(
        BulkPlacement(
            cluster.tasks.name(task),
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
