"""From several starts to one plan: passes and exchanges, under goals that are given or one that is tightened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowsched.assignment import Assignment
from flowsched.exchange import run_exchanges
from flowsched.passes import run_passes
from flowsched.policies.policy import Prices
from flowsched.search import Search
from flowsched.settings import Settings

_BELOW = 0.97
"""Where the goal lies below the best makespan when a search goes on with more columns or cores."""


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
    wider = _sharing(search, settings)
    if wider is not None:
        search, plan = wider, improve(wider, plan, settings)
    return search, plan


def tighten(
    search: Search, starts: Sequence[Assignment], settings: Settings
) -> tuple[Search, Assignment, float | None]:
    """The plan with the smallest predicted makespan, and the goal that the prices of the search returned have.

    None where no goal was tried (``goal_steps`` 0): the prices are then those of each task's own goal.

    The goal is set a step below the best makespan seen, every start is improved under it, and the step is halved when
    nobody gets better; the goal never goes below what the cores could do at best. A goal far away makes for plans that
    care about the mean, one that is out of reach for all makes every task equally late.
    """
    ideal = search.outlook.fluid_s()
    best = min(starts, key=search.finish)
    reached = search.finish(best)
    goal = max(ideal, reached[1])
    found = search
    priced_at: float | None = None
    step = settings.goal_step
    for _ in range(settings.goal_steps):
        target = max(ideal, goal * (1.0 - step))
        trial, plan = _improve_all(search, [best, *starts], settings, target)
        finish = trial.finish(plan)
        if _sooner(finish, reached):
            found, best, reached, priced_at = trial, plan, finish, target
            goal = finish[1]
        else:
            step /= 2.0
            if found is search:
                found, priced_at = trial, target
        if search.exhausted() or target <= ideal:
            break
    if settings.refine_widths and _moldable(search):
        found, best, priced_at = _refine_widths(found, best, settings, goal, priced_at)
    wider = _sharing(found, settings)
    if wider is not None:
        reached = found.finish(best)
        target = min(goal, reached[1] * _BELOW)
        trial, plan = _improve_all(wider, [best], settings, target)
        if _sooner(trial.finish(plan), reached):
            return trial, plan, target
    return found, best, priced_at


def _improve_all(
    search: Search, starts: Sequence[Assignment], settings: Settings, goal_s: float
) -> tuple[Search, Assignment]:
    prices: Prices = search.prices.with_goal(max(goal_s, 1e-3))
    trial = replace(search, prices=prices)
    plans = [improve(trial, start, settings) for start in starts]
    return trial, min(plans, key=lambda plan: (*trial.finish(plan), trial.total(plan)))


def _refine_widths(
    search: Search, best: Assignment, settings: Settings, goal: float, priced_at: float | None
) -> tuple[Search, Assignment, float | None]:
    """Offer all widths around the best plan at the narrowest, and tighten the goal as long as that pays."""
    for _ in range(settings.goal_steps):
        reached = search.finish(best)
        target = min(goal, reached[1] * _BELOW)
        trial, plan = _improve_all(replace(search, widths=True), [best], settings, target)
        if not _sooner(trial.finish(plan), reached):
            return replace(search, widths=True), best, priced_at
        search, best, goal, priced_at = trial, plan, target, target
    return search, best, priced_at


def _sharing(search: Search, settings: Settings) -> Search | None:
    """The same search with services' cores for light tasks; None where nobody may have them."""
    outlook = search.outlook.sharing() if settings.share_service_cores and not search.exhausted() else None
    return None if outlook is None else replace(search, outlook=outlook, prices=search.prices.on(outlook))


def _sooner(one: tuple[int, float], other: tuple[int, float]) -> bool:
    return one[0] < other[0] or (one[0] == other[0] and one[1] < other[1] - 1e-6)


def _moldable(search: Search) -> bool:
    return any(len(cls.task.widths_milli) > 1 for cls in search.view.classes)
