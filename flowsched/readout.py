"""Reads a plan off: what is bound now, what waits, and the reason in a sentence, made where the prices still are."""

from __future__ import annotations

from collections.abc import Mapping

from flowsched.assignment import Assignment, Newcomer
from flowsched.census import demand_text
from flowsched.decision import Placement, Postponement
from flowsched.policies.policy import FORBIDDEN
from flowsched.relation import Relation
from flowsched.reservation import Dues
from flowsched.resource import amount_text, covers
from flowsched.search import Search
from flowsched.snapshot import PlannedStart, Reservation, Task
from flowsched_models.quantity import count_cores


def placements(search: Search, plan: Assignment) -> tuple[Placement, ...]:
    """Tasks that start now, with the terms of their cost."""
    view = search.view
    bound = []
    for task, column in enumerate(plan.columns):
        if column is None or column.slot > 0:
            continue
        g = view.group_of[column.machine]
        company = plan.company(column.machine)
        c = view.class_of[task]
        member = company.index((c, 0, column.width_milli))
        terms = search.prices.machine_terms(g, company, member)
        prospect = search.prices.prospect(g, company)
        cores, threads = search.outlook.place(g, company[member], prospect is not None and prospect.shared)
        bound.append(
            Placement(
                view.tasks[task].name,
                view.machines[column.machine].name,
                column.width_milli,
                threads,
                cores,
                sum(terms.values()),
                terms,
            )
        )
    return tuple(bound)


def postponements(
    search: Search, plan: Assignment, dues: Dues, reasons: Mapping[int, str] | None = None
) -> tuple[Postponement, ...]:
    """Tasks that wait: planned for later on some machine, or on the unscheduled node.

    ``reasons`` are known already for those whose task group waits, and for those whom a relation refused at last.
    """
    view = search.view
    known = reasons or {}
    now = view.snapshot.now_s
    reserved = {r.task: r for r in dues.reservations}
    left = []
    for t, column in enumerate(plan.columns):
        task = view.tasks[t]
        waited = now - task.submit_s
        if column is not None and column.slot == 0:
            continue
        if column is not None:
            machine = view.machines[column.machine].name
            planned = PlannedStart(task.name, machine, column.slot, column.width_milli)
            g = view.group_of[column.machine]
            company = plan.company(column.machine)
            member = company.index((view.class_of[t], column.slot, column.width_milli))
            prospect = search.prices.prospect(g, company)
            start = f" (in about {prospect.starts_s[member]:.0f} s)" if prospect is not None else ""
            count = "the next completion" if column.slot == 1 else f"{column.slot} completions"
            terms = search.prices.machine_terms(g, company, member)
            left.append(
                Postponement(
                    task.name,
                    f"waits for {count} on {machine}{start}: {_why_not_now(search, plan, t)}",
                    waited,
                    sum(terms.values()),
                    terms,
                    planned,
                )
            )
            continue
        terms = search.prices.waiting_terms(view.class_of[t])
        reason = known.get(t)
        if reason is not None and task.name in reserved:
            held = reserved[task.name]
            reason += f"; {held.machine} is reserved for it, predicted to be free {_from_now(held.start_s - now)}"
        left.append(
            Postponement(
                task.name,
                reason or _why_unscheduled(search, plan, t, reserved.get(task.name)),
                waited,
                sum(terms.values()),
                terms,
            )
        )
    return tuple(left)


def _why_not_now(search: Search, plan: Assignment, task: int) -> str:
    """Whether a task that waits for a machine could have started at all, beside those who do."""
    view = search.view
    wanted = view.tasks[task]
    for m in range(len(view.machines)):
        here = view.groups[view.group_of[m]]
        if not view.allowed(view.class_of[task], m) or not _has_room(search, view.group_of[m], wanted):
            continue
        starting = [n for n in plan.company(m) if n.slot == 0]
        cpu = sum(n.width_milli for n in starting) + wanted.widths_milli[0]
        memory = sum(view.classes[n.task_class].task.memory_mib for n in starting) + wanted.memory_mib
        if cpu <= here.free_milli and memory <= here.free_memory_mib:
            return "starting now anywhere costs more"
    return "no machine has room for it now"


def _closest_now(search: Search, plan: Assignment, task: int) -> tuple[float, int] | None:
    """The cheapest start now beside those who start, and its machine; None where there is none, or no time to ask."""
    if search.exhausted():
        return None
    view = search.view
    best: tuple[float, int] | None = None
    seen = set()
    for m in range(len(view.machines)):
        alike = (view.group_of[m], plan.company(m))
        if alike in seen and not search.related(task):
            continue
        seen.add(alike)
        for price, column in search.offers(plan, task, m):
            if column.slot == 0 and price < FORBIDDEN and (best is None or price < best[0] - 1e-12):
                best = (price, m)
    return best


