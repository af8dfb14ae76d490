"""What is known of a round at linear prices once it is over: all that its record is made of, and nothing that changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flowsched.cluster.snapshot import Snapshot
from flowsched.cluster.task_class import MachineKind, TaskClass
from flowsched.cluster.task_rows import PENDING
from flowsched.pricing.linear.policy import Feature
from flowsched.round.linear.bulk_prices import BulkPrices
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.linear_bound import Evidence
from flowsched.round.linear.linear_round import Level, RoundOutcome, Rounds, RoundSettings
from flowsched.round.linear.machine_groups import Compaction
from flowsched.round.linear.placed_costs import PlacedCosts
from flowsched.round.linear.places import Places
from flowsched.round.linear.price_table import PriceTable
from flowsched.round.linear.round_state import BulkRoundState
from flowsched.round.linear.waiting import survey
from flowsched.round.running_changes import ChangedDecisions
from flowsched.round.wait_reasons import Reason
from flowsched.support.arrays import IntArray

_NONE: IntArray = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Roll:
    """Names of a round's tasks and machines, and what policies said of classes, as they were then; immutable."""

    machines: Sequence[str | None]
    tasks: Mapping[int, str]
    """Those that wait, by row."""
    created_s: Mapping[int, float]
    classes: tuple[TaskClass, ...]
    kinds: tuple[MachineKind, ...]
    features: tuple[Feature, ...]
    resources: tuple[str, ...]
    prices: PriceTable
    allocatable: IntArray
    kind: IntArray

    @classmethod
    def of(cls, cluster: ClusterRows, rows: IntArray) -> Roll:
        """That of a cluster, for the tasks in ``rows``."""
        return cls(
            tuple(cluster.machines.names),
            {row: cluster.tasks.name(row) for row in rows.tolist()},
            dict(zip(rows.tolist(), cluster.tasks.created_s[rows].tolist(), strict=True)),
            tuple(cluster.classes),
            tuple(cluster.machines.kinds),
            cluster.classes.features,
            tuple(cluster.classes.resources),
            cluster.classes.table(),
            cluster.allocatable.copy(),
            cluster.machines.kind.copy(),
        )


@dataclass(frozen=True, eq=False)
class RoundGiven:
    """What a round on the state of a cluster was given: with it the round can be decided again."""

    snapshot: Snapshot
    cost_model: Mapping[str, Any]
    """Its ``name``, and its ``settings`` as JSON has them."""
    settings: Mapping[str, Any]
    """All others that were read."""


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
    changed: ChangedDecisions | None = None
    """What becomes of running tasks, where anything may."""


@dataclass(frozen=True, eq=False)
class NetworkTrace:
    """All that a record is made of; another thread may use it while rounds go on."""

    roll: Roll
    outcome: RoundOutcome
    levels: tuple[Level, ...]
    """Those of the round; one without tasks where no task takes part."""
    costs: PlacedCosts
    by_flow: bool
    """Whether prices are those of ``flow``: its classes have names of their own, and nothing says when tasks came."""
    pending_class: Mapping[int, int]
    """Class of each task that waits on, by its row."""
    reasons: Mapping[int, Reason]
    """Why tasks wait, by task row."""
    groups: Mapping[str, int]
    """Minimum of every task group."""
    members_elsewhere: Mapping[str, int]
    """By task group, members that run."""
    places: tuple[Places, ...]
    """Masks and wishes by their number."""
    counts: Mapping[str, int]
    head: RoundHead
    order: tuple[str, ...]
    """Names of the tasks that took part, in the order in which they came, if neither their times and names nor ``given`` say
    so."""
    given: RoundGiven | None
    """None where what runs is known as sums."""

    @classmethod
    def of(
        cls,
        rounds: Rounds,
        outcome: RoundOutcome,
        reasons: Mapping[int, Reason],
        costs: PlacedCosts,
        head: RoundHead,
        given: RoundGiven | None = None,
    ) -> NetworkTrace:
        """Take down what changes after the round."""
        cluster = rounds.cluster
        pending = np.concatenate([outcome.tasks, outcome.waits])
        by_flow = isinstance(cluster.classes.policy, BulkPrices)
        return cls(
            Roll.of(cluster, pending),
            outcome,
            outcome.levels or (_level_without_tasks(rounds),),
            costs,
            by_flow,
            dict(zip(outcome.waits.tolist(), cluster.tasks.task_class[outcome.waits].tolist(), strict=True)),
            reasons,
            dict(cluster.groups),
            dict(cluster.members_elsewhere) if by_flow else cluster.running_members(),
            tuple(cluster.classes.places.places),
            counts_of(outcome),
            head,
            () if by_flow or given is not None else _order(cluster, pending),
            given,
        )


def counts_of(outcome: RoundOutcome) -> dict[str, int]:
    """What a round counted, with the sizes of its networks."""
    counts = dict(outcome.counts)
    for level in outcome.levels:
        if level.network is not None:
            counts |= level.network.kinds()
    return counts


def _level_without_tasks(rounds: Rounds) -> Level:
    """The level of a round in which no task takes part."""
    cluster = rounds.cluster
    waiting = survey(cluster, _NONE, 0.0, rounds.settings.due_age_s)
    present = np.unique(cluster.tasks.task_class[cluster.tasks.state == PENDING])
    state = BulkRoundState(cluster, None, present, rounds.spreads(present))
    # Not the tiers of the round before.
    compaction = Compaction(cluster)
    evidence = Evidence.of(cluster, compaction, waiting, state.free, state.readings, state.barred, state.model)
    relations = state.relations.save()
    return Level(waiting, None, None, evidence, 0.0, signature=rounds.compaction.signature, topology_counts=relations)


def _order(cluster: ClusterRows, pending: IntArray) -> tuple[str, ...]:
    """The tasks in the order in which they came; none where their times and names have it too."""
    rows = cluster.tasks.in_order(pending).tolist()
    came = list(zip(cluster.tasks.created_s[rows].tolist(), map(cluster.tasks.name, rows), strict=True))
    return () if came == sorted(came) else tuple([name for _, name in came])
