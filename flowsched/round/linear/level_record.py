"""The levels of a decision at linear prices as parts of a record, as plain data, with what a replay needs.

A part holds the state that its level began with (machines, classes with their prices), the first network with its flow, what
was decided, and the certificate with all that its bound was computed from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from flowsched.cluster.machine_arrays import FIXED, UNLIMITED
from flowsched.cluster.snapshot_dump import dump_snapshot
from flowsched.cluster.task_class import TaskClass
from flowsched.pricing.linear import kernels
from flowsched.pricing.linear.policy import Feature
from flowsched.records.record import (
    LEVEL,
    LINEAR,
    finite_or_none,
    plain_certificate,
    plain_nothing,
    plain_timings,
    record_head,
)
from flowsched.relations.relation import TaskGroup
from flowsched.relations.topology_counts import TopologyCounts
from flowsched.round.certificate import certify
from flowsched.round.linear.changed_round import plain_changed
from flowsched.round.linear.cluster_rows import CPU
from flowsched.round.linear.linear_bound import Evidence
from flowsched.round.linear.linear_round import Level
from flowsched.round.linear.machine_groups import buckets_of, middles_of
from flowsched.round.linear.machine_reservation import MachineReservation
from flowsched.round.linear.network import ScaleNetwork
from flowsched.round.linear.network_trace import NetworkTrace, Roll
from flowsched.round.linear.reasons import PLACE
from flowsched.round.wait_reasons import Reason
from flowsched.solvers import Status, make_solver
from flowsched.support.arrays import BoolArray, FloatArray, IntArray


def linear_record(trace: NetworkTrace) -> dict[str, Any]:
    """The record of a round of a cost model."""
    head, given = trace.head, trace.given
    assert given is not None, "it was a round on a state"
    return {
        **record_head(head.number, head.now_s, head.policy, head.solver, head.settings),
        "settings": dict(given.settings),
        "cost_model": dict(given.cost_model),
        **({"reproducible": False, "stopped": list(head.stopped)} if head.stopped else {}),
        "upkeep": {kind: dict(counts) for kind, counts in head.upkeep.items()},
        "parts": linear_levels(trace),
    }


def linear_levels(trace: NetworkTrace, priority: int | None = None) -> list[dict[str, Any]]:
    """The parts of a record that a decision is. ``priority``: of its tasks, where their classes do not have it."""
    changed = {} if trace.head.changed is None else plain_changed(trace.head.changed)
    found = []
    for number, level in enumerate(trace.levels):
        classes = level.waiting.classes
        # Members of a gang may have lower ones than it is served with.
        own = max((trace.roll.classes[c].priority for c in classes.tolist()), default=0)
        found.append(
            {
                **_level(trace, number),
                **({"priority": own} if not trace.by_flow else {} if priority is None else {"priority": priority}),
                "given": {
                    "decision": 0,
                    "settings": asdict(trace.head.settings),
                    "task_groups": [asdict(TaskGroup(name, least)) for name, least in trace.groups.items()],
                    "members_elsewhere": dict(trace.members_elsewhere),
                    **({} if trace.by_flow else {"cost_model": trace.head.policy, "now_s": trace.head.now_s}),
                    **({"order": list(trace.order)} if trace.order and not number else {}),
                },
                **({} if number or trace.given is None else {"snapshot": dump_snapshot(trace.given.snapshot)}),
                **({} if number else changed),
            }
        )
    return found


def _level(trace: NetworkTrace, number: int) -> dict[str, Any]:
    """A level with all that is its own; the first one has the counts and the times of all, and who took no part."""
    roll, outcome, costs, level = trace.roll, trace.outcome, trace.costs, trace.levels[number]
    bound = outcome.bounds[number] if outcome.levels else None
    evidence, waiting = level.evidence, level.waiting
    rows = np.flatnonzero(evidence.open)
    names = _class_names(trace, level)
    group_of, keys = _groups(trace, level, rows)
    here = np.flatnonzero(np.isin(outcome.tasks, waiting.tasks))
    position = np.full(len(roll.machines), -1, dtype=np.int64)
    position[rows] = np.arange(len(rows))
    model = evidence.model
    prices = np.zeros(0) if bound is None else bound.prices[waiting.classes]
    certificate = None if bound is None else certify([bound], dict(zip(names, prices.tolist(), strict=True)))
    numbered = _class_numbers(trace)
    class_of = dict(
        zip(waiting.tasks.tolist(), np.repeat(waiting.classes, np.diff(waiting.first)).tolist(), strict=True)
    )
    outside = {} if number else _outside(trace)
    return {
        "kind": LEVEL,
        "prices": LINEAR,
        "features": [_plain_feature(feature) for feature in roll.features],
        "fixed": FIXED,
        "kinds": [_plain_kind(trace, k, model.factors, model.kind) for k in range(len(model.factors))],
        "machines": [roll.machines[row] for row in rows.tolist()],
        "fleet": {
            "resources": list(roll.resources),
            "allocatable": roll.allocatable[rows],
            "free": evidence.free[rows],
            "kind": model.kind[rows],
            "readings": evidence.readings[rows],
            "limits": np.where(model.limits[rows] >= UNLIMITED, np.inf, model.limits[rows].astype(np.float64)),
        },
        "places": [vars(places.changed(lambda values: values[rows])) for places in trace.places],
        "relations": [_plain_counts(counts, rows) for counts in level.topology_counts.values()],
        "classes": [
            _priced_class(
                trace,
                level,
                int(waiting.classes[i]),
                waiting.tasks[waiting.first[i] : waiting.first[i + 1]],
                np.minimum(waiting.cost[waiting.first[i] : waiting.first[i + 1]], evidence.most),
                names[i],
                numbered,
            )
            for i in range(len(waiting.classes))
        ],
        "outside": [_priced_outside(trace, level, c, members, numbered) for c, members in outside.items()],
        "group_of": group_of,
        "groups": [{"kind": key[0], "buckets": list(key[1:-1]), "signature": key[-1]} for key in keys],
        "first_network": _first(trace, level, names, group_of, keys, rows),
        "placements": {
            "task": [roll.tasks[row] for row in outcome.tasks[here].tolist()],
            "machine": position[outcome.machines[here]],
            "width_milli": _widths(trace, [class_of[row] for row in outcome.tasks[here].tolist()]),
            "cost": costs.cost[here],
            "believed": outcome.estimate[here],
            "terms": {name: values[here] for name, values in costs.terms.items()},
            "runner_up": np.where(costs.runner_up[here] < 0, -1, position[costs.runner_up[here]]),
            "runner_up_cost": costs.runner_up_cost[here],
        },
        "waiting": _waiting(trace, level, [row for members in outside.values() for row in members]),
        "reservations": [
            {**plain_held(roll, r), "width_milli": roll.classes[class_of[r.task]].width_milli}
            for r in outcome.reservations
            if r.task in class_of
        ],
        **({"task_groups": groups} if (groups := _task_groups(trace, class_of, outside, here)) else {}),
        "certificate": plain_certificate(certificate),
        "dual": _plain_dual(evidence, prices, rows),
        "counts": {} if number else dict(trace.counts),
        "timings": {} if number else plain_timings(trace.head.timings_ms),
    }


def _widths(trace: NetworkTrace, classes: Sequence[int]) -> IntArray:
    return np.array([trace.roll.classes[c].width_milli for c in classes], dtype=np.int64)


def _task_groups(
    trace: NetworkTrace, class_of: Mapping[int, int], outside: Mapping[int, Sequence[int]], here: IntArray
) -> list[dict[str, Any]]:
    """What becomes of the task groups that have tasks here or took no part."""
    roll = trace.roll
    of = [*class_of.items(), *((row, c) for c, rows in outside.items() for row in rows)]
    starts = set(trace.outcome.tasks[here].tolist())
    found = []
    for name, minimum in trace.groups.items():
        rows = [row for row, c in of if roll.classes[c].group == name]
        if rows:
            members, begins = [roll.tasks[row] for row in rows], not starts.isdisjoint(rows)
            state = {"running": trace.members_elsewhere.get(name, 0), "members": members, "starts": begins}
            found.append({"name": name, "minimum": minimum, **state})
    return found


def _plain_feature(feature: Feature) -> dict[str, Any]:
    """What costs depend on; ``of_round`` where it is true."""
    plain = asdict(feature)
    if not plain["of_round"]:
        del plain["of_round"]
    return plain


def _plain_counts(counts: TopologyCounts, rows: IntArray) -> dict[str, Any]:
    """A relation as the level began; arrays by machine."""
    return {
        **asdict(counts.relation),
        "kind": counts.relation.kind.value,
        "domain": counts.domain[rows],
        "members": counts.members[rows],
        "holders": counts.holders[rows],
    }


def _plain_dual(evidence: Evidence, prices: FloatArray, rows: IntArray) -> dict[str, Any]:
    """What the bound is computed from beside prices and state; arrays by class in the order of the demands.

    The compiled bound chooses for each machine the tangent of crowding that bounds its rent best: here stands which, so that
    any reader computes the same bound with one formula.
    """
    classes, unit = evidence.waiting.classes, evidence.unit
    units = max(0, int(evidence.free[rows, CPU].max(initial=0))) // unit
    pi = np.zeros(len(evidence.counts))
    pi[classes] = prices
    alpha, crowding = evidence.crowding.alpha, evidence.crowding.factor
    may_take: BoolArray = np.isin(rows, evidence.rows)  # whether the bound counts a machine's rent
    shown = np.zeros((len(rows), 2))
    evidence.rent(pi, rows, shown)
    shown[~may_take] = 0.0
    return {
        "tier": evidence.tier_of[classes],
        "units": evidence.units[classes],
        "unit_milli": unit,
        "largest": evidence.largest[:, : units + 1],
        "alpha": alpha[classes],
        "crowding": crowding[evidence.model.kind[rows]],
        "tangent": shown[:, 0],
        "constant": shown[:, 1],
        "may_take": may_take,
    }


def _class_names(trace: NetworkTrace, level: Level) -> list[str]:
    """Classes are called by the task that is served first, or by their own names where these differ."""
    roll = trace.roll
    if trace.by_flow:
        return [roll.classes[c].name for c in level.waiting.classes.tolist()]
    return [roll.tasks[row] for row in level.waiting.tasks[level.waiting.first[:-1]].tolist()]


def _plain_kind(trace: NetworkTrace, k: int, factors: FloatArray, model_kind: IntArray) -> dict[str, Any]:
    """A kind; ``held_like``: of one machine that is kept for a task, its kind otherwise."""
    kinds = trace.roll.kinds
    own = {"factors": factors[k].tolist()}
    like = k if k < len(kinds) else int(trace.roll.kind[np.flatnonzero(model_kind == k)[0]])
    kind = kinds[like]
    held = {} if k == like else {"held_like": like}
    plain = {"type": kind.type, "labels": dict(kind.labels), "bandwidth": kind.bandwidth, "cores": kind.cores}
    return {**plain, **own, **held}


def plain_class(task_class: TaskClass) -> dict[str, Any]:
    """A class as a record keeps it; infinite run times are null, and ``counted`` is there for those that are."""
    plain = asdict(task_class)
    if not task_class.counted:
        del plain["counted"]
    for endless in ("run_s", "max_cost"):
        plain[endless] = finite_or_none(plain[endless])
    return {
        key: [v if isinstance(v, str) else list(v) for v in value] if isinstance(value, tuple) else value
        for key, value in plain.items()
    }


def _class_numbers(trace: NetworkTrace) -> IntArray:
    """The classes that wait, in the order in which a cluster made from the record numbers them."""
    waiting = [level.waiting.classes for level in trace.levels]
    return np.unique(np.concatenate([*waiting, np.array(list(trace.pending_class.values()), dtype=np.int64)]))


def _priced_class(
    trace: NetworkTrace,
    level: Level,
    number: int,
    tasks: IntArray,
    leaving: FloatArray,
    name: str,
    numbered: IntArray,
) -> dict[str, Any]:
    """A class with its prices. ``leaving``: what leaving each of its ``tasks`` costs; ``numbered``: all classes."""
    roll, model = trace.roll, level.evidence.model
    task_class = roll.classes[number]
    return {
        "name": name,
        "number": int(np.searchsorted(numbered, number)),
        "tasks": [roll.tasks[row] for row in tasks.tolist()],
        "created_s": np.array([roll.created_s[row] for row in tasks.tolist()]),
        "leaving": leaving,
        "needs": task_class.demand(),
        "amounts": model.demands[number],
        "class": plain_class(task_class),
        "base": model.base[number],
        "coefficients": model.coefficients[number],
        "effects": model.effects[number],
        "waiting": finite_or_none(float(roll.prices.waiting[number])),
        "growth": float(roll.prices.growth[number]),
        "group": task_class.group or None,
        "holds": list(task_class.holds),
        "joins": list(task_class.joins),
    }


def _outside(trace: NetworkTrace) -> dict[int, list[int]]:
    """By class the tasks that no network had, as their task groups lack members."""
    inside = {c for level in trace.levels for c in level.waiting.classes.tolist()}
    members: dict[int, list[int]] = {}
    for row in trace.outcome.waits.tolist():
        if trace.pending_class[row] not in inside:
            members.setdefault(trace.pending_class[row], []).append(row)
    return dict(sorted(members.items()))


def _priced_outside(
    trace: NetworkTrace, level: Level, number: int, members: Sequence[int], numbered: IntArray
) -> dict[str, Any]:
    """Such a class; those of a cost model may share a name, so they are called by a task, as in networks."""
    rows, waiting = np.array(members, dtype=np.int64), float(trace.roll.prices.waiting[number])
    leaving = np.full(len(rows), waiting if np.isfinite(waiting) else 0.0)
    name = trace.roll.classes[number].name if trace.by_flow else trace.roll.tasks[members[0]]
    return _priced_class(trace, level, number, rows, leaving, name, numbered)


def _groups(trace: NetworkTrace, level: Level, rows: IntArray) -> tuple[IntArray, list[tuple[int, ...]]]:
    """Group of every machine as the level began, by kind and buckets, in the order of those."""
    buckets = buckets_of(trace.roll.features)
    keys = np.empty((len(rows), 2 + len(buckets)), dtype=np.int64)
    keys[:, 0] = level.evidence.model.kind[rows]
    keys[:, 1:-1] = level.evidence.readings[rows] // np.maximum(1, buckets)
    keys[:, -1] = level.signature[rows]
    if not len(rows):
        return np.zeros(0, dtype=np.int64), []
    found, inverse = np.unique(keys, axis=0, return_inverse=True)
    return inverse.reshape(-1).astype(np.int64), list(map(tuple, found.tolist()))


def _first(
    trace: NetworkTrace,
    level: Level,
    names: Sequence[str],
    group_of: IntArray,
    keys: Sequence[tuple[int, ...]],
    rows: IntArray,
) -> dict[str, Any]:
    if level.network is None or level.solution is None:
        return plain_nothing()
    network, flow = level.network, level.solution.flow
    if level.solution.status is not Status.OPTIMAL:
        flow = (
            make_solver(trace.head.solver).solve(network.network).flow
        )  # a time limit struck; records have optimal flows
    first = {int(g): int(i) for i, g in zip(range(len(rows))[::-1], group_of.tolist()[::-1], strict=True)}
    number = {key: first[g] for g, key in enumerate(keys)}
    group_names = [str(trace.roll.machines[rows[number[tuple(level.keys[g])]]]) for g in network.groups.tolist()]
    labels = ["sink", *(f"class:{name}" for name in names), *(f"unscheduled:{name}" for name in names)]
    labels += [f"tier:{name}/{width}m" for name in group_names for width in network.tier_widths]
    labels += [f"group:{name}" for name in group_names]
    labels += [
        f"domain:{names[c]}/{d}" for c, d in zip(network.domain_class.tolist(), network.domain.tolist(), strict=True)
    ]
    plain = network.network
    labelled = replace(plain, nodes=tuple(labels), terms=_arc_terms(trace, level, network), units=_arc_units(network))
    return labelled.to_plain(flow)


def _arc_units(network: ScaleNetwork) -> IntArray:
    units = np.ones(network.network.arc_count, dtype=np.int64)
    units[: len(network.arc_class)] = network.units[network.arc_class]
    waits = slice(network.waiting_from, network.waiting_to)
    units[waits] = network.units[network.network.tails[waits] - 1]
    domains = len(network.domain_class)
    units[len(units) - 2 * domains :] = np.tile(network.units[network.domain_class], 2)
    return units


def _arc_terms(trace: NetworkTrace, level: Level, network: ScaleNetwork) -> dict[str, FloatArray]:
    """Terms of one task on every arc: what its place costs and each feature at its group's reading, crowding, waiting."""
    plain, model = network.network, level.evidence.model
    buckets = buckets_of(trace.roll.features)
    keys = np.array([level.keys[g] for g in network.groups.tolist()], dtype=np.int64).reshape(-1, 2 + len(buckets))
    reading = middles_of(keys[:, 1:-1], buckets)
    count = len(network.arc_class)
    at = {int(g): i for i, g in enumerate(network.groups.tolist())}
    column = np.array([at[g] for g in network.arc_group.tolist()], dtype=np.int64)
    classes, kind = network.classes[network.arc_class], keys[column, 0]
    terms: dict[str, FloatArray] = {PLACE: np.zeros(plain.arc_count)}
    terms[PLACE][:count] = model.base[classes, kind]
    terms |= _place_terms(trace, level, network, column)
    paid = model.coefficients[classes] * model.factors[kind] * reading[column]
    for f, feature in enumerate(trace.roll.features):
        values = terms.setdefault(feature.term or feature.name, np.zeros(plain.arc_count))
        values[:count] += paid[:, f]
    units = _arc_units(network)
    for term, start, stop in (
        ("crowding", network.ladder_from, network.waiting_from),
        ("waiting", network.waiting_from, network.waiting_to),
        ("patience", plain.arc_count - len(network.domain_class), plain.arc_count),
    ):
        terms[term] = np.zeros(plain.arc_count)
        terms[term][start:stop] = plain.unit_costs[start:stop] * units[start:stop] / plain.cost_scale
    return terms


