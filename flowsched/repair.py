"""The last check of a round: whoever is bound now can be, one after the other, under all relations and task groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from flowsched.assignment import Assignment, Column
from flowsched.census import Census, demand_text
from flowsched.gang import Gang, Gangs, why_all_wait
from flowsched.policies.policy import FORBIDDEN
from flowsched.search import Search


@dataclass(frozen=True)
class Repair:
    """A task that could not start where the plan had it."""

    task: str
    machine: str
    relation: str | None
    """What refused it; None where its task group waits as a whole."""
    moved_to: str | None
    """The machine where it starts instead."""


@dataclass(frozen=True)
class Repaired:
    """A plan whose starts may all be carried out, one after the other."""

    plan: Assignment
    reasons: Mapping[int, str] = field(default_factory=dict)
    """Why those wait who were about to start."""
    repairs: tuple[Repair, ...] = ()


def repair(search: Search, plan: Assignment, gangs: Gangs) -> Repaired:
    """Move whoever a relation refuses to the next best place, or let it wait; then undo groups that became too small.

    Only tasks that start now count as there: unlike in the search, those who are planned for later do not.
    """
    if not gangs.all and not any(search.related(t) for t in range(len(plan.columns))):
        return Repaired(plan)
    plan = plan.copy()
    reasons: dict[int, str] = {}
    repairs: list[Repair] = []
    while True:
        _keep_relations(search, plan, reasons, repairs)
        broken = [gang for gang in gangs.all if 0 < len(_starting(plan, gang)) < gang.needed]
        if not broken:
            return Repaired(plan, reasons, tuple(repairs))
        # Whoever followed a member may have to wait as well: look again without the group.
        for gang in broken:
            count = len(_starting(plan, gang))
            for t in gang.members:
                column = plan.columns[t]
                if column is not None and column.slot == 0:
                    repairs.append(Repair(_name(search, t), search.view.machines[column.machine].name, None, None))
                plan.move(t, None)
                reasons[t] = why_all_wait(gang, count, search.view.snapshot.now_s)
        gone = frozenset(t for gang in broken for t in gang.members)
        search = replace(search, barred=search.barred | gone, must_start=search.must_start - gone)


def _keep_relations(search: Search, plan: Assignment, reasons: dict[int, str], repairs: list[Repair]) -> None:
    """Change ``plan`` until all who start now can do so in some order."""
    view = search.view
    starting = [t for t, c in enumerate(plan.columns) if c is not None and c.slot == 0 and search.related(t)]
    census = view.census.copy()
    admitted = set(search.in_order(plan, starting, census))
    now = replace(search, slots=1)
    # Those who must start choose first.
    left = sorted((t for t in starting if t not in admitted), key=lambda t: (t not in search.must_start, t))
    while left:
        t = left.pop(0)
        column = plan.columns[t]
        assert column is not None, "it was about to start"
        refusal = census.refusal(view.tasks[t], view.machines[column.machine].name)
        if refusal is not None:
            plan.move(t, None)
            place = _next_best(now, plan, t, census)
            plan.move(t, place)
            target = None if place is None else view.machines[place.machine].name
            repairs.append(Repair(_name(search, t), view.machines[column.machine].name, refusal.name, target))
            if place is None:
                reasons[t] = f"the round left no place for it; {demand_text(refusal)}"
                continue
            column = place
        census.add(view.tasks[t], view.machines[column.machine].name)
        # Somebody who was refused may go where the plan had it, now that this one is placed.
        left = [other for other in left if other not in search.in_order(plan, [other], census)]


def _next_best(now: Search, plan: Assignment, task: int, census: Census) -> Column | None:
    """The cheapest place beside those who are counted, None where waiting costs less."""
    best: tuple[float, Column | None] = (FORBIDDEN if task in now.must_start else now.waiting(task), None)
    for machine in range(len(now.view.machines)):
        if census.refusal(now.view.tasks[task], now.view.machines[machine].name) is not None:
            continue
        price, column = now.best_column(plan, task, machine)
        if column is not None and price < best[0] - 1e-12:
            best = (price, column)
    return best[1]


def _starting(plan: Assignment, gang: Gang) -> list[int]:
    return [t for t in gang.members if (c := plan.columns[t]) is not None and c.slot == 0]


def _name(search: Search, task: int) -> str:
    return search.view.tasks[task].name
