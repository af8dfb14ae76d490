"""The last check of a round: all that is bound now can be, one after the other, under all relations and task groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from flowsched.cluster.domain_counts import DomainCounts, demand_text
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.round.assignment import Assignment, PlacementOption
from flowsched.round.gang import Gangs, RoundGang
from flowsched.round.round_model import RoundModel


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


def repair(model: RoundModel, plan: Assignment, gangs: Gangs) -> Repaired:
    """Move what a relation refuses to the next best place, or let it wait; then undo groups that became too small.

    Only tasks that start now count as there: unlike in the passes, those planned for later do not.
    """
    if not gangs.all and not any(model.related(t) for t in range(len(plan.options))):
        return Repaired(plan)
    plan = plan.copy()
    reasons: dict[int, str] = {}
    repairs: list[Repair] = []
    while True:
        _keep_relations(model, plan, reasons, repairs)
        broken = [gang for gang in gangs.all if 0 < len(_starting(plan, gang)) < gang.needed]
        if not broken:
            return Repaired(plan, reasons, tuple(repairs))
        # Tasks that followed a member may have to wait as well: look again without the gang.
        for gang in broken:
            count = len(_starting(plan, gang))
            for t in gang.members:
                option = plan.options[t]
                if option is not None and option.start_after == 0:
                    repairs.append(Repair(_name(model, t), model.view.machines[option.machine].name, None, None))
                plan.move(t, None)
                reasons[t] = gang.why_all_wait(count, model.view.snapshot.now_s)
        gone = frozenset(t for gang in broken for t in gang.members)
        model = replace(model, barred=model.barred | gone, must_start=model.must_start - gone)


def _keep_relations(model: RoundModel, plan: Assignment, reasons: dict[int, str], repairs: list[Repair]) -> None:
    """Change ``plan`` until all who start now can do so in some order."""
    view = model.view
    starting = [t for t, _ in plan.starting() if model.related(t)]
    domain_counts = view.domain_counts.copy()
    admitted = set(model.in_order(plan, starting, domain_counts))
    now = replace(model, starts=1)
    # Tasks that must start choose first.
    left = sorted((t for t in starting if t not in admitted), key=lambda t: (t not in model.must_start, t))
    while left:
        t = left.pop(0)
        option = plan.options[t]
        assert option is not None, "it was about to start"
        refusal = domain_counts.refusal(view.tasks[t], view.machines[option.machine].name)
        if refusal is not None:
            plan.move(t, None)
            place = _next_best(now, plan, t, domain_counts)
            plan.move(t, place)
            target = None if place is None else view.machines[place.machine].name
            repairs.append(Repair(_name(model, t), view.machines[option.machine].name, refusal.name, target))
            if place is None:
                reasons[t] = f"the round left no place for it; {demand_text(refusal)}"
                continue
            option = place
        domain_counts.add(view.tasks[t], view.machines[option.machine].name)
        # A task that was refused may go where the plan had it, now that this one is placed.
        left = [other for other in left if other not in model.in_order(plan, [other], domain_counts)]


def _next_best(now: RoundModel, plan: Assignment, task: int, domain_counts: DomainCounts) -> PlacementOption | None:
    """The cheapest place beside the tasks that are counted, None where waiting costs less."""
    best: tuple[float, PlacementOption | None] = (FORBIDDEN if task in now.must_start else now.waiting(task), None)
    for machine in range(len(now.view.machines)):
        if domain_counts.refusal(now.view.tasks[task], now.view.machines[machine].name) is not None:
            continue
        price, option = now.best_option(plan, task, machine)
        if option is not None and price < best[0] - 1e-12:
            best = (price, option)
    return best[1]


def _starting(plan: Assignment, gang: RoundGang) -> list[int]:
    return [t for t in gang.members if (c := plan.options[t]) is not None and c.start_after == 0]


def _name(model: RoundModel, task: int) -> str:
    return model.view.tasks[task].name
