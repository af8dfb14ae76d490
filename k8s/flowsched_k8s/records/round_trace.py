"""All that the record of a round is made of. The record is made when it is asked for, in the thread that asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.running_tasks import entries_of
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Running
from flowsched.records.record import finite_or_none, of_decision, plain_timings, record_head
from flowsched_k8s.configuration.configuration import CostModelChoice
from flowsched_k8s.configuration.cost_model import plain_cost_model
from flowsched_k8s.rounds.held_nodes import HeldNodes
from flowsched_k8s.services.latency import GoalReach

GOAL_MISSED = "node(s) would miss the pod's p95 goal or have no cores of their own for it"
"""Reason text for a latency service; there is no in-tree one."""

_PER_CELL = 40
"""Bytes that a kind of pod keeps for each machine: two masks and four arrays of numbers."""
_PER_MACHINE = 300
"""Bytes that a level at linear prices keeps for each machine besides."""
_PER_TASK = 2000
"""Bytes for each pod: its placement with its terms, its names."""
_PER_PART = 150_000
"""Bytes of a level at forecast prices with its snapshot and its first network."""


PartRecipe = Callable[[], Mapping[str, Any] | list[dict[str, Any]]]
"""How to make the part of a record that a decision at forecast prices is, or those of one at linear prices."""


@dataclass(frozen=True, eq=False)
class Told:
    """Pods that were not placed, all for the same reason."""

    tasks: tuple[str, ...]
    fate: str
    message: str
    counts: Mapping[str, int]
    """Nodes by reason text, where the message counts nodes. A node may lack several resources."""


@dataclass(frozen=True, eq=False)
class Filtered:
    """What the filters that look at one node said to pods of one kind. Arrays are by machine row."""

    tasks: tuple[str, ...]
    reasons: Sequence[str]
    verdict: NDArray[np.int16]
    """Index into the reasons; 0 passes."""
    passes: NDArray[np.bool_]
    """Nodes that the round offered it; where the verdict passes, those left out would miss a p95 goal."""
    goal: GoalReach | None = None
    """That goal, and which p95 could be had."""


@dataclass(frozen=True, eq=False)
class KubernetesTrace:
    """Nothing in it changes after the round, so another thread may use it."""

    number: int
    now_s: float
    solver: str
    settings: Settings
    titles: Mapping[str, str]
    """NAMESPACE/NAME by uid of the pods of the round, and of services."""
    running: Sequence[Running]
    """The pods beside them that forecasts saw, their jobs NAMESPACE/NAME."""
    parts: tuple[PartRecipe, ...]
    told: tuple[Told, ...]
    filters: tuple[Filtered, ...]
    names: Sequence[str | None]
    """By machine row."""
    order: NDArray[np.int64]
    """Rows of all machines, in the order of their names."""
    since_s: Mapping[str, float]
    """By uid of each pod of the round: since when it could be scheduled."""
    rounds_waited: Mapping[str, int]
    held_nodes: HeldNodes | None = None
    """What drained for an overdue pod or gang."""
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    cost_model: CostModelChoice = field(default_factory=CostModelChoice)
    bulk_cells: int = 0
    """Kinds of pods times machines of all levels at linear prices, and one kind more for each part: what takes memory."""

    @property
    def pods(self) -> frozenset[str]:
        """NAMESPACE/NAME of all that the round decided on."""
        return frozenset(self.titles.get(uid, uid) for uid in self.since_s)

    @property
    def size_bytes(self) -> int:
        """About how much memory it keeps from being used for something else."""
        bulk = self.bulk_cells * _PER_CELL + (len(self.order) * _PER_MACHINE if self.bulk_cells else 0)
        return bulk + len(self.since_s) * _PER_TASK + len(self.parts) * _PER_PART

    def record(self) -> dict[str, Any]:
        """The record, version 5."""
        held = self.held_nodes
        return {
            **record_head(self.number, self.now_s, self.cost_model.name, self.solver, self.settings),
            **({} if self.cost_model.is_flow else {"cost_model": plain_cost_model(self.cost_model)}),
            "titles": {**self.titles, **{r.task.name: r.task.job for r in entries_of(self.running)}},
            "parts": [part for number, make in enumerate(self.parts) for part in _levels(make(), number)],
            "held": [
                {"tasks": list(t.tasks), "fate": t.fate, "message": t.message, "counts": dict(t.counts)}
                for t in self.told
            ],
            "waited": {
                uid: {
                    "rounds": self.rounds_waited.get(uid, 0),
                    "since_s": self.since_s[uid],
                    "due_age_s": self.settings.due_age_s,
                }
                for told in self.told
                for uid in told.tasks
            },
            "machines": [self.names[row] for row in self.order.tolist()],
            "filters": self._filters(),
            **({"goals": goals} if (goals := self._goals()) else {}),
            **({} if held is None else {"held_nodes": _plain_holds(held)}),
            "timings": plain_timings(self.timings_ms),
        }

    def _filters(self) -> list[dict[str, Any]]:
        """Kinds of pods to which the filters said the same stand together."""
        together: dict[tuple[tuple[str, ...], bytes], list[str]] = {}
        for filtered in self.filters:
            reasons, verdict = tuple(filtered.reasons), filtered.verdict[self.order]
            missed = (verdict == 0) & ~filtered.passes[self.order]
            if missed.any():
                verdict[missed] = len(reasons)
                reasons = (*reasons, GOAL_MISSED)
            together.setdefault((reasons, verdict.tobytes()), []).extend(filtered.tasks)
        return [
            {"tasks": tasks, "reasons": list(reasons), "verdict": np.frombuffer(verdict, dtype=np.int16)}
            for (reasons, verdict), tasks in together.items()
        ]

    def _goals(self) -> dict[str, dict[str, Any]]:
        """By uid the p95 goal of each service that some nodes would miss it on, and what it could have."""
        found = {}
        for filtered in self.filters:
            if filtered.goal is not None:
                plain = {key: finite_or_none(v) if v is not None else v for key, v in asdict(filtered.goal).items()}
                found.update(dict.fromkeys(filtered.tasks, plain))
        return found


def _levels(made: Mapping[str, Any] | list[dict[str, Any]], number: int) -> Sequence[Mapping[str, Any]]:
    # Classes that were planned apart are decisions of their own, though each was the first of its round.
    return of_decision(made, number) if isinstance(made, list) else [made]


def _plain_holds(held: HeldNodes) -> list[dict[str, Any]]:
    return [{"task": task, "machine": machine, "priority": held.priority} for task, machine in held.places]
