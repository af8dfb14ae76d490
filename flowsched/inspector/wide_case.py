"""What there is to say about one task of a wide round, as data.

Everything is priced on the board at the end of the round, without the task itself: what it would add to the total there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from flowsched.arrays import BoolArray, FloatArray
from flowsched.fleet import FIXED
from flowsched.inspector import pod_facts, refusals
from flowsched.inspector.account import Account, Part, Placed, Waits
from flowsched.inspector.class_facts import class_facts, dual_price
from flowsched.inspector.comparison import differences, plain_terms
from flowsched.inspector.waiting_bound import pod_bound
from flowsched.wide_board import CPU, MEMORY, Board, WideClass
from flowsched.wide_record import read_board

SHOWN = 10
"""Alternatives that are listed."""
SAME = 1e-9
"""Prices that are closer count as equal."""
_UNCAPPED = 2.0**61
"""Caps from here on stand for none."""


@dataclass(frozen=True, eq=False)
class Closing:
    """The board at the end of the round, without the task that is asked about."""

    board: Board
    cls: WideClass
    price: FloatArray
    terms: Mapping[str, FloatArray]
    room: BoolArray
    """Machines that may take it and have room for one."""
    related: BoolArray
    """Machines that no relation refuses."""
    bears: BoolArray
    """Machines whose services bear it."""

    @property
    def open(self) -> BoolArray:
        """Machines that could take it, whatever that costs."""
        return self.room & self.related & self.bears

    def terms_at(self, machine: int) -> dict[str, float]:
        """What its price on a machine is made of."""
        return {name: float(values[machine]) for name, values in self.terms.items()}

    def cost_at(self, machine: int) -> float:
        """Its price on a machine."""
        return sum(self.terms_at(machine).values())


class WideCase:
    """One task of a wide part."""

    def __init__(self, account: Account, part: Part, task: str) -> None:
        """Find what became of it."""
        self.account = account
        self.part = part
        self.name = task
        self.placed: Placed | None = next((p for p in part.placements if p.task == task), None)
        self.waits: Waits | None = next((w for w in part.waiting if w.task == task), None)
        if self.placed is None and self.waits is None:
            raise ValueError(f"it does not say what became of {task}")
        self.class_name = part.class_of[task]
        self.demand: Mapping[str, Any] = next(d for d in part.plain["demands"] if d["name"] == self.class_name)

    @cached_property
    def closing(self) -> Closing | None:
        """None where the record does not have the machines: it was of version 1."""
        try:
            board = read_board(self.part.plain)
        except (KeyError, ValueError):
            return None
        classes = {cls.demand.name: cls for cls in board.classes}
        machine = np.asarray(self.part.plain["placements"]["machine"], dtype=np.int64)
        rows: dict[str, list[int]] = {}
        for task, row in zip(self.part.plain["placements"]["task"], machine.tolist(), strict=True):
            if task != self.name:
                rows.setdefault(self.part.class_of[task], []).append(row)
        for name, there in rows.items():
            board.commit(classes[name], np.array(there, dtype=np.int64))
        cls = classes[self.class_name]
        related = np.ones(board.machine_count, dtype=np.bool_)
        for gate in board.gates(cls):
            related &= gate.open_machines()
        return Closing(
            board,
            cls,
            board.price(cls),
            board.terms(cls),
            board.room(cls) > 0,
            related,
            board.bearable(cls) > 0,
        )

    def facts(self) -> dict[str, Any]:
        """All there is to say; keys as in :mod:`flowsched.inspector.explanation`."""
        tasks = self.demand["tasks"]
        facts: dict[str, Any] = {
            "models": self.closing is not None,
            "models_missing": None
            if self.closing is not None
            else "the record does not keep the machines of its wide rounds",
            "asks": {
                "needs": dict(self.demand["needs"]),
                "group": self.demand["group"],
                "holds": list(self.demand["holds"]),
                "joins": list(self.demand["joins"]),
            },
            "repairs": [],
            "group": self._group(),
            "class": class_facts(self.part, self.class_name, len(tasks)),
        }
        if self.placed is not None:
            return facts | self._placed_facts(self.placed)
        assert self.waits is not None, "it is placed or it waits"
        return facts | self._waiting_facts(self.waits)

    # Placed

    def _placed_facts(self, placed: Placed) -> dict[str, Any]:
        then = {
            "cost": placed.cost,
            "terms": plain_terms(placed.terms),
            "runner_up": placed.runner_up,
            "runner_up_cost": placed.runner_up_cost,
            "more": None if placed.runner_up_cost is None else placed.runner_up_cost - placed.cost,
        }
        place = {
            "machine": placed.machine,
            "width_milli": placed.width_milli,
            "cost": placed.cost,
            "terms": then["terms"],
        }
        facts: dict[str, Any] = {
            "fate": "placed",
            "cause": None,
            "place": place,
            "when_placed": then,
            "runner_up": None,
            "alternatives": [],
            "open_machines": None,
            "as_cheap": None,
            "waiting": None,
            "neighbours": self._neighbours(placed.machine),
            "pressure": None,
            "core_price": dual_price(self.part, self.class_name, placed.machine, placed.width_milli or 0),
        }
        closing = self.closing
        if closing is None:
            return facts
        row = closing.board.names.index(placed.machine)
        here, terms = closing.cost_at(row), closing.terms_at(row)
        place |= {"cost": here, "terms": plain_terms(terms)}
        others = closing.open.copy()
        others[row] = False
        chosen = self._cheapest(closing, others, SHOWN)
        listed = [self._place(closing, m, here, terms) for m in chosen]
        facts["alternatives"] = listed
        facts["open_machines"] = int(others.sum())
        facts["as_cheap"] = int((others & (closing.price <= closing.price[row] + SAME)).sum())
        limit = closing.cls.demand.waiting_cost
        if np.isfinite(limit):
            facts["waiting"] = {
                "kind": "waiting",
                "machine": None,
                "cost": limit,
                "more": limit - here,
                "terms": plain_terms({"waiting": limit}),
                "differences": differences({"waiting": limit}, terms),
            }
        rivals = [*listed[:1], *([facts["waiting"]] if facts["waiting"] is not None else [])]
        facts["runner_up"] = min(rivals, key=lambda r: r["more"], default=None)
        facts["pressure"] = self._pressure(closing, row)
        return facts

    def _pressure(self, closing: Closing, row: int) -> dict[str, Any]:
        """Pressure on a machine with the task there, and what its services bear; ``slope``: price of one more unit."""
        board = closing.board
        cap = int(board.pressure_cap[row])
        return {
            "with_it": (int(board.pressure[row]) + closing.cls.pressure) / FIXED,
            "without_it": int(board.pressure[row]) / FIXED,
            "cap": None if cap >= _UNCAPPED else cap / FIXED,
            "slope": float(board.headroom_slope[row]),
            "cost": closing.terms_at(row)["slo_headroom"],
        }

    def _neighbours(self, machine: str) -> list[dict[str, Any]]:
        """Who else was placed on the machine in this round; a wide round does not keep the names of what ran before."""
        return [
            {"task": p.task, "status": "starts"}
            for p in self.part.placements
            if p.machine == machine and p.task != self.name
        ]

    # Waiting

    def _waiting_facts(self, waits: Waits) -> dict[str, Any]:
        since = pod_facts.waited(self.account, self.name)
        facts: dict[str, Any] = {
            "fate": "waits",
            "cause": waits.cause,
            "reason": waits.reason,
            "waited_s": None if since is None else self.account.now_s - float(since["since_s"]),
            "rounds_waited": None if since is None else int(since["rounds"]) + 1,
            "closest": None,
            "limit": None,
            "core_price": None,
            "refusals": None,
            "shortage": None,
            "bound": None,
            "reservation": self._drained(),
        }
        closing = self.closing
        if closing is None:
            facts["cause"] = "unknown"
            return facts
        table, short = self._refusals(closing)
        facts |= {"refusals": table, "shortage": short}
        if short["never"] and waits.cause == "capacity":
            facts["cause"] = "never"
        if since is not None:
            feasible = facts["cause"] not in ("never", "not_allowed")
            facts["bound"] = pod_bound(self.account, self.name, feasible)
        if short["emptiest"] is not None:
            machine = short["emptiest"]["machine"]
            facts["core_price"] = dual_price(self.part, self.class_name, machine, closing.cls.width)
        chosen = self._cheapest(closing, closing.open, 1)
        if chosen:
            limit = closing.cls.limit
            closest = self._place(closing, chosen[0], limit if np.isfinite(limit) else 0.0, {})
            facts["closest"] = closest | {"more": closest["more"] if np.isfinite(limit) else None, "differences": []}
            name = closest["machine"]
            facts["core_price"] = dual_price(self.part, self.class_name, name, closing.cls.width)
            demand = closing.cls.demand
            if np.isfinite(limit):
                kind = "most" if demand.max_cost < demand.waiting_cost else "waiting"
                facts["limit"] = {"kind": kind, "cost": limit}
        return facts

    def _drained(self) -> dict[str, Any] | None:
        """The machine that is kept for it."""
        held = pod_facts.drains_for(self.account)
        if held is None or held["task"] != self.name:
            return None
        return {"task": self.name, "machine": held["machine"], "width_milli": None, "start_s": None, "in_s": None}

    def _refusals(self, closing: Closing) -> tuple[dict[str, Any], dict[str, Any]]:
        board, cls = closing.board, closing.cls
        columns = cls.columns.tolist()
        resources = [board.resources[k] for k in columns]
        asks = cls.amounts.tolist()
        reasons = dict(pod_facts.filtered(self.account, self.name) or {})
        held = pod_facts.drains_for(self.account)
        barred = [] if held is None or held["task"] == self.name else [held["machine"]]
        for machine in barred:
            if machine in board.names and not cls.allowed[board.names.index(machine)]:
                reasons.setdefault(machine, refusals.RESERVED)
        closed = ~cls.allowed & ~np.array([name in reasons for name in board.names], dtype=np.bool_)
        missed = [m for m, reason in reasons.items() if reason == refusals.GOAL_MISSED]
        last = refusals.by_reason(board.names, {m: reasons.pop(m) for m in missed})
        selector = refusals.FILTERED if self.account.titles else refusals.SELECTOR
        checks = [*refusals.by_reason(board.names, reasons), refusals.Check(selector, closed)]
        gates = sorted(board.gates(cls), key=lambda gate: not gate.topology.relation.name.startswith("ports/"))
        for gate in gates:
            for role, refused in gate.refused():
                relation, labelled = gate.topology.relation, gate.topology.labelled
                for missing, mask in ((True, refused & ~labelled), (False, refused & labelled)):
                    checks.append(refusals.Check(refusals.refused_by(relation, role, missing), mask))
        for k, resource, amount in zip(columns, resources, asks, strict=True):
            checks.append(refusals.Check(refusals.insufficient(resource), board.free[:, k] < amount))
        checks += last
        checks.append(refusals.Check(refusals.SERVICE, ~closing.bears))
        checks.append(refusals.Check(refusals.TOO_DEAR, closing.price > cls.limit))
        table = refusals.tabulate(board.names, checks)
        candidates = cls.allowed & closing.related if (cls.allowed & closing.related).any() else cls.allowed
        short = refusals.shortage(
            board.names, resources, asks, board.free[:, columns], board.allocatable[:, columns], candidates
        )
        fits = np.logical_and.reduce(board.allocatable[:, columns] >= cls.amounts, axis=1)
        short["never"] = bool(cls.allowed.any()) and not bool((fits & cls.allowed).any())
        if not short["never"]:
            short["lacking"] = []
        short["units"] = {CPU: "milli", MEMORY: "bytes"}
        short["stays"] = []
        short["started_there"] = []
        if short["emptiest"] is not None:
            short["started_there"] = [p["task"] for p in self._neighbours(short["emptiest"]["machine"])]
        return table, short

    # Both

    def _group(self) -> dict[str, Any] | None:
        name = self.demand["group"]
        if name is None:
            return None
        members = [t for d in self.part.plain["demands"] if d["group"] == name for t in d["tasks"]]
        group = next((g for g in self.part.plain.get("task_groups", ()) if g["name"] == name), None)
        placed = {p.task for p in self.part.placements}
        running = int(self.part.plain.get("running_members", {}).get(name, 0))
        starting = [m for m in members if m in placed]
        minimum = None if group is None else int(group["minimum"])
        return {
            "name": name,
            "minimum": minimum,
            "running": running,
            "pending": len(members),
            "members": members,
            "starting": starting,
            "missing": None if minimum is None else max(0, minimum - running - len(members)),
            "starts": bool(starting),
        }

    def _place(self, closing: Closing, row: int, here: float, here_terms: Mapping[str, float]) -> dict[str, Any]:
        terms = closing.terms_at(row)
        cost = closing.cost_at(row)
        return {
            "kind": "place",
            "machine": closing.board.names[row],
            "cost": cost,
            "more": cost - here,
            "terms": plain_terms(terms),
            "differences": differences(terms, here_terms),
        }

    def _cheapest(self, closing: Closing, where: BoolArray, most: int) -> Sequence[int]:
        """The cheapest machines; of equal ones the emptier first, as the round chooses."""
        rows = np.flatnonzero(where)
        price, load = closing.price[rows], closing.board.load[rows]
        if len(rows) > 8 * most:
            near = np.partition(price, most - 1)[most - 1]
            keep = price <= near
            rows, price, load = rows[keep], price[keep], load[keep]
        order = np.lexsort((rows, load, price))
        found: list[int] = rows[order[:most]].tolist()
        return found
