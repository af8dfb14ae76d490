"""A round at linear prices with what it changes of running tasks, as decisions and as its record has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowsched.cluster.decision import Placement, Postponement
from flowsched.cluster.settings import Settings
from flowsched.cluster.settings_form import CHANGE_SETTINGS
from flowsched.cluster.snapshot import Reservation, Snapshot
from flowsched.records.record import plain_changes, plain_value
from flowsched.round.linear.linear_changes import History, LinearChanges, history_of
from flowsched.round.running_changes import ChangedDecisions, RunningChanges, as_moves, waits_again


@dataclass(frozen=True)
class ChangedRound:
    """What is decided once preemptions and moves are in it, with what that depends on."""

    decisions: ChangedDecisions
    settings: Settings
    history: History

    def plain(self) -> dict[str, Any]:
        """What the record has beside its parts."""
        decided = self.decisions
        taken_back = [(p.task, p.machine, p.room_for) for p in decided.taken_back]
        return {
            "changes": {
                "settings": {name: getattr(self.settings, name) for name in CHANGE_SETTINGS},
                "task": list(self.history),
                "preemptions": np.array([h[0] for h in self.history.values()], dtype=np.int64),
                "moved_s": np.array([np.inf if h[1] is None else h[1] for h in self.history.values()]),
                "stays": np.array([h[2] for h in self.history.values()], dtype=np.bool_),
            },
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
) -> ChangedRound:
    """The round of a snapshot; ``left`` and ``held``: what waits, and what is reserved, before anything was changed."""
    starting = {p.task for p in placements}
    age_s = {t.name: snapshot.now_s - t.submit_s for t in snapshot.pending}
    back = [waits_again(taken, age_s[taken.task], pricer.waiting_terms(taken.task)) for taken in changes.taken_back]
    decided = ChangedDecisions(
        placements,
        (*(p for p in left if p.task not in starting), *back),
        tuple(r for r in held if r.task not in starting),
        changes.preemptions if settings.preempts else None,
        as_moves(changes.steps, snapshot, settings) if settings.migration_moves else None,
        changes.let_in,
        changes.taken_back,
    )
    return ChangedRound(decided, settings, history_of(snapshot.running))
