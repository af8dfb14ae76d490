"""Reads a plan off: what is bound now, what waits, and the reason in a sentence, made where the prices still are."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from flowsched.cluster.compaction import MachineGroup
from flowsched.cluster.decision import Placement, Postponement
from flowsched.cluster.resource import Amounts
from flowsched.cluster.snapshot import PlannedStart, Task
from flowsched.gpu.devices import TaskGpus
from flowsched.pricing.arrival import Arrival, Colocation, joined
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.pricing.topology_prices import TopologyPrices
from flowsched.relations.relation import Relation
from flowsched.round import wait_reasons
from flowsched.round.assignment import Assignment
from flowsched.round.passes import Deciding
from flowsched.round.reservation import OverdueDemands
from flowsched.round.round_model import RoundModel


class BelowDemand(NamedTuple):
    """The best free devices of a machine, which are of less utility than a task demands."""

    machine: str
    devices: Sequence[int]
    link_class: str | None
    """The slowest between them."""
    communication: float
    interference: float
    fragmentation: float
    utility: float
    demanded: float

    @property
    def text(self) -> str:
        """The sentence about the task, which is its subject, without a full stop."""
        numbers = ", ".join(str(device) for device in self.devices)
        link = "" if self.link_class is None else f", linked by {self.link_class},"
        return (
            f"waits for better GPUs: the best free ones, {numbers} of {self.machine}{link} are of utility "
            f"{self.utility:.2f}, and it demands {self.demanded:g} (distance costs {self.communication:.2f}, "
            f"interference {self.interference:.2f}, what is left free {self.fragmentation:.2f})"
        )


def placements(deciding: Deciding) -> tuple[Placement, ...]:
    """Tasks that start now, with the terms of their cost."""
    deciding.options.states.tell()
    model, plan = deciding.model, deciding.plan
    for m in plan.arrived():
        # The terms of a machine's arrivals ask for it with and without each of them.
        colocation = plan.colocation(m)
        without = (colocation[:i] + colocation[i + 1 :] for i in range(len(colocation)))
        model.prices.machine_costs(model.view.group_of[m], (colocation, *without))
    view = model.view
    bound = []
    devices: dict[int, list[tuple[int, ...]]] = {}
    for m in plan.arrived():
        g = view.group_of[m]
        if model.prices.gpus is not None and view.groups[g].devices_left:
            devices[m] = model.prices.gpus.devices(view.machines[m].name, g, plan.colocation(m))
    given: dict[tuple[int, Arrival], int] = {}
    for task, option in enumerate(plan.options):
        if option is None or option.start_after > 0:
            continue
        g = view.group_of[option.machine]
        colocation = plan.colocation(option.machine)
        c = view.class_of[task]
        arrival = Arrival(c, 0, option.width_milli, option.shared)
        member = colocation.index(arrival)
        # Of equal arrivals each has devices of its own.
        turn = given.get((option.machine, arrival), 0)
        given[option.machine, arrival] = turn + 1
        terms = model.prices.machine_terms(g, colocation, member)
        cores, threads = model.forecasts.place(g, colocation[member])
        bound.append(
            Placement(
                view.tasks[task].name,
                view.machines[option.machine].name,
                option.width_milli,
                threads,
                cores,
                sum(terms.values()),
                terms,
                devices[option.machine][member + turn] if option.machine in devices else (),
            )
        )
    return tuple(bound)


def postponements(
    deciding: Deciding, plan: Assignment, overdue: OverdueDemands, reasons: Mapping[int, str] | None = None
) -> tuple[Postponement, ...]:
    """Tasks that wait: planned for later on some machine, or on the unscheduled node.

    ``reasons`` are known already for tasks whose group waits, and for tasks that a relation refused at last.
    """
    model = deciding.model
    view = model.view
    known = reasons or {}
    now = view.snapshot.now_s
    reserved = {r.task: r for r in overdue.reservations}
    unscheduled = [t for t, option in enumerate(plan.options) if option is None]
    untold = [t for t in unscheduled if not known.get(t) and view.tasks[t].name not in reserved]
    reasons_of = _WaitingReasons(deciding, plan, untold)
    left = []
    for t, option in enumerate(plan.options):
        task = view.tasks[t]
        waited = now - task.submit_s
        if option is not None and option.start_after == 0:
            continue
        if option is not None:
            machine = view.machines[option.machine].name
            planned = PlannedStart(task.name, machine, option.start_after, option.width_milli)
            g = view.group_of[option.machine]
            colocation = plan.colocation(option.machine)
            member = colocation.index(Arrival(view.class_of[t], *option[1:]))
            start = ""
            if (found := model.prices.forecast(g, colocation)) is not None:
                start = f" (in about {found.starts_s[member]:.0f} s)"
                begins_s = now + found.starts_s[member] + view.snapshot.start_delay.after_waiting_s
                ends_s = None if task.endless else round(now + found.arrivals_s[member], 6)
                planned = replace(planned, start_s=round(begins_s, 6), end_s=ends_s)
            count = "the next completion" if option.start_after == 1 else f"{option.start_after} completions"
            terms = model.prices.machine_terms(g, colocation, member)
            left.append(
                Postponement(
                    task.name,
                    f"waits for {count} on {machine}{start}: {_why_not_now(model, plan, t)}",
                    waited,
                    sum(terms.values()),
                    terms,
                    planned,
                )
            )
            continue
        terms = model.prices.waiting_terms(view.class_of[t])
        reason = known.get(t)
        held = reserved.get(task.name)
        if held is not None:
            in_s = held.start_s - now
            alone = wait_reasons.reserved(held.machine, in_s, held.overdue).text
            reason = alone if reason is None else f"{reason}; {wait_reasons.kept(held.machine, in_s)}"
        left.append(Postponement(task.name, reason or reasons_of.of(t), waited, sum(terms.values()), terms))
    return tuple(left)


def _why_not_now(model: RoundModel, plan: Assignment, task: int) -> str:
    """Whether a task that waits for a machine could have started at all, beside those that start."""
    view = model.view
    wanted = view.tasks[task]
    able = np.flatnonzero(view.roomy(wanted) & view.allowed_to(wanted)).tolist()
    for here, m in ((view.groups[g], m) for g in able for m in view.groups[g].members):
        starting = [n for n in plan.colocation(m) if n.start_after == 0]
        cpu = sum(n.width_milli for n in starting) + wanted.widths_milli[0]
        memory = sum(view.classes[n.task_class].task.memory_mib for n in starting) + wanted.memory_mib
        if cpu <= here.free_milli and memory <= here.free_memory_mib:
            return "starting now anywhere costs more"
    return "no machine has room for it now"


class _WaitingReasons:
    """The first sentence an operator needs of a task on the unscheduled node: no machine at all, none with room, or none
    worth it now. What many tasks have in common is found once.
    """

    def __init__(self, deciding: Deciding, plan: Assignment, tasks: Sequence[int]) -> None:
        """Of ``tasks``, beside a plan."""
        self._model, self._view, self._plan = deciding.model, deciding.model.view, plan
        self._closest = deciding.closest_now(tasks)
        self._shortages: dict[Hashable, str | None] = {}

    def of(self, task: int) -> str:
        """Of one of the tasks."""
        model, view = self._model, self._view
        wanted, c = view.tasks[task], view.class_of[task]
        if not view.groups:
            return wait_reasons.not_allowed(0).text
        if task in self._closest:
            price, machine = self._closest[task]
            name = view.machines[machine].name
            if (sets := below_demand(model, self._plan.colocation(machine), task, machine)) is not None:
                return sets.text
            return wait_reasons.too_dear(model.waiting(task), price, name).text
        key = wanted.machines, wanted.widths_milli[0], wanted.memory_mib, wanted.resources, wanted.gpus
        if key not in self._shortages:
            self._shortages[key] = self._shortage(wanted)
        shortage = self._shortages[key]
        if shortage is not None:
            return shortage
        width = wanted.widths_milli[0]
        roomy = np.flatnonzero(view.large_enough(wanted, width) & view.roomy(wanted)).tolist()
        refusals = _refused_everywhere(model, self._plan, task, roomy)
        if refusals:
            return wait_reasons.closed_by(refusals).text
        prices = model.prices
        alone = (Arrival(c, 0, width),)
        if all(prices.machine_cost(g, alone) - prices.machine_cost(g, ()) == FORBIDDEN for g in roomy):
            utilities = [prices.utility(g, alone, 0) for g in roomy]
            best = max((u for u in utilities if u is not None), default=None)
            if wanted.min_utility is not None and best is not None and best < wanted.min_utility:
                return f"its utility now would be {best:.2f} at best, below the {wanted.min_utility:g} that it demands"
            return wait_reasons.breaks_a_goal().text
        return wait_reasons.promised(model.waiting(task)).text

    def _shortage(self, wanted: Task) -> str | None:
        """Why no machine has room for such a task, whatever else starts; None where one has."""
        view, width = self._view, wanted.widths_milli[0]
        allowed = view.allowed_to(wanted)
        if not allowed.any():
            return wait_reasons.not_allowed(len(view.snapshot.machines)).text
        asked = [(name, units) for name, units in _resources(width, wanted.memory_mib, wanted.resources) if units > 0]
        needs = wait_reasons.amounts(asked) + ("" if wanted.gpus is None else f" and {wanted.gpus}")
        large = view.large_enough(wanted, width)
        if not large.any():
            endless = any(view.groups[g].endless for g in np.flatnonzero(allowed))
            return wait_reasons.too_large(needs, beside_endless=endless).text
        if (large & view.roomy(wanted)).any():
            return None
        groups = [view.groups[g] for g in np.flatnonzero(large)]
        if wanted.gpus is not None:
            return f"needs {needs} on one machine; {_most_devices(groups, wanted.gpus)}"
        emptiest = max(groups, key=lambda g: g.free_milli)
        free = dict(_resources(emptiest.free_milli, emptiest.free_memory_mib, emptiest.free_resources.items()))
        there = wait_reasons.amounts((name, free.get(name, 0)) for name, _ in asked)
        return wait_reasons.no_room(needs, emptiest.machine.name, there).text


def _resources(cpu_milli: int, memory_mib: int, others: Amounts) -> list[tuple[str, int]]:
    return [("cpu", cpu_milli), ("memory", memory_mib), *others]


def below_demand(model: RoundModel, others: Colocation, task: int, machine: int) -> BelowDemand | None:
    """Why a task waits that demands more utility of its devices than the best free ones of a machine have, beside the
    ``others`` that start or are planned there; None where that is not why.
    """
    wanted, prices = model.view.tasks[task], model.prices.gpus
    if not isinstance(prices, TopologyPrices) or not model.prices.settings.gpu_postpones or wanted.min_utility is None:
        return None
    g, arrival = model.view.group_of[machine], Arrival(model.view.class_of[task], 0, wanted.widths_milli[0])
    colocation = joined(others, arrival)
    choice = prices.choices(g, colocation).get(colocation.index(arrival))
    if choice is None or choice.terms.utility >= wanted.min_utility:
        return None
    return BelowDemand(
        model.view.machines[machine].name,
        choice.devices,
        prices.link_class(g, choice.devices),
        *choice.terms,
        utility=choice.terms.utility,
        demanded=wanted.min_utility,
    )


def _most_devices(suited: Sequence[MachineGroup], wanted: TaskGpus) -> str:
    """What is left on the GPUs of the machine that comes closest to what a task asks for."""
    most = max(suited, key=lambda g: (sum(left >= wanted.share_milli for left in g.devices_left), max(g.devices_left)))
    left = ", ".join(f"{milli}m" for milli in sorted(most.devices_left, reverse=True))
    return f"of the machines that suit it {most.machine.name} has most left: {left} of its GPUs"


def _refused_everywhere(model: RoundModel, plan: Assignment, task: int, roomy: list[int]) -> list[Relation]:
    """The relations that keep a task off the machines with room, with those there who start now; none if one is open."""
    if not model.related(task):
        return []
    view = model.view
    domain_counts = view.counted_with(plan.starting())
    width = view.tasks[task].widths_milli[0]
    members = (m for g in roomy for m in view.groups[g].members)
    # What arrivals take of a machine matters here: the relation is to blame for those with room left.
    refusals = [
        domain_counts.refusal(view.tasks[task], view.machines[m].name)
        for m in members
        if sum(n.width_milli for n in plan.colocation(m) if n.start_after == 0) + width
        <= view.groups[view.group_of[m]].free_milli
    ]
    return [] if None in refusals else [r for r in refusals if r is not None]
