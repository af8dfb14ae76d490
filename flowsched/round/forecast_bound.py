"""The lower bound of a round at forecast prices; it can be recomputed from the record.

For prices lambda >= 0 of the cores that are free now, by group of machines,

    LB = sum_c n_c min( u_c, min_g min( k_cg + w_c lambda_g, l_cg ) ) - sum_g lambda_g R_g + what runs already

is below the cost of any plan by weak duality. ``u_c`` is the unscheduled price of a class, ``k_cg`` its own penalty if it
starts now and has a machine of the group to itself, ``l_cg`` the same if it starts at the earliest completion that is
possible there, ``w_c`` its narrowest width, ``R_g`` the free cores of the group. No forecast beside others, no price of a
pass and no predicted completion enters: tasks that share a machine never make each other faster, so terms between tasks are
at least 0 and dropped; so are wishes. A later start takes none of today's free cores, so it pays no lambda. Reservations,
relations and gangs only remove plans. Any lambda gives a valid bound; subgradient steps look for a good one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flowsched.cluster.decision import Certificate
from flowsched.cluster.settings import Settings
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.pricing.utility import penalties
from flowsched.round.assignment import Assignment
from flowsched.round.certificate import LevelBound, certify
from flowsched.round.exact import exact_bound, few_colocations
from flowsched.round.round_model import RoundModel
from flowsched.support.arrays import FloatArray

_STEPS = 60


def certify_plan(model: RoundModel, planned: Assignment, decided: Assignment, settings: Settings) -> Certificate:
    """The certificate of a round: exact for small rounds and where a bound proves the plan optimal, else Lagrangian.

    It is about the plan that passes and improvement ended with; where relations or task groups refused a part of that,
    about what was decided in the end.
    """
    model, plan, primal = _judged(model, planned, decided)
    view, prices = model.view, model.prices
    residents = sum(prices.resident_least_cost(g) * group.size for g, group in enumerate(view.groups))
    counts = np.array([len(cls.members) for cls in view.classes], np.float64)
    waits = np.array([prices.waiting_cost(c) for c in range(len(view.classes))])
    now, later = _alone_prices(model)
    cheapest = np.minimum(now, later).min(axis=1, initial=np.inf)
    unconstrained = residents + float(counts @ np.minimum(waits, cheapest))
    found = LevelBound(primal, unconstrained, unconstrained, np.zeros(len(view.groups)))
    if not found.is_optimum:
        best, duals = _ascend(model, counts, waits, now, later)
        found = replace(found, bound=max(unconstrained, residents + best), prices=duals)
    # Where the plan is proven an optimum there is nothing left to search for.
    small = len(view.tasks) <= settings.exact_tasks and few_colocations(model, settings.exact_limit)
    if not found.is_optimum and small and (optimum := exact_bound(model, plan)) is not None:
        found = found.with_optimum(optimum, proven=True)
    priced = np.flatnonzero(found.prices > 0.0).tolist()
    named = {view.groups[g].machine.name: float(found.prices[g]) for g in priced}
    looked_at = None if view.candidates is None else sum(group.size for group in view.groups)
    return certify([found], named, looked_at)


def _judged(model: RoundModel, planned: Assignment, decided: Assignment) -> tuple[RoundModel, Assignment, float]:
    """The first plan that can be carried out, the model without demands that it was found not to meet, and what it costs."""
    primal = model.total(planned)
    if primal < FORBIDDEN:
        return model, planned, primal
    starts = [option is not None and option.start_after == 0 for option in decided.options]
    met = replace(model, must_start=frozenset(t for t in model.must_start if starts[t]))
    primal = met.total(decided)
    if primal < FORBIDDEN:
        return met, decided, primal
    # What is planned for later counts as there for relations, and need not be possible beside what starts elsewhere now.
    now = decided.copy()
    for t, starting in enumerate(starts):
        if not starting:
            now.move(t, None)
    return met, now, met.total(now)


def _alone_prices(model: RoundModel) -> tuple[FloatArray, FloatArray]:
    """[classes, groups] own penalty alone on a machine, started now and after the earliest possible completion."""
    view, prices, forecasts = model.view, model.prices, model.forecasts
    settings = prices.settings
    now = np.full((len(view.classes), len(view.groups)), np.inf)
    later = np.full(now.shape, np.inf)
    runs = np.full(now.shape, np.inf)
    shape = np.array([prices.shapes[g] for g in view.shape_of], np.int64)
    free = np.array([g.free_milli for g in view.groups], np.int64)
    known: dict[int, FloatArray] = {}
    for c, cls in enumerate(view.classes):
        kind = prices.type_of[c]
        if kind not in known:
            known[kind] = np.array([_least_s(model, g, c) for g in view.shapes])
        runs[c] = known[kind][shape]
        elapsed, tau, weight, _ = prices.class_goals[c]
        delay = min(forecasts.delay_s(c, 0), forecasts.delay_s(c, 1))
        cost = weight * penalties(elapsed + delay + runs[c], tau, settings.eps, settings.beta)
        now[c] = np.where(free >= cls.task.widths_milli[0], cost, np.inf)
    if model.starts > 1:
        delay = view.snapshot.start_delay.after_waiting_s
        soonest = np.minimum(
            runs.min(axis=0, initial=np.inf), [_first_end_s(model, g) for g in range(len(view.groups))]
        )
        for c in range(len(view.classes)):
            elapsed, tau, weight, _ = prices.class_goals[c]
            ends = soonest + delay + runs[c]
            later[c] = weight * penalties(elapsed + ends, tau, settings.eps, settings.beta)
    return now, later


def _least_s(model: RoundModel, group: int, task_class: int) -> float:
    """Least run time of a class on a group; of a long-running one as if it had its reference run time; infinity where it may
    not run.
    """
    here = model.view.groups[group]
    if not here.batch_cores or not model.view.allowed(task_class, here.members[0]):
        return np.inf
    least = model.forecasts.least_alone_s(group, task_class) / model.forecasts.best_alone_s(group, task_class)
    return model.prices.goals.reference_run_s(group, task_class) * min(1.0, least)


def _first_end_s(model: RoundModel, group: int) -> float:
    """No running task of a machine ends before this, in seconds from now."""
    residents = model.view.groups[group].residents
    alone_s = model.forecasts.residents_alone_s(group)
    return min((s.ready_s + left_s for s, left_s in zip(residents, alone_s, strict=True)), default=np.inf)


def _ascend(
    model: RoundModel, counts: FloatArray, waits: FloatArray, now: FloatArray, later: FloatArray
) -> tuple[float, FloatArray]:
    """The best bound found, and the price of a milli-CPU by group that it has."""
    view = model.view
    room = np.array([max(0, g.free_milli) * g.size for g in view.groups], np.float64)
    widths = np.array([cls.task.widths_milli[0] for cls in view.classes], np.float64)
    duals = np.zeros(len(view.groups))
    best, best_duals = -np.inf, duals
    if not len(view.groups) or not len(view.classes):
        return 0.0, duals
    aside = np.minimum(waits, later.min(axis=1))
    rows, asked, column = np.arange(len(counts)), counts * widths, widths[:, None]
    finite = now[np.isfinite(now)]
    reach = float(np.minimum(aside, 1e12).max() - finite.min()) * float(counts.sum()) if len(finite) else 0.0
    for step in range(_STEPS):
        tolled = now + column * duals
        at = tolled.argmin(axis=1)
        least = tolled[rows, at]
        value = float(counts @ np.minimum(least, aside) - duals @ room)
        if value > best:
            best, best_duals = value, duals
        slope = np.bincount(at, np.where(least < aside, asked, 0.0), len(duals)) - room
        norm = float(slope @ slope)
        if norm == 0.0 or reach <= 0.0:
            break
        duals = np.maximum(0.0, duals + reach / (step + 2.0) * slope / norm)
    return best, best_duals
