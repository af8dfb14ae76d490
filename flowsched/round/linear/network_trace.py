"""What is known of a round at linear prices once it is over: all that its record is made of, and nothing that changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from flowsched.cluster.task_class import MachineKind, TaskClass
from flowsched.cluster.task_rows import PENDING, RUNNING
from flowsched.pricing.linear.policy import Feature
from flowsched.round.linear.bulk_prices import BulkPrices
from flowsched.round.linear.changed_round import ChangedRound
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.linear_bound import Evidence
from flowsched.round.linear.linear_round import Level, RoundOutcome, Rounds, RoundSettings
from flowsched.round.linear.machine_groups import Compaction
from flowsched.round.linear.machine_reservation import MachineReservation
from flowsched.round.linear.placed_costs import PlacedCosts
from flowsched.round.linear.places import Places
from flowsched.round.linear.price_table import PriceTable
from flowsched.round.linear.round_state import BulkRoundState
from flowsched.round.linear.waiting import survey
from flowsched.round.wait_reasons import Reason
from flowsched.support.arrays import FloatArray, IntArray

_NONE: IntArray = np.zeros(0, dtype=np.int64)


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
            cluster.classes.effects,
        )


@dataclass(frozen=True, eq=False)
class Present:
    """What runs where until when: what rounds with due tasks, or with groups, depend on beside sums; in any order."""

    tasks: IntArray
    machine: IntArray
    task_class: IntArray
    end_s: FloatArray


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
    changed: ChangedRound | None = None
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
    """By task group, members that run and that ``present`` does not have."""
    places: tuple[Places, ...]
    """Masks and wishes by their number."""
    present: Present | None
    before: tuple[MachineReservation, ...]
    """What was held when the round began."""
    counts: Mapping[str, int]
    head: RoundHead
    order: tuple[str, ...]
    """Names of the tasks that took part, in the order in which they came, if their times and names do not say so."""

    @classmethod
    def of(
        cls,
        rounds: Rounds,
        outcome: RoundOutcome,
        reasons: Mapping[int, Reason],
        costs: PlacedCosts,
        head: RoundHead,
        before: tuple[MachineReservation, ...] = (),
        *,
        named: bool,
    ) -> NetworkTrace:
        """Take down what changes after the round: names, and who runs if that matters and if all of it is ``named``."""
        cluster = rounds.cluster
        pending = np.concatenate([outcome.tasks, outcome.waits])
        present: Present | None = None
        rows = pending
        late = len(pending) and float(cluster.tasks.age_s(pending, head.now_s).max()) > head.settings.due_age_s
        if named and ((head.settings.reservations and late) or cluster.groups or head.changed is not None):
            running = np.flatnonzero(cluster.tasks.state == RUNNING)
            present = Present(
                running, cluster.tasks.machine[running], cluster.tasks.task_class[running], cluster.tasks.end_s[running]
            )
            rows = np.concatenate([pending, running])
        by_flow = isinstance(cluster.classes.policy, BulkPrices)
        return cls(
            Roll.of(cluster, rows),
            outcome,
            outcome.levels or (_level_without_tasks(rounds),),
            costs,
            by_flow,
            dict(zip(outcome.waits.tolist(), cluster.tasks.task_class[outcome.waits].tolist(), strict=True)),
            reasons,
            dict(cluster.groups),
            dict(cluster.members_elsewhere) if named or by_flow else cluster.running_members(),
            tuple(cluster.classes.places.places),
            present,
            before,
            counts_of(outcome),
            head,
            () if by_flow else _order(cluster, pending),
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
    # Where nothing waits at all, the widths of an earlier round are none of this one's.
    compaction = rounds.compaction if len(present) else Compaction(cluster)
    evidence = Evidence.of(cluster, compaction, waiting, state.free, state.readings, state.barred, state.model)
    relations = state.relations.save()
    return Level(waiting, None, None, evidence, 0.0, signature=rounds.compaction.signature, topology_counts=relations)


def _order(cluster: ClusterRows, pending: IntArray) -> tuple[str, ...]:
    """The tasks in the order in which they came; none where their times and names have it too."""
    rows = cluster.tasks.in_order(pending).tolist()
    came = list(zip(cluster.tasks.created_s[rows].tolist(), map(cluster.tasks.name, rows), strict=True))
    return () if came == sorted(came) else tuple([name for _, name in came])
