"""The part of a record that a bulk round is, and its input read back from there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from flowsched.cluster.machine_rows import FIXED
from flowsched.cluster.task_class import MachineKind, TaskClass
from flowsched.pricing.linear.policy import ClassPrices, CostModel
from flowsched.records.record import plain_timings
from flowsched.relations.relation import TaskGroup
from flowsched.relations.topology import read_topology_counts
from flowsched.scale.bulk_input import BulkInput
from flowsched.scale.certificate import Evidence
from flowsched.scale.demand import ALWAYS_WORTH_IT, Demand
from flowsched.scale.network_trace import NetworkTrace, PlacedCosts, RoundHead
from flowsched.scale.places import read_places
from flowsched.scale.reasons import Closing, Reason
from flowsched.scale.record import class_numbers, network_part, plain_demand
from flowsched.scale.recorded import RecordedPolicy, read_class, read_machines, read_round_settings
from flowsched.scale.round import Level, RoundOutcome, Rounds
from flowsched.scale.round_state import BulkRoundState
from flowsched.scale.waiting import survey
from flowsched.solvers import Solver
from flowsched.support.arrays import IntArray

_NONE: IntArray = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class BulkTrace:
    """All that the part is made of. Nothing in it changes after the round, so another thread may use it."""

    trace: NetworkTrace
    levels: tuple[Level, ...]
    """Those of the round, one by linear prices of ``flow``; one without tasks where no task takes part."""
    groups: tuple[TaskGroup, ...]
    running_members: Mapping[str, int]
    counts: Mapping[str, int]
    model: Mapping[str, Any]
    """What a cost model beside ``flow`` adds to what the round was given."""

    @classmethod
    def of(
        cls,
        given: BulkInput,
        rounds: Rounds,
        outcome: RoundOutcome,
        closing: Closing,
        reasons: Mapping[int, Reason],
        costs: PlacedCosts,
        solver: Solver,
        counts: Mapping[str, int],
        timings_ms: Mapping[str, float],
    ) -> BulkTrace:
        """Take down what the round had and decided."""
        model = given.model
        policy = "flow" if model is None else model.name
        head = RoundHead(
            0, given.now_s, policy, solver.name, given.settings, {}, timings_ms, own_names=model is None, bulk=True
        )
        trace = NetworkTrace.of(rounds.cluster, outcome, closing, reasons, (), head, costs)
        levels = outcome.levels or (_level_without_tasks(rounds),)
        more = {} if model is None else {"cost_model": model.name, "now_s": given.now_s, "order": list(given.order)}
        return cls(trace, levels, given.groups, dict(given.running_members), dict(counts), more)

    def part(self, priority: int | None = None) -> dict[str, Any]:
        """The one part of a round by linear prices, as plain data."""
        return self._part(0, {} if priority is None else {"priority": priority}, {})

    def parts(self, decision: int) -> list[dict[str, Any]]:
        """The parts of a round of a cost model, one for each of its levels; ``decision``: which of its record's it is."""
        classes, found = self.trace.roll.classes, []
        for i, level in enumerate(self.levels):
            there = level.waiting.classes
            priority = {"priority": int(classes[int(there[0])].priority) if len(there) else 0}
            found.append(self._part(i, priority, {"decision": decision}))
        return found

    def _part(self, number: int, priority: Mapping[str, int], more: Mapping[str, Any]) -> dict[str, Any]:
        trace, outcome = self.trace, self.trace.outcome
        part = network_part(trace, self.levels[number], outcome.certificates[number] if outcome.levels else None)
        del part["priority"]
        return {
            **part,
            **priority,
            "outside": [] if number else self._outside(),
            "given": {
                "settings": asdict(trace.head.settings),
                "task_groups": [asdict(group) for group in self.groups],
                "running_members": dict(self.running_members),
                **self.model,
                **more,
            },
            "counts": {} if number else dict(self.counts),
            "timings": {} if number else plain_timings(trace.head.timings_ms),
        }

    def _outside(self) -> list[dict[str, Any]]:
        """Classes that no network had, as their task groups lack members, and why."""
        trace = self.trace
        inside = {c for level in self.levels for c in level.waiting.classes.tolist()}
        members: dict[int, list[int]] = {}
        for row in trace.outcome.waits.tolist():
            if trace.pending_class[row] not in inside:
                members.setdefault(trace.pending_class[row], []).append(row)
        numbered = class_numbers(trace)
        found = []
        for c in sorted(members):
            rows = np.array(members[c], dtype=np.int64)
            waiting = float(trace.roll.prices.waiting[c])
            leaving = np.full(len(rows), waiting if np.isfinite(waiting) else 0.0)
            # Classes with a cost model of their own may share a name, so they are called by a task, as in networks.
            name = trace.roll.classes[c].name if trace.head.own_names else trace.roll.tasks[members[c][0]]
            demand = plain_demand(trace, self.levels[0], c, rows, leaving, name, numbered)
            found.append({**demand, "reason": trace.reasons[members[c][0]].text})
        return found


