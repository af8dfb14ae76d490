"""Which pods are moved to other nodes, as a pure function: the engine is asked what it would do if some pods were elsewhere.

A plan is made for one purpose. *Interference*: tasks that the forecasts see go where the cost of both machines falls by more
than the move's price, as migration in ``simulate`` has it. *Room* for pods that wait, and *empty nodes*: the pods in the way
are taken off their nodes and decided on by an ordinary round; the plan stands if that round has another place for each of
them, and if what is won is worth more than the moves. That round has all that the next one will have: wishes, spreads,
what is held for others, and pods that wait and would take a place that becomes free. Moves for less interference are
confirmed by such a round as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from flowsched.cluster.compaction import part_of
from flowsched.cluster.settings import Settings
from flowsched.records.record import Recipe
from flowsched.round.scheduler import FlowScheduler
from flowsched.solvers import Solver
from flowsched_k8s.configuration.configuration import RebalancingSettings
from flowsched_k8s.preemption.preemption import PreemptionPlan
from flowsched_k8s.rounds.measured_pods import MeasuredPods, book
from flowsched_k8s.rounds.planning import plan_round, trace_of_moves
from flowsched_k8s.rounds.round_input import RoundInput, RoundResult


class Purpose(StrEnum):
    """What pods are moved for."""

    ROOM = "room"
    """Pods wait, and would have room if others were elsewhere."""
    INTERFERENCE = "interference"
    """A pod harms its neighbours, or they harm it, more than it would elsewhere."""
    EMPTY_NODE = "empty-node"
    """A node could do without pods, and an autoscaler without the node."""


@dataclass(frozen=True, eq=False)
class MoveQuestion:
    """What the engine is asked: whether some pods should be elsewhere."""

    purpose: Purpose
    what: str
    """Such as "room for team/job"."""
    given: RoundInput
    """With the pods in question beside those that wait, and their room free; for interference when no pod waits."""
    sources: Mapping[str, str]
    """Node of each pod that may be moved, by uid."""
    gain: float = 0.0
    """What it is worth if all of them are elsewhere."""
    price: Mapping[str, float] = field(default_factory=dict)
    """What moving each of them costs, by uid."""
    targets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For interference: nodes that each of them may go to."""
    room_for: Mapping[str, PreemptionPlan] = field(default_factory=dict)
    """For room: by uid of a waiting pod, where it goes and who leaves."""
    in_use: frozenset[str] | None = None
    """For an empty node: the other nodes that pods are on; None where they may go to any."""


@dataclass(frozen=True)
class PlannedMove:
    """A pod and where it should be. ``gain`` and ``price`` in the unit of the engine's costs."""

    uid: str
    source: str
    target: str
    gain: float
    price: float


@dataclass(frozen=True, eq=False)
class MovePlan:
    """Moves for one purpose, with what they are made of."""

    question: MoveQuestion
    moves: tuple[PlannedMove, ...]
    record: Recipe | None

    @property
    def pods(self) -> frozenset[str]:
        """NAMESPACE/NAME of those that move."""
        return frozenset(self.question.given.titles.get(m.uid, m.uid) for m in self.moves)


def plan_moves(
    questions: Iterable[MoveQuestion], solver: Solver, engine: FlowScheduler, settings: RebalancingSettings
) -> tuple[MovePlan | None, tuple[str, ...]]:
    """The first plan that pays, and why those before it do not. ``engine`` decides ordinary rounds."""
    refused: list[str] = []
    for question in questions:
        if question.purpose is Purpose.INTERFERENCE:
            found = _relieve(question, solver, settings)
        else:
            found = _place_again(question, solver, engine)
        if isinstance(found, MovePlan):
            return found, tuple(refused)
        refused.append(f"{question.what}: {found}")
    return None, tuple(refused)


