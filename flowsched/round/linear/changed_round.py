"""A round at linear prices with what it changes of running tasks, as decisions and as its record has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowsched.cluster.decision import Placement, Postponement
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Reservation, Snapshot
from flowsched.records.record import plain_changes, plain_value
from flowsched.round.linear.linear_changes import LinearChanges
from flowsched.round.running_changes import ChangedDecisions, RunningChanges, as_moves, waits_again


def plain_changed(decided: ChangedDecisions) -> dict[str, Any]:
    """What a record has of preemptions and moves beside its parts."""
    taken_back = [(p.task, p.machine, p.room_for) for p in decided.taken_back]
    return {
        **plain_changes(decided.preemptions or (), decided.moves or (), taken_back),
        "let_in": [plain_value(p) for p in decided.placements if p.task in decided.let_in],
    }


def changed_round(
    snapshot: Snapshot,
    pricer: LinearChanges,
    changes: RunningChanges,
    placements: tuple[Placement, ...],
    left: Sequence[Postponement],
    held: Sequence[Reservation],
    settings: Settings,
) -> ChangedDecisions:
    """The round of a snapshot; ``left`` and ``held``: what waits, and what is reserved, before anything was changed."""
    starting = {p.task for p in placements}
    age_s = {t.name: snapshot.now_s - t.submit_s for t in snapshot.pending}
    back = [waits_again(taken, age_s[taken.task], pricer.waiting_terms(taken.task)) for taken in changes.taken_back]
    return ChangedDecisions(
        placements,
        (*(p for p in left if p.task not in starting), *back),
        tuple(r for r in held if r.task not in starting),
        changes.preemptions if settings.preempts else None,
        as_moves(changes.steps, snapshot, settings) if settings.migration_moves else None,
        changes.let_in,
        changes.taken_back,
    )
