"""How long a task can wait at most: ``A + (B + 1)(T + one round)``, as ``flowsched.reservation`` keeps it.

A is the due age, or what it has waited if that is more: B counts the tasks that are served before it as things stand now. T
is the longest predicted run of whatever runs, starts now or waits. One round is the setting ``round_period_s``.
"""

from __future__ import annotations

from typing import Any

from flowsched.inspector import pod_facts
from flowsched.inspector.account import Account
from flowsched.inspector.reopened import Reopened


def waiting_bound(opened: Reopened, task: str) -> dict[str, Any]:
    """``bounded``, ``due_age_s``, ``due``, ``ahead`` (names), ``longest_run_s``, ``round_s``, ``turns`` (B + 1), ``most_s``
    (since its submission) and ``left_s`` (from now), both None where there is no bound, and ``why_not``: ``infeasible``,
    ``relation``, ``endless``, ``group_expired``, ``group_incomplete``, or None.
    """
    settings, view = opened.settings, opened.search.view
    number = opened.task_number[task]
    own = view.tasks[number]
    now = view.snapshot.now_s
    ahead = tasks_ahead(opened, task)
    longest = _longest_run_s(opened, number)
    waited_s = now - own.submit_s
    gang = next((g for g in opened.gangs.all if number in g.members), None)
    why: str | None = None
    if not homes(opened, task):
        why = "infeasible"
    elif not any(view.census.refusal(own, machine) is None for machine in homes(opened, task)):
        why = "relation"
    elif any(r.task.endless for r in view.snapshot.running) or any(t.endless for t in view.tasks):
        why = "endless"
    elif gang is not None and gang.expired(now):
        why = "group_expired"
    elif gang is not None and len(gang.members) < gang.needed:
        why = "group_incomplete"
    round_s = settings.round_period_s
    from_s = max(settings.due_age_s, waited_s)
    return {
        "bounded": why is None,
        "why_not": why,
        "due_age_s": settings.due_age_s,
        "due": waited_s > settings.due_age_s,
        "ahead": [view.tasks[t].name for t in ahead],
        "longest_run_s": longest,
        "round_s": round_s,
        "turns": len(ahead) + 1,
        "left_s": None if why is not None else from_s - waited_s + (len(ahead) + 1) * (longest + round_s),
        "most_s": None if why is not None else from_s + (len(ahead) + 1) * (longest + round_s),
    }


def pod_bound(account: Account, task: str, feasible: bool) -> dict[str, Any]:
    """The same for a pod of a wide round: how long the others run is not known, so there is no bound."""
    waited = pod_facts.waited(account, task)
    due_age_s = float(account.settings["due_age_s"] if waited is None else waited["due_age_s"])
    ahead = pod_facts.pods_ahead(account, task)
    return {
        "bounded": False,
        "why_not": "endless" if feasible else "infeasible",
        "due_age_s": due_age_s,
        "due": waited is not None and account.now_s - float(waited["since_s"]) > due_age_s,
        "ahead": ahead,
        "longest_run_s": None,
        "round_s": None,
        "turns": len(ahead) + 1,
        "left_s": None,
        "most_s": None,
    }


def homes(opened: Reopened, task: str) -> list[str]:
    """Machines that could take a task if they were empty but for services and tasks without an end, with every p95 goal
    kept.
    """
    search = opened.search
    number = opened.task_number[task]
    c, width = search.view.class_of[number], search.view.tasks[number].widths_milli[0]
    return [
        machine
        for machine, g in opened.group_number.items()
        if search.view.could_fit(c, g, width) and search.prices.welcome(g, c)
    ]


def tasks_ahead(opened: Reopened, task: str) -> list[int]:
    """Tasks that still wait and are served before one: of higher priority, or of its own and earlier."""
    view = opened.search.view
    own = opened.task_number[task]
    reserved = {r.task for r in opened.dues.reservations}

    def turn(t: int) -> tuple[bool, int, float, int]:
        other = view.tasks[t]
        return (other.name not in reserved, -other.priority, other.submit_s, t)

    waiting = [t for t, c in enumerate(opened.decided.columns) if (c is None or c.slot > 0) and t != own]
    return sorted((t for t in waiting if turn(t) < turn(own)), key=turn)


def _longest_run_s(opened: Reopened, own: int) -> float:
    """Seconds: of what runs or starts now until its predicted end, of others that wait alone on their slowest machine."""
    view, outlook = opened.search.view, opened.search.outlook
    runs = [0.0]
    machines = [(opened.search.view.group_of[m], opened.decided.company(m)) for m in range(len(view.machines))]
    machines += [(g, ()) for g, group in enumerate(view.groups) if group.spares]
    for g, company in machines:
        prospect = outlook.prospect(g, company)
        if prospect is None:
            continue
        pairs = zip(view.groups[g].running, prospect.residents_s, strict=True)
        runs += [end for r, end in pairs if not r.task.endless]
        for n, end in zip(company, prospect.newcomers_s, strict=True):
            if n.slot == 0 and not view.classes[n.task_class].task.endless:
                runs.append(end)
    for t, column in enumerate(opened.decided.columns):
        starts = column is not None and column.slot == 0
        if t != own and not starts and not view.tasks[t].endless:
            c, width = view.class_of[t], view.tasks[t].widths_milli[0]
            fitting = (g for g in range(len(view.groups)) if view.could_fit(c, g, width))
            runs += [outlook.best_alone_s(g, c) for g in fitting]
    return max(runs)