def _has_room(search: Search, group: int, task: Task) -> bool:
    """Whether a machine of a group has what a task asks for, with nobody else of this round there."""
    here = search.view.groups[group]
    return (
        here.free_milli >= task.widths_milli[0]
        and here.free_memory_mib >= task.memory_mib
        and covers(here.free_resources, task.resources)
    )


def _why_unscheduled(search: Search, plan: Assignment, task: int, reservation: Reservation | None) -> str:
    """The first sentence an operator needs: no machine at all, none with room, or none worth it now."""
    view = search.view
    wanted = view.tasks[task]
    c = view.class_of[task]
    width = wanted.widths_milli[0]
    if reservation is not None:
        when = _from_now(reservation.start_s - view.snapshot.now_s)
        return f"is due, and {reservation.machine} is reserved for it, predicted to be free {when}"
    if not view.groups:
        return "there is no machine in the cluster"
    allowed = [g for g, group in enumerate(view.groups) if view.allowed(c, group.members[0])]
    if not allowed:
        return "none of the machines that it may run on is in the cluster"
    needs = f"needs {count_cores(width)} and {wanted.memory_mib} MiB{_further(wanted)} on one machine"
    large = [g for g in allowed if view.could_fit(c, g, width)]
    if not large:
        if any(view.groups[g].endless for g in allowed):
            return f"{needs}; no machine is that large beside its tasks that have no end"
        return f"{needs}; no machine is that large"
    roomy = [g for g in large if _has_room(search, g, wanted)]
    if not roomy:
        most = max(large, key=lambda g: (view.groups[g].free_milli, -g))
        group = view.groups[most]
        free = "".join(
            f" and {group.free_resources.get(name, 0)} {name}" for name, units in wanted.resources if units > 0
        )
        return (
            f"{needs}; the emptiest, "
            f"{group.machine.name}, has {count_cores(group.free_milli)} and {group.free_memory_mib} MiB{free} free"
        )
    refusal = _refused_everywhere(search, plan, task, roomy)
    if refusal is not None:
        return f"every machine with room is closed to it by {demand_text(refusal)}"
    offers = [
        (search.prices.machine_cost(g, (Newcomer(c, 0, width),)) - search.prices.machine_cost(g, ()), g) for g in roomy
    ]
    price, cheapest = min(offers)
    if price == FORBIDDEN:
        utilities = [search.prices.utility(g, (Newcomer(c, 0, width),), 0) for g in roomy]
        best = max((u for u in utilities if u is not None), default=None)
        if wanted.min_utility is not None and best is not None and best < wanted.min_utility:
            return f"its utility now would be {best:.2f} at best, below the {wanted.min_utility:g} that it demands"
        return "every machine with room has a latency service whose p95 goal it would break"
    waiting = f"waiting costs {search.waiting(task):.2f}"
    closest = _closest_now(search, plan, task)
    if closest is None and not search.exhausted():
        return f"{waiting}; no machine has room for it beside those who start now or are planned"
    if closest is None:
        name = view.groups[cheapest].machine.name
        return (
            f"{waiting}; the cheapest machine with room, {name}, would cost {price:.2f} with nobody else of this round"
        )
    price, machine = closest
    return f"{waiting}; starting now would cost {price:.2f} on {view.machines[machine].name}, where it costs least"


def _refused_everywhere(search: Search, plan: Assignment, task: int, roomy: list[int]) -> Relation | None:
    """The relation that keeps a task off every machine with room, with those there who start now; None if one is open."""
    if not search.related(task):
        return None
    view = search.view
    census = view.census.copy()
    for t, column in enumerate(plan.columns):
        if column is not None and column.slot == 0:
            census.add(view.tasks[t], view.machines[column.machine].name)
    width = view.tasks[task].widths_milli[0]
    members = (m for g in roomy for m in view.groups[g].members)
    # What newcomers take of a machine matters here: the relation is to blame for those with room left.
    refusals = [
        census.refusal(view.tasks[task], view.machines[m].name)
        for m in members
        if sum(n.width_milli for n in plan.company(m) if n.slot == 0) + width
        <= view.groups[view.group_of[m]].free_milli
    ]
    return None if None in refusals or not refusals else refusals[0]


def _from_now(seconds: float) -> str:
    """When something is, or was: a clock's seconds say nothing to people."""
    return f"in about {seconds:.0f} s" if seconds >= 0.0 else f"{-seconds:.0f} s ago"


def _further(task: Task) -> str:
    text = amount_text(task.resources)
    return f" and {text}" if text else ""