def _relieve(question: MoveQuestion, solver: Solver, settings: RebalancingSettings) -> MovePlan | str:
    """Migration at forecast prices; a moved pod loses its work."""
    given = question.given
    nodes = {*question.sources.values(), *(name for names in question.targets.values() for name in names)}
    snapshot = part_of(MeasuredPods(given).snapshot(()), nodes)
    running = tuple(
        replace(r, task=replace(r.task, machines=question.targets.get(r.task.name, ()))) for r in snapshot.running
    )
    engine = FlowScheduler(solver, migration_settings(given.settings, settings), keep_records=True)
    decisions = engine.decide(replace(snapshot, running=running))
    moves = tuple(PlannedMove(m.task, m.source, m.machine, m.gain, m.price) for m in decisions.moves or ())
    if not moves or decisions.recipe is None:
        return "no move gains more than its price"
    asked = replace(given, settings=migration_settings(given.settings, settings))
    return MovePlan(question, moves, trace_of_moves(asked, solver, decisions.recipe).record)


def migration_settings(engine: Settings, settings: RebalancingSettings) -> Settings:
    """The engine's, with migration as pods are moved: an evicted pod starts anew."""
    return replace(
        engine,
        migration_moves=settings.max_moves,
        migration_price=settings.price,
        migration_pause_s=settings.restart_s,
        migrated_work="lost",
    )


def confirmed(
    plan: MovePlan, question: MoveQuestion, solver: Solver, engine: FlowScheduler, settings: RebalancingSettings
) -> MovePlan | str:
    """What is left of moves that pay each by itself, by where an ordinary round puts their pods; or why nothing is.

    ``question``: about the same pods, with those that wait. A pod that goes to another node than its target has to gain by
    that one.
    """
    places = {c.uid: c.node for c in _round(question, solver, engine).chosen}
    moves = tuple(m for m in plan.moves if places.get(m.uid, m.source) != m.source)
    if not moves:
        uid = plan.moves[0].uid
        title = question.given.titles.get(uid, uid)
        where = f"on {places[uid]} again" if uid in places else "nowhere at once"
        return f"the next round would place {title} {where}"
    if all(places[m.uid] == m.target for m in moves):
        return replace(plan, moves=moves)
    there = {m.uid: (places[m.uid],) for m in moves}
    sources = {m.uid: m.source for m in moves}
    return _relieve(replace(plan.question, sources=sources, targets=there), solver, settings)


def _round(question: MoveQuestion, solver: Solver, engine: FlowScheduler) -> RoundResult:
    return plan_round(replace(question.given, booked=question.given.booked.copy()), solver, engine)


def _place_again(question: MoveQuestion, solver: Solver, engine: FlowScheduler) -> MovePlan | str:
    """An ordinary round on the pods in question and those that wait, beside the room that is held for others."""
    price = sum(question.price.values())
    result = _round(question, solver, engine)
    places = {c.uid: c.node for c in result.chosen}
    titles = question.given.titles
    left = sorted(titles.get(uid, uid) for uid in question.sources if uid not in places)
    if left:
        return f"there is no other place for {left[0]}" + (f" and {len(left) - 1} more" if len(left) > 1 else "")
    for uid, source in sorted(question.sources.items()):
        if places[uid] == source:
            return f"the next round would place {titles.get(uid, uid)} on {source} again"
        if question.in_use is not None and places[uid] not in question.in_use:
            return f"the next round would place {titles.get(uid, uid)} on {places[uid]}, where no pod is"
    if (taken := _taken(question, result)) is not None:
        return taken
    each = question.gain / len(question.sources)
    moves = tuple(
        PlannedMove(uid, source, places[uid], each, question.price[uid])
        for uid, source in sorted(question.sources.items())
    )
    if question.gain <= price:
        return f"it gains {question.gain:.2f}, and {len(moves)} moves cost {price:.2f}"
    return MovePlan(question, moves, None if result.trace is None else result.trace.record)


def _taken(question: MoveQuestion, result: RoundResult) -> str | None:
    """Which other pod would get what the moves are made for; None if none would."""
    given, sources = question.given, set(question.sources.values())
    if question.purpose is Purpose.EMPTY_NODE:
        for c in result.chosen:
            if c.node in sources:
                return f"the next round would place {given.titles.get(c.uid, c.uid)} there"
        return None
    booked, kinds = given.booked.copy(), {uid: c for c in given.classes for uid in c.uids}
    for c in result.chosen:
        book(booked, kinds[c.uid], c.uid, c.node, c.width_milli or 0)
    for nominee in given.nominated:
        if nominee.uid in question.room_for and not booked.machines.fits_on(nominee.needs, nominee.node):
            return f"pods of higher priority would take the room on {nominee.node}"
        nominee.take_room(booked)
    return None
