"""The part of a record that a wide round is: what it was given, its first network, what it decided; and back again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from flowsched.arrays import FloatArray, IntArray
from flowsched.decision import Certificate
from flowsched.demand import ALWAYS_WORTH_IT, Demand
from flowsched.fleet import FIXED
from flowsched.network import Network
from flowsched.record import WIDE_PART, plain_certificate, plain_timings
from flowsched.relations.relation import Relation, RelationKind, TaskGroup
from flowsched.relations.topology_counts import TopologyCounts
from flowsched.solvers import Solution
from flowsched.wide_board import STATE, Board
from flowsched.wide_network import WideNetwork, build_wide_network
from flowsched.wide_outcome import Leftover, PlacedColumns


@dataclass(frozen=True, eq=False)
class WideAccount:
    """All that the part of a wide round is made of. Nothing in it changes after the round."""

    before: Board
    solved: tuple[WideNetwork, Solution] | None
    """The first network; None where nobody could be asked for: no machine, or only groups that lack members."""
    placed: PlacedColumns
    left: tuple[Leftover, ...]
    groups: tuple[TaskGroup, ...]
    running_members: Mapping[str, int]
    resolves: int
    certificate: Certificate | None
    counts: Mapping[str, int]
    timings_ms: Mapping[str, float]

    def part(self, priority: int | None = None) -> dict[str, Any]:
        """Plain data."""
        board = self.before
        left: dict[tuple[str, str], list[str]] = {}
        for leftover in self.left:
            left.setdefault((str(leftover.cause), leftover.text), []).append(leftover.task)
        placed = self.placed
        rival_cost = np.where(placed.runner_up >= 0, placed.runner_up_cost, 0.0)
        return {
            "kind": WIDE_PART,
            **({} if priority is None else {"priority": priority}),
            "fleet": plain_fleet(board),
            "demands": [_plain_demand(board, c) for c in range(len(board.classes))],
            "task_groups": [asdict(g) for g in self.groups],
            "running_members": dict(self.running_members),
            "resolves": self.resolves,
            **self._first(),
            "placements": {
                "task": list(placed.task),
                "machine": placed.machine,
                "cost": placed.cost,
                "terms": dict(placed.terms),
                "runner_up": placed.runner_up,
                "runner_up_cost": rival_cost,
            },
            "left": [{"tasks": tasks, "cause": cause, "text": text} for (cause, text), tasks in left.items()],
            "certificate": plain_certificate(self.certificate),
            "counts": dict(self.counts),
            "timings": plain_timings(self.timings_ms),
        }

    def _first(self) -> dict[str, Any]:
        board = self.before
        if self.solved is None:
            nothing = np.zeros(0, dtype=np.int64)
            empty = Network(nothing, nothing, nothing, nothing, np.zeros(1, dtype=np.int64), 1.0, ("sink",))
            return {
                "waiting_costs": [None for _ in board.classes],
                "group_of": np.zeros(board.machine_count, dtype=np.int64),
                "first_network": empty.to_plain(nothing),
            }
        network, solution = self.solved
        explained = build_wide_network(board, network.counts.tolist(), explain=True)
        return {
            "waiting_costs": network.waiting,
            "group_of": network.group_of,
            "first_network": explained.network.to_plain(solution.flow),
        }


def plain_fleet(board: Board) -> dict[str, Any]:
    """The machines of a board: arrays by machine, in the order of their names, and the relations that count there."""
    return {
        "machines": board.names,
        "resources": list(board.resources),
        **{name: getattr(board, name) for name in STATE},
        "fixed": FIXED,
        "relations": [
            {
                "name": standing.relation.name,
                "kind": standing.relation.kind.value,
                "key": standing.relation.key,
                "most": standing.relation.most,
                "skew": standing.relation.skew,
                "min_domains": standing.relation.min_domains,
                "domains": standing.domains,
                "domain": standing.domain,
                "members": standing.members,
                "holders": standing.holders,
            }
            for standing in board.standings.values()
        ],
    }


def read_board(part: Mapping[str, Any]) -> Board:
    """The board that a wide part began with. Raises ``KeyError`` for a record that does not have all of it."""
    fleet = part["fleet"]
    if fleet["fixed"] != FIXED:
        raise ValueError(f"sums are in units of 1/{fleet['fixed']}")
    arrays: dict[str, Any] = {
        name: np.array(fleet[name], dtype=np.float64 if name in ("bandwidth", "headroom_slope") else np.int64)
        for name in STATE
    }
    shape = (len(fleet["machines"]), len(fleet["resources"]))
    for name in ("allocatable", "free"):
        arrays[name] = arrays[name].reshape(shape)
    return Board.of(
        fleet["machines"],
        fleet["resources"],
        arrays,
        {r["name"]: _read_standing(r) for r in fleet["relations"]},
        [read_demand(d) for d in part["demands"]],
    )


def read_task_groups(part: Mapping[str, Any]) -> tuple[TaskGroup, ...]:
    """The task groups of a wide part."""
    return tuple(TaskGroup(g["name"], g["minimum"], g["deadline_s"]) for g in part["task_groups"])


def read_demand(plain: Mapping[str, Any]) -> Demand:
    """A demand of a wide part, its arrays in the order of the machines' names."""

    def floats(name: str) -> FloatArray | None:
        if plain[name] is None:
            return None
        return np.nan_to_num(np.array(plain[name], dtype=np.float64), nan=np.inf, posinf=np.inf)

    def mask(name: str) -> Any:
        return None if plain[name] is None else np.array(plain[name], dtype=np.bool_)

    def cost(name: str) -> float:
        return ALWAYS_WORTH_IT if plain[name] is None else float(plain[name])

    return Demand(
        name=plain["name"],
        tasks=tuple(plain["tasks"]),
        needs=dict(plain["needs"]),
        allowed=mask("allowed"),
        eligible=mask("eligible"),
        preference=floats("preference"),
        sensitivity=plain["sensitivity"],
        pressure=plain["pressure"],
        slowness=floats("slowness"),
        holds=tuple(plain["holds"]),
        joins=tuple(plain["joins"]),
        group=plain["group"],
        waiting_cost=cost("waiting_cost"),
        max_cost=cost("max_cost"),
    )


def _plain_demand(board: Board, c: int) -> dict[str, Any]:
    cls = board.classes[c]
    demand = cls.demand
    return {
        "name": demand.name,
        "tasks": list(demand.tasks),
        "needs": dict(demand.needs),
        "allowed": None if demand.allowed is None else cls.allowed,
        "eligible": cls.eligible,
        "preference": None if demand.preference is None else cls.preference,
        "slowness": None if demand.slowness is None else cls.slowness,
        "sensitivity": demand.sensitivity,
        "pressure": demand.pressure,
        "holds": list(demand.holds),
        "joins": list(demand.joins),
        "group": demand.group,
        "waiting_cost": _finite(demand.waiting_cost),
        "max_cost": _finite(demand.max_cost),
    }


def _finite(cost: float) -> float | None:
    return cost if np.isfinite(cost) else None


def _read_standing(plain: Mapping[str, Any]) -> TopologyCounts:
    relation = Relation(
        plain["name"],
        RelationKind(plain["kind"]),
        plain["key"],
        **{k: plain[k] for k in ("most", "skew", "min_domains")},
    )
    arrays: Sequence[IntArray] = [np.array(plain[k], dtype=np.int64) for k in ("domain", "members", "holders")]
    return TopologyCounts(relation, arrays[0], int(plain["domains"]), arrays[1], arrays[2])
