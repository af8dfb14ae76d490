"""From several starts to one plan: passes and exchanges, under a goal that is given or found by bisection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowsched.assignment import Assignment
from flowsched.exchange import run_exchanges
from flowsched.passes import run_passes
from flowsched.policies.policy import FORBIDDEN, Prices
from flowsched.search import Search
from flowsched.settings import Settings


def improve(search: Search, plan: Assignment, settings: Settings) -> Assignment:
    """Passes, and exchanges where no single move pays, until neither does."""
    for _ in range(1 + settings.exchanges):
        plan = run_passes(search, plan, settings.passes)
        exchanged = run_exchanges(search, plan, settings.exchanges)
        if exchanged is plan or search.exhausted():
            return exchanged
        plan = exchanged
    return plan


def settle(search: Search, starts: Sequence[Assignment], settings: Settings) -> tuple[Search, Assignment]:
    """The best plan for goals that are given, widths refined last. The search returned has the prices of the end."""
    plan = min((improve(search, start, settings) for start in starts), key=search.total)
    if settings.refine_widths and _moldable(search):
        search = replace(search, widths=True)
        plan = improve(search, plan, settings)
    return search, plan


def bisect(search: Search, starts: Sequence[Assignment], settings: Settings) -> tuple[Search, Assignment, float]:
    """The plan with the smallest predicted makespan, and the goal under which it was found.

    Bisection between what the cores could do at best and what the best start is predicted to do; a goal is feasible when
    every predicted completion keeps it. Each step starts from the best plan so far.
    """
    ideal = search.outlook.fluid_s()
    best = min(starts, key=search.makespan_s)
    high = search.makespan_s(best)
    if high == FORBIDDEN:
        # somebody waits for want of a place: goals are set by what the machines are known to need
        high = 4.0 * max(ideal, 1.0)
    goal = high
    search, best = _improve_all(search, starts, settings, high)
    high = goal = min(high, search.makespan_s(best))
    low = min(ideal, high)
    for step in range(settings.halvings):
        middle = (low + high) / 2.0
        trial, plan = _improve_all(search, [best] if step else [best, *starts], settings, middle)
        reached = trial.makespan_s(plan)
        if reached < search.makespan_s(best) - 1e-9:
            search, best, goal = trial, plan, middle
        if reached <= middle + 1e-9:
            high = min(middle, reached)
        else:
            low = middle
    if settings.refine_widths and _moldable(search):
        search, best, goal = _refine_widths(search, best, settings, goal)
    return search, best, goal


def _improve_all(
    search: Search, starts: Sequence[Assignment], settings: Settings, goal_s: float
) -> tuple[Search, Assignment]:
    prices: Prices = search.prices.with_goal(max(goal_s, 1e-3))
    trial = replace(search, prices=prices)
    plans = [improve(trial, start, settings) for start in starts]
    return trial, min(plans, key=lambda plan: (trial.makespan_s(plan), trial.total(plan)))


def _refine_widths(
    search: Search, best: Assignment, settings: Settings, goal: float
) -> tuple[Search, Assignment, float]:
    """Offer all widths around the best plan at the narrowest, and tighten the goal as long as that pays."""
    for _ in range(settings.halvings):
        reached = search.makespan_s(best)
        target = min(goal, reached * 0.97)
        trial, plan = _improve_all(replace(search, widths=True), [best], settings, target)
        if trial.makespan_s(plan) >= reached - 1e-6:
            return replace(search, widths=True), best, goal
        search, best, goal = trial, plan, target
    return search, best, goal


def _moldable(search: Search) -> bool:
    return any(len(cls.task.widths_milli) > 1 for cls in search.view.classes)
