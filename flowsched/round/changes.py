"""What a round changes of what runs already: preemptions for tasks that have no room, then moves that pay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flowsched.cluster.compaction import part_of
from flowsched.cluster.decision import Move, Placement, Postponement, Preemption
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Reservation
from flowsched.round.migration import migrate
from flowsched.round.preemption import RoundState, carried_out, preempt
from flowsched.round.reservation import OverdueDemands
from flowsched.round.round_model import RoundModel
from flowsched_models.runtime import HostFactory


@dataclass(frozen=True)
class ChangedDecisions:
    """The decisions of a round with preemptions and moves in them."""

    placements: tuple[Placement, ...]
    postponements: tuple[Postponement, ...]
    reservations: tuple[Reservation, ...]
    preemptions: tuple[Preemption, ...] | None = None
    """None where the settings have none."""
    moves: tuple[Move, ...] | None = None
    """None where the settings have none."""
    let_in: frozenset[str] = frozenset()
    """Tasks that start in the place of others."""
    taken_back: tuple[Preemption, ...] = ()
    """Of tasks that the passes had placed, and whose place went to a higher priority."""
    counts: Mapping[str, int] = field(default_factory=dict)


def change_running(
    model: RoundModel,
    bound: tuple[Placement, ...],
    left: tuple[Postponement, ...],
    overdue: OverdueDemands,
    hosts: HostFactory,
    settings: Settings,
    goal_s: float | None,
) -> ChangedDecisions:
    """Preemptions and moves after a round that decided ``bound`` and ``left``."""
    if not settings.changes_running:
        return ChangedDecisions(bound, left, overdue.reservations)
    view = model.view
    seen = view.snapshot if view.candidates is None else part_of(view.snapshot, view.candidates.machines)
    state = carried_out(seen, bound)
    counts: dict[str, int] = {}
    let_in: frozenset[str] = frozenset()
    if settings.preempts:
        protected = {model.view.tasks[t].name for t in overdue.must_start} if settings.aging_crosses_priority else set()
        preempt(state, overdue.reservations, protected, hosts, settings, goal_s)
        before = {p.task: p for p in bound}
        let_in = frozenset(task for task, p in state.placements.items() if before.get(task) is not p)
        counts |= {"preempted": len(state.preemptions), "decided_by_preemption": len(let_in)}
    reservations = tuple(r for r in overdue.reservations if r.task not in state.placements)
    moves = migrate(state, reservations, hosts, settings, goal_s) if settings.migration_moves else None
    if moves is not None:
        counts["moved"] = len(moves)
    return ChangedDecisions(
        tuple(state.placements.values()),
        (*(p for p in left if p.task not in state.placements), *_taken_back(model, state)),
        reservations,
        tuple(state.preemptions) if settings.preempts else None,
        moves,
        let_in,
        tuple(state.taken_back.values()),
        counts,
    )


def _taken_back(model: RoundModel, state: RoundState) -> Sequence[Postponement]:
    """Tasks that the passes had placed, and whose place went to a higher priority."""
    number = {task.name: t for t, task in enumerate(model.view.tasks)}
    found = []
    for name, by in state.taken_back.items():
        t = number[name]
        terms = model.prices.waiting_terms(model.view.class_of[t])
        waited = model.view.snapshot.age_s(model.view.tasks[t])
        reason = f"{by.room_for} has a higher priority and starts in its place on {by.machine}"
        found.append(Postponement(name, reason, waited, sum(terms.values()), terms))
    return found
