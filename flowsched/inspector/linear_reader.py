"""What linear prices say of one task, as data: prices at exact readings of every machine.

Everything is priced at the end of the part, without the task itself: with all that ran and all that this part and those
before it placed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from flowsched.cluster.machine_arrays import ties
from flowsched.inspector import pod_facts, refusals
from flowsched.inspector.class_facts import class_facts, dual_price
from flowsched.inspector.comparison import plain_terms
from flowsched.inspector.other_option import OtherOption
from flowsched.inspector.record_view import Part, RecordView
from flowsched.inspector.refusals import MachinesFound
from flowsched.inspector.task_reader import TaskReader
from flowsched.inspector.wait_cause import WaitCause
from flowsched.inspector.waiting_bound import linear_bound
from flowsched.records.level_types import RecordedPricedClass, RecordedTaskClass
from flowsched.relations.topology_counts import read_topology_counts
from flowsched.relations.topology_filter import TopologyFilter
from flowsched.round.linear.linear_round import RoundSettings
from flowsched.round.linear.places import read_numbers, read_places
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

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
    gates: Sequence[TopologyFilter]
    """What relations say to one task of its class more."""
    tie: FloatArray
    """What ranks machines with the same price."""

    @cached_property
    def related(self) -> BoolArray:
        """Machines that no relation refuses."""
        open_ = np.ones(len(self.names), dtype=np.bool_)
        for gate in self.gates:
            open_ &= gate.open_machines()
        return open_

    @cached_property
    def price(self) -> FloatArray:
        """Its cost on every machine."""
        total: FloatArray = np.sum(list(self.terms.values()), axis=0)
        return total

    @property
    def open(self) -> BoolArray:
        """Machines that could take it, whatever that costs."""
        return self.allowed & self.room & self.bears & self.related

    def terms_at(self, machine: int) -> dict[str, float]:
        """What its price on a machine is made of."""
        return {name: float(values[machine]) for name, values in self.terms.items()}


def _is_plain(task_class: RecordedTaskClass) -> bool:
    disturbs = task_class.get("sensitivity", 0.0) or task_class.get("pressure", 0.0)
    return task_class.get("run_s") is not None and not disturbs


class LinearReader(TaskReader):
    """Of a task that one network of classes and groups decided."""

    def __init__(self, recorded: RecordView, part: Part, name: str) -> None:
        """Find its class."""
        super().__init__(recorded, part, name)
        self.class_name = part.class_of[name]
        self.demand: RecordedPricedClass = part.priced_classes[self.class_name]

    @cached_property
    def stage(self) -> Stage:
        """The machines with all tasks but this one."""
        plain = self.part.linear
        fleet, features = plain["fleet"], plain["features"]
        count, width = len(plain["machines"]), len(features)
        kind = _whole(fleet["kind"], count)
        free = _whole(fleet["free"], count, len(fleet["resources"])).copy()
        readings = _whole(fleet["readings"], count, width).copy()
        of_class = self.part.priced_classes
        machine = _whole(plain["placements"]["machine"], -1)
        for task, row in zip(plain["placements"]["task"], machine.tolist(), strict=True):
            if task != self.name:
                demand = of_class[self.part.class_of[task]]
                free[row] -= _whole(demand["amounts"], -1)
                readings[row] += _whole(demand["effects"], -1)
        limits = np.array([read_numbers(row) for row in fleet["limits"]]).reshape(count, width)
        factors = np.array([k["factors"] for k in plain["kinds"]], dtype=np.float64).reshape(len(plain["kinds"]), width)
        base = read_numbers(self.demand["base"])
        felt = readings / plain["fixed"] * factors[kind] * read_numbers(self.demand["coefficients"])
        terms: dict[str, FloatArray] = {PLACE: base[kind]}
        number = self.demand["class"]["places"]
        like = np.array([k.get("held_like", -1) for k in plain["kinds"]], dtype=np.int64)
        allowed = np.isfinite(base[kind])
        held: BoolArray = (like[kind] >= 0) & ~allowed & np.isfinite(base[like[kind]])
        if number:
            places = read_places(plain["places"][number])
            terms |= places.terms(np.arange(count))
            allowed &= (listed := np.isfinite(places.extra(count)))
            held &= listed
        for f, feature in enumerate(features):
            name = feature["term"] or feature["name"]
            terms[name] = terms.get(name, 0.0) + felt[:, f]
        amounts, effects = _whole(self.demand["amounts"], -1), _whole(self.demand["effects"], -1)
        return Stage(
            self.part.machines,
            free,
            _whole(fleet["allocatable"], count, len(fleet["resources"])),
            readings,
            terms,
            allowed,
            ((amounts == 0) | (free >= amounts)).all(axis=1),
            ((effects == 0) | (readings + effects <= limits)).all(axis=1),
            held,
            self._gates(machine),
            self._ranks(free),
        )

    def _gates(self, machine: IntArray) -> list[TopologyFilter]:
        """Relations as they stand without the task; ``machine``: of each placement."""
        plain, eligible = self.part.linear, None
        place = self.demand["class"]["places"]
        if place:
            eligible = read_places(plain["places"][place]).eligible
        elif self.demand["class"]["selector"]:
            selector = {tuple(pair) for pair in self.demand["class"]["selector"]}
            fitting = [selector <= set(kind["labels"].items()) for kind in plain["kinds"]]
            eligible = np.array(fitting, dtype=np.bool_)[_whole(plain["fleet"]["kind"], -1)]
        of_class = self.part.priced_classes
        gates = []
        for relation in plain["relations"]:
            name = relation["name"]
            holds, joins = name in self.demand["holds"], name in self.demand["joins"]
            if not holds and not joins:
                continue
            counts = read_topology_counts(relation)
            for task, row in zip(plain["placements"]["task"], machine.tolist(), strict=True):
                demand = of_class[self.part.class_of[task]]
                if task != self.name and (name in demand["holds"] or name in demand["joins"]):
                    counts.add(np.array([row]), name in demand["holds"], name in demand["joins"])
            gate = TopologyFilter(counts, holds, joins, eligible)
            if not gate.trivial:
                gates.append(gate)
        return gates

    def _ranks(self, free: IntArray) -> FloatArray:
        fleet = self.part.linear["fleet"]
        resources = list(fleet["resources"])
        columns = [0, resources.index("memory") if "memory" in resources else 0]
        part = self.part.linear
        scoring = part["given"]["settings"]["scoring"]
        spread = RoundSettings(scoring=scoring).spreads(
            _is_plain(d["class"]) for d in self.part.priced_classes.values()
        )
        weights = ties(_whole(fleet["allocatable"], len(free), len(resources))[:, columns], spread)
        ranks: FloatArray = weights[:, 0] + (weights[:, 1:] * free[:, columns]).sum(axis=1)
        return ranks

    def known(self) -> dict[str, Any]:
        """What it asks for, and its class."""
        asks: dict[str, Any] = {"needs": dict(self.demand["needs"]), "group": self.demand["class"]["group"] or None}
        asks |= {"holds": list(self.demand["holds"]), "joins": list(self.demand["joins"])}
        return {"models": True, "models_missing": None, "asks": asks, "class": self._class()}

    @cached_property
    def _row(self) -> int:
        return self.part.machine_number[self.place.machine]

    def here(self) -> tuple[float, Mapping[str, float]]:
        """Beside all that was placed."""
        terms = self.stage.terms_at(self._row)
        return sum(terms.values()), terms

    @cached_property
    def _others(self) -> BoolArray:
        others = self.stage.open.copy()
        others[self._row] = False
        return others

    def elsewhere(self) -> Sequence[OtherOption]:
        """The cheapest ones."""
        return [self._option(m) for m in self._cheapest(self._others, SHOWN)]

    def same_machine(self) -> Sequence[OtherOption]:
        """Nothing: it has one width."""
        return ()

    def waiting(self) -> OtherOption | None:
        """Instead of its place; None for a task that takes any place rather than wait."""
        if self._any_place:
            return None
        cost = self._leaving()
        return OtherOption(None, None, None, cost, {"waiting": cost})

    def more_of_place(self) -> dict[str, Any]:
        """What it cost at its turn, how many others it could have, pressure on services, and what its cores are worth."""
        stage, placed = self.stage, self.place
        return {
            "when_placed": {"cost": placed.cost, "terms": plain_terms(placed.terms)},
            "open_machines": int(self._others.sum()),
            "as_cheap": int((self._others & (stage.price <= stage.price[self._row] + SAME)).sum()),
            "pressure": self._pressure(self._row),
            "core_price": self.core_price(placed.machine),
        }

    def core_price(self, machine: str) -> dict[str, Any] | None:
        """The dual prices of the tiers that it passes."""
        return dual_price(self.part, self.class_name, machine, int(self.demand["needs"].get("cpu", 0)))

    def _class(self) -> dict[str, Any] | None:
        """Facts about its class. A class named after a task gets the title of that task."""
        facts = class_facts(self.part, self.class_name, len(self.demand["tasks"]))
        return None if facts is None else {**facts, "class": self.recorded.title(self.class_name)}

    @property
    def _any_place(self) -> bool:
        """Whether it takes any place rather than wait."""
        return self.demand["waiting"] is None

    def _pressure(self, row: int) -> dict[str, Any] | None:
        """Pressure on a machine with services, for policies that know of it."""
        plain, stage = self.part.linear, self.stage
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

    def neighbours(self) -> list[dict[str, Any]]:
        """Who else of this part was placed there; what ran before is known as sums only."""
        there = (p.task for p in self.part.placements if p.machine == self.place.machine and p.task != self.name)
        return [{"task": task, "status": "starts"} for task in there]

    def waited(self) -> tuple[float | None, int | None]:
        """On Kubernetes as its queue says, else as the snapshot does."""
        since = pod_facts.waited(self.recorded, self.name)
        if since is None:
            pending = (t for part in self.recorded.parts if part.snapshot for t in part.snapshot["pending"])
            own = next((t for t in pending if t["name"] == self.name), None)
            return self.wait.waited_s, None if own is None else int(own.get("rounds_waited", 0)) + 1
        return self.recorded.now_s - float(since["since_s"]), int(since["rounds"]) + 1

    def left(self) -> tuple[float | None, Mapping[str, float]]:
        """None where it takes any place."""
        return (self.wait.cost, self.wait.terms) if self._bounded else (None, {})

    @property
    def _bounded(self) -> bool:
        return bool(np.isfinite(self._limit()[1]))

    def closest(self) -> dict[str, Any] | None:
        """Beside the most that a place may cost, if that is bounded."""
        chosen = self._cheapest(self.stage.open & ~self.stage.held, 1)
        if not chosen:
            return None
        most = self._limit()[1] if self._bounded else 0.0
        found = self._option(chosen[0]).plain(most, {})
        return found | {"more": found["more"] if self._bounded else None, "differences": []}

    def more_of_waiting(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Its p95 goal, the most that a place may cost, and whether its waiting is bounded."""
        kind, limit = self._limit()
        goal = pod_facts.goal(self.recorded, self.name)
        feasible = not facts["shortage"]["never"] and self.wait.cause != WaitCause.NOT_ALLOWED
        return {
            "goal": None if goal is None else dict(goal),
            "limit": {"kind": kind, "cost": limit} if facts["closest"] is not None and self._bounded else None,
            "bound": linear_bound(self.recorded, self.name, feasible),
        }

    def cause(self, facts: Mapping[str, Any]) -> str:
        """Why it waits, where that is more than the round said."""
        waits = self.wait
        if waits.cause == WaitCause.CAPACITY and facts["shortage"]["never"]:
            return WaitCause.NEVER
        if waits.cause == WaitCause.NOT_ALLOWED and pod_facts.goal(self.recorded, self.name) is not None:
            return WaitCause.GOAL
        return waits.cause

    def drained(self) -> dict[str, Any] | None:
        """On Kubernetes, the node that drains for it."""
        machine = pod_facts.drained_for(self.recorded, self.name)
        if machine is None:
            return None
        return {"task": self.name, "machine": machine, "width_milli": None, "start_s": None, "in_s": None}

    @cached_property
    def machines(self) -> MachinesFound:
        """All of the part."""
        stage = self.stage
        resources = list(self.part.linear["fleet"]["resources"])
        amounts = _whole(self.demand["amounts"], -1)
        columns = np.flatnonzero(amounts).tolist()
        reasons = dict(pod_facts.filtered(self.recorded, self.name) or {})
        for kept in pod_facts.drained_for_others(self.recorded, self.name):
            if kept in stage.names and not stage.allowed[stage.names.index(kept)]:
                reasons.setdefault(kept, refusals.RESERVED)
        missed = [m for m, reason in reasons.items() if reason == refusals.GOAL_MISSED]
        last = refusals.by_reason(stage.names, {m: reasons.pop(m) for m in missed})
        told = {*reasons, *missed}
        closed = ~stage.allowed & ~stage.held & ~np.array([name in told for name in stage.names], dtype=np.bool_)
        checks = [
            *refusals.by_reason(stage.names, reasons),
            refusals.Check(refusals.FILTERED if self.recorded.titles else refusals.SELECTOR, closed),
        ]
        for gate in sorted(stage.gates, key=lambda gate: not gate.topology.relation.name.startswith("ports/")):
            for role, refused in gate.refused():
                relation, labelled = gate.topology.relation, gate.topology.labelled
                for missing, mask in ((True, refused & ~labelled), (False, refused & labelled)):
                    checks.append(refusals.Check(refusals.refused_by(relation, role, missing), mask))
        could = stage.allowed | stage.held
        reachable = could & stage.related
        return MachinesFound(
            stage.names,
            [resources[k] for k in columns],
            amounts[columns].tolist(),
            stage.free[:, columns],
            stage.allocatable[:, columns],
            stage.allocatable[:, columns],
            reachable if reachable.any() else could,
            np.ones(len(stage.names), dtype=np.bool_),
            checks,
            [
                *last,
                refusals.Check(refusals.RESERVED, stage.held & stage.room),
                refusals.Check(refusals.SERVICE, ~stage.bears),
                refusals.Check(refusals.TOO_DEAR, stage.allowed & (stage.price > self._limit()[1])),
            ],
            "MiB" if self.part.dated else "bytes",
        )

    def _limit(self) -> tuple[str, float]:
        """The most that a place may cost, and why: the class's ceiling, or what leaving it costs."""
        most = self.demand["class"]["max_cost"]
        leaving = self._leaving()
        if most is not None and most < leaving:
            return "most", float(most)
        return "waiting", leaving

    def _leaving(self) -> float:
        """What leaving it costs; infinite for a task that takes any place rather than wait."""
        if self._any_place:
            return float("inf")
        return float(self.demand["leaving"][list(self.demand["tasks"]).index(self.name)])

    def _option(self, row: int) -> OtherOption:
        terms = self.stage.terms_at(row)
        return OtherOption(self.stage.names[row], 0, None, sum(terms.values()), terms)

    def _cheapest(self, where: BoolArray, most: int) -> list[int]:
        """The cheapest machines; of equal ones those first that the round would choose."""
        rows = np.flatnonzero(where)
        order = np.lexsort((rows, self.stage.tie[rows], self.stage.price[rows]))
        found: list[int] = rows[order[:most]].tolist()
        return found


def _whole(values: Any, rows: int, columns: int | None = None) -> IntArray:
    found: IntArray = np.asarray(values, dtype=np.int64)
    return found if columns is None else found.reshape(rows, columns)
