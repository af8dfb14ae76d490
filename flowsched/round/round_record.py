"""A round at forecast prices as a level of its record: snapshot, classes, groups, networks, plan and decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from flowsched.cluster.compaction import View
from flowsched.cluster.decision import Placement
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot
from flowsched.cluster.snapshot_dump import dump_snapshot
from flowsched.pricing.flow_prices import FlowPrices
from flowsched.pricing.forecast_cache import forecast_cache
from flowsched.records.record import (
    COST_MODEL,
    FORECAST,
    LEVEL,
    finite_or_none,
    plain_certificate,
    plain_changes,
    plain_nothing,
    plain_placements,
    plain_postponements,
    plain_timings,
    record_head,
)
from flowsched.round.assignment import Assignment, PlacementOption
from flowsched.round.candidates import look
from flowsched.round.forecast_bound import certify_plan
from flowsched.round.gang import Gangs
from flowsched.round.hold import Hold
from flowsched.round.origin import Origin, PlanStage
from flowsched.round.pass_network import node_names
from flowsched.round.passes import Deciding, Pass
from flowsched.round.repair import Repair
from flowsched.round.round_model import RoundModel
from flowsched.round.running_changes import ChangedDecisions
from flowsched.solvers import Solver, Status
from flowsched_models.runtime import HostFactory


@dataclass(frozen=True, eq=False)
class RoundTrace:
    """All that the record of a round is made of. Nothing in it changes after the round, so another thread may use it."""

    solver: Solver
    settings: Settings
    snapshot: Snapshot
    deciding: Deciding
    planned: tuple[PlacementOption | None, ...]
    """The plan that passes and improvement ended with, by task of the view."""
    gangs: Gangs
    repairs: tuple[Repair, ...]
    goal_s: float | None
    changes: ChangedDecisions
    counts: Mapping[str, int]
    timings_ms: Mapping[str, float]
    stopped: tuple[str, ...] = ()
    """Reports of the solves that a time limit stopped."""


def round_record(trace: RoundTrace) -> dict[str, Any]:
    """The record of a round of the cost model ``flow``."""
    snapshot = trace.snapshot
    return {
        **record_head(snapshot.round, snapshot.now_s, COST_MODEL, trace.solver.name, trace.settings),
        **({"reproducible": False, "stopped": list(trace.stopped)} if trace.stopped else {}),
        "parts": [forecast_level(trace)],
    }


def rebuild_model(
    snapshot: Snapshot,
    settings: Settings,
    goal_s: float | None,
    holds: Mapping[int, Hold] = MappingProxyType({}),
    must_start: frozenset[int] = frozenset(),
    barred: frozenset[int] = frozenset(),
) -> RoundModel:
    """A round's prices and constraints from what they were made of, nothing shared with the round itself."""
    hosts = HostFactory(snapshot.catalogue)
    view = look(snapshot, hosts, settings)
    forecasts = forecast_cache(view, settings, hosts)
    prices = FlowPrices(forecasts, settings)
    if goal_s is not None:
        # As the round does: a goal of 0 comes from rounds in which no task has an end.
        prices = prices.with_goal(max(goal_s, 1e-3))
    return RoundModel(view, forecasts, prices, settings.slots, holds, must_start, barred)