class RecordedModel(RecordedPolicy):
    """The cost model of a bulk part: prices of the record, and of a class that it does not have, the model's own."""

    def __init__(self, parts: Sequence[Mapping[str, Any]], ask: Callable[[], CostModel] | None = None) -> None:
        """``ask``: makes the model; None if it cannot be made here."""
        super().__init__(str(parts[0]["given"]["cost_model"]), parts[0])
        self._ask = ask
        for demand in (d for part in parts for d in (*part["demands"], *part["outside"])):
            self.learn(_as_priced(read_class(demand["class"])), demand)

    def price(self, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
        """As recorded. Raises ``KeyError`` for a class that the record does not have, where there is no model to ask."""
        try:
            return super().price(_as_priced(task_class), kinds)
        except KeyError:
            if self._ask is None:
                raise
        return self._ask().price(task_class, kinds)


def _as_priced(task_class: TaskClass) -> TaskClass:
    """What prices depend on: a what-if changes places, and so their numbers."""
    return replace(task_class, places=0)


def read_bulk_input(*parts: Mapping[str, Any], ask: Callable[[], CostModel] | None = None) -> BulkInput:
    """The input of a bulk round, in arrays of its own, from its part, or its parts where it had several levels. ``ask``
    makes its cost model, for classes that the record lacks.

    Raises ``ValueError`` or ``KeyError`` for values that contradict.
    """
    part = parts[0]
    given = part["given"]
    if part["fixed"] != FIXED:
        raise ValueError(f"sums are in units of 1/{part['fixed']}")
    demands = sorted(
        (d for p in parts for d in (*p["demands"], *p["outside"])), key=lambda demand: int(demand["number"])
    )
    return BulkInput(
        **vars(read_machines(part)),
        relations={relation["name"]: read_topology_counts(relation) for relation in part["relations"]},
        demands=[_read_demand(part, demand) for demand in demands],
        groups=tuple(TaskGroup(g["name"], g["minimum"], g.get("deadline_s")) for g in given["task_groups"]),
        running_members=dict(given["running_members"]),
        settings=read_round_settings(given["settings"]),
        model=RecordedModel(parts, ask) if "cost_model" in given else None,
        order=tuple(given.get("order", ())),
        now_s=float(given.get("now_s", 0.0)),
    )


def _read_demand(part: Mapping[str, Any], plain: Mapping[str, Any]) -> Demand:
    task_class = read_class(plain["class"])
    return Demand(
        name=plain["name"],
        tasks=tuple(plain["tasks"]),
        needs={"cpu": task_class.width_milli, **dict(task_class.needs)},
        places=read_places(part["places"][task_class.places]),
        sensitivity=task_class.sensitivity,
        pressure=task_class.pressure,
        holds=task_class.holds,
        joins=task_class.joins,
        group=task_class.group or None,
        waiting_cost=ALWAYS_WORTH_IT if plain["waiting"] is None else float(plain["waiting"]),
        max_cost=task_class.max_cost,
        counted=task_class.counted,
        since_s=tuple(np.asarray(plain["created_s"], dtype=np.float64).tolist()),
        known=replace(task_class, places=0) if "cost_model" in part["given"] else None,
    )


def _level_without_tasks(rounds: Rounds) -> Level:
    """The level of a round in which no task takes part."""
    cluster = rounds.cluster
    waiting = survey(cluster, _NONE, 0.0, rounds.settings.due_age_s)
    present = np.unique(cluster.task_class)
    state = BulkRoundState(cluster, None, present, rounds.spreads(present))
    evidence = Evidence.of(cluster, rounds.compaction, waiting, state.free, state.readings, state.barred, state.model)
    relations = state.relations.save()
    return Level(waiting, None, None, evidence, 0.0, signature=rounds.compaction.signature, topology_counts=relations)
