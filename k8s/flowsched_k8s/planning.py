"""One round on Kubernetes, as a pure function: what was read from the cache in, who goes where and why not out.

Priorities strictly in order. Within one, pods with a measured profile go through the engine's exact search on the machines
that may matter to them; all others, and everybody who is bound to others by relations or groups, go through the wide
round: one network of classes and machine groups.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.decision import Certificate, Decisions
from flowsched.demand import Demand
from flowsched.fleet import Fleet
from flowsched.policies.flow import FlowPolicy
from flowsched.record import Recipe
from flowsched.relation import TaskGroup
from flowsched.round import FlowScheduler
from flowsched.settings import Settings
from flowsched.snapshot import (
    Machine,
    PlannedStart,
    Reservation,
    Running,
    Service,
    Snapshot,
    Task,
)
from flowsched.solvers import Solver
from flowsched.wide_outcome import Cause as LeftCause
from flowsched.wide_outcome import WideOutcome
from flowsched.wide_round import place
from flowsched_k8s.affinity import reason_of
from flowsched_k8s.names import TOO_MANY_VOLUMES, insufficient
from flowsched_k8s.queue import Cause, causes_of
from flowsched_k8s.recorder import histogram
from flowsched_k8s.round_account import GOAL_MISSED, Filtered, RoundAccount, Told
from flowsched_k8s.volumes import LIMIT_PREFIX
from flowsched_models.catalogue import Catalogue
from flowsched_models.runtime import HostFactory

Mask = NDArray[np.bool_]


_SAID = frozenset({LeftCause.GROUP, LeftCause.COST, LeftCause.SERVICE})
"""Causes that the engine says in words of its own; for the others there is the standard message."""


class Fate(StrEnum):
    """What became of a pod that was not placed."""

    UNSCHEDULABLE = "unschedulable"
    """No node passes the filters and has room: autoscalers shall hear of it."""
    POSTPONED = "postponed"
    """There is a place, and waiting is better: an event, and no condition."""
    ERROR = "error"
    """A fault of ours."""


@dataclass(frozen=True, eq=False)
class ClassInput:
    """Pending pods that nothing distinguishes, in the order in which they are served."""

    name: str
    uids: tuple[str, ...]
    since_s: tuple[float, ...]
    """Since when each of them could be scheduled."""
    priority: int
    needs: Mapping[str, int]
    allowed: Mask
    """By fleet row: static filters pass, and nothing else of its kind forbids."""
    verdict: NDArray[np.int16]
    reasons: Sequence[str]
    eligible: Mask
    preference: NDArray[np.float64]
    slowness: NDArray[np.float64] | None
    sensitivity: float
    pressure: float
    holds: tuple[str, ...]
    joins: tuple[str, ...]
    group: str | None
    task: Task | None
    """The measured job that each of its pods is, for the search; None for pods that only the wide round places."""
    min_utility: float | None = None
    service: bool = False


@dataclass(frozen=True)
class SearchWorld:
    """The machines that may matter to measured pods, with all that runs there."""

    machines: tuple[Machine, ...] = ()
    services: tuple[Service, ...] = ()
    running: tuple[Running, ...] = ()
    plan: tuple[PlannedStart, ...] = ()
    reservations: tuple[Reservation, ...] = ()


@dataclass(frozen=True)
class RoundInput:
    """All that a round may know. Nothing in it changes while the round runs in another thread."""

    number: int
    now_s: float
    fleet: Fleet
    """A copy that the round uses up."""
    classes: tuple[ClassInput, ...]
    groups: tuple[TaskGroup, ...]
    group_members: Mapping[str, int]
    """Members that are bound or assumed, by group."""
    catalogue: Catalogue
    world: SearchWorld
    settings: Settings
    nominated: Mapping[str, tuple[int, str, Mapping[str, int]]] = field(default_factory=dict)
    """uid -> (priority, node, needs): room made by preemption that is held for a pod."""
    held_node: tuple[str, str, int] | None = None
    """(uid, node, priority): a due pod and the node that drains for it; pods of higher priority may use it."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """NAMESPACE/NAME by uid of each pod and of those in the search's world, for the record."""
    rounds_waited: Mapping[str, int] = field(default_factory=dict)
    """By uid, the rounds before this one that have left a pod waiting; none where it is not named."""
    search_tasks: int = 12
    keep_record: bool = False


@dataclass(frozen=True)
class Chosen:
    """A pod and its place."""

    uid: str
    node: str
    cost: float
    terms: Mapping[str, float]
    runner_up: str | None = None
    runner_up_cost: float | None = None
    width_milli: int | None = None
    threads: int | None = None
    cores: tuple[int, ...] | None = None
    holds: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()