def _place_terms(trace: NetworkTrace, level: Level, network: ScaleNetwork, column: IntArray) -> dict[str, FloatArray]:
    """Terms of masks and wishes on arcs to groups: means over machines that take the class as the level begins."""
    evidence, count = level.evidence, len(network.arc_class)
    terms: dict[str, FloatArray] = {}
    group_of, keys = _groups(trace, level, np.flatnonzero(evidence.open))
    number = {key: g for g, key in enumerate(keys)}
    members = np.array([number[tuple(level.keys[g])] for g in network.groups.tolist()], dtype=np.int64)
    rows = np.flatnonzero(evidence.open)
    price = np.empty(len(evidence.open))
    for i, c in enumerate(network.classes.tolist()):
        place = int(evidence.model.place_of[c])
        if not place:
            continue
        kernels.class_prices(c, evidence.model, evidence.readings, price)
        takes = (price[rows] <= level.waiting.dearest[i]) & np.isfinite(price[rows]) & _room(level, c, rows)
        size = np.maximum(1, np.bincount(group_of[takes], minlength=len(keys)))
        arcs = np.flatnonzero(network.arc_class == i)
        for name, values in trace.places[place].terms(rows).items():
            values = np.where(takes, values, 0.0)
            mean = np.bincount(group_of, weights=values, minlength=len(keys)) / size
            terms.setdefault(name, np.zeros(network.network.arc_count))[arcs] = mean[members[column[arcs]]]
    return {name: values for name, values in terms.items() if count and values.any()}


