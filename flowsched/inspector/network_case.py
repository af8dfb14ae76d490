"""What there is to say about one task of a network policy's round, as data: prices at exact readings of every machine.

Everything is priced at the end of the part, without the task itself: with all that ran and all that this part and those
before it placed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from flowsched.arrays import BoolArray, FloatArray, IntArray
from flowsched.inspector import refusals
from flowsched.inspector.account import Account, Part, Placed, Waits
from flowsched.inspector.comparison import differences, plain_terms
from flowsched.inspector.core_price import class_facts, core_price

PLACE = "place"
SHOWN = 10
"""Alternatives that are listed."""
SAME = 1e-9
"""Prices that are closer count as equal."""
_PRESSURE, _HEADROOM = "pressure", "headroom"


@dataclass(frozen=True, eq=False)
class Stage:
    """The machines at the end of a part, without one task, as its class sees them. Arrays by machine."""

    names: Sequence[str]
    free: IntArray
    allocatable: IntArray
    readings: IntArray
    """In units of 1/fixed."""
    terms: Mapping[str, FloatArray]
    """What the task costs on every machine, by term; infinite where it must not run."""
    allowed: BoolArray
    room: BoolArray
    bears: BoolArray
    """Machines none of whose limits it breaks."""
    held: BoolArray
    """Machines that are kept for a task that has waited longer, so that this one may not come."""

    @cached_property
    def price(self) -> FloatArray:
        """Its cost on every machine."""
        total: FloatArray = np.sum(list(self.terms.values()), axis=0)
        return total

    @property
    def open(self) -> BoolArray:
        """Machines that could take it, whatever that costs."""
        return self.allowed & self.room & self.bears

    def terms_at(self, machine: int) -> dict[str, float]:
        """What its price on a machine is made of."""
        return {name: float(values[machine]) for name, values in self.terms.items()}


class NetworkCase:
    """One task of a part of kind ``network``."""

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
    def stage(self) -> Stage:
        """The machines with everybody but the task."""
        plain = self.part.plain
        fleet, features = plain["fleet"], plain["features"]
        count, width = len(fleet["machines"]), len(features)
        kind = _whole(fleet["kind"], count)
        free = _whole(fleet["free"], count, len(fleet["resources"])).copy()
        readings = _whole(fleet["readings"], count, width).copy()
        of_class = {d["name"]: d for d in plain["demands"]}
        machine = _whole(plain["placements"]["machine"], -1)
        for task, row in zip(plain["placements"]["task"], machine.tolist(), strict=True):
            if task != self.name:
                demand = of_class[self.part.class_of[task]]
                free[row] -= _whole(demand["amounts"], -1)
                readings[row] += _whole(demand["effects"], -1)
        limits = np.array([_open(row) for row in fleet["limits"]]).reshape(count, width)
        factors = np.array([k["factors"] for k in plain["kinds"]], dtype=np.float64).reshape(len(plain["kinds"]), width)
        base = _open(self.demand["base"])
        felt = readings / plain["fixed"] * factors[kind] * _open(self.demand["coefficients"])
        terms: dict[str, FloatArray] = {PLACE: base[kind]}
        for f, feature in enumerate(features):
            name = feature["term"] or feature["name"]
            terms[name] = terms.get(name, 0.0) + felt[:, f]
        amounts, effects = _whole(self.demand["amounts"], -1), _whole(self.demand["effects"], -1)
        like = np.array([k.get("held_like", -1) for k in plain["kinds"]], dtype=np.int64)
        held: BoolArray = (like[kind] >= 0) & ~np.isfinite(base[kind])
        return Stage(
            tuple(fleet["machines"]),
            free,
            _whole(fleet["allocatable"], count, len(fleet["resources"])),
            readings,
            terms,
            np.isfinite(base[kind]),
            ((amounts == 0) | (free >= amounts)).all(axis=1),
            ((effects == 0) | (readings + effects <= limits)).all(axis=1),
            held,
        )

    def facts(self) -> dict[str, Any]:
        """All there is to say; keys as in :mod:`flowsched.inspector.explanation`."""
        facts: dict[str, Any] = {
            "models": True,
            "models_missing": None,
            "asks": {
                "needs": dict(self.demand["needs"]),
                "group": self.demand["class"]["group"] or None,
                "holds": [],
                "joins": [],
            },
            "repairs": [],
            "group": None,
            "class": class_facts(self.part, self.class_name, len(self.demand["tasks"])),
        }
        if self.placed is not None:
            return facts | self._placed_facts(self.placed)
        assert self.waits is not None, "it is placed or it waits"
        return facts | self._waiting_facts(self.waits)

    def _placed_facts(self, placed: Placed) -> dict[str, Any]:
        stage = self.stage
        row = stage.names.index(placed.machine)
        terms = stage.terms_at(row)
        here = sum(terms.values())
        believed = self.part.plain["placements"]["believed"]
        index = list(self.part.plain["placements"]["task"]).index(self.name)
        others = stage.open.copy()
        others[row] = False
        listed = [self._place(m, here, terms) for m in self._cheapest(others, SHOWN)]
        waiting = {
            "kind": "waiting",
            "machine": None,
            "cost": self._leaving(),
            "more": self._leaving() - here,
            "terms": plain_terms({"waiting": self._leaving()}),
            "differences": differences({"waiting": self._leaving()}, terms),
        }
        width = placed.width_milli or 0
        return {
            "fate": "placed",
            "cause": None,
            "place": {
                "machine": placed.machine,
                "width_milli": placed.width_milli,
                "cost": here,
                "terms": plain_terms(terms),
            },
            "when_placed": {
                "cost": float(believed[index]),
                "terms": [],
                "runner_up": None,
                "runner_up_cost": None,
                "more": None,
            },
            "runner_up": min([*listed[:1], waiting], key=lambda rival: float(rival["more"])),
            "alternatives": listed,
            "open_machines": int(others.sum()),
            "as_cheap": int((others & (stage.price <= stage.price[row] + SAME)).sum()),
            "waiting": waiting,
            "neighbours": self._neighbours(placed.machine),
            "pressure": self._pressure(row),
            "core_price": core_price(self.part, self.class_name, placed.machine, width),
        }

    def _pressure(self, row: int) -> dict[str, Any] | None:
        """Pressure on a machine with services, for policies that know of it."""
        plain, stage = self.part.plain, self.stage
        names = [feature["name"] for feature in plain["features"]]
        if _PRESSURE not in names:
            return None
        f = names.index(_PRESSURE)
        limit = plain["fleet"]["limits"][row][f]
        if limit is None or not np.isfinite(limit):
            return None
        fixed = plain["fixed"]
        slope = 0.0
        cost = 0.0
        if _HEADROOM in names:
            h = names.index(_HEADROOM)
            slope = float(stage.readings[row, h]) / fixed
            cost = stage.terms_at(row)[plain["features"][h]["term"] or _HEADROOM]
        return {
            "with_it": float(stage.readings[row, f] + int(self.demand["effects"][f])) / fixed,
            "without_it": float(stage.readings[row, f]) / fixed,
            "cap": float(limit) / fixed,
            "slope": slope,
            "cost": cost,
        }

    def _neighbours(self, machine: str) -> list[dict[str, Any]]:
        """Who else of this part was placed there; what ran before is known as sums only."""
        return [
            {"task": p.task, "status": "starts"}
            for p in self.part.placements
            if p.machine == machine and p.task != self.name
        ]

    def _waiting_facts(self, waits: Waits) -> dict[str, Any]:
        stage = self.stage
        table, short = self._refusals(waits)
        chosen = self._cheapest(stage.open & ~stage.held, 1)
        closest = self._place(chosen[0], self._leaving(), {}) if chosen else None
        reservation = next((r for r in self.part.reservations if r["task"] == self.name), None)
        now_s = self.account.now_s
        emptiest = short["emptiest"]
        asked = closest["machine"] if closest is not None else None if emptiest is None else emptiest["machine"]
        width = int(self.demand["needs"].get("cpu", 0))
        return {
            "fate": "waits",
            "cause": waits.cause,
            "reason": waits.reason,
            "waited_s": waits.waited_s,
            "rounds_waited": None,
            "cost": waits.cost,
            "terms": plain_terms(waits.terms),
            "closest": None if closest is None else closest | {"differences": []},
            "limit": None if closest is None else {"kind": "waiting", "cost": self._leaving()},
            "core_price": None if asked is None else core_price(self.part, self.class_name, asked, width),
            "refusals": table,
            "shortage": short,
            "bound": None,
            "other_reservations": [],
            "reservation": None
            if reservation is None
            else {
                "task": self.name,
                "machine": reservation["machine"],
                "width_milli": width,
                "start_s": float(reservation["start_s"]),
                "in_s": float(reservation["start_s"]) - now_s,
            },
        }

    def _refusals(self, waits: Waits) -> tuple[dict[str, Any], dict[str, Any]]:
        stage = self.stage
        resources = list(self.part.plain["fleet"]["resources"])
        amounts = _whole(self.demand["amounts"], -1)
        columns = np.flatnonzero(amounts).tolist()
        checks = [
            refusals.Check(refusals.RESERVED, stage.held),
            refusals.Check(refusals.SELECTOR, ~stage.allowed & ~stage.held),
        ]
        checks += [refusals.Check(refusals.insufficient(resources[k]), stage.free[:, k] < amounts[k]) for k in columns]
        checks.append(refusals.Check(refusals.SERVICE, ~stage.bears))
        checks.append(refusals.Check(refusals.TOO_DEAR, stage.price > (waits.cost or np.inf)))
        table = refusals.tabulate(stage.names, checks)
        short = refusals.shortage(
            stage.names,
            [resources[k] for k in columns],
            amounts[columns].tolist(),
            stage.free[:, columns],
            stage.allocatable[:, columns],
            stage.allowed,
        )
        short["units"] = {"cpu": "milli", "memory": "MiB"}
        short["stays"] = []
        short["started_there"] = []
        if short["emptiest"] is not None:
            short["started_there"] = [n["task"] for n in self._neighbours(short["emptiest"]["machine"])]
        return table, short

    def _leaving(self) -> float:
        """What leaving it costs."""
        return float(self.demand["leaving"][list(self.demand["tasks"]).index(self.name)])

    def _place(self, row: int, here: float, here_terms: Mapping[str, float]) -> dict[str, Any]:
        terms = self.stage.terms_at(row)
        cost = sum(terms.values())
        return {
            "kind": "place",
            "machine": self.stage.names[row],
            "cost": cost,
            "more": cost - here,
            "terms": plain_terms(terms),
            "differences": differences(terms, here_terms),
        }

    def _cheapest(self, where: BoolArray, most: int) -> list[int]:
        """The cheapest machines; of equal ones the fuller first, as the round chooses."""
        rows = np.flatnonzero(where)
        order = np.lexsort((rows, self.stage.free[rows, 0], self.stage.price[rows]))
        found: list[int] = rows[order[:most]].tolist()
        return found


def _whole(values: Any, rows: int, columns: int | None = None) -> IntArray:
    found: IntArray = np.asarray(values, dtype=np.int64)
    return found if columns is None else found.reshape(rows, columns)


def _open(values: Any) -> FloatArray:
    """Numbers, infinite where a record has null."""
    return np.array([np.inf if v is None else v for v in np.asarray(values, dtype=object).tolist()], dtype=np.float64)
