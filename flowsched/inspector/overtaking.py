"""Tasks that came later than a waiting one and start before it, and why.

Every reason is read off the round as it was restored; where none can be proven, only that the place costs less than waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from flowsched.inspector.flow_task import FlowTask
from flowsched.inspector.placed_facts import why_now
from flowsched.inspector.refusals import SHOWN
from flowsched.inspector.restored_round import RestoredRound, remembered
from flowsched.inspector.running_changes import let_in
from flowsched.inspector.task_sentences import title_of
from flowsched.inspector.wait_cause import WaitCause
from flowsched.inspector.wording import Facts, amount_text, seconds_text
from flowsched.pricing.arrival import Arrival, Colocation, joined
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.round.assignment import Assignment, PlacementOption
from flowsched.round.order import goes_by_length, pool_of, worths
from flowsched_models.quantity import count_cores

_UNITS = {"cpu": "milli", "memory": "MiB"}
_STEP = 1e-9
"""Costs that differ by less are equal."""


class StartsFirst(StrEnum):
    """Why a task that came later starts first; the first that holds is told."""

    PRIORITY = "priority"
    DUE = "due"
    """It is overdue and fits, so it had to start."""
    GROUP = "group"
    """Its task group fits as a whole, so it had to start."""
    NOT_ALLOWED = "not_allowed"
    """It is on a machine that the waiting task may not use."""
    BACKFILLED = "backfilled"
    """It is predicted to end before the start that its machine is reserved for."""
    SMALLER = "smaller"
    """It fits where the waiting task does not, whatever came later."""
    NO_PLACE = "no_place"
    """It is where the waiting task could not start, whatever came later, for another reason than CPU and memory."""
    SHORTER = "shorter"
    """More weight per second of run time: it was offered places first, as not all that waits fits."""
    WIDER = "wider"
    """More cores: wide tasks that are not much longer are offered places before narrow ones, as not all that waits fits."""
    IDLE_MACHINE = "idle_machine"
    """It was planned for later on a machine where nothing that ends runs."""
    NOTHING_RUNS = "nothing_runs"
    """Nothing that ends runs anywhere, and no other task would have started."""
    COST = "cost"
    """Its place costs less than waiting, and every place of the waiting task costs more than that."""
    CHEAPER = "cheaper"
    """Its place costs less than waiting; nothing more can be proven."""
    PLAN = "plan"
    """It is so in the plan that the round found; nothing more can be proven."""


_NEVER_STARTS = (WaitCause.NEVER, WaitCause.NOT_ALLOWED)


def overtaking_facts(
    task: FlowTask, cause: WaitCause, starts_s: float | None, closest: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """``count`` of the tasks that came later and start before a waiting one, and ``rows`` by reason; None without the models
    and for a task that never starts.

    ``starts_s``: in how many seconds it is predicted to start itself, where that is known; only then tasks that are planned
    for later are compared with it. ``closest``: the cheapest place that would start now.
    """
    if task.opened is None or cause in _NEVER_STARTS:
        return None
    dearer = cause in (WaitCause.COST, WaitCause.PLANNED) and closest is not None and closest["more"] >= 0.0
    passed = _Passed(task, task.opened, starts_s, dearer)
    rows: dict[tuple[StartsFirst, str], list[dict[str, Any]]] = {}
    for other in passed.later:
        reason, details = passed.reason(other)
        resource = str(details.get("resource", ""))
        name = task.opened.model.view.tasks[other].name
        rows.setdefault((reason, resource), []).append({"task": name, **details})
    order = list(StartsFirst)
    return {
        "count": len(passed.later),
        "rows": [
            {
                "reason": reason,
                **passed.own(reason, resource),
                "count": len(found),
                "tasks": found[:SHOWN],
                "more": len(found) - len(found[:SHOWN]),
            }
            for (reason, resource), found in sorted(rows.items(), key=lambda row: (order.index(row[0][0]), row[0][1]))
        ],
    }


@dataclass(frozen=True, eq=False)
class _Passed:
    """A waiting task, and what there is to say of those that start before it."""

    task: FlowTask
    opened: RestoredRound
    starts_s: float | None
    dearer: bool
    """Whether all that it could have now is known to cost more than what it has."""

    @cached_property
    def later(self) -> list[int]:
        """Tasks that came later and start before it: those that start now first, then by arrival."""
        view, options = self.opened.model.view, self.opened.decided.options
        mine = view.tasks[self.task.number].submit_s
        placed = {p.task for p in self.task.part.placements}
        found = []
        for t, other in enumerate(view.tasks):
            option = options[t]
            if other.submit_s <= mine or t == self.task.number:
                continue
            if other.name in placed:
                found.append((0.0, other.arrival, t))
            elif self.starts_s is not None and option is not None and option.start_after > 0:
                at = None if (planned_s := self.opened.planned_s(t)) is None else planned_s[0]
                if at is not None and at < self.starts_s:
                    found.append((at, other.arrival, t))
        return [t for _, _, t in sorted(found)]

    @cached_property
    def _came_later(self) -> frozenset[int]:
        return frozenset(self.later)

    @cached_property
    def _let_in(self) -> frozenset[str]:
        return let_in(self.task.part)

    @cached_property
    def _costs(self) -> Mapping[str, float]:
        """What each task of the part costs where it starts or is planned."""
        part = self.task.part
        costs = {w.task: w.cost for w in part.waiting if w.cost is not None}
        return costs | {p.task: p.cost for p in part.placements}

    def own(self, reason: StartsFirst, resource: str) -> dict[str, Any]:
        """What the waiting task has to compare with."""
        view, own = self.opened.model.view, self.opened.model.view.tasks[self.task.number]
        match reason:
            case StartsFirst.PRIORITY:
                return {"own_priority": own.priority}
            case StartsFirst.SMALLER:
                asks = self.task.width_milli if resource == "cpu" else own.memory_mib
                return {"resource": resource, "own_asks": asks}
            case StartsFirst.SHORTER:
                run_s = self.opened.model.prices.goals.left_s(view.class_of[self.task.number])
                return {"own_run_s": run_s, "own_weight": own.weight}
            case StartsFirst.WIDER:
                return {"own_width_milli": self.task.width_milli}
        return {}

    def reason(self, other: int) -> tuple[StartsFirst, dict[str, Any]]:
        """Why one of them starts first, with what shows it."""
        opened, view = self.opened, self.opened.model.view
        own, wanted, option = view.tasks[self.task.number], view.tasks[other], opened.decided.options[other]
        overdue = view.snapshot.age_s(own) > opened.overdue_age_s(own.name)
        if wanted.priority > own.priority and not (overdue and opened.settings.aging_crosses_priority):
            return StartsFirst.PRIORITY, {"priority": wanted.priority}
        if wanted.name in self._let_in or option is None:
            return StartsFirst.PLAN, {}
        where = {"machine": view.machines[option.machine].name}
        why = None
        if option.start_after == 0:
            why = why_now(self.task.part, opened, wanted.name, where["machine"])
            if why in (StartsFirst.DUE, StartsFirst.GROUP):
                age = {"due_age_s": opened.overdue_age_s(wanted.name)} if why == StartsFirst.DUE else {}
                return StartsFirst(why), age
            closed = self._closed(other, option)
            if closed is not None:
                return closed[0], {**where, **closed[1]}
        if self._came_first(other):
            runs_s = [opened.model.prices.goals.left_s(view.class_of[t]) for t in (other, self.task.number)]
            if wanted.weight * runs_s[1] <= own.weight * runs_s[0] and wanted.widths_milli[0] > own.widths_milli[0]:
                return StartsFirst.WIDER, {"width_milli": wanted.widths_milli[0], "run_s": runs_s[0]}
            return StartsFirst.SHORTER, {"run_s": runs_s[0], "weight": wanted.weight}
        if why in (StartsFirst.IDLE_MACHINE, StartsFirst.NOTHING_RUNS):
            return StartsFirst(why), where
        if self._costs.get(wanted.name, FORBIDDEN) < opened.model.waiting(other) - _STEP:
            return (StartsFirst.COST if self.dearer else StartsFirst.CHEAPER), {}
        return StartsFirst.PLAN, {}

    def _closed(self, other: int, option: PlacementOption) -> tuple[StartsFirst, dict[str, Any]] | None:
        """Why the waiting task could not be where another one starts, if all that came later were not there."""
        model, view, m = self.opened.model, self.opened.model.view, option.machine
        g, c = view.group_of[m], self.task.task_class
        if not view.allowed(c, m):
            return StartsFirst.NOT_ALLOWED, {}
        rest = self._earlier_on(m)
        together = joined(rest, Arrival(c, 0, self.task.width_milli))
        held = self._backfilled(other, option)
        if held is not None and self._is_reserved(m):
            return StartsFirst.BACKFILLED, held
        own, wanted = view.tasks[self.task.number], view.tasks[other]
        free = view.groups[g].free_milli - sum(a.width_milli for a in rest)
        if self.task.width_milli > free >= option.width_milli:
            return StartsFirst.SMALLER, {"resource": "cpu", "asks": option.width_milli, "free": free}
        memory = view.groups[g].free_memory_mib - sum(view.classes[a.task_class].task.memory_mib for a in rest)
        if own.memory_mib > memory >= wanted.memory_mib:
            return StartsFirst.SMALLER, {"resource": "memory", "asks": wanted.memory_mib, "free": memory}
        if model.prices.machine_cost(g, together) == FORBIDDEN:
            return StartsFirst.NO_PLACE, {}
        if held is not None and model.machine_cost(m, together) == FORBIDDEN:
            return StartsFirst.BACKFILLED, held
        return None

    def _is_reserved(self, machine: int) -> bool:
        name = self.opened.model.view.machines[machine].name
        return any(r["machine"] == name and r["task"] == self.task.name for r in self.task.part.reservations)

    def _earlier_on(self, machine: int) -> Colocation:
        """What starts on a machine and did not come later."""
        decided, later = self.opened.decided, self._came_later
        here = [(t, o) for t in decided.on(machine) if (o := decided.options[t]) is not None]
        return tuple(
            sorted(Arrival(decided.class_of[t], *o[1:]) for t, o in here if o.start_after == 0 and t not in later)
        )

    def _backfilled(self, other: int, option: PlacementOption) -> dict[str, Any] | None:
        """When another one ends on a machine that is reserved, in seconds from now, and from when that is."""
        model, decided = self.opened.model, self.opened.decided
        hold = model.holds.get(option.machine)
        c = model.view.class_of[other]
        if hold is None or c in hold.above or not 0.0 < hold.start_s < FORBIDDEN:
            return None
        colocation = decided.colocation(option.machine)
        found = model.prices.forecast(model.view.group_of[option.machine], colocation)
        if found is None:
            return None
        end_s = found.arrivals_s[colocation.index(Arrival(c, *option[1:]))]
        return {"end_s": end_s, "reserved_s": hold.start_s} if end_s <= hold.start_s else None

    def _came_first(self, other: int) -> bool:
        """Whether passes offered another one places first, as it is shorter for its weight, or wider."""
        model, own = self.opened.model, self.task.number
        view, first = model.view, self.task.part.first_batch
        if view.tasks[other].priority != view.tasks[own].priority or own in model.barred:
            return False
        turn = _turns(self.opened, view.tasks[own].priority)
        if turn.get(other, len(turn)) > turn.get(own, -1):
            return False
        if not (goes_by_length(model, other) and goes_by_length(model, own)):
            return False
        theirs, mine = worths(model, [other, own])
        if theirs <= mine:
            return False
        never = len(self.task.part.passes)
        return first.get(view.tasks[other].name, never) < first.get(self.task.name, never)


@remembered
def _turns(opened: RestoredRound, level: int) -> Mapping[int, int]:
    """The tasks that passes of a level offered places to, by turn; nothing where all that waits fits."""
    view, model = opened.model.view, opened.model
    members = {t for gang in opened.gangs.all for t in gang.members}
    before = {t for t in model.must_start if t in members or opened.settings.aging_crosses_priority}
    mine = [t for t, task in enumerate(view.tasks) if task.priority == level and t not in before]
    higher = [
        o if view.tasks[t].priority > level or (t in before and view.tasks[t].priority == level) else None
        for t, o in enumerate(opened.plan.options)
    ]
    pool, scarce = pool_of(model, Assignment(higher, opened.plan.class_of, opened.plan.machines), mine)
    return {} if scarce is None or scarce.by_age else {t: i for i, t in enumerate(pool)}


def overtaking_sentences(facts: Facts) -> list[str]:
    """One sentence for each reason why tasks that came later start before this one."""
    found = facts.get("came_later")
    return [] if found is None else [_sentence(facts, row) for row in found["rows"]]


def _sentence(facts: Facts, row: Facts) -> str:
    listed = ", ".join(title_of(facts, t["task"]) + _detail(row, t) for t in row["tasks"])
    listed += f" and {row['more']} more" if row["more"] else ""
    return f"Came later but start{'s' if row['count'] == 1 else ''} first, {_why(row)}: {listed}."


def _why(row: Facts) -> str:
    match row["reason"]:
        case StartsFirst.PRIORITY:
            return f"of higher priority than its {row['own_priority']}"
        case StartsFirst.DUE:
            return "overdue and so bound to start"
        case StartsFirst.GROUP:
            return "bound to start with a task group that fits as a whole"
        case StartsFirst.NOT_ALLOWED:
            return "where it may not run"
        case StartsFirst.BACKFILLED:
            return "predicted to end before the machine is needed for a reservation"
        case StartsFirst.SMALLER:
            asks = amount_text(row["own_asks"], row["resource"], _UNITS)
            return f"smaller than the {asks} of {row['resource']} that it asks for"
        case StartsFirst.NO_PLACE:
            return "where it has no place even without what came later"
        case StartsFirst.SHORTER if _equal_weights(row):
            return f"shorter than its {seconds_text(row['own_run_s'])} and so offered places first"
        case StartsFirst.SHORTER:
            mine = f"weight {row['own_weight']:g}, {seconds_text(row['own_run_s'])}"
            return f"with more weight per second of run time than it has ({mine}) and so offered places first"
        case StartsFirst.WIDER:
            return f"wider than its {count_cores(row['own_width_milli'])} and so offered places first"
        case StartsFirst.IDLE_MACHINE:
            return "where nothing that ends runs"
        case StartsFirst.NOTHING_RUNS:
            return "as nothing that ends runs anywhere and no other task would start"
        case StartsFirst.COST:
            return "as that costs less than waiting, while starting now costs this one more"
        case StartsFirst.CHEAPER:
            return "as that costs less than waiting"
        case _:
            return "in the plan that the round found"


def _detail(row: Facts, other: Facts) -> str:
    on = f" on {other['machine']}" if "machine" in other else ""
    match row["reason"]:
        case StartsFirst.PRIORITY:
            return f" ({other['priority']})"
        case StartsFirst.DUE:
            return f" (after {seconds_text(other['due_age_s'])})"
        case StartsFirst.BACKFILLED:
            return f"{on} (in {seconds_text(other['end_s'])}, needed in {seconds_text(other['reserved_s'])})"
        case StartsFirst.SMALLER:
            asks, free = (amount_text(other[k], row["resource"], _UNITS) for k in ("asks", "free"))
            return f"{on} ({asks}, {free} free)"
        case StartsFirst.SHORTER if _equal_weights(row):
            return f" ({seconds_text(other['run_s'])})"
        case StartsFirst.SHORTER:
            return f" (weight {other['weight']:g}, {seconds_text(other['run_s'])})"
        case StartsFirst.WIDER:
            return f" ({count_cores(other['width_milli'])}, {seconds_text(other['run_s'])})"
        case _:
            return on


def _equal_weights(row: Facts) -> bool:
    return all(t["weight"] == row["own_weight"] for t in row["tasks"])
