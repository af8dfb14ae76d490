"""What a wide round tells about its plan: costs with their terms, reasons for what is left over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from flowsched.arrays import IntArray
from flowsched.fleet import FIXED
from flowsched.wide_board import Board, WideClass
from flowsched.wide_outcome import Cause, Leftover, PlacedColumns, WidePlacement
from flowsched.wide_placing import Plan


def price_placements(before: Board, plan: Plan) -> PlacedColumns:
    """Placements in their order with what each cost when it came; ``before``: the board before the round."""
    if not plan.runs:
        none, nothing = np.zeros(0, dtype=np.int64), np.zeros(0)
        return PlacedColumns((), none, nothing, {}, none, nothing)
    machines = np.concatenate([m for _, m in plan.runs])
    sensitivity, pressure = _company(before, plan, machines)
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
    return PlacedColumns(
        tuple(names),
        machines,
        np.sum(list(columns.values()), axis=0),
        columns,
        np.concatenate([r for r, _ in plan.rivals]),
        np.concatenate([r for _, r in plan.rivals]),
    )


def name_placements(board: Board, placed: PlacedColumns) -> tuple[WidePlacement, ...]:
    """The same as values, machines by name."""
    label = board.names
    terms = [dict(zip(placed.terms, row, strict=True)) for row in zip(*_lists(placed.terms.values()), strict=True)]
    columns = _lists((placed.machine, placed.cost, placed.runner_up, placed.runner_up_cost))
    return tuple(
        WidePlacement(
            task, label[machine], cost, of, None if rival < 0 else label[rival], None if rival < 0 else rival_cost
        )
        for task, machine, cost, rival, rival_cost, of in zip(placed.task, *columns, terms, strict=True)
    )


def _lists(columns: Iterable[Any]) -> list[list[Any]]:
    return [column.tolist() for column in columns]


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
            refusals.append(f"{gate.topology.relation.name} refuses {int(refused.sum())}")
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
