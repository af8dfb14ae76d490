"""A makespan as the objective: one goal for all tasks, tightened step by step.

The goal is set a step below the best makespan seen, several starts are improved under it, and the step is halved where none
gets better; the goal never goes below what the cores could do at best. A goal far away makes for plans that care about the
mean, one that is out of reach for all makes every task equally late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flowsched.cluster.settings import Settings
from flowsched.pricing.arrival import Arrival, joined
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.round.assignment import Assignment, PlacementOption
from flowsched.round.passes import Deciding
from flowsched.round.round_model import Offered, RoundModel

_BELOW = 0.97
"""Where the goal lies below the best makespan while wider options are offered."""


def tighten(
    first: Deciding,
    decide_from: Callable[[Deciding | Assignment | None, float, Offered], Deciding],
    starts: Sequence[Assignment],
    settings: Settings,
) -> tuple[Deciding, float | None]:
    """``first``: the round with each task's own goal. ``decide_from`` a plan (None: an empty one), under one goal for all,
    answers the plan that passes and improvement make of it, with what is offered then; ``starts``: further plans to
    begin with. Returns the plan with the smallest predicted makespan, and the goal of the prices that it was found with.
    """
    ideal = first.model.forecasts.backlog_s
    best, priced_at = first, None
    reached = min((first.model.finish(start) for start in starts), default=first.model.finish(first.plan))
    goal = max(ideal, reached[1] if reached[1] < FORBIDDEN else ideal)
    step = settings.goal_step
    for _ in range(settings.goal_steps):
        target = max(ideal, goal * (1.0 - step), 1e-3)
        found = [decide_from(start, target, Offered.NARROWEST) for start in (None, *starts, best)]
        trial = min(found, key=lambda d: (*d.model.finish(d.plan), d.model.total(d.plan)))
        judged = trial.model.finish(trial.plan)
        if not sooner(best.model.finish(best.plan), judged):
            best, priced_at = trial, target
        if sooner(judged, (reached[0], goal)):
            reached, goal = judged, judged[1]
        else:
            step /= 2.0
        if trial.options.exhausted or target <= ideal:
            break
    for offered in (Offered.WIDTHS, Offered.SHARED):
        for _ in range(settings.goal_steps):
            judged = best.model.finish(best.plan)
            target = max(ideal, min(goal, judged[1]) * _BELOW, 1e-3)
            trial = decide_from(best, target, offered)
            if not sooner(trial.model.finish(trial.plan), judged):
                break
            best, priced_at = trial, target
    return best, priced_at


def sooner(one: tuple[int, float], other: tuple[int, float]) -> bool:
    """Whether a plan is better than another."""
    return one[0] < other[0] or (one[0] == other[0] and one[1] < other[1] - 1e-6)


def soonest_chain(model: RoundModel, order: Sequence[int]) -> Assignment:
    """Each task starts now, on the machine that is then predicted to be done soonest (Graham's list scheduling, with
    predicted ends instead of loads), if it has room anywhere.
    """
    view = model.view
    plan = Assignment([None] * len(view.tasks), view.class_of, len(view.machines))
    for task in order:
        best: tuple[float, PlacementOption | None] = (FORBIDDEN, None)
        for machine in range(len(view.machines)):
            if model.refused(plan, task, machine):
                continue
            for option in model.options_on(task, machine)[:1]:
                together = joined(plan.colocation(machine), Arrival(view.class_of[task], *option[1:]))
                if model.machine_cost(machine, together) == FORBIDDEN:
                    continue
                end = model.prices.makespan_s(view.group_of[machine], together)
                if end < best[0] - 1e-9:
                    best = (end, option)
        plan.move(task, best[1])
    return plan