def forecast_level(trace: RoundTrace) -> dict[str, Any]:
    """The level of a record that a round of passes is: its snapshot, classes, groups, networks, plan and decisions."""
    began, changes = trace.deciding.model, trace.changes
    model = rebuild_model(trace.snapshot, trace.settings, trace.goal_s, began.holds, began.must_start, began.barred)
    view = model.view
    plan = Assignment(list(trace.planned), view.class_of, len(view.machines))
    decided = Assignment(list(trace.deciding.plan.options), view.class_of, len(view.machines))
    bound_together: dict[str, Any] = {}
    if view.snapshot.relations or view.snapshot.task_groups:
        bound_together["task_groups"] = plain_task_groups(view, trace.gangs, changes.placements)
        bound_together["repairs"] = [asdict(r) for r in trace.repairs]
    passes = trace.deciding.passes
    undone = [_undone(view, trace, i) for i in range(len(passes))]
    head = plain_head(view)
    most = max(range(len(passes)), key=lambda i: standing(len(passes[i].booked), len(undone[i]), i), default=None)
    return {
        **head,
        "first_network": plain_nothing()
        if most is None
        else plain_pass(view, trace.deciding, passes[most], trace.solver),
        "passes": [
            {
                "number": i + 1,
                "batch": [view.tasks[t].name for t in one.batch],
                "booked": [view.tasks[t].name for t, _ in one.booked],
                "arcs": int(one.network.network.arc_count),
                "drawn": i == most,
                "goal_s": one.goal_s,
                **({} if i == most else {"network": plain_pass(view, trace.deciding, one, trace.solver)}),
                "undone": undone[i],
            }
            for i, one in enumerate(passes)
        ],
        "decided_by": _decided(view, trace),
        "goal_s": trace.goal_s,
        "plan": plain_plan(view, plan.options),
        "machine_costs": {
            **{machine.name: model.cost(plan, m) for m, machine in enumerate(view.machines)},
            **{name: model.prices.machine_cost(g, ()) for g, group in enumerate(view.groups) for name in group.spares},
        },
        "placements": plain_placements(changes.placements, head["machines"]),
        "waiting": plain_postponements(changes.postponements),
        "reservations": [asdict(r) | {"start_s": finite_or_none(r.start_s)} for r in changes.reservations],
        **plain_changes(
            changes.preemptions, changes.moves, [(p.task, p.machine, p.room_for) for p in changes.taken_back]
        ),
        **bound_together,
        "certificate": plain_certificate(certify_plan(model, plan, decided, trace.settings) if view.tasks else None),
        "counts": dict(trace.counts),
        "timings": plain_timings(trace.timings_ms),
    }


def plain_pass(view: View, deciding: Deciding, one: Pass, solver: Solver) -> dict[str, Any]:
    """A pass's network with its flow; an optimal one, even where a time limit stopped the solve.

    Terms: the price, and what rounding and the order of equally cheap options add to it (below a millionth of the price).
    """
    network, solution = one.network, one.solution
    if solution.status is not Status.OPTIMAL:
        solution = solver.solve(network.network)
    names = node_names(network, [c.task.name for c in view.classes], [m.name for m in view.machines])
    arcs = network.network.arc_count
    options = len(network.arc_price)
    cost = network.network.unit_costs / network.network.cost_scale
    # Of a class that must start the network's own price of waiting: more than any plan could save by it.
    prices = cost.copy()
    prices[:options] = network.arc_price
    waits = prices[options : options + len(network.classes)]
    waits[:] = np.where(np.isfinite(network.unscheduled), network.unscheduled, waits)
    slots, widths = np.full(arcs, -1, np.int64), np.full(arcs, -1, np.int64)
    slots[:options] = network.arc_start_after
    widths[:options] = [deciding.model.prices.variants.ways[v][0] for v in network.arc_variant.tolist()]
    named = replace(
        network.network, nodes=names, terms={"price": prices, "tie_break": cost - prices}, units=np.ones(arcs, np.int64)
    )
    return named.to_plain(solution.flow, {"slot": slots, "width_milli": widths})


