"""What a wide round tells about its plan: costs with their terms, reasons for what is left over, the record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flowsched.arrays import IntArray
from flowsched.fleet import FIXED
from flowsched.solvers import Solution
from flowsched.wide_board import Board, WideClass
from flowsched.wide_network import WideNetwork, build_wide_network
from flowsched.wide_outcome import Cause, Leftover, WidePlacement
from flowsched.wide_placing import Plan


def price_placements(before: Board, plan: Plan) -> tuple[tuple[WidePlacement, ...], float]:
    """Placements in their order with what each cost when it came, and the total; ``before``: the board before the round."""
    if not plan.runs:
        return (), 0.0
    machines = np.concatenate([m for _, m in plan.runs])
    sensitivity, pressure = _company(before, plan, machines)
    terms: dict[str, list[float]] = {}
    costs: list[float] = []
    names: list[str] = []
    at = 0
    served: dict[int, int] = {}
    parts: dict[str, list[Any]] = {t: [] for t in TERMS}
    for c, here in plan.runs:
        cls = before.classes[c]
        now = slice(at, at + len(here))
        at += len(here)
        s, p = cls.sensitivity / FIXED, cls.pressure / FIXED
        q = before.bandwidth[here]
        parts["run_time"].append(cls.slowness[here])
        parts["interference_suffered"].append(q * pressure[now] * (s / FIXED))
        parts["interference_caused"].append(q * sensitivity[now] * (p / FIXED))
        parts["slo_headroom"].append(p * before.headroom_slope[here])
        parts["preference"].append(cls.preference[here])
        start = served.get(c, 0)
        names += cls.demand.tasks[start : start + len(here)]
        served[c] = start + len(here)
    columns = {t: np.concatenate(p) for t, p in parts.items()}
    total = np.sum(list(columns.values()), axis=0)
    costs = total.tolist()
    terms = {t: values.tolist() for t, values in columns.items()}
    rows = zip(*terms.values(), strict=True)
    rivals = np.concatenate([r for r, _ in plan.rivals]).tolist()
    rival_costs = np.concatenate([r for _, r in plan.rivals]).tolist()
    label = before.names
    placements = tuple(
        WidePlacement(
            task,
            label[machine],
            cost,
            dict(zip(TERMS, row, strict=True)),
            None if rival < 0 else label[rival],
            None if rival < 0 else rival_cost,
        )
        for task, machine, cost, row, rival, rival_cost in zip(
            names, machines.tolist(), costs, rows, rivals, rival_costs, strict=True
        )
    )
    return placements, float(total.sum())


TERMS = ("run_time", "interference_suffered", "interference_caused", "slo_headroom", "preference")
"""Names of cost terms, as the record of a round has them."""


def explain_left(board: Board, plan: Plan, group_texts: Mapping[int, str]) -> tuple[Leftover, ...]:
    """Why every task that is left waits; ``board``: after the round, ``group_texts``: by class, where its group failed."""
    answers: list[Leftover] = []
    for cls in board.classes:
        count = plan.left[cls.index]
        if not count:
            continue
        text = group_texts.get(cls.index)
        cause, text = (Cause.GROUP, text) if text is not None else _explain(board, cls)
        tasks = cls.demand.tasks[len(cls.demand.tasks) - count :]
        answers += [Leftover(task, cause, text) for task in tasks]
    return tuple(answers)


def wide_record(before: Board, network: WideNetwork, solution: Solution) -> dict[str, Any]:
    """Classes and groups with their members, and the first network with names, terms and flow, as plain data."""
    explained = build_wide_network(before, network.counts.tolist(), explain=True)
    members: list[list[str]] = [[] for _ in range(network.groups)]
    for name, group in zip(before.names, network.group_of.tolist(), strict=True):
        members[group].append(name)
    return {
        "classes": [
            {
                "name": cls.demand.name,
                "tasks": list(cls.demand.tasks),
                "needs": dict(cls.demand.needs),
                "group": cls.demand.group,
                "holds": list(cls.demand.holds),
                "joins": list(cls.demand.joins),
                "waiting_cost": float(network.waiting[cls.index]),
            }
            for cls in before.classes
        ],
        "groups": [{"machine": names[0], "members": names} for names in members],
        "first_network": explained.network.to_plain(solution.flow),
    }


def _company(before: Board, plan: Plan, machines: IntArray) -> tuple[IntArray, IntArray]:
    """Sensitivity and pressure that each placement found on its machine, in fixed units."""
    order = np.argsort(machines, kind="stable")
    first = np.concatenate([[True], machines[order][1:] != machines[order][:-1]])
    start = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    found = []
    for kind, there in (("sensitivity", before.sensitivity), ("pressure", before.pressure)):
        added = np.concatenate([np.full(len(m), getattr(before.classes[c], kind)) for c, m in plan.runs])[order]
        ahead = np.concatenate([[0], np.cumsum(added)[:-1]])
        sums = np.empty(len(order), dtype=np.int64)
        sums[order] = ahead - ahead[start]
        found.append(there[machines] + sums)
    return found[0], found[1]


def _explain(board: Board, cls: WideClass) -> tuple[Cause, str]:
    """The first thing that leaves no machine, in the order in which a reader would ask."""
    allowed = int(cls.allowed.sum())
    if not allowed:
        return Cause.NOT_ALLOWED, f"none of {board.machine_count} machines may take it"
    room = board.room(cls) > 0
    if not room.any():
        lacks = [
            f"{int((cls.allowed & (board.free[:, k] < amount)).sum())} have too little {board.resources[k]}"
            for k, amount in zip(cls.columns.tolist(), cls.amounts.tolist(), strict=True)
            if (cls.allowed & (board.free[:, k] < amount)).any()
        ]
        return Cause.CAPACITY, f"of {allowed} machines that may take it " + ", ".join(lacks)
    open_ = room.copy()
    refusals = []
    for gate in board.gates(cls):
        refused = room & ~gate.open_machines()
        open_ &= ~refused
        if refused.any():
            refusals.append(f"{gate.standing.relation.name} refuses {int(refused.sum())}")
    if not open_.any():
        return Cause.RELATION, f"of {int(room.sum())} machines with room " + ", ".join(refusals)
    quiet = open_ & (board.bearable(cls) > 0)
    if not quiet.any():
        return Cause.SERVICE, f"on all of {int(open_.sum())} machines with room it would break a latency goal"
    price = np.where(quiet, board.price(cls), np.inf)
    best = int(price.argmin())
    limit, what = cls.limit, "waiting costs"
    if cls.demand.max_cost < cls.demand.waiting_cost:
        what = "it may cost"
    return Cause.COST, f"{what} {limit:.4g}, the cheapest machine with room, {board.names[best]}, {price[best]:.4g}"
