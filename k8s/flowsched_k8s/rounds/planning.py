"""One round on Kubernetes, as a pure function: what was read from the cache in, which pod goes where and why not out.

Priorities strictly in order. Within one, pods of which forecasts are made, with a measured profile or a known run time, go
first, by passes of min-cost flow at forecast prices; all others then go through one network of classes and machine groups
at linear prices. The pod, or gang, that is overdue for longest goes before all of them, whichever prices it has.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import PlannedStart, Reservation
from flowsched.cluster.state_rows import StateRows
from flowsched.cluster.task_class import TaskClass
from flowsched.pricing.linear.policy import CostModel
from flowsched.records.record import Recipe, of_first
from flowsched.round.linear.bulk_outcome import BulkOutcome
from flowsched.round.linear.bulk_round import decide
from flowsched.round.linear.bulk_rows import bulk_rows
from flowsched.round.linear.bulk_settings import bulk_settings, model_settings
from flowsched.round.linear.cluster_checks import MOST_MILLI
from flowsched.round.linear.lone_task import decide_lone
from flowsched.round.linear.places import Places
from flowsched.round.linear.preparation import prepare
from flowsched.round.linear.priced_rows import PricedRows
from flowsched.round.scheduler import FlowScheduler
from flowsched.round.wait_reasons import WaitCause
from flowsched.solvers import Solver
from flowsched.support.arrays import BoolArray, FloatArray
from flowsched_k8s.causes import Cause
from flowsched_k8s.records.round_trace import Filtered, KubernetesTrace, PartRecipe, Told
from flowsched_k8s.rounds.gpu_costs import gpu_costs
from flowsched_k8s.rounds.measured_pods import MeasuredPods, book
from flowsched_k8s.rounds.round_input import Chosen, ClassInput, Fate, Held, RoundInput, RoundResult
from flowsched_k8s.rounds.why_not import group_waits, held_nodes, kept_off, no_room, room
from flowsched_k8s.services.keepers import KeptRows, PrecedenceClaim, yielded_bookings, yielded_cluster

LOG = logging.getLogger(__name__)

_MOST_UNKNOWN = 64
_SAID = frozenset({WaitCause.GROUP, WaitCause.COST, WaitCause.SERVICE})
"""Causes that the engine says in words of its own; for the others there is the standard message."""


def plan_round(
    given: RoundInput,
    solver: Solver,
    engine: FlowScheduler | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> RoundResult:
    """Place what can be placed, priority by priority, and say why not for the rest.

    ``engine`` has the same settings and keeps records; what it has forecast stays from round to round. None: a new one.
    """
    whole = _Round(given, solver, engine or make_engine(given.settings, solver), clock)
    whole.decide()
    return whole.result()


def make_engine(settings: Settings, solver: Solver) -> FlowScheduler:
    """The scheduler of measured pods, for :func:`plan_round`. Compiles or loads what rounds need, up to two minutes."""
    prepare()
    return FlowScheduler(solver, settings, keep_records=True)


def plan_apart(given: RoundInput, solver: Solver, engine: FlowScheduler | None = None) -> RoundResult:
    """The same one class after the other, groups whole, for a round that raised: what cannot be planned harms no other pod.

    Its pods are held with what was raised as the reason.
    """
    sets: dict[str, list[ClassInput]] = {}
    for c in sorted(given.classes, key=lambda c: -c.priority):
        sets.setdefault(c.name if c.group is None else f"group {c.group}", []).append(c)
    whole = _Round(given, solver, engine or make_engine(given.settings, solver), time.perf_counter)
    booked = given.booked.copy()
    for classes in sets.values():
        part = _Round(replace(given, classes=tuple(classes), booked=booked.copy()), solver, whole.engine, whole.clock)
        try:
            part.decide()
        except Exception as fault:
            text = f"it could not be planned: {type(fault).__name__}: {fault}"
            whole.held.append(Held((*_by_uid(classes),), Fate.ERROR, text, frozenset({Cause.OTHER})))
            continue
        whole.spend(part)
        whole.place(part)
        whole.held += part.held
        whole.plan += part.plan
        whole.reservations += part.reservations
        _book_all(booked, part.chosen, classes)
    return whole.result("fault")


def plan_any_round(given: RoundInput, solver: Solver, engine: FlowScheduler) -> RoundResult:
    """:func:`plan_round`, and where that raises :func:`plan_apart`."""
    try:
        return plan_round(given, solver, engine)
    except Exception:  # A fault of ours must not stop the scheduling of other pods.
        LOG.exception("a round failed, its pods are planned apart", extra={"round": given.number})
        given.booked.undo()
        return plan_apart(given, solver, engine)


def trace_of_moves(given: RoundInput, solver: Solver, recipe: Recipe) -> KubernetesTrace:
    """Of a round in which no pod waits, and what runs may move."""
    needs = {r.task.name: given.booked.needs_of(r.task.name) for r in given.running.entries}
    return _trace(given, solver, [partial(_forecast_level, recipe, 0, needs)], (), {}, 0)


def _trace(
    given: RoundInput,
    solver: Solver,
    parts: Sequence[PartRecipe],
    held: Sequence[Held],
    timings_ms: Mapping[str, float],
    bulk_cells: int,
) -> KubernetesTrace:
    """All that the record needs, and nothing that changes: no machines, no entry of the cache."""
    return KubernetesTrace(
        number=given.number,
        now_s=given.now_s,
        solver=solver.name,
        settings=given.settings,
        titles=given.titles,
        running=given.cluster.running if given.model is None else (),
        parts=tuple(parts),
        told=tuple(Told(h.uids, str(h.fate), h.message, h.counts) for h in held),
        filters=tuple(Filtered(c.uids, c.reasons, c.verdict, c.allowed, c.goal) for c in given.classes),
        # The round of a lone pod has no machines of its own, and names come and go.
        names=tuple(given.machines.names),
        order=given.machines.order(),
        since_s={uid: since for c in given.classes for uid, since in zip(c.uids, c.since_s, strict=True)},
        rounds_waited=given.rounds_waited,
        held_nodes=given.held_nodes,
        cost_model=given.cost_model,
        timings_ms=dict(timings_ms),
        bulk_cells=bulk_cells,
    )


class _Round:
    def __init__(self, given: RoundInput, solver: Solver, engine: FlowScheduler, clock: Callable[[], float]) -> None:
        self.given = given
        self.solver = solver
        self.engine = engine
        self.clock = clock
        self.measured = MeasuredPods(given)
        self.machines = given.machines
        self.chosen: list[Chosen] = []
        self.held: list[Held] = []
        self.plan: tuple[PlannedStart, ...] = ()
        self.reservations: tuple[Reservation, ...] = ()
        self.timings: dict[str, float] = {"forecast": 0.0, "linear": 0.0, "explain": 0.0}
        self.solve_ms = 0.0
        self.counts: dict[str, int] = {}
        self.parts: list[PartRecipe] = []
        self.bulk_cells = 0
        self.how: dict[str, Any] = {"solver": solver, "clock": clock, "keep_record": given.keep_record}
        """Of rounds at linear prices."""
        unknown = {r for c in given.classes for r, n in c.needs.items() if n > 0 and self.machines.column(r) < 0}
        self.unknown = unknown if len(unknown) > _MOST_UNKNOWN else set[str]()
        """Resources that no node has had, where pods ask for more than the engine should count."""

    def decide(self) -> None:
        """All levels, in order."""
        given = self.given
        nominated = {n.uid: n for n in given.nominated}
        for nominee in given.nominated:
            nominee.take_room(given.booked)
        for level in self._levels():
            priority, told = level[0].priority, len(self.held)
            here = {uid for c in level for uid in c.uids}
            open_ = [n for n in nominated.values() if n.priority < priority or n.uid in here]
            for nominee in open_:
                nominee.leave_room(given.booked)
            self._level(level, priority)
            self._past_services(level, told)
            placed = {c.uid for c in self.chosen} if open_ else set()
            for nominee in open_:
                if nominee.uid in placed:
                    del nominated[nominee.uid]
                else:
                    # The victims have not all gone yet: what is free already is not for lower priorities.
                    nominee.take_room(given.booked)

    def result(self, *fallbacks: str) -> RoundResult:
        """What was decided; with why something simpler stepped in."""
        given, trace = self.given, None
        if given.keep_record:
            trace = _trace(given, self.solver, self.parts, self.held, self.timings, self.bulk_cells)
        return RoundResult(
            given.number,
            tuple(self.chosen),
            tuple(self.held),
            self.plan,
            self.reservations,
            self.timings,
            self.counts,
            sum(c.cost for c in self.chosen),
            trace,
            self.solve_ms,
            fallbacks,
        )

    def place(self, part: _Round) -> None:
        """Take over the places that a part of the round has found, with its record."""
        self.chosen += part.chosen
        self.parts += part.parts
        self.bulk_cells += part.bulk_cells

    def spend(self, part: _Round) -> None:
        """Count what a part of the round took, whatever became of it."""
        for stage, ms in part.timings.items():
            self.timings[stage] += ms
        self.solve_ms += part.solve_ms

    def _levels(self) -> list[list[ClassInput]]:
        """Classes that are decided together, high priorities first: those of one priority.

        The engine keeps priorities strict by itself and looks further ahead with all of them, so neighbouring ones with
        nothing at linear prices, and no room that is held, between them are one level. Of one priority, those that room is
        held for come first: what they do not take yet is not for the others.
        """
        levels: list[list[ClassInput]] = []
        nominated = {n.uid for n in self.given.nominated}
        for priority in sorted({c.priority for c in self.given.classes}, reverse=True):
            level = [c for c in self.given.classes if c.priority == priority]
            groups = {c.group for c in level if c.group is not None and not nominated.isdisjoint(c.uids)}
            first = [c for c in level if c.group in groups or not nominated.isdisjoint(c.uids)]
            if first and len(first) < len(level):
                levels += [first, [c for c in level if c not in first]]
            elif levels and not nominated and all(c.task is not None for c in levels[-1]):
                levels[-1] += level
            else:
                levels.append(level)
        return levels

    def _level(self, level: list[ClassInput], priority: int) -> None:
        if self.given.model is not None:
            self._modelled(level, self.given.model)
            return
        forecast = [c for c in level if c.task is not None]
        first = self._longest_overdue(level) if forecast else []
        if first and first[0].task is None:
            # Forecasts come first otherwise: it would wait for as long as there is a pod with one for its room.
            self._bulk(first, priority, goes_first=True)
            taken = {uid for c in first for uid in c.uids}
            level = [_only(c, uids) for c in level if (uids := set(c.uids) - taken)]
            forecast = [c for c in level if c.task is not None]
        if forecast:
            with self._timed("forecast"):
                self._measured(forecast, priority)
        self._bulk([c for c in level if c.task is None], level[-1].priority)

    def _longest_overdue(self, level: list[ClassInput]) -> list[ClassInput]:
        """The pod of a level that is overdue for longest, or its gang; a gang is overdue with its last member."""
        young = {c.group for c in level if not all(map(self._is_overdue, c.since_s))} - {None}
        due = [
            (since, uid, c)
            for c in level
            if c.group not in young
            for uid, since in zip(c.uids, c.since_s, strict=True)
            if self._is_overdue(since)
        ]
        if not due:
            return []
        _, uid, c = min(due, key=lambda found: found[:2])
        return [_only(c, {uid})] if c.group is None else [other for other in level if other.group == c.group]

    # Pods that services keep off

    def _past_services(self, level: list[ClassInput], told: int) -> None:
        """Place pods of a level that are kept off by services alone, and to which these yield. ``told``: how many pods had
        been held before the level.

        Goals come first: only what found no place beside them is looked at again, where services yield.
        """
        given = self.given
        if not given.keepers or len(self.held) == told:
            return
        kept = KeptRows.of(given.keepers, self.machines)
        classes = _by_uid(level)
        started = {classes[c.uid].group for c in self.chosen if c.uid in classes} - {None}
        # A gang is overdue with its last member.
        young = {c.group for c in level if not all(map(self._is_overdue, c.since_s))}
        # Groups of which services keep members off that they yield to.
        moved: set[str | None] = set()
        claims: dict[PrecedenceClaim, list[ClassInput]] = {}
        for i, held in enumerate(self.held[told:], told):
            c = classes[held.uids[0]]
            # Others have no room anywhere.
            waits = held.fate is Fate.POSTPONED or (held.fate is Fate.UNSCHEDULABLE and c.group is not None)
            if not waits or held.for_cost or c.group in started:
                continue
            rows = self._room(c)
            here = rows & (kept.count > 0)
            # Members of a group may each have a place elsewhere, and all of them not.
            if not rows.any() or (c.group is None and not np.array_equal(here, rows)):
                continue
            if here.any():
                self.held[i] = kept_off(given, c, held, here, kept)
            due = {uid for uid, since in zip(c.uids, c.since_s, strict=True) if self._is_overdue(since)}
            if c.group is not None:
                due = set() if c.group in young else {*c.uids}
            for overdue, uids in ((True, due.intersection(held.uids)), (False, set(held.uids) - due)):
                claim = PrecedenceClaim(c.priority, overdue)
                yields = bool((rows & kept.yielding(claim)).any())
                if uids and (yields or c.group is not None):
                    claims.setdefault(claim, []).append(_only(c, uids))
                if yields:
                    moved.add(c.group)
        for claim in sorted(claims, key=lambda claim: (-claim.priority, not claim.overdue)):
            self._past(claim, [c for c in claims[claim] if c.group is None or c.group in moved])

    def _past(self, claim: PrecedenceClaim, classes: list[ClassInput]) -> None:
        """Place pods with a claim in what services yield to them."""
        given, per_core = self.given, self.given.settings.kept_per_core
        booked = yielded_bookings(given.keepers, given.booked, claim, per_core)
        classes = [c for c in classes if c.group is not None or (c.allowed & booked.machines.fits(c.needs)).any()]
        if not classes:
            return
        yielded = replace(
            given,
            classes=tuple(classes),
            booked=booked,
            cluster=yielded_cluster(given.keepers, given.cluster, claim, per_core),
            keepers={},
            nominated=(),
        )
        past = _Round(yielded, self.solver, self.engine, self.clock)
        past.measured = MeasuredPods(yielded, self.measured.joined, self.measured.closed)
        past._level(classes, claim.priority)
        self.spend(past)
        placed = {c.uid for c in past.chosen}
        if not placed:
            return
        self.place(past)
        if not given.only_reads:
            _book_all(given.booked, past.chosen, classes)
        self.held = [h for held in self.held if (h := _without(held, placed)).uids]
        self.plan = tuple(p for p in self.plan if p.task not in placed)
        self.reservations = tuple(r for r in self.reservations if r.task not in placed)

    def _room(self, c: ClassInput) -> BoolArray:
        """Nodes with room for a pod of a class that are not kept for another one."""
        rows = room(self.given, c)
        shut = {*(self.measured.closed if c.task is not None else ()), *held_nodes(self.given, c)}
        rows[[row for name in shut if (row := self.machines.row(name)) is not None]] = False
        return rows

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        began = self.clock()
        yield
        self.timings[stage] += (self.clock() - began) * 1e3

    def _is_overdue(self, since_s: float) -> bool:
        return self.given.now_s - since_s > self.given.settings.due_age_s

    # Measured pods

    def _measured(self, classes: list[ClassInput], priority: int) -> None:
        snapshot = self.measured.snapshot([self._counted(c) for c in classes])
        decisions = self.engine.decide(snapshot)
        self.solve_ms += decisions.timings_ms["passes"]
        by_uid = _by_uid(classes)
        self.chosen += self.measured.take(decisions, snapshot, by_uid)
        self.held += self.measured.held(decisions, by_uid)
        self.plan += decisions.plan
        self.reservations += decisions.reservations
        if decisions.recipe is not None:
            needs = {uid: dict(c.needs) for uid, c in by_uid.items()}
            self.parts.append(partial(_forecast_level, decisions.recipe, priority, needs))

    # Pods with a cost model beside flow

    def _modelled(self, classes: list[ClassInput], model: CostModel) -> None:
        """Pods of all priorities, unless room is held for some, on what an exported snapshot has: so does ``solve``."""
        given, settings = self.given, self.given.settings
        with self._timed("linear"):
            snapshot = self.measured.snapshot([self._counted(c) for c in classes])
            behaviours = {uid: (c.sensitivity, c.pressure) for uid, c in _by_uid(given.classes).items() if c.service}
            hosts = None if given.kept is None else given.kept.hosts
            rows = PricedRows(model, settings.headroom_weight, settings.slo_margin, hosts, behaviours)
            outcome = decide(
                rows.catch_up(StateRows.of(snapshot)), model_settings(settings), now_s=snapshot.now_s, **self.how
            )
        tasks = {task.name: task for task in snapshot.pending}
        self._take(outcome, classes, None)
        for p in outcome.placements:
            self.measured.join(tasks[p.task], p.machine, snapshot.now_s)

    # Pods without a profile

    def _bulk(self, classes: list[ClassInput], priority: int, goes_first: bool = False) -> None:
        """``goes_first``: what is overdue for longest, before all others of its priority."""
        if not classes:
            return
        with self._timed("linear"):
            gpu_cost = gpu_costs(self.given, self.machines, classes)
            counted = [self._counted(c) for c in classes]
            task_classes = [self._task_class(c) for c in counted]
            places = [self._places(c, cost) for c, cost in zip(counted, gpu_cost, strict=True)]
            settings = bulk_settings(self.given.settings)
            outcome, uids = None, [c.uids for c in classes]
            if len(classes) == 1 and len(uids[0]) == 1:
                outcome = decide_lone(self.machines, task_classes[0], places[0], uids[0][0], settings, **self.how)
            if outcome is None:
                cluster = bulk_rows(self.machines, task_classes, places, uids)
                groups = {c.group for c in classes if c.group is not None}
                for group in self.given.groups:
                    if group.name in groups:
                        cluster.declare_group(group.name, group.minimum)
                cluster.members_elsewhere.update(self.given.group_members)
                outcome = decide(cluster, settings, **self.how)
        self._take(outcome, classes, priority, goes_first)

    def _take(
        self, outcome: BulkOutcome, classes: Sequence[ClassInput], priority: int | None, goes_first: bool = False
    ) -> None:
        """The outcome of a part at linear prices: its places, its record, and why the others wait."""
        given, by_uid = self.given, _by_uid(classes)
        if outcome.record is not None:
            recipe = partial(outcome.record, priority)
            self.parts.append((lambda: of_first(recipe())) if goes_first else recipe)
            self.bulk_cells += (len(classes) + 1) * self.machines.machine_count
        # Only who comes later and explanations of those who are left look at the machines again.
        asked_again = goes_first or bool(outcome.left) or len({c.priority for c in given.classes}) > 1
        for p in outcome.placements:
            c = by_uid[p.task]
            if asked_again:
                book(given.booked, c, p.task, p.machine)
            self.chosen.append(
                Chosen(
                    p.task,
                    p.machine,
                    p.cost,
                    p.terms,
                    p.runner_up,
                    p.runner_up_cost,
                    holds=c.holds,
                    joins=c.joins,
                )
            )
        self.solve_ms += outcome.timings_ms.get("solve", 0.0)
        for kind, count in outcome.counts.items():
            self.counts[kind] = self.counts.get(kind, 0) + count
        with self._timed("explain"):
            self._explain_left(outcome, by_uid)

    def _explain_left(self, outcome: BulkOutcome, by_uid: Mapping[str, ClassInput]) -> None:
        together: dict[tuple[str, WaitCause, str], list[str]] = {}
        for left in outcome.left:
            text = left.text if left.cause in _SAID else ""
            together.setdefault((by_uid[left.task].name, left.cause, text), []).append(left.task)
        for (_, cause, text), uids in together.items():
            c = by_uid[uids[0]]
            if cause is WaitCause.GROUP:
                self.held.append(group_waits(self.given, c, tuple(uids), text))
            elif cause in (WaitCause.COST, WaitCause.SERVICE):
                held = Held(tuple(uids), Fate.POSTPONED, f"postponed: {text}", frozenset({Cause.PROFILE}))
                self.held.append(replace(held, for_cost=cause is WaitCause.COST))
            elif self.given.model is not None and room(self.given, c).any():
                # Rounds of a cost model count memory in whole MiB.
                text = next(left.text for left in outcome.left if left.task == uids[0])
                held = Held(tuple(uids), Fate.POSTPONED, f"postponed: {text}", frozenset({Cause.RESOURCES}))
                self.held.append(replace(held, for_cost=True))
            else:
                self.held.append(no_room(self.given, c, tuple(uids)))

    def _counted(self, c: ClassInput) -> ClassInput:
        """A class as the engine can count it: tenants may ask for as much, and for as many made-up resources, as they like.

        Pods that ask for many resources that no node has had are nowhere, and of CPU they ask for little more than any has.
        """
        if not self.unknown.isdisjoint(c.needs):
            needs = {r: amount for r, amount in c.needs.items() if r not in self.unknown}
            c = replace(c, needs=needs, allowed=np.zeros_like(c.allowed))
        asked = c.needs.get("cpu", 0)
        if asked <= MOST_MILLI:
            return c
        column = self.machines.column("cpu")
        largest = 0 if column < 0 else int(self.machines.allocatable[:, column].max(initial=0))
        most = max(MOST_MILLI, largest) + 1
        if asked <= most:
            return c
        task = None if c.task is None else replace(c.task, request_milli=most, widths_milli=(most,))
        return replace(c, needs={**c.needs, "cpu": most}, task=task, pressure=c.pressure * most / asked)

    def _task_class(self, c: ClassInput) -> TaskClass:
        """A class as bulk rounds have it, without its places."""
        settings = self.given.settings
        due = self.given.now_s - min(c.since_s) > settings.due_age_s
        most = float("inf")
        if c.min_utility is not None and not due:
            most = (1.0 - c.min_utility) * settings.goal_factor - 1.0
        return TaskClass(
            c.name,
            c.needs.get("cpu", 0),
            tuple(sorted((r, amount) for r, amount in c.needs.items() if r != "cpu" and amount > 0)),
            c.sensitivity,
            c.pressure,
            group=c.group or "",
            max_cost=most,
            holds=c.holds,
            joins=c.joins,
            counted=c.counted,
        )

    def _places(self, c: ClassInput, gpu_cost: FloatArray | None) -> Places:
        """Where its pods may go, and what they would pay there, by machine row."""
        allowed = c.allowed
        if shut := [row for name in held_nodes(self.given, c) if (row := self.machines.row(name)) is not None]:
            allowed = allowed.copy()
            allowed[shut] = False
        preference = c.preference if gpu_cost is None else c.preference + gpu_cost
        return Places(allowed, c.eligible, c.slowness, preference)


def _by_uid(classes: Iterable[ClassInput]) -> dict[str, ClassInput]:
    """The class of each pod."""
    return {uid: c for c in classes for uid in c.uids}


def _only(c: ClassInput, uids: Collection[str]) -> ClassInput:
    """A class with some of its pods."""
    kept = [(uid, since) for uid, since in zip(c.uids, c.since_s, strict=True) if uid in uids]
    return replace(c, uids=tuple(uid for uid, _ in kept), since_s=tuple(since for _, since in kept))


def _book_all(booked: BookedTasks, chosen: Iterable[Chosen], classes: Iterable[ClassInput]) -> None:
    by_uid = _by_uid(classes)
    for c in chosen:
        book(booked, by_uid[c.uid], c.uid, c.node, c.width_milli or 0)


def _without(held: Held, placed: Set[str]) -> Held:
    """Held pods but for those that were placed after all."""
    return held if placed.isdisjoint(held.uids) else replace(held, uids=tuple(u for u in held.uids if u not in placed))


def _forecast_level(recipe: Recipe, priority: int, needs: Mapping[str, Mapping[str, int]]) -> Mapping[str, Any]:
    """The one level of a record of forecasts, with its priority and what later levels book for each task."""
    (part,) = recipe()["parts"]
    return {**part, "priority": priority, "needs": needs}
