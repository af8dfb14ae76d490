"""How long a task can wait at most: ``A + (B + 5)(T + one round)``, as ``flowsched.round.reservation`` keeps it.

A is its own overdue age: B counts the tasks that are served before it as things stand now, and four more may have machines
reserved by the time. Once it is overdue they are known, and it is ``(B + 1)(T + one round)`` from what it has waited. T
is an estimate (:mod:`flowsched.inspector.longest_run`), so the bound holds if no run takes longer. One round is the setting
``round_period_s``. Later arrivals of a higher priority, and longer runs, are not in it.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from flowsched.inspector import pod_facts
from flowsched.inspector.drained_cluster import can_be_reserved, room_for
from flowsched.inspector.longest_run import longest_run_s
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.restored_round import RestoredRound, remembered
from flowsched.inspector.wait_cause import NoBound
from flowsched.round.gang import RoundGang
from flowsched.round.reservation import MOST_RESERVING

_Turn = tuple[int, bool, float, int]
"""Sort key of a task: its level, whether nothing is reserved for it, when it came, and its index in the view."""


def waiting_bound(opened: RestoredRound, task: str) -> dict[str, Any]:
    """``bounded``, ``due_age_s``, ``due``, ``ahead`` (names; without its own task group, and without tasks that can never
    start), ``longest_run_s``, ``round_s``, ``turns`` (B + 5, or B + 1), ``most_s`` (since its submission) and ``left_s``
    (from now), ``group`` (the task group that it has to start with, whose start is then what is bounded), ``group_needs``
    (how many of it have to start together) and ``group_room`` (how many could once all that ends has ended; of interest
    where they are too few), and ``why_not``, a :class:`NoBound` or None.

    Where there is no bound, ``longest_run_s``, ``most_s`` and ``left_s`` are None.
    """
    settings, view = opened.settings, opened.model.view
    number = opened.task_number[task]
    own = view.tasks[number]
    now = view.snapshot.now_s
    ahead = tasks_ahead(opened, task)
    waited_s = now - own.submit_s
    gang = _gang_of(opened, number)
    room = None if gang is None or not gang.complete else room_for(opened, gang)
    why: NoBound | None = None
    if not homes(opened, task):
        why = NoBound.INFEASIBLE
    elif not any(view.domain_counts.refusal(own, machine) is None for machine in homes(opened, task)):
        why = NoBound.RELATION
    elif gang is not None and gang.expired(now):
        why = NoBound.GROUP_EXPIRED
    elif gang is not None and room is None:
        why = NoBound.GROUP_INCOMPLETE
    elif gang is not None and room is not None and room < gang.needed:
        why = NoBound.GROUP_NEVER
    elif gang is not None and not can_be_reserved(opened, gang):
        why = NoBound.GROUP_UNRESERVED
    elif _any_endless(opened):
        why = NoBound.ENDLESS
    longest = None if why is not None else longest_run_s(opened)
    round_s = settings.round_period_s
    due_age_s = opened.overdue_age_s(task)
    from_s = max(due_age_s, waited_s)
    known = _known_bound(why, due_age_s, waited_s, [view.tasks[t].name for t in ahead], MOST_RESERVING)
    turns = known["turns"]
    most_s = None if longest is None else from_s + turns * (longest + round_s)
    return {
        **known,
        "group": None if gang is None else gang.group.name,
        "group_needs": None if gang is None else gang.needed,
        "group_room": room,
        "longest_run_s": longest,
        "round_s": round_s,
        "left_s": None if most_s is None else most_s - waited_s,
        "most_s": most_s,
    }


def linear_bound(recorded: RecordView, task: str, feasible: bool) -> dict[str, Any] | None:
    """The same at linear prices, where how long others run is not known or not looked at, so that no bound is told; None
    where nothing says since when the task waits.
    """
    came_s = pod_facts.came_s(recorded)
    if task not in came_s:
        return None
    waited = pod_facts.waited(recorded, task)
    due_age_s = float(recorded.settings["due_age_s"] if waited is None else waited["due_age_s"])
    demands = [d for part in recorded.parts if not part.by_forecasts for d in part.priced_classes.values()]
    group = next((d["group"] for d in demands if task in d["tasks"]), None)
    together = {t for d in demands if group is not None and d["group"] == group for t in d["tasks"]}
    ahead = [t for t in pod_facts.tasks_ahead(recorded, came_s, task) if t not in together]
    unknown = NoBound.NOT_LOOKED_AT if waited is None else NoBound.ENDLESS
    why = unknown if feasible else NoBound.INFEASIBLE
    return {**_known_bound(why, due_age_s, recorded.now_s - came_s[task], ahead), "group": group}


def _known_bound(
    why: NoBound | None, due_age_s: float, waited_s: float, ahead: list[str], reserving: int = 0
) -> dict[str, Any]:
    """All keys, None where more must be known. ``reserving``: most tasks that may be served before it without being ahead
    now, unless it is overdue.
    """
    due = waited_s > due_age_s
    return {
        "bounded": why is None,
        "why_not": why,
        "due_age_s": due_age_s,
        "due": due,
        "ahead": ahead,
        **dict.fromkeys(("group", "group_needs", "group_room", "longest_run_s", "round_s")),
        "turns": len(ahead) + 1 + (0 if due else reserving),
        **dict.fromkeys(("left_s", "most_s")),
    }


def homes(opened: RestoredRound, task: str) -> list[str]:
    """Machines that could take a task if they were empty but for services and tasks without an end, with every p95 goal
    kept.
    """
    return _homes_of_class(opened, opened.model.view.class_of[opened.task_number[task]])


@remembered
def _homes_of_class(opened: RestoredRound, c: int) -> list[str]:
    model = opened.model
    width = model.view.classes[c].task.widths_milli[0]
    return [
        machine
        for machine, g in opened.group_number.items()
        if model.view.could_fit(c, g, width) and model.prices.welcome(g, c)
    ]


def tasks_ahead(opened: RestoredRound, task: str) -> list[int]:
    """Tasks that still wait and are served before one: of higher priority, or of its own and earlier, or with a machine
    reserved. With ``aging_crosses_priority`` all are of one level.

    Without those that start with it, and those that can never start: nothing is ever reserved for them.
    """
    view = opened.model.view
    own = opened.task_number[task]
    gang = _gang_of(opened, own)
    together = () if gang is None else gang.members
    waiting, mine = _queue(opened), _turns(opened)[own]
    before = [t for *_, t in waiting[: bisect_left(waiting, mine)] if t not in together]
    hopeless = {g.group.name for g in opened.gangs.all if any(t in before for t in g.members) and _hopeless(opened, g)}
    served = {c for c in {view.class_of[t] for t in before} if _homes_of_class(opened, c)}
    return [t for t in before if view.class_of[t] in served and view.tasks[t].group not in hopeless]


@remembered
def _turns(opened: RestoredRound) -> list[_Turn]:
    """[tasks] their turns, all different."""
    reserved = {r.task for r in opened.overdue.reservations if r.overdue}
    crosses = opened.settings.aging_crosses_priority
    return [
        (0 if crosses else -task.priority, task.name not in reserved, task.submit_s, t)
        for t, task in enumerate(opened.model.view.tasks)
    ]


@remembered
def _queue(opened: RestoredRound) -> list[_Turn]:
    """The turns of tasks that still wait, in order."""
    turns, options = _turns(opened), opened.decided.options
    return sorted(turns[t] for t, option in enumerate(options) if option is None or option.start_after > 0)


@remembered
def _any_endless(opened: RestoredRound) -> bool:
    """Whether any task runs until it is deleted, or would."""
    view = opened.model.view
    return any(r.task.endless for r in view.snapshot.running) or any(t.endless for t in view.tasks)


def _gang_of(opened: RestoredRound, task: int) -> RoundGang | None:
    return next((gang for gang in opened.gangs.all if task in gang.members), None)


def _hopeless(opened: RestoredRound, gang: RoundGang) -> bool:
    """Whether nothing will be reserved for a task group: its deadline has passed, or it fits neither now nor later.

    One that is not complete may become so.
    """
    if gang.expired(opened.model.view.snapshot.now_s):
        return True
    if not gang.complete:
        return False
    return room_for(opened, gang) < gang.needed and not can_be_reserved(opened, gang)
