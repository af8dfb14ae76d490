"""The wide round: thousands of pending tasks on thousands of machines, through one min-cost flow network.

The network says how many tasks of each class go to which group of machines; packing puts whole tasks on machines, exact in
every resource and relation; what is left over goes through further networks and at last wherever there is room. Task groups
that cannot be started whole give their places back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from flowsched.demand import Demand
from flowsched.fleet import Fleet
from flowsched.relations.relation import RelationKind, TaskGroup
from flowsched.solvers import Solver
from flowsched.stage_timer import StageTimer
from flowsched.wide_board import Board
from flowsched.wide_certificate import certify
from flowsched.wide_outcome import Cause, Leftover, WideOutcome, WidePlacement
from flowsched.wide_placing import Placer
from flowsched.wide_record import WideAccount
from flowsched.wide_report import explain_left, name_placements, price_placements

__all__ = ["Cause", "Leftover", "WideOutcome", "WidePlacement", "place"]


def place(
    fleet: Fleet,
    demands: Sequence[Demand],
    groups: Sequence[TaskGroup] = (),
    running_members: Mapping[str, int] | None = None,
    *,
    solver: Solver,
    resolves: int = 3,
    clock: Callable[[], float] = time.perf_counter,
    keep_record: bool = False,
) -> WideOutcome:
    """Place the demands' tasks. ``fleet`` is only read; hand over a copy if it may change meanwhile.

    ``running_members``: tasks of each group that run already and count towards its minimum. ``resolves``: networks for
    what the first one leaves over. Demands must be in an order that does not depend on chance.

    Raises ``KeyError`` for a relation that the fleet does not know and ``RuntimeError`` if the solver refuses a network.
    """
    board = Board(fleet, demands)
    return place_on(
        board, groups, running_members, solver=solver, resolves=resolves, clock=clock, keep_record=keep_record
    )


def place_on(
    board: Board,
    groups: Sequence[TaskGroup] = (),
    running_members: Mapping[str, int] | None = None,
    *,
    solver: Solver,
    resolves: int = 3,
    clock: Callable[[], float] = time.perf_counter,
    keep_record: bool = False,
) -> WideOutcome:
    """The same on a board, which is used up."""
    timer = StageTimer(clock)
    timer.start("view")
    before = board.copy()
    demands = [cls.demand for cls in board.classes]
    placer = Placer(board, solver, resolves)
    gangs = _Gangs(demands, groups, running_members or {})
    gangs.fill(placer, timer)
    timer.start("report")
    placed = price_placements(before, placer.plan)
    placements = name_placements(before, placed)
    left = explain_left(placer.board, placer.plan, gangs.texts())
    certificate = None
    if placer.first is not None:
        network, solution = placer.first
        waiting = sum(float(network.waiting[c]) * n for c, n in enumerate(placer.plan.left) if n)
        timer.start("certify")
        certificate = certify(before, placer.board, network, solution, float(placed.cost.sum()) + waiting)
    timer.start(None)
    counts = {"solves": placer.solves, **(placer.first[0].sizes() if placer.first is not None else {})}
    record = None
    if keep_record:
        account = WideAccount(
            before,
            placer.first,
            placed,
            left,
            tuple(groups),
            dict(running_members or {}),
            resolves,
            certificate,
            counts,
            timer.ms,
        )
        record = account.part
    return WideOutcome(placements, left, certificate, counts, record, timer.ms)


class _Gangs:
    """Task groups of a round: all or none, the last one that fails gives way first."""

    def __init__(self, demands: Sequence[Demand], groups: Sequence[TaskGroup], running: Mapping[str, int]) -> None:
        self._demands = demands
        self._groups = [g for g in groups if any(d.group == g.name and d.tasks for d in demands)]
        self._running = running
        self._classes = {g.name: [i for i, d in enumerate(demands) if d.group == g.name] for g in self._groups}
        self._dropped: dict[str, tuple[TaskGroup, int]] = {}
        """Groups that gave way, and how many of each could have run."""

    def fill(self, placer: Placer, timer: StageTimer) -> None:
        """Place everything; no group ends up between none and its minimum."""
        for group in self._groups:
            known = self._runs(group) + sum(len(self._demands[c].tasks) for c in self._classes[group.name])
            if known < group.minimum:
                self._dropped[group.name] = group, known
        start = placer.save()
        placer.fill(self._active(), timer)
        while True:
            failing = [g for g in self._groups if g.name not in self._dropped and self._reached(placer, g) < g.minimum]
            if not failing:
                break
            last = failing[-1]
            self._dropped[last.name] = last, self._reached(placer, last)
            if self._leaned_on(last, placer):
                placer.restore(start)
                placer.fill(self._active(), timer)
            else:
                placer.take_back(self._classes[last.name])
                timer.start("sweep")
                placer.sweep(self._active())
        timer.start("sweep")
        self._try_again(placer)
        timer.start("improve")
        if placer.improve(self._active()):
            placer.sweep(self._active())

    def texts(self) -> dict[int, str]:
        """By class, why its group did not start."""
        answers = {}
        for name, (group, reached) in self._dropped.items():
            pending = sum(len(self._demands[c].tasks) for c in self._classes[name])
            running = self._runs(group)
            if running + pending < group.minimum:
                text = f"group {name}: {running + pending} of {group.minimum} are here"
            else:
                text = f"group {name}: {reached} of {group.minimum} could be placed"
            answers.update(dict.fromkeys(self._classes[name], text))
        return answers

    def _try_again(self, placer: Placer) -> None:
        """Others gave way after them: groups that fit now start after all, first come first."""
        for group in self._groups:
            if group.name not in self._dropped:
                continue
            classes = self._classes[group.name]
            known = self._runs(group) + sum(len(self._demands[c].tasks) for c in classes)
            if known < group.minimum:
                continue
            saved = placer.save()
            placer.sweep(classes)
            reached = self._reached(placer, group)
            if reached >= group.minimum:
                del self._dropped[group.name]
                placer.sweep(self._active())
            else:
                self._dropped[group.name] = group, max(reached, self._dropped[group.name][1])
                placer.restore(saved)

    def _active(self) -> list[int]:
        return [i for i, d in enumerate(self._demands) if d.group not in self._dropped]

    def _runs(self, group: TaskGroup) -> int:
        return self._running.get(group.name, 0)

    def _reached(self, placer: Placer, group: TaskGroup) -> int:
        return self._runs(group) + sum(placer.plan.placed(c) for c in self._classes[group.name])

    def _leaned_on(self, group: TaskGroup, placer: Placer) -> bool:
        """Whether somebody else was let in because members of the group were there."""
        own = set(self._classes[group.name])
        joined = {
            name
            for c in own
            for name in self._demands[c].joins
            if placer.board.standings[name].relation.kind in (RelationKind.TOGETHER, RelationKind.SPREAD)
        }
        return any(joined & set(self._demands[c].holds) for c, _ in placer.plan.runs if c not in own)
