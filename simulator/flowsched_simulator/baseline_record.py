"""Records of baselines: what they saw and decided, in the shape of a round, with the costs that ``flow`` would give it.

A greedy rule solves no network, has no certificate and plans nothing for later. Its placements are priced as ``flow`` prices
its own, each task by its own goal, so that two schedulers on one snapshot can be compared: the task with the width that it
got, on all batch cores of the machine. Where a baseline granted other cores than these, or a co-location that ``flow``
forbids, no task that came to that machine has a cost: it is 0 and has no terms.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

from flowsched.cluster.decision import Decisions, Placement, Postponement, Scheduler
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot
from flowsched.pricing.arrival import Arrival
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.records.record import plain_nothing, plain_placements, plain_postponements, record_head
from flowsched.round.assignment import Assignment, PlacementOption
from flowsched.round.gang import Gangs, ordered_gangs
from flowsched.round.round_model import RoundModel
from flowsched.round.round_record import plain_head, plain_plan, plain_task_groups, rebuild_model
from flowsched_simulator.baselines.guarded_baseline import guard_of

NO_SOLVER = "none"
"""What stands in the place of a solver's name."""


class RecordedBaseline:
    """A baseline whose decisions come with a recipe for the round's record."""

    def __init__(self, baseline: Scheduler, variant: str, settings: Settings) -> None:
        """``settings``: those that ``flow`` has in the same comparison; they price the decisions."""
        self.name = baseline.name
        self._baseline = baseline
        self._guard = guard_of(baseline)
        self._variant = variant
        self._settings = settings

    def mistakes(self, what: str) -> AbstractContextManager[None]:
        """The baseline's guard, where it has one."""
        return self._guard(what)

    def decide(self, snapshot: Snapshot) -> Decisions:
        """The baseline's decisions."""
        began = time.perf_counter()
        decisions = self._baseline.decide(snapshot)
        decide_ms = (time.perf_counter() - began) * 1e3
        recipe = partial(
            baseline_record,
            snapshot,
            self.name,
            self._variant,
            self._settings,
            decisions.placements,
            decisions.postponements,
            decide_ms,
        )
        return replace(decisions, recipe=recipe)


def baseline_record(
    snapshot: Snapshot,
    name: str,
    variant: str,
    settings: Settings,
    placements: Sequence[Placement],
    postponements: Sequence[Postponement],
    decide_ms: float,
) -> dict[str, Any]:
    """The record of one round of a baseline, version 5. ``decide_ms``: how long it took."""
    model = rebuild_model(snapshot, settings, holds={}, must_start=frozenset(), barred=frozenset(), goal_s=None)
    view = model.view
    machine_of = {m.name: i for i, m in enumerate(view.machines)}
    task_of = {t.name: i for i, t in enumerate(view.tasks)}
    options: list[PlacementOption | None] = [None] * len(view.tasks)
    for p in placements:
        if p.machine in machine_of:
            options[task_of[p.task]] = PlacementOption(machine_of[p.machine], 0, p.width_milli)
    assignment = Assignment(options, view.class_of, len(view.machines))
    costs = _machine_costs(model, assignment, placements)
    bound_together: dict[str, Any] = {}
    if snapshot.relations or snapshot.task_groups:
        bound_together = {
            "task_groups": plain_task_groups(view, Gangs(ordered_gangs(view)), placements),
            "repairs": [],
        }
    # Of many machines alike the view has only some; a baseline may have taken one of the others.
    started = {p.task: {"machine": p.machine, "slot": 0, "width_milli": p.width_milli} for p in placements}
    plan = [{**entry, **started.get(entry["task"], {})} for entry in plain_plan(view, options)]
    head = plain_head(view)
    return {
        **record_head(snapshot.round, snapshot.now_s, name, NO_SOLVER, settings),
        **({"variant": variant} if variant else {}),
        "parts": [
            {
                **head,
                "first_network": plain_nothing(),
                "passes": [],
                "decided_by": [],
                "goal_s": None,
                "plan": plan,
                "machine_costs": costs,
                "placements": plain_placements(
                    [_priced(model, assignment, p, task_of[p.task], costs) for p in placements], head["machines"]
                ),
                "waiting": plain_postponements([_waiting(model, p, task_of[p.task]) for p in postponements]),
                "reservations": [],
                **bound_together,
                "certificate": None,
                "counts": {"forecasts": 0, "solves": 0},
                "timings": {"decide_ms": decide_ms},
            }
        ],
    }


def _machine_costs(model: RoundModel, plan: Assignment, placements: Sequence[Placement]) -> dict[str, float]:
    """Cost of every machine that ``flow`` can price with the tasks that came to it."""
    view = model.view
    group_of = {view.machines[m].name: g for g, group in enumerate(view.groups) for m in group.members}
    class_of = {task.name: view.class_of[t] for t, task in enumerate(view.tasks)}
    foreign = set()
    for p in placements:
        g = group_of.get(p.machine)
        if g is None or (p.cores, p.threads) != (
            view.groups[g].batch_cores,
            model.forecasts.threads(g, class_of[p.task]),
        ):
            foreign.add(p.machine)
    costs = {machine.name: model.cost(plan, m) for m, machine in enumerate(view.machines)}
    for g, group in enumerate(view.groups):
        costs |= dict.fromkeys(group.spares, model.prices.machine_cost(g, ()) if group.spares else 0.0)
    return {name: cost for name, cost in costs.items() if name not in foreign and cost != FORBIDDEN}


def _priced(model: RoundModel, plan: Assignment, p: Placement, task: int, costs: Mapping[str, float]) -> Placement:
    option = plan.options[task]
    if option is None or p.machine not in costs:
        return p
    c = model.view.class_of[task]
    colocation = plan.colocation(option.machine)
    member = colocation.index(Arrival(c, 0, option.width_milli))
    terms = model.prices.machine_terms(model.view.group_of[option.machine], colocation, member)
    return replace(p, cost=sum(terms.values()), terms=terms)


def _waiting(model: RoundModel, p: Postponement, task: int) -> Postponement:
    terms = model.prices.waiting_terms(model.view.class_of[task])
    return replace(p, cost=sum(terms.values()), terms=terms)