@dataclass(frozen=True)
class Held:
    """Pods that were not placed, all for the same reason."""

    uids: tuple[str, ...]
    fate: Fate
    message: str
    causes: frozenset[Cause]
    """Which changes of the cluster may help."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Nodes by reason text, where the message counts them."""


@dataclass(frozen=True)
class RoundResult:
    """The outcome of a round."""

    number: int
    chosen: tuple[Chosen, ...]
    held: tuple[Held, ...]
    plan: tuple[PlannedStart, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    certificates: tuple[Certificate, ...] = ()
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    """Solves, and nodes and arcs by kind, of all networks together."""
    cost: float = 0.0
    account: RoundAccount | None = None
    """What the round's record is made of, if one is kept."""
    solve_ms: float = 0.0
    """Time in the solver; part of the stages' times."""
    fallbacks: tuple[str, ...] = ()
    """Why something simpler stepped in: ``many_measured_pods`` (no exact search), ``fault`` (classes planned apart)."""


def plan_round(
    given: RoundInput,
    solver: Solver,
    hosts: HostFactory | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> RoundResult:
    """Place what can be placed, priority by priority, and say why not for the rest."""
    return _Round(given, solver, hosts, clock).run()


def plan_apart(
    given: RoundInput,
    solver: Solver,
    hosts: HostFactory | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> RoundResult:
    """The same one class after the other, groups whole, for a round that raised: what cannot be planned harms nobody else.

    Its pods are held with what was raised as the reason.
    """
    sets: dict[str, list[ClassInput]] = {}
    for c in sorted(given.classes, key=lambda c: -c.priority):
        sets.setdefault(c.name if c.group is None else f"group {c.group}", []).append(c)
    fleet = given.fleet
    results: list[RoundResult] = []
    faults: list[Held] = []
    for classes in sets.values():
        try:
            part = plan_round(replace(given, classes=tuple(classes), fleet=fleet.copy()), solver, hosts, clock)
        except Exception as fault:
            uids = tuple(uid for c in classes for uid in c.uids)
            text = f"it could not be planned: {type(fault).__name__}: {fault}"
            faults.append(Held(uids, Fate.ERROR, text, frozenset({Cause.OTHER})))
            continue
        results.append(part)
        by_uid = {uid: c for c in classes for uid in c.uids}
        for chosen in part.chosen:
            _book(fleet, by_uid[chosen.uid], chosen.uid, chosen.node, chosen.width_milli or 0)
    held = (*(held for r in results for held in r.held), *faults)
    accounts = [r.account for r in results if r.account is not None]
    stages = dict.fromkeys(stage for r in results for stage in r.timings_ms)
    timings = {stage: sum(r.timings_ms.get(stage, 0.0) for r in results) for stage in stages}
    cells = sum(a.wide_cells for a in accounts)
    parts = [part for a in accounts for part in a.parts]
    return RoundResult(
        given.number,
        tuple(chosen for r in results for chosen in r.chosen),
        held,
        tuple(planned for r in results for planned in r.plan),
        tuple(reservation for r in results for reservation in r.reservations),
        tuple(certificate for r in results for certificate in r.certificates),
        timings_ms=timings,
        cost=sum(r.cost for r in results),
        account=_account(given, solver, parts, held, timings, cells) if given.keep_record else None,
        fallbacks=("fault",),
    )


def _account(
    given: RoundInput,
    solver: Solver,
    parts: Sequence[Recipe],
    held: Sequence[Held],
    timings_ms: Mapping[str, float],
    wide_cells: int,
) -> RoundAccount:
    """All that the record needs, and nothing that changes: no fleet, no entry of the cache."""
    return RoundAccount(
        number=given.number,
        now_s=given.now_s,
        solver=solver.name,
        settings=given.settings,
        titles=given.titles,
        parts=tuple(parts),
        told=tuple(Told(h.uids, str(h.fate), h.message, h.counts) for h in held),
        filters=tuple(Filtered(c.uids, c.reasons, c.verdict, c.allowed) for c in given.classes),
        names=given.fleet.names,
        order=given.fleet.order(),
        since_s={uid: since for c in given.classes for uid, since in zip(c.uids, c.since_s, strict=True)},
        rounds_waited=given.rounds_waited,
        held_node=given.held_node,
        timings_ms=dict(timings_ms),
        wide_cells=wide_cells,
    )


class _Round:
    def __init__(
        self, given: RoundInput, solver: Solver, hosts: HostFactory | None, clock: Callable[[], float]
    ) -> None:
        self.given = given
        self.solver = solver
        self.hosts = hosts
        self.clock = clock
        self.fleet = given.fleet
        self.chosen: list[Chosen] = []
        self.held: list[Held] = []
        self.plan: tuple[PlannedStart, ...] = ()
        self.reservations: tuple[Reservation, ...] = ()
        self.certificates: list[Certificate] = []
        self.timings: dict[str, float] = {"search": 0.0, "wide": 0.0, "explain": 0.0}
        self.solve_ms = 0.0
        self.counts: dict[str, int] = {}
        self.fallbacks: list[str] = []
        self.parts: list[Recipe] = []
        self.wide_cells = 0
        self.joined: list[Running] = []
        """Measured pods that this round placed, as later searches see them."""
        self.taken: dict[str, tuple[int, int]] = {}
        """CPU and bytes that the wide rounds took of machines."""

    def run(self) -> RoundResult:
        given = self.given
        for uid, (_, node, needs) in given.nominated.items():
            self.fleet.book(_nominee(uid), node, needs)
        for priority in sorted({c.priority for c in given.classes}, reverse=True):
            level = [c for c in given.classes if c.priority == priority]
            here = {uid for c in level for uid in c.uids}
            for uid, (rank, _, _) in given.nominated.items():
                if rank < priority or uid in here:
                    self.fleet.release(_nominee(uid))
            self._level(level, priority)
            for uid, (rank, node, needs) in given.nominated.items():
                if rank < priority and uid not in here:
                    self.fleet.book(_nominee(uid), node, needs)
        cost = sum(c.cost for c in self.chosen)
        return RoundResult(
            given.number,
            tuple(self.chosen),
            tuple(self.held),
            self.plan,
            self.reservations,
            tuple(self.certificates),
            self.timings,
            self.counts,
            cost,
            _account(given, self.solver, self.parts, self.held, self.timings, self.wide_cells)
            if given.keep_record
            else None,
            self.solve_ms,
            tuple(dict.fromkeys(self.fallbacks)),
        )

    def _level(self, level: list[ClassInput], priority: int) -> None:
        searched = [c for c in level if c.task is not None]
        if searched and sum(len(c.uids) for c in searched) <= self.given.search_tasks and self.given.world.machines:
            began = self.clock()
            self._search(searched, priority)
            self.timings["search"] += (self.clock() - began) * 1e3
        else:
            if searched:
                self.fallbacks.append("many_measured_pods")
            searched = []
        self._wide([c for c in level if c not in searched], priority)

    # Measured pods

    def _search(self, classes: list[ClassInput], priority: int) -> None:
        given = self.given
        snapshot = self._snapshot(classes)
        scheduler = FlowScheduler(
            FlowPolicy(given.settings),
            self.solver,
            given.settings,
            hosts=self.hosts,
            keep_records=given.keep_record,
            clock=self.clock,
        )
        decisions = scheduler.decide(snapshot)
        self.solve_ms += decisions.timings_ms.get("solve", 0.0)
        if decisions.certificate is not None:
            self.certificates.append(decisions.certificate)
        by_uid = {uid: c for c in classes for uid in c.uids}
        tasks = {t.name: t for t in snapshot.pending}
        for p in decisions.placements:
            c = by_uid[p.task]
            _book(self.fleet, c, p.task, p.machine, p.width_milli)
            running = Running(
                tasks[p.task], p.machine, p.width_milli, p.threads, p.cores, snapshot.now_s, snapshot.now_s
            )
            self.joined.append(running)
            self.chosen.append(
                Chosen(
                    p.task,
                    p.machine,
                    p.cost,
                    p.terms,
                    width_milli=p.width_milli,
                    threads=p.threads,
                    cores=p.cores,
                    joins=c.joins,
                )
            )
        self.plan += tuple(w.planned for w in decisions.postponements if w.planned is not None)
        self.reservations += decisions.reservations
        if decisions.recipe is not None:
            needs = {uid: dict(c.needs) for uid, c in by_uid.items()}
            self.parts.append(partial(_search_part, decisions.recipe, priority, needs))
        self._explain_search(decisions, by_uid)

    def _explain_search(self, decisions: Decisions, by_uid: Mapping[str, ClassInput]) -> None:
        reserved = {r.task: r.machine for r in decisions.reservations}
        for w in decisions.postponements:
            c = by_uid[w.task]
            if self._room(c).any():
                numbers = f"waiting costs {w.cost:.2f}, waited {w.waited_s:.0f} s"
                self.held.append(
                    Held((w.task,), Fate.POSTPONED, f"postponed: {w.reason} ({numbers})", frozenset({Cause.PROFILE}))
                )
            else:
                held = self._no_room(c, (w.task,))
                if w.task in reserved:
                    held = replace(held, message=f"{held.message} {reserved[w.task]} is reserved for it.")
                self.held.append(held)

    def _snapshot(self, classes: list[ClassInput]) -> Snapshot:
        given, world = self.given, self.given.world
        machines = []
        for m in world.machines:
            cpu, memory = self.taken.get(m.name, (0, 0))
            machines.append(replace(m, cpu_milli=m.cpu_milli - cpu, memory_mib=m.memory_mib - -(-memory // (1 << 20))))
        names = {m.name for m in machines}
        pending = []
        for c in classes:
            assert c.task is not None
            allowed = {m.name for m in machines if self._allows(c, m.name)}
            where = None if allowed == names else tuple(sorted(allowed))
            for uid, since in zip(c.uids, c.since_s, strict=True):
                since = min(since, given.now_s)
                waited = given.rounds_waited.get(uid, 0)
                pending.append(replace(c.task, name=uid, job=uid, submit_s=since, machines=where, rounds_waited=waited))
        waiting = {t.name for t in pending}
        return Snapshot(
            now_s=given.now_s,
            catalogue=given.catalogue,
            machines=tuple(machines),
            services=world.services,
            running=(*world.running, *self.joined),
            pending=tuple(pending),
            plan=tuple(p for p in world.plan if p.task in waiting and p.machine in names),
            reservations=tuple(r for r in world.reservations if r.task in waiting and r.machine in names),
            round=given.number,
        )

    def _allows(self, c: ClassInput, machine: str) -> bool:
        row = self.fleet.row(machine)
        return row is not None and bool(c.allowed[row]) and not self._is_held(c, machine)

    # Everybody else

    def _wide(self, classes: list[ClassInput], priority: int) -> None:
        if not classes:
            return
        began = self.clock()
        demands = [self._demand(c) for c in classes]
        groups = {c.group for c in classes if c.group is not None}
        outcome = place(
            self.fleet,
            demands,
            [g for g in self.given.groups if g.name in groups],
            self.given.group_members,
            solver=self.solver,
            resolves=self.given.settings.resolves,
            clock=self.clock,
            keep_record=self.given.keep_record,
        )
        self.timings["wide"] += (self.clock() - began) * 1e3
        if outcome.record is not None:
            self.parts.append(partial(outcome.record, priority))
            self.wide_cells += (len(classes) + 1) * self.fleet.machine_count
        self._take(outcome, {uid: c for c in classes for uid in c.uids})

    def _take(self, outcome: WideOutcome, by_uid: Mapping[str, ClassInput]) -> None:
        given = self.given
        in_world = {m.name for m in given.world.machines}
        # Only later priorities and explanations of those who are left look at the fleet again.
        asked_again = bool(outcome.left) or len({c.priority for c in given.classes}) > 1
        for p in outcome.placements:
            c = by_uid[p.task]
            if asked_again:
                _book(self.fleet, c, p.task, p.machine)
            if p.machine in in_world:
                cpu, memory = self.taken.get(p.machine, (0, 0))
                self.taken[p.machine] = cpu + c.needs.get("cpu", 0), memory + c.needs.get("memory", 0)
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
        if outcome.certificate is not None:
            self.certificates.append(outcome.certificate)
        self.solve_ms += outcome.timings_ms.get("solve", 0.0)
        for kind, count in outcome.counts.items():
            self.counts[kind] = self.counts.get(kind, 0) + count
        began = self.clock()
        self._explain_left(outcome, by_uid)
        self.timings["explain"] += (self.clock() - began) * 1e3

    def _explain_left(self, outcome: WideOutcome, by_uid: Mapping[str, ClassInput]) -> None:
        together: dict[tuple[str, LeftCause, str], list[str]] = {}
        for left in outcome.left:
            text = left.text if left.cause in _SAID else ""
            together.setdefault((by_uid[left.task].name, left.cause, text), []).append(left.task)
        for (_, cause, text), uids in together.items():
            c = by_uid[uids[0]]
            if cause is LeftCause.GROUP:
                room = self._no_room(c, tuple(uids))
                message = f"{room.message} {text}".strip()
                causes = room.causes | {Cause.GROUP}
                self.held.append(Held(tuple(uids), Fate.UNSCHEDULABLE, message, causes, room.counts))
            elif cause in (LeftCause.COST, LeftCause.SERVICE):
                self.held.append(Held(tuple(uids), Fate.POSTPONED, f"postponed: {text}", frozenset({Cause.PROFILE})))
            else:
                self.held.append(self._no_room(c, tuple(uids)))

    def _demand(self, c: ClassInput) -> Demand:
        settings = self.given.settings
        allowed = c.allowed
        held = self.given.held_node
        if held is not None and self._is_held(c, held[1]):
            row = self.fleet.row(held[1])
            if row is not None:
                allowed = allowed.copy()
                allowed[row] = False
        due = self.given.now_s - min(c.since_s) > settings.due_age_s
        most = float("inf")
        if c.min_utility is not None and not due:
            most = (1.0 - c.min_utility) * settings.goal_factor - 1.0
        return Demand(
            name=c.name,
            tasks=c.uids,
            needs=c.needs,
            allowed=allowed,
            eligible=c.eligible,
            preference=c.preference,
            sensitivity=c.sensitivity,
            pressure=c.pressure,
            slowness=c.slowness,
            holds=c.holds,
            joins=c.joins,
            group=c.group,
            max_cost=most,
        )

    def _is_held(self, c: ClassInput, machine: str) -> bool:
        held = self.given.held_node
        return held is not None and held[1] == machine and held[0] not in c.uids and c.priority <= held[2]

    # Why not

    def _room(self, c: ClassInput) -> Mask:
        """Nodes that pass everything for one more pod of a class."""
        return c.allowed & self.fleet.fits(c.needs) & self.fleet.permits(c.holds, c.joins, c.eligible)

    def _no_room(self, c: ClassInput, uids: tuple[str, ...]) -> Held:
        """The standard message: how many nodes each filter refuses, the first one that does, resources all of them."""
        fleet = self.fleet
        counts: dict[str, int] = {}
        more: set[Cause] = set()
        open_ = fleet.alive.copy()
        total = int(open_.sum())
        for i, reason in enumerate(c.reasons):
            if i == 0:
                continue
            refused = int((open_ & (c.verdict == i)).sum())
            if refused:
                counts[reason] = counts.get(reason, 0) + refused
        open_ &= c.verdict == 0
        relations = fleet.refusals(c.holds, c.joins, c.eligible)
        for refusal in sorted(relations, key=lambda r: not r.relation.name.startswith("port")):
            unlabelled = open_ & refusal.refused & refusal.missing_label
            labelled = open_ & refusal.refused & ~refusal.missing_label
            for mask, missing in ((unlabelled, True), (labelled, False)):
                if mask.any():
                    text = reason_of(refusal.relation.name, refusal.role, missing_label=missing)
                    counts[text] = counts.get(text, 0) + int(mask.sum())
            open_ &= ~refusal.refused
        lacking = fleet.lacking(c.needs)
        for resource, mask in lacking.items():
            refused = int((open_ & mask).sum())
            if refused:
                text = TOO_MANY_VOLUMES if resource.startswith(LIMIT_PREFIX) else insufficient(resource)
                counts[text] = counts.get(text, 0) + refused
        for mask in lacking.values():
            open_ &= ~mask
        closed = open_ & ~c.allowed
        if closed.any():
            counts[GOAL_MISSED] = int(closed.sum())
            more |= {Cause.PROFILE, Cause.RESOURCES}
        message = histogram(total, counts)
        held = self.given.held_node
        if held is not None and self._is_held(c, held[1]) and (row := fleet.row(held[1])) is not None and open_[row]:
            message += f" {held[1]} drains for a pod that has waited longer."
            more.add(Cause.RESOURCES)
        causes = causes_of(text for text in counts if text != GOAL_MISSED) | more
        return Held(uids, Fate.UNSCHEDULABLE, message, causes or frozenset({Cause.OTHER}), counts)


def _search_part(recipe: Recipe, priority: int, needs: Mapping[str, Mapping[str, int]]) -> Mapping[str, Any]:
    """The one part of a search's record, with its priority where wide parts have it, and what later parts book for each."""
    (part,) = recipe()["parts"]
    return {"kind": part["kind"], "priority": priority, "needs": needs, **part}


def _book(fleet: Fleet, c: ClassInput, uid: str, node: str, width_milli: int = 0) -> None:
    """Count a pod of a class where the round has put it, at its width if that is more than its request."""
    needs = {**c.needs, "cpu": max(width_milli, c.needs.get("cpu", 0))}
    fleet.book(uid, node, needs, sensitivity=c.sensitivity, pressure=c.pressure, holds=c.holds, joins=c.joins)


def _nominee(uid: str) -> str:
    return f"nominated:{uid}"
