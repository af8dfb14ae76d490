"""Who of a level comes first: the order in which passes offer places, and who is next where not all that waits fits.

Where it does not all fit, tasks come by weight over run time, the largest first (W. E. Smith, Various Optimizers for
Single-Stage Production, 1956). For plain tasks that ratio is raised by the square of the share of a machine that they ask
for, since narrow ones fit beside wide ones later and not the other way round, and by how long they have waited for their
length.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flowsched.cluster.snapshot import Task
from flowsched.round.assignment import Assignment
from flowsched.round.round_model import RoundModel

WIDE = 8.0
"""A plain task that asks for a whole machine counts this much more than one that asks for nearly nothing; one that asks for
half of it a quarter as much more, since there is room beside it.
"""
PATIENCE = 2.0
"""And this much more for each run time that it has waited; with ``fairness`` f, 1 / (1 - f) times as much."""
SHORT_S = 10.0
"""To how long they have waited, shorter run times count as this: the bound of the bounded slowdown (D. G. Feitelson et al.,
Theory and Practice in Parallel Job Scheduling, 1997).
"""


def pool_of(model: RoundModel, plan: Assignment, tasks: Sequence[int]) -> tuple[list[int], Scarce | None]:
    """Tasks of a level in the order in which passes offer them places, and what they are short of, with what ``plan`` has
    already; None where all that waits could have it.
    """
    pool = sorted(tasks, key=lambda t: _rank(model, t))
    scarce = _scarce(model, plan, pool)
    return (pool if scarce is None else scarce.in_order(model, pool)), scarce


def next_in_turn(model: RoundModel, plan: Assignment, tasks: Sequence[int], but: Collection[str]) -> int | None:
    """The first plain task of a level, ``tasks``, that has room nowhere now, where those before it have; None where all that
    waits fits, or where those before it take what is free. ``but``: names of tasks that are not looked at.

    A machine is kept for it: otherwise narrower ones would take the room that it waits for, one after the other.
    """
    pool, scarce = pool_of(model, plan, tasks)
    if scarce is None or scarce.by_age:
        return None
    view, jobs, free = model.view, model.view.snapshot.catalogue.jobs, scarce.free_milli
    for t in pool:
        wanted = view.tasks[t]
        able = view.large_enough(wanted, wanted.widths_milli[0])
        if not able.any():
            continue  # it can never run
        plain = goes_by_length(model, t) and wanted.group is None and jobs[wanted.profile].is_plain
        if plain and wanted.name not in but and not (able & view.roomy(wanted)).any():
            return t
        free -= scarce.asked_milli[t]
        if free < 0:
            return None
    return None


@dataclass
class Scarce:
    """What not all that waits can have, in thousandths: cores, or GPUs where completions have no price."""

    asked_milli: Mapping[int, int]
    """By task."""
    free_milli: int
    """Beside what runs and starts now."""
    by_age: bool

    def in_order(self, model: RoundModel, pool: Sequence[int]) -> list[int]:
        """The tasks of a pool in the order in which they come."""
        if self.by_age:
            return [t for t in pool if _finds_devices(model, t)]
        return _most_worth_first(model, pool)

    def as_many_as_fit(self, batch: Sequence[int]) -> list[int]:
        """The first of a batch that together ask for no more than is free, one at least; all where nothing could start.

        What a place costs a task does not say whether it should start before another one: the first start, and the network
        decides where. (Where completions have no price: algorithm 4 of M. Amaral's thesis, UPC, 2019.)
        """
        asked = [self.asked_milli[t] for t in batch]
        if not self.by_age and self.free_milli < min(self.asked_milli.values(), default=0):
            return list(batch)
        return list(batch[: max(1, int((np.cumsum(asked) <= self.free_milli).sum()))])


def _scarce(model: RoundModel, plan: Assignment, pool: Sequence[int]) -> Scarce | None:
    """What a pool is short of; None where there is no reason to ask who comes first."""
    view = model.view
    groups = [group for group in view.groups if group.batch_cores]
    if not model.prices.settings.prices_completions:
        asked = {t: 0 if (gpus := view.tasks[t].gpus) is None else gpus.milli for t in range(len(view.tasks))}
        free = sum(sum(group.devices_left) * group.size for group in view.groups)
        return Scarce(asked, free - sum(asked[t] for t, _ in plan.starting()), True)
    if model.prices.goal_s is not None:
        return None
    asked = {t: task.widths_milli[0] for t, task in enumerate(view.tasks)}
    free = sum(max(0, group.free_milli) * group.size for group in groups)
    if view.candidates is not None:
        free = max(free, view.candidates.free_milli)
    free -= sum(o.width_milli for o in plan.options if o is not None and o.start_after == 0)
    return Scarce(asked, free, False) if sum(asked[t] for t in pool) > free else None


def _finds_devices(model: RoundModel, task: int) -> bool:
    gpus = model.prices.gpus
    return gpus is None or bool(gpus.fits_now[model.view.class_of[task]].any())


def _most_worth_first(model: RoundModel, pool: Sequence[int]) -> list[int]:
    """A pool with the tasks that nothing but their length tells apart in the order of what they are worth, the largest
    first. Those that must start, have a goal or a demand of their own, or no end, keep their places.
    """
    movable = [t for t in pool if goes_by_length(model, t)]
    value = dict(zip(movable, worths(model, movable), strict=True))
    in_turn = iter(sorted(movable, key=lambda t: (-value[t], model.view.tasks[t].arrival)))
    free = set(movable)
    return [next(in_turn) if t in free else t for t in pool]


def goes_by_length(model: RoundModel, task: int) -> bool:
    """Whether nothing but its length and weight says when a task of a level comes, where not all that waits fits."""
    return task not in model.must_start and not _has_own_goal(model.view.tasks[task])


def worths(model: RoundModel, tasks: Sequence[int]) -> list[float]:
    """Of each of some tasks, weight over run time in 1/s, which says when it comes; raised where it is plain."""
    view, goals = model.view, model.prices.goals
    jobs, snapshot = view.snapshot.catalogue.jobs, view.snapshot
    patience = PATIENCE / max(1e-3, 1.0 - model.prices.settings.fairness)
    largest = max([1, *(g.machine.cpu_milli for g in view.groups if g.batch_cores)])
    found = []
    for t in tasks:
        task = view.tasks[t]
        left_s = goals.left_s(view.class_of[t])
        value = task.weight / max(left_s, 1e-9)
        if jobs[task.profile].is_plain:
            value *= 1.0 + WIDE * (task.widths_milli[0] / largest) ** 2
            value *= 1.0 + patience * max(0.0, snapshot.age_s(task)) / max(left_s, SHORT_S)
        found.append(value)
    return found


def _has_own_goal(task: Task) -> bool:
    return task.endless or task.goal_s is not None or task.min_utility is not None


def _rank(model: RoundModel, task: int) -> tuple[bool, float, tuple[float, int, str, str]]:
    """Those that must start first, then the most work times weight: a network of one arrival cannot compare tasks. Where
    completions have no price the oldest is first.
    """
    wanted = model.view.tasks[task]
    if not model.prices.settings.prices_completions:
        return task not in model.must_start, -wanted.weight, wanted.arrival
    snapshot = model.view.snapshot
    work_s = snapshot.catalogue.jobs[wanted.profile].work_s * snapshot.expected_scale(wanted)
    return task not in model.must_start, -wanted.weight * work_s, wanted.arrival