def _decided(view: View, trace: RoundTrace) -> list[dict[str, Any]]:
    """For every task that starts or is planned, the stage that gave it its place; passes are numbered from 1."""
    machine_of = {machine.name: m for m, machine in enumerate(view.machines)}
    starts = {p.task: machine_of[p.machine] for p in trace.changes.placements}
    waits = {p.task for p in trace.changes.taken_back}
    entries: list[dict[str, Any]] = []
    for t, task in enumerate(view.tasks):
        option = trace.deciding.plan.options[t]
        machine = starts.get(task.name, None if option is None or task.name in waits else option.machine)
        if machine is None:
            continue
        let_in = task.name in trace.changes.let_in
        origin = Origin(PlanStage.PREEMPTION) if let_in else trace.deciding.origins[t]
        planned = trace.planned[t]
        early = not let_in and planned is not None and planned.start_after > 0 and task.name in starts
        entries.append(
            {
                "task": task.name,
                "machine": view.machines[machine].name,
                **_plain_origin(origin),
                **({"early": True} if early and origin.stage is not PlanStage.REPAIR else {}),
            }
        )
    return entries


def standing(booked: int, undone: int, number: int) -> tuple[int, int, int]:
    """The order of passes, the one that is drawn last: most tasks that stay where it placed them, then most that it placed,
    then the first.
    """
    return booked - undone, booked, -number


def _undone(view: View, trace: RoundTrace, number: int) -> list[dict[str, Any]]:
    """Tasks that a pass placed and that are not there in the end, each with what changed it."""
    deciding = trace.deciding
    waits = {p.task for p in trace.changes.taken_back}
    found: list[dict[str, Any]] = []
    for t, _ in deciding.passes[number].booked:
        name, origin = view.tasks[t].name, deciding.origins.get(t)
        if name in waits:
            found.append({"task": name, "by": str(PlanStage.PREEMPTION)})
        elif origin is None:
            found.append({"task": name, "by": None})
        elif origin.number != number:
            found.append({"task": name, "by": str(origin.stage)})
    return found


def _plain_origin(origin: Origin) -> dict[str, Any]:
    """The stage; of a network its pass too, and of what has prices those."""
    plain: dict[str, Any] = {"stage": str(origin.stage)}
    if origin.number is not None:
        plain["pass"] = origin.number + 1
    if origin.stage in (PlanStage.NETWORK, PlanStage.GREEDY):
        plain |= {"price": origin.price, "runner_up": finite_or_none(origin.runner_up)}
    return plain


def plain_head(view: View) -> dict[str, Any]:
    """What a level begins with: the snapshot, the machines by their index, classes of tasks and groups of machines."""
    snapshot = dump_snapshot(view.snapshot)
    return {
        "kind": LEVEL,
        "prices": FORECAST,
        "snapshot": snapshot,
        "machines": [machine["name"] for machine in snapshot["machines"]],
        "classes": [
            {"name": cls.task.name, "tasks": [view.tasks[i].name for i in cls.members]} for cls in view.classes
        ],
        "groups": [
            {
                "machine": group.machine.name,
                "members": [*(view.machines[i].name for i in group.members), *group.spares],
                "free_milli": group.free_milli,
                "free_memory_mib": group.free_memory_mib,
                **({"free_resources": dict(group.free_resources)} if group.free_resources else {}),
                "running": [r.task.name for r in group.running],
            }
            for group in view.groups
        ],
    }


def plain_plan(view: View, options: Sequence[PlacementOption | None]) -> list[dict[str, Any]]:
    """The option of every task of a view."""
    return [
        {
            "task": view.tasks[t].name,
            "machine": None if option is None else view.machines[option.machine].name,
            "slot": None if option is None else option.start_after,
            "width_milli": None if option is None else option.width_milli,
            "shared": None if option is None else option.shared,
        }
        for t, option in enumerate(options)
    ]


def plain_task_groups(view: View, gangs: Gangs, placements: Sequence[Placement]) -> list[dict[str, Any]]:
    """What the round decided about the groups that did not run before."""
    placed = {p.task for p in placements}
    return [
        {
            "name": gang.group.name,
            "minimum": gang.group.minimum,
            "running": gang.running,
            "members": [view.tasks[t].name for t in gang.members],
            "starts": any(view.tasks[t].name in placed for t in gang.members),
        }
        for gang in gangs.all
    ]
