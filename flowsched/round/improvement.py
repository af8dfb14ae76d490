"""Bounded improvement after the passes: moves of one task, and swaps of two, while each lowers the total.

A pass fixes its arrivals before later ones are priced, so now and then a task would rather be elsewhere once all are there.
Every gain is an exact change of the machines involved; moves of one sweep share no machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flowsched.pricing.arrival import Arrival, Colocation, joined
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.round.assignment import PlacementOption
from flowsched.round.options import UNBOUNDED, ClassOptions
from flowsched.round.origin import Origin, PlanStage
from flowsched.round.passes import NONE, Deciding

_GAIN = 1e-9
_Move = tuple[float, tuple[tuple[int, PlacementOption | None], ...]]
"""Gain, and tasks with their new options."""


def improve(deciding: Deciding, movable: Sequence[int], forecasts: int) -> int:
    """Move and swap ``movable`` tasks until nothing pays or ``forecasts`` more are made; the number of changes.

    What it then has not tried counts as ``deciding.untried``.
    """
    model = deciding.model
    if not model.view.machines:
        return 0
    end = min(model.forecasts.made + forecasts, deciding.options.most_forecasts)
    changes = untried = 0
    swapped = True
    # After passes a lone task is where it is cheapest.
    lone = 0 if model.prices.settings.assign == NONE else 1
    while swapped and len(movable) > lone:
        untried = len(movable)
        while model.forecasts.made < end:
            applied = _apply(deciding, _moves(deciding, movable), PlanStage.MOVE)
            changes += applied
            if not applied:
                untried = 0
                break
        swapped = False
        if model.forecasts.made < end:
            found, left = _swaps(deciding, movable, end)
            applied = _apply(deciding, found, PlanStage.SWAP)
            changes += applied
            untried += left
            swapped = applied > 0
        else:
            untried += len(movable) * (len(movable) - 1)
    deciding.untried += untried
    return changes


def _apply(deciding: Deciding, moves: Sequence[_Move], stage: PlanStage) -> int:
    """Carry out the moves that gain most and touch no machine twice."""
    plan, model = deciding.plan, deciding.model
    touched: set[int] = set()
    applied = 0
    for _, steps in sorted(moves, key=lambda move: (-move[0], move[1][0][0])):
        machines = {o.machine for t, option in steps for o in (plan.options[t], option) if o is not None}
        if machines & touched or any(plan.options[t] is None and t in touched for t, _ in steps):
            continue
        before = [(t, plan.options[t]) for t, _ in steps]
        for t, option in steps:
            deciding.book(t, option)
        if any(model.related(t) for t, _ in steps) and not model.orderly(plan):
            for t, option in before:
                deciding.book(t, option)
            continue
        touched |= machines
        for t, _ in steps:
            deciding.origins[t] = Origin(stage)
        applied += 1
        if any(model.related(t) for t, _ in steps):
            break  # counts changed everywhere
    return applied


def _moves(deciding: Deciding, movable: Sequence[int]) -> list[_Move]:
    """The best move of each task that gains."""
    model, plan = deciding.model, deciding.plan
    view = model.view
    found: list[_Move] = []
    known: dict[int, ClassOptions] = {}
    for t in movable:
        here = plan.options[t]
        leaving = model.leaving(plan, t)
        if not np.isfinite(leaving):
            continue
        best: tuple[float, PlacementOption | None] = (FORBIDDEN, None)
        if here is not None and t not in model.must_start:
            best = model.waiting(t), None
        c = view.class_of[t]
        # Where a task's own place counts for others of its class, options are the task's own.
        alike = not (model.related(t) or view.tasks[t].resources or model.holds)
        key = c if alike else -1 - t
        options = known.get(key)
        if options is None:
            (options,) = deciding.class_options([t], 2, UNBOUNDED)
            known[key] = options
        price = options.price
        if here is not None:
            price = price.copy()
            price[here.machine] = FORBIDDEN
            same = model.best_option(plan, t, here.machine)
            if same[0] < best[0] - _GAIN:
                best = same
        m = deciding.cheapest(t, replace(options, price=price))
        if float(price[m]) < best[0] - _GAIN:
            best = float(price[m]), deciding.option(t, options, m)
        gain = leaving - best[0]
        if gain > _GAIN and best[1] != here:
            found.append((gain, ((t, best[1]),)))
    return found


def _swaps(deciding: Deciding, movable: Sequence[int], end: int) -> tuple[list[_Move], int]:
    """Pairs of tasks that gain by taking each other's machine, or where one takes a place and the other finds one elsewhere;
    and how many pairs were left.

    As long as forecasts last; pairs whose tasks cost most where they are come first.
    """
    model, plan = deciding.model, deciding.plan
    view = model.view
    leaving = {t: model.leaving(plan, t) for t in movable}
    alone = {t: _cheapest_elsewhere(deciding, t) for t in movable}
    order = sorted((t for t in movable if np.isfinite(leaving[t])), key=lambda t: (alone[t][0] - leaving[t], t))
    found: list[_Move] = []
    left = 0
    for t in order:
        for u in order:
            there = plan.options[u]
            here = plan.options[t]
            if there is None or t == u or (here is not None and here.machine == there.machine):
                continue
            if view.class_of[t] == view.class_of[u]:
                continue
            if model.forecasts.made >= end:
                left += 1
                continue
            taken = _in_place_of(deciding, t, u)
            if taken[1] is None:
                continue
            spare = leaving[t] + leaving[u] - taken[0]
            rehomed = alone[u]
            if rehomed[1] is not None and rehomed[1].machine in {there.machine, here.machine if here else -1}:
                rehomed = (FORBIDDEN, None)
            if u not in model.must_start and model.waiting(u) < rehomed[0]:
                rehomed = model.waiting(u), None
            if here is not None:
                swapped = _in_place_of(deciding, u, t)
                if swapped[0] < rehomed[0]:
                    rehomed = swapped
            if spare - rehomed[0] > _GAIN:
                found.append((spare - rehomed[0], ((u, rehomed[1]), (t, taken[1]))))
    return found, left


def _cheapest_elsewhere(deciding: Deciding, task: int) -> tuple[float, PlacementOption | None]:
    """The cheapest option of a task on any machine but its own, with everything else where it is."""
    (options,) = deciding.class_options([task], 2, UNBOUNDED)
    price = options.price.copy()
    here = deciding.plan.options[task]
    if here is not None:
        price[here.machine] = FORBIDDEN
    m = deciding.cheapest(task, replace(options, price=price))
    if price[m] == FORBIDDEN:
        return FORBIDDEN, None
    return float(price[m]), deciding.option(task, options, m)


def _in_place_of(deciding: Deciding, task: int, gone: int) -> tuple[float, PlacementOption | None]:
    """The cheapest option of a task on the machine of another one that is gone."""
    place = deciding.plan.options[gone]
    assert place is not None, "it has a place"
    model = deciding.model
    if model.related(task) or place.machine in model.holds:
        return model.best_option(deciding.plan, task, place.machine, gone)
    g = model.view.group_of[place.machine]
    others: Colocation = deciding.plan.colocation(place.machine, without=gone)
    options = model.options_on(task, place.machine)
    c = model.view.class_of[task]
    costs = model.prices.machine_costs(
        g, [others, *(joined(others, Arrival(c, o.start_after, o.width_milli, o.shared)) for o in options)]
    )
    if costs[0] == FORBIDDEN or not options:
        return FORBIDDEN, None
    best = min(range(len(options)), key=lambda i: (costs[i + 1], i))
    price = costs[best + 1] - costs[0]
    return price, options[best] if price < FORBIDDEN else None


def share_cores(deciding: Deciding, tasks: Sequence[int]) -> int:
    """Give light tasks the services' cores of their machine too, all of a machine or none, where that is cheaper; the number
    of machines.

    A last step: the passes would otherwise fill machines with services on the strength of cores that can be shared once.
    """
    model, plan = deciding.model, deciding.plan
    view = model.view
    shared = 0
    for m in sorted({o.machine for t in tasks if (o := plan.options[t]) is not None}):
        g = view.group_of[m]
        if not model.forecasts.may_share(g):
            continue
        light = []
        for t in plan.on(m):
            option = plan.options[t]
            if option is not None and model.forecasts.light(g, view.class_of[t], option.width_milli):
                light.append((t, option._replace(shared=True)))
        others = [t for t in plan.on(m) if t not in {t for t, _ in light}]
        arrivals = [Arrival(view.class_of[t], *option[1:]) for t, option in light]
        arrivals += [Arrival(view.class_of[t], *o[1:]) for t in others if (o := plan.options[t]) is not None]
        if not light or model.machine_cost(m, tuple(sorted(arrivals))) >= model.cost(plan, m) - _GAIN:
            continue
        for t, option in light:
            deciding.book(t, option)
        shared += 1
    return shared
