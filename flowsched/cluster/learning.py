"""Whether what completions taught of classes of tasks is used."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from flowsched.cluster.learnt_run_times import NOTHING_LEARNT
from flowsched.cluster.snapshot import Snapshot, Task

Learning = Literal["off", "observe", "on"]
"""Whether completions teach how long others of their class run: not at all, without a forecast that uses it, or with."""


def with_learning(snapshot: Snapshot, learning: Learning | None) -> Snapshot:
    """A snapshot as a round sees it with ``learning``: off without classes and what they taught. None: as it says itself.

    What runs keeps the forecast of its start, and with it how far it is.
    """
    if learning is None:
        return snapshot
    if learning != "off":
        return replace(snapshot, learnt_run_times=replace(snapshot.learnt_run_times, applied=learning == "on"))
    return replace(
        snapshot,
        running=tuple(replace(r, task=_classless(r.task)) for r in snapshot.running),
        pending=tuple(map(_classless, snapshot.pending)),
        learnt_run_times=NOTHING_LEARNT,
    )


def _classless(task: Task) -> Task:
    return replace(task, run_class="") if task.run_class else task
