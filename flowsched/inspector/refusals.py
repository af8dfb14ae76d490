"""Which constraint removes how many machines, in the words that operators of Kubernetes know.

A machine counts once, with the first constraint that removes it; others that would remove it too are counted beside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowsched.arrays import BoolArray
from flowsched.relation import MACHINE, Relation, RelationKind

SELECTOR = "node(s) didn't match Pod's node affinity/selector"
FILTERED = "node(s) were refused by the pod's own constraints"
"""Where the record says only that they were."""
PORTS = "node(s) didn't have free ports for the requested pod ports"
POD_AFFINITY = "node(s) didn't match pod affinity rules"
POD_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"
SPREAD = "node(s) didn't match pod topology spread constraints"
MISSING_LABEL = " (missing required label)"
VOLUMES = "node(s) exceed max volume count"
GOAL_MISSED = "node(s) would miss the pod's p95 goal or have no cores of their own for it"
"""Of a pod that is a latency service itself."""
OUTSIDE = "node(s) were not among those that matter to pods with a profile"
NO_CORES = "node(s) had no cores beside their services"
RESERVED = "node(s) were reserved for a task that has waited longer"
SERVICE = "node(s) had a latency service whose p95 goal it would break"
UTILITY = "node(s) would finish it, or others, too late to be of the use that they demand"
PROMISED = "node(s) were planned for others in a way that leaves no place"
LIMIT = "node(s) had as many as relation {name} allows ({most} for each {where})"
TOO_DEAR = "node(s) cost more than it may"

SHOWN = 5
"""Machines that a row names."""
_PORT_RELATIONS = "ports/"
_VOLUME_RESOURCES = "attachable-volumes-csi-"


def insufficient(resource: str) -> str:
    """The reason text of a resource that does not suffice."""
    if resource.startswith(_VOLUME_RESOURCES):
        return VOLUMES
    return "Too many pods" if resource == "pods" else f"Insufficient {resource}"


def refused_by(relation: Relation, role: str, missing_label: bool = False) -> str:
    """The reason text of a relation that refuses somebody who ``holds`` or ``joins`` it; ``missing_label``: the machine
    is in no domain.
    """
    if relation.name.startswith(_PORT_RELATIONS):
        return PORTS
    match relation.kind:
        case RelationKind.APART:
            return POD_ANTI_AFFINITY if role == "holds" else EXISTING_ANTI_AFFINITY
        case RelationKind.SPREAD:
            return SPREAD + (MISSING_LABEL if missing_label else "")
        case RelationKind.TOGETHER:
            return POD_AFFINITY
        case _:
            where = "machine" if relation.key == MACHINE else relation.key
            return LIMIT.format(name=relation.name, most=relation.most, where=where)


@dataclass(frozen=True, eq=False)
class Check:
    """One constraint: a reason text, and the machines that it refuses."""

    reason: str
    refused: BoolArray


def by_reason(machines: Sequence[str], reasons: Mapping[str, str]) -> list[Check]:
    """A check for each reason of some that stand by machine, in the order of the texts."""
    found = sorted({reasons[m] for m in machines if m in reasons})
    return [Check(reason, np.array([reasons.get(m) == reason for m in machines], dtype=np.bool_)) for reason in found]


def tabulate(machines: Sequence[str], checks: Sequence[Check]) -> dict[str, Any]:
    """``machines``, ``available`` and ``rows``: each ``reason`` with ``count`` (machines that it removes first), ``also``
    (others that it would have removed), the first ``names`` of all of these, and how many ``more`` there are.

    All counts and what is available add up to the number of machines. ``message`` says the same in one line.
    """
    open_ = np.ones(len(machines), dtype=np.bool_)
    first: dict[str, BoolArray] = {}
    ever: dict[str, BoolArray] = {}
    for check in checks:
        removed = open_ & check.refused
        nobody = np.zeros(len(machines), dtype=np.bool_)
        first[check.reason] = first.get(check.reason, nobody) | removed
        ever[check.reason] = ever.get(check.reason, nobody) | check.refused
        open_ &= ~check.refused
    rows = []
    for reason, refused in ever.items():
        total, count = int(refused.sum()), int(first[reason].sum())
        if not total:
            continue
        names = [machines[m] for m in np.flatnonzero(refused)[:SHOWN].tolist()]
        rows.append(
            {"reason": reason, "count": count, "also": total - count, "names": names, "more": total - len(names)}
        )
    rows.sort(key=lambda row: (-int(row["count"]), str(row["reason"])))  # type: ignore[call-overload]
    available = int(open_.sum())
    counted = ", ".join(sorted(f"{row['count']} {row['reason']}" for row in rows if row["count"]))
    head = f"{available}/{len(machines)} nodes are available"
    return {
        "machines": len(machines),
        "available": available,
        "message": f"{head}: {counted}." if counted else f"{head}.",
        "rows": rows,
    }


def shortage(
    machines: Sequence[str],
    resources: Sequence[str],
    asks: Sequence[int],
    free: Any,
    whole: Any,
    candidates: BoolArray,
) -> dict[str, Any]:
    """By how much the machines fall short: ``never`` (no candidate would do even empty), the ``largest`` candidate by
    resource, and the ``emptiest``, the one that misses least.

    ``free`` and ``whole`` (free if it were empty): by machine and resource. Only resources that are asked for count.
    """
    where = np.flatnonzero(candidates)
    if not len(where):
        return {"never": False, "largest": [], "emptiest": None}
    amounts = np.array(asks, dtype=np.int64)
    least = np.maximum(amounts, 1)
    never = not bool((whole[where] >= amounts).all(axis=1).any())
    largest = []
    for k, resource in enumerate(resources):
        best = int(where[int(whole[where, k].argmax())])
        largest.append(
            {
                "resource": resource,
                "asks": int(asks[k]),
                "most": int(whole[best, k]),
                "machine": machines[best],
                "suffices": bool(whole[best, k] >= asks[k]),
            }
        )
    short = np.maximum(0, amounts - free[where])
    worst = (short / least).max(axis=1, initial=0.0)
    spare = (free[where] / least).min(axis=1, initial=np.inf)
    nearest = int(where[np.lexsort((where, -spare, worst))[0]])
    lacking = [
        {
            "resource": resource,
            "asks": int(asks[k]),
            "free": int(free[nearest, k]),
            "short": max(0, int(asks[k] - free[nearest, k])),
        }
        for k, resource in enumerate(resources)
    ]
    return {"never": never, "largest": largest, "emptiest": {"machine": machines[nearest], "resources": lacking}}
