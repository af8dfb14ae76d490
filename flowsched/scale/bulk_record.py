"""The part of a record that a bulk round is, and the cluster that it began with read back from there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from flowsched.cluster.machine_arrays import FIXED
from flowsched.cluster.task_rows import PENDING
from flowsched.pricing.linear.policy import CostModel
from flowsched.records.record import plain_timings
from flowsched.relations.relation import TaskGroup
from flowsched.scale.bulk_cluster import BulkCluster
from flowsched.scale.bulk_prices import BulkPrices
from flowsched.scale.certificate import Evidence
from flowsched.scale.loaded_cluster import MIB
from flowsched.scale.network_trace import NetworkTrace, PlacedCosts, RoundHead
from flowsched.scale.reasons import Closing, Reason
from flowsched.scale.record import class_numbers, network_part, plain_demand
from flowsched.scale.recorded import read_cluster, recorded_demands, recorded_policy
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
    running_members: Mapping[str, int]
    counts: Mapping[str, int]
    model: Mapping[str, Any]
    """What a cost model beside ``flow`` adds to what the round was given."""

    @classmethod
    def of(
        cls,
        rounds: Rounds,
        outcome: RoundOutcome,
        closing: Closing,
        reasons: Mapping[int, Reason],
        costs: PlacedCosts,
        solver: Solver,
        now_s: float,
        counts: Mapping[str, int],
        timings_ms: Mapping[str, float],
    ) -> BulkTrace:
        """Take down what the round had and decided."""
        cluster, name = rounds.cluster, rounds.cluster.policy.name
        by_flow = isinstance(cluster.policy, BulkPrices)
        head = RoundHead(0, now_s, name, solver.name, rounds.settings, {}, timings_ms, own_names=by_flow, bulk=True)
        trace = NetworkTrace.of(cluster, outcome, closing, reasons, (), head, costs)
        levels = outcome.levels or (_level_without_tasks(rounds),)
        if by_flow:
            return cls(trace, levels, dict(cluster.members_elsewhere), dict(counts), {})
        took_part = np.concatenate([outcome.tasks, outcome.waits])
        came = took_part[np.argsort(cluster.sequence[took_part], kind="stable")]
        more = {"cost_model": name, "now_s": now_s, "order": [cluster.task_name(row) for row in came.tolist()]}
        return cls(trace, levels, cluster.running_members(), dict(counts), more)

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
                "task_groups": [asdict(TaskGroup(name, least)) for name, least in trace.groups.items()],
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


def read_bulk_cluster(*parts: Mapping[str, Any], ask: Callable[[], CostModel] | None = None) -> BulkCluster:
    """The cluster that a bulk round began with, from its part, or its parts where it had several levels. ``ask`` makes its
    cost model, for classes that the record lacks.

    Raises ``ValueError`` or ``KeyError`` for values that contradict.
    """
    part = parts[0]
    given = part["given"]
    if part["fixed"] != FIXED:
        raise ValueError(f"sums are in units of 1/{part['fixed']}")
    demands = recorded_demands(parts)
    own = "cost_model" in given
    head = {
        "parts": parts,
        "task_groups": {g["name"]: g["minimum"] for g in given["task_groups"]},
        "members_elsewhere": given["running_members"],
        "order": given["order"] if own else [task for demand in demands for task in demand["tasks"]],
    }
    if own:
        return read_cluster(head, recorded_policy(str(given["cost_model"]), head, ask))
    cluster = read_cluster(head, _read_prices(part, demands))
    cluster.memory_unit = MIB
    return cluster


def _read_prices(part: Mapping[str, Any], demands: Sequence[Mapping[str, Any]]) -> BulkPrices:
    """The linear prices of a bulk part."""
    waiting = {d["name"]: float(d["waiting"]) for d in demands if d["waiting"] is not None}
    return BulkPrices(len(part["features"]) - len(BulkPrices.lasting), waiting)


def _level_without_tasks(rounds: Rounds) -> Level:
    """The level of a round in which no task takes part."""
    cluster = rounds.cluster
    waiting = survey(cluster, _NONE, 0.0, rounds.settings.due_age_s)
    present = np.unique(cluster.task_class[cluster.state == PENDING])
    state = BulkRoundState(cluster, None, present, rounds.spreads(present))
    evidence = Evidence.of(cluster, rounds.compaction, waiting, state.free, state.readings, state.barred, state.model)
    relations = state.relations.save()
    return Level(waiting, None, None, evidence, 0.0, signature=rounds.compaction.signature, topology_counts=relations)
