"""The part of a record that a bulk round is, and its input read back from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from flowsched.records.record import plain_timings
from flowsched.relations.relation import TaskGroup
from flowsched.scale.bulk_input import BulkInput
from flowsched.scale.certificate import Evidence
from flowsched.scale.demand import ALWAYS_WORTH_IT, Demand
from flowsched.scale.desk import Desk
from flowsched.scale.kernels import UNLIMITED
from flowsched.scale.machine_arrays import FIXED
from flowsched.scale.network_account import NetworkAccount, PlacedCosts
from flowsched.scale.places import read_places
from flowsched.scale.reasons import Closing, Reason
from flowsched.scale.record import class_numbers, network_part, plain_demand
from flowsched.scale.recorded import read_class, read_round_settings
from flowsched.scale.round import Level, RoundOutcome, Rounds
from flowsched.scale.topology import read_topology_counts
from flowsched.scale.waiting import survey
from flowsched.solvers import Solver
from flowsched.support.arrays import IntArray

_NONE: IntArray = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class BulkAccount:
    """All that the part is made of. Nothing in it changes after the round, so another thread may use it."""

    account: NetworkAccount
    level: Level
    """The one level of the round; one without tasks where no task takes part."""
    groups: tuple[TaskGroup, ...]
    running_members: Mapping[str, int]
    counts: Mapping[str, int]

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
    ) -> BulkAccount:
        """Take down what the round had and decided."""
        account = NetworkAccount.of(
            rounds.ledger, outcome, closing, reasons, (), number=0, now_s=0.0, policy="flow", solver=solver.name,
            settings=given.settings, upkeep={}, timings_ms=timings_ms, own_names=True, costs=costs,
        )  # fmt: skip
        level = outcome.levels[0] if outcome.levels else _level_without_tasks(rounds)
        return cls(account, level, given.groups, dict(given.running_members), dict(counts))

    def part(self, priority: int | None = None) -> dict[str, Any]:
        """Plain data."""
        account, outcome = self.account, self.account.outcome
        part = network_part(account, self.level, outcome.certificates[0] if outcome.levels else None)
        del part["priority"]
        return {
            **part,
            **({} if priority is None else {"priority": priority}),
            "outside": self._outside(),
            "given": {
                "settings": asdict(account.settings),
                "task_groups": [asdict(group) for group in self.groups],
                "running_members": dict(self.running_members),
            },
            "counts": dict(self.counts),
            "timings": plain_timings(account.timings_ms),
        }

    def _outside(self) -> list[dict[str, Any]]:
        """Classes that no network had, as their task groups lack members, and why."""
        account = self.account
        inside = set(self.level.waiting.classes.tolist())
        members: dict[int, list[int]] = {}
        for row in account.outcome.waits.tolist():
            if account.pending_class[row] not in inside:
                members.setdefault(account.pending_class[row], []).append(row)
        numbered = class_numbers(account)
        found = []
        for c in sorted(members):
            rows = np.array(members[c], dtype=np.int64)
            waiting = float(account.roll.waiting[c])
            leaving = np.full(len(rows), waiting if np.isfinite(waiting) else 0.0)
            demand = plain_demand(account, self.level, c, rows, leaving, account.roll.classes[c].name, numbered)
            found.append({**demand, "reason": account.reasons[members[c][0]].text})
        return found


def read_bulk_input(part: Mapping[str, Any]) -> BulkInput:
    """The input of a bulk part, in arrays of its own. Raises ``ValueError`` or ``KeyError`` for values that contradict."""
    fleet, given = part["fleet"], part["given"]
    if part["fixed"] != FIXED:
        raise ValueError(f"sums are in units of 1/{part['fixed']}")
    count, features = len(fleet["machines"]), len(part["features"])
    kind = np.array(fleet["kind"], dtype=np.int64)
    limits = np.array([[np.inf if v is None else v for v in row] for row in _rows(fleet["limits"])], dtype=np.float64)
    limited = np.isfinite(limits)
    demands = sorted((*part["demands"], *part["outside"]), key=lambda demand: int(demand["number"]))
    return BulkInput(
        list(fleet["machines"]),
        list(fleet["resources"]),
        np.array(fleet["allocatable"], dtype=np.int64).reshape(count, len(fleet["resources"])),
        np.array(fleet["free"], dtype=np.int64).reshape(count, len(fleet["resources"])),
        np.array([float(k["bandwidth"]) for k in part["kinds"]], dtype=np.float64)[kind],
        np.array(fleet["readings"], dtype=np.int64).reshape(count, features),
        np.where(limited, np.where(limited, limits, 0.0).astype(np.int64), UNLIMITED).reshape(count, features),
        {relation["name"]: read_topology_counts(relation) for relation in part["relations"]},
        [_read_demand(part, demand) for demand in demands],
        tuple(TaskGroup(g["name"], g["minimum"], g["deadline_s"]) for g in given["task_groups"]),
        dict(given["running_members"]),
        read_round_settings(given["settings"]),
    )


def _read_demand(part: Mapping[str, Any], plain: Mapping[str, Any]) -> Demand:
    task_class = read_class(plain["class"])
    places = read_places(part["places"][task_class.places])
    return Demand(
        name=plain["name"],
        tasks=tuple(plain["tasks"]),
        needs={"cpu": task_class.width_milli, **dict(task_class.needs)},
        allowed=places.allowed,
        eligible=places.eligible,
        preference=places.preference,
        sensitivity=task_class.sensitivity,
        pressure=task_class.pressure,
        slowness=places.slowness,
        holds=task_class.holds,
        joins=task_class.joins,
        group=task_class.group or None,
        waiting_cost=ALWAYS_WORTH_IT if plain["waiting"] is None else float(plain["waiting"]),
        max_cost=task_class.max_cost,
    )


def _level_without_tasks(rounds: Rounds) -> Level:
    """The level of a round in which no task takes part."""
    ledger = rounds.ledger
    waiting = survey(ledger, _NONE, 0.0, rounds.settings.due_age_s)
    desk = Desk(ledger, None, np.unique(ledger.task_class), rounds.settings.scoring == "spread")
    evidence = Evidence.of(ledger, rounds.compaction, waiting, desk.free, desk.readings, desk.barred, desk.model)
    relations = desk.relations.save()
    return Level(waiting, None, None, evidence, 0.0, signature=rounds.compaction.signature, topology_counts=relations)


def _rows(values: Any) -> Sequence[Any]:
    rows: Sequence[Any] = np.asarray(values, dtype=object).tolist()
    return rows
