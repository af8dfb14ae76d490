"""What a plan would ignore, so that it can be reported instead."""

from __future__ import annotations

from flowsched.cluster.snapshot import Snapshot


def outside(snapshot: Snapshot) -> tuple[str, ...]:
    """What a snapshot asks for that plans do not know, a clause each; empty where a plan may be made."""
    found = []
    tasks = [*snapshot.pending, *(r.task for r in snapshot.running)]
    if any(t.holds or t.joins for t in tasks):
        found.append("relations between tasks")
    if any(t.group is not None for t in tasks):
        found.append("task groups")
    if any(t.endless for t in tasks):
        found.append("tasks without an end")
    if any(t.min_utility is not None for t in snapshot.pending):
        found.append("least utilities (min_utility)")
    if any(t.gpus is not None for t in tasks):
        found.append("GPUs as devices")
    return tuple(found)
