"""A makespan as the objective: one goal for all tasks, tightened step by step.

The goal is set a step below the best makespan seen, several starts are improved under it, and the step is halved where none
gets better. Nothing is searched for once a plan ends at a bound that no plan can undercut. A goal far away makes for plans
that care about the mean, one that is out of reach for all makes every task equally late.

A plan that was chosen for its estimated ends is the one whose estimates are the most wrong. Where they tell little, and
where a task runs makes no difference to how long, list scheduling decides instead (R. L. Graham, "Bounds on Multiprocessing
Timing Anomalies", 1969): it leaves no room idle that a task fits, and of estimates it needs no more than who comes first.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Protocol

import numpy as np

from flowsched.cluster.running_tasks import in_rows
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot
from flowsched.pricing.arrival import Arrival, joined
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.round.assignment import Assignment, PlacementOption
from flowsched.round.passes import Deciding, Start
from flowsched.round.round_model import Offered, RoundModel

_BELOW = 0.97
"""Where the goal lies below the best makespan while wider options are offered."""
WORTH_A_CHANGE = 0.3
"""Share of the makespan that a plan must gain on that of the tasks' own goals where jobs keep coming: a machine that is
crowded so that the last job of today ends a little sooner is missed by those that come tomorrow."""
_SILENCE = 5.0
"""Mean times between submissions without one, after which no more is expected: one in 150 gaps of a Poisson process."""


UNSURE = 0.12
"""From this spread of run times around their forecasts on, in the mean of what waits, list scheduling ends sooner than
plans: chosen on `given` scenarios of `benchmarks.makespans`, seeds 1000 to 1019, with errors from 0 to 0.5."""


class DecideFrom(Protocol):
    """A plan that is made from another one under one goal for all tasks, ``goal_s`` from now."""

    def __call__(
        self,
        start: Start | None,
        goal_s: float,
        offered: Offered = Offered.NARROWEST,
        *,
        moves: bool = True,
    ) -> Deciding:
        """What the passes make of ``start`` (None: an empty plan), and with ``moves`` the improvement."""


def tighten(
    first: Deciding, decide_from: DecideFrom, starts: Sequence[Start], settings: Settings, bound: float
) -> tuple[Deciding, float | None]:
    """The plan with the smallest predicted makespan that is found from ``first`` and from ``starts``, further plans to
    begin with, and the goal of the prices that it was found with. Without any, one plan is made afresh, and the better of
    the two is improved with all options.

    ``bound``: seconds that no plan ends before.
    """
    best, priced_at = first, first.model.prices.goal_s
    reached = min(first.model.finish(plan) for plan in (first.plan, *(start.plan for start in starts)))
    goal = max(bound, reached[1] if reached[1] < FORBIDDEN else bound)
    step = settings.goal_step
    steps = settings.goal_steps if starts else min(1, settings.goal_steps)
    if not sooner((0, bound), best.model.finish(best.plan)):
        steps = 0
    for _ in range(steps):
        target = max(bound, goal * (1.0 - step))
        found = [decide_from(start, target) for start in ((None, *starts, best.as_start) if starts else (None,))]
        trial = min(found, key=lambda d: (*d.model.finish(d.plan), d.model.total(d.plan)))
        judged = trial.model.finish(trial.plan)
        if not sooner(best.model.finish(best.plan), judged):
            best, priced_at = trial, target
        if sooner(judged, (reached[0], goal)):
            reached, goal = judged, judged[1]
        else:
            step /= 2.0
        if trial.options.exhausted or target <= bound:
            break
    for offered in (Offered.WIDTHS, Offered.SHARED) if starts else (Offered.SHARED,):
        for _ in range(settings.goal_steps):
            judged = best.model.finish(best.plan)
            if not sooner((0, bound), judged):
                break
            target = max(bound, min(goal, judged[1]) * _BELOW)
            trial = decide_from(best.as_start, target, offered)
            if not sooner(trial.model.finish(trial.plan), judged):
                break
            best, priced_at = trial, target
    return best, priced_at


def more_expected(snapshot: Snapshot) -> bool:
    """Whether tasks may come that are not in the snapshot yet.

    They may not where several tasks wait and run that were all submitted at one moment, or where none came for ``_SILENCE``
    times as long as there was between their submissions on average. Long-running tasks tell nothing of that.
    """
    running = in_rows(snapshot).columns
    waiting_s = np.array([t.submit_s for t in snapshot.pending if not t.endless], np.float64)
    submitted_s = np.concatenate([waiting_s, running.submit_s[running.endless == 0.0]])
    moments_s = np.unique(submitted_s)
    if len(moments_s) < 2:
        return len(submitted_s) < 2
    gap_s = (moments_s[-1] - moments_s[0]) / (len(moments_s) - 1)
    return bool(snapshot.now_s - moments_s[-1] <= _SILENCE * gap_s)


def bound_s(model: RoundModel) -> float:
    """Seconds that no plan ends before: all work on all cores, what tasks ask for on what machines have, the longest task
    on its best machine, and what runs already. Tasks that no machine could ever take spoil no plan.
    """
    view, forecasts = model.view, model.forecasts
    least = [max(model.prices.base.drained_s, default=0.0)]
    asked = 0.0
    nowhere = set()
    for c, cls in enumerate(view.classes):
        if cls.task.endless:
            continue
        width = cls.task.widths_milli[0]
        fitting = [g for g in view.shapes if view.could_fit(c, g, width) and model.prices.welcome(g, c)]
        if not fitting:
            nowhere.add(c)
            continue
        run_s = min(forecasts.least_alone_s(g, c) for g in fitting)
        least.append(run_s + forecasts.delay_s(c, 0))
        asked += len(cls.members) * width * run_s
    least.append(forecasts.shared_by_all_s(nowhere))
    if view.candidates is None:
        room = 0
        for g, group in enumerate(view.groups):
            lasting = sum(r.width_milli for r in group.running if not r.task.endless)
            room += group.size * (group.free_milli + lasting)
            for running, left_s in zip(group.running, forecasts.residents_alone_s(g), strict=True):
                asked += 0.0 if running.task.endless else group.size * running.width_milli * left_s
        least.append(asked / max(1, room))
    return max(least)


def sooner(one: tuple[int, float], other: tuple[int, float]) -> bool:
    """Whether a plan is better than another."""
    return one[0] < other[0] or (one[0] == other[0] and one[1] < other[1] - 1e-6)


def is_unsure(snapshot: Snapshot) -> bool:
    """Whether plans of what waits are not worth making: every task runs for as long at every place, and how long is hardly
    known.
    """
    lasting = [t for t in snapshot.pending if not t.endless]
    if not lasting or not snapshot.waits_plain:
        return False
    return math.fsum(map(snapshot.spread, lasting)) > UNSURE * len(lasting)


def list_scheduled(model: RoundModel) -> Assignment:
    """Tasks that run for as long at every place start now, as far as they have room anywhere: the largest product of run
    time and square root of cores first, each where it makes the machine done no later, else where that is done soonest.

    Long tasks would end last, and wide ones find no room later. By area, wide short ones would come before long narrow ones.
    """
    view, forecasts = model.view, model.forecasts
    plan = Assignment([None] * len(view.tasks), view.class_of, len(view.machines))
    done_s = [model.prices.makespan_s(group, ()) for group in view.group_of]
    run_s = [
        min(
            (forecasts.least_alone_s(g, c) for g in view.shapes if view.could_fit(c, g, cls.task.widths_milli[0])),
            default=0.0,
        )
        for c, cls in enumerate(view.classes)
    ]
    size = [run_s[c] * math.sqrt(t.widths_milli[0]) for c, t in zip(view.class_of, view.tasks, strict=True)]
    nowhere: set[Hashable] = set()
    for task in sorted(range(len(view.tasks)), key=lambda t: (-view.tasks[t].priority, -size[t], t)):
        wanted, c = view.tasks[task], view.class_of[task]
        needs = wanted.profile, wanted.widths_milli, wanted.memory_mib, wanted.resources, wanted.machines
        if needs in nowhere:
            continue
        end_s = forecasts.delay_s(c, 0) + run_s[c]
        roomy = view.roomy(wanted)
        for machine in sorted(range(len(view.machines)), key=lambda m: (max(end_s, done_s[m]), m)):
            if not roomy[view.group_of[machine]] or model.refused(plan, task, machine):
                continue
            option = next(iter(model.options_on(task, machine)), None)
            if option is None:
                continue
            together = joined(plan.colocation(machine), Arrival(c, *option[1:]))
            if not forecasts.possible(view.group_of[machine], together):
                continue
            if model.machine_cost(machine, together) < FORBIDDEN:
                plan.move(task, option)
                done_s[machine] = max(done_s[machine], end_s)
                break
        else:
            if not model.related(task):
                nowhere.add(needs)
    return plan


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