def _room(level: Level, c: int, rows: IntArray) -> BoolArray:
    """Machines with room for one task of a class as the level begins, by resources, limits and relations."""
    e, model = level.evidence, level.evidence.model
    demand, effect = model.demands[c], model.effects[c]
    room: BoolArray = ((demand == 0) | (e.free[rows] >= demand)).all(axis=1)
    room &= ((effect == 0) | (e.readings[rows] + effect <= model.limits[rows])).all(axis=1)
    if model.gate_of[c]:
        room &= model.gates[model.gate_of[c], rows] > 0
    return room


def _waiting(trace: NetworkTrace, level: Level, outside: Sequence[int]) -> dict[str, Any]:
    """Tasks that wait, in the order in which they would be served, then those that took no part, which have no cost."""
    waiting = level.waiting
    left = np.flatnonzero(~np.isin(waiting.tasks, trace.outcome.tasks))
    rows = [*waiting.tasks[left].tolist(), *outside]
    cost = np.concatenate([np.minimum(waiting.cost, level.evidence.most)[left], np.full(len(outside), np.inf)])
    numbers: dict[Reason, int] = {}
    reason = [numbers.setdefault(trace.reasons[row], len(numbers)) for row in rows]
    since = np.array([trace.roll.created_s[row] for row in rows], dtype=np.float64)
    return {
        "task": [trace.roll.tasks[row] for row in rows],
        "reason": np.array(reason, dtype=np.int64),
        "reasons": [{"cause": str(found.cause), "text": found.text} for found in numbers],
        "cost": cost,
        "terms": {"waiting": np.where(np.isfinite(cost), cost, 0.0)},
        **({} if trace.by_flow else {"waited_s": trace.head.now_s - since}),
    }


def plain_held(roll: Roll, reservation: MachineReservation) -> dict[str, Any]:
    """A machine that is held for a task."""
    return {
        "task": roll.tasks[reservation.task],
        "machine": reservation.machine_name,
        "start_s": finite_or_none(reservation.start_s),
    }
