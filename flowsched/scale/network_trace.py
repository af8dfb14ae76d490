"""What is known of a round at cluster scale once it is over: all that its record is made of, and nothing that changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from flowsched.cluster.task_class import MachineKind, TaskClass
from flowsched.cluster.task_rows import RUNNING
from flowsched.pricing.linear.policy import Feature
from flowsched.scale.bulk_cluster import BulkCluster
from flowsched.scale.changed_round import ChangedRound
from flowsched.scale.places import Places
from flowsched.scale.price_table import PriceTable
from flowsched.scale.reasons import Closing, Reason
from flowsched.scale.reservation import MachineReservation
from flowsched.scale.round import RoundOutcome, RoundSettings
from flowsched.support.arrays import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Roll:
    """Names of a round's tasks and machines, and what policies said of classes, as they were then; immutable."""

    machines: Sequence[str | None]
    tasks: Mapping[int, str]
    """By row: of those that wait and, where it matters, of those that run."""
    created_s: Mapping[int, float]
    classes: tuple[TaskClass, ...]
    kinds: tuple[MachineKind, ...]
    features: tuple[Feature, ...]
    resources: tuple[str, ...]
    prices: PriceTable
    allocatable: IntArray
    kind: IntArray
    effects: IntArray
    """By class."""

    @classmethod
    def of(cls, cluster: BulkCluster, rows: IntArray) -> Roll:
        """That of a cluster, for the tasks in ``rows``."""
        return cls(
            tuple(cluster.names),
            {row: cluster.task_name(row) for row in rows.tolist()},
            dict(zip(rows.tolist(), cluster.created_s[rows].tolist(), strict=True)),
            tuple(cluster.classes),
            tuple(cluster.kinds),
            cluster.features,
            tuple(cluster.resources),
            cluster.table(),
            cluster.allocatable.copy(),
            cluster.kind.copy(),
            cluster.effects,
        )


@dataclass(frozen=True, eq=False)
class Present:
    """What runs where until when: what rounds with due tasks, or with groups, depend on beside sums; in any order."""

    tasks: IntArray
    machine: IntArray
    task_class: IntArray
    end_s: FloatArray


@dataclass(frozen=True, eq=False)
class PlacedCosts:
    """What the placements of a round cost, in their order."""

    cost: FloatArray
    terms: Mapping[str, FloatArray]
    """They add up to the cost."""
    runner_up: IntArray
    """Machine row; -1 for none."""
    runner_up_cost: FloatArray


@dataclass(frozen=True, eq=False)
class RoundHead:
    """Which round it was, how it was made, and what it took."""

    number: int
    now_s: float
    policy: str
    solver: str
    settings: RoundSettings
    upkeep: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    stopped: tuple[str, ...] = ()
    own_names: bool = False
    """Whether no two classes have the same name."""
    changed: ChangedRound | None = None
    """What becomes of running tasks, where anything may."""
    bulk: bool = False
    """Whether it is of a bulk round, whose one part has all classes, those of groups that are not complete too."""


@dataclass(frozen=True, eq=False)
class NetworkTrace:
    """All that a record is made of; another thread may use it while rounds go on."""

    roll: Roll
    outcome: RoundOutcome
    costs: PlacedCosts
    pending_class: Mapping[int, int]
    """Class of each task that waits on, by its row."""
    reasons: Mapping[int, Reason]
    """Why tasks wait, by task row."""
    groups: Mapping[str, int]
    """Minimum of every task group."""
    members_elsewhere: Mapping[str, int]
    """By task group, members that run and that the round knew by their number only."""
    places: tuple[Places, ...]
    """Masks and wishes by their number."""
    present: Present | None
    before: tuple[MachineReservation, ...]
    """What was held when the round began."""
    head: RoundHead
    order: tuple[str, ...] = ()
    """Names of the tasks that took part, in the order in which they came, if their times and names do not say so."""

    @classmethod
    def of(
        cls,
        cluster: BulkCluster,
        outcome: RoundOutcome,
        closing: Closing,
        reasons: Mapping[int, Reason],
        before: tuple[MachineReservation, ...],
        head: RoundHead,
        costs: PlacedCosts | None = None,
    ) -> NetworkTrace:
        """Take down what changes after the round: names, and who runs if that matters.

        ``costs``: None for what each costs beside all others at the end of the round.
        """
        pending = np.concatenate([outcome.tasks, outcome.waits])
        present: Present | None = None
        rows = pending
        late = len(pending) and float(cluster.age_s(pending, head.now_s).max()) > head.settings.due_age_s
        if (head.settings.reservations and late) or cluster.groups or head.changed is not None:
            running = np.flatnonzero(cluster.state == RUNNING)
            present = Present(running, cluster.machine[running], cluster.task_class[running], cluster.end_s[running])
            rows = np.concatenate([pending, running])
        if costs is None:
            terms = closing.terms(cluster.task_class[outcome.tasks], outcome.machines)
            count = len(outcome.tasks)
            costs = PlacedCosts(outcome.cost, terms, np.full(count, -1, dtype=np.int64), np.zeros(count))
        return cls(
            Roll.of(cluster, rows),
            outcome,
            costs,
            dict(zip(outcome.waits.tolist(), cluster.task_class[outcome.waits].tolist(), strict=True)),
            reasons,
            dict(cluster.groups),
            dict(cluster.members_elsewhere),
            tuple(cluster.places.places),
            present,
            before,
            head,
            _order(cluster, pending),
        )


def _order(cluster: BulkCluster, pending: IntArray) -> tuple[str, ...]:
    """The tasks in the order in which they came; none where their times and names have it too."""
    rows = pending[np.argsort(cluster.sequence[pending], kind="stable")].tolist()
    came = list(zip(cluster.created_s[rows].tolist(), map(cluster.task_name, rows), strict=True))
    return () if came == sorted(came) else tuple([name for _, name in came])
