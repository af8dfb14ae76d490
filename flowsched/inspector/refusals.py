"""Which constraint removes how many machines, in the words that operators of Kubernetes know.

A machine counts once, with the first constraint that removes it; others that would remove it too are counted beside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowsched.relations.relation import MACHINE, Relation, RelationKind
from flowsched.support.arrays import BoolArray, IntArray

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
GPU_MODEL = "node(s) had no GPUs of a model that it may run on"
NO_CORES = "node(s) had no cores beside their services"
RESERVED = "node(s) were reserved for a task that comes before it"
SERVICE = "node(s) had a latency service whose p95 goal it would break"
UTILITY = "node(s) would miss min_utility, its own or that of a co-located task"
PROMISED = "node(s) were planned for others in a way that leaves no place"
LIMIT = "node(s) had as many as relation {name} allows ({most} for each {where})"
TOO_DEAR = "node(s) cost more than it may"

SHOWN = 5
"""Machines that a row names."""
NEAR = 0.5
"""An empty machine is worth naming while it misses at most this share of what is asked for."""
_PORT_RELATIONS = "ports/"
_VOLUME_RESOURCES = "attachable-volumes-csi-"


def insufficient(resource: str) -> str:
    """The reason text of a resource that does not suffice."""
    if resource.startswith(_VOLUME_RESOURCES):
        return VOLUMES
    return "Too many pods" if resource == "pods" else f"Insufficient {resource}"


def refused_by(relation: Relation, role: str, missing_label: bool = False) -> str:
    """The reason text of a relation that refuses a task that ``holds`` or ``joins`` it; ``missing_label``: the machine
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


@dataclass(frozen=True, eq=False)
class MachinesFound:
    """What a waiting task finds on every machine: arrays by machine, and by machine and resource that it asks for."""

    names: Sequence[str]
    resources: Sequence[str]
    asks: Sequence[int]
    free: IntArray
    """What is free once all that starts now is there."""
    whole: IntArray
    """What would be free if all left that will."""
    sizes: IntArray
    """What would be free if it were empty."""
    candidates: BoolArray
    """Where it may run, whatever is there."""
    known: BoolArray
    """Where the arrays say something."""
    before: Sequence[Check]
    """What refuses it whatever room there is."""
    after: Sequence[Check]
    """What refuses it where there is room."""
    memory_unit: str = "MiB"

    def table(self) -> dict[str, Any]:
        """As :func:`tabulate` has it."""
        lacks = [
            Check(insufficient(resource), self.known & (self.free[:, k] < self.asks[k]))
            for k, resource in enumerate(self.resources)
        ]
        return tabulate(self.names, [*self.before, *lacks, *self.after])

    def shortage(self) -> dict[str, Any]:
        """As :func:`shortage` has it, with ``units``."""
        short = shortage(self.names, self.resources, self.asks, self.free, self.whole, self.candidates, self.sizes)
        return {**short, "units": {"cpu": "milli", "memory": self.memory_unit}}


def tabulate(machines: Sequence[str], checks: Sequence[Check]) -> dict[str, Any]:
    """``machines``, ``available`` and ``rows``: each ``reason`` with ``count`` (machines that it removes first), the first
    ``names`` of these and how many ``more`` there are; the same of others that it would have removed in ``also``,
    ``also_names`` and ``also_more``.

    All counts and what is available add up to the number of machines. ``message`` says the same in one line.
    """
    open_ = np.ones(len(machines), dtype=np.bool_)
    first: dict[str, BoolArray] = {}
    ever: dict[str, BoolArray] = {}
    for check in checks:
        removed = open_ & check.refused
        none = np.zeros(len(machines), dtype=np.bool_)
        first[check.reason] = first.get(check.reason, none) | removed
        ever[check.reason] = ever.get(check.reason, none) | check.refused
        open_ &= ~check.refused
    rows = []
    for reason, refused in ever.items():
        total, count = int(refused.sum()), int(first[reason].sum())
        if not total:
            continue
        names = [machines[m] for m in np.flatnonzero(first[reason])[:SHOWN].tolist()]
        also = [machines[m] for m in np.flatnonzero(refused & ~first[reason])[:SHOWN].tolist()]
        rows.append(
            {
                "reason": reason,
                "count": count,
                "names": names,
                "more": count - len(names),
                "also": total - count,
                "also_names": also,
                "also_more": total - count - len(also),
            }
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
    sizes: Any,
) -> dict[str, Any]:
    """By how much the machines fall short.

    - ``never``: no candidate would do even if all left who will; ``too_small``: nor if it were empty;
    - ``largest``: for every resource the candidate that has most of it (``most``) beside who stays, and its ``size``;
    - ``lacking``: where the answer is never, the candidates that would miss least, and what; first those large enough;
    - ``emptiest``: the one that misses least now, of those that could hold it if there are any;
    - ``empty``: one that misses least of those that are too small and have no task that will leave; None where it misses
      more than a share of :data:`NEAR`.

    By machine and resource: ``free``; ``whole``, free if all left who will; ``sizes``, free if it were empty. Only
    resources that are asked for count.
    """
    where = np.flatnonzero(candidates)
    if not len(where):
        return {"never": False, "too_small": False, "largest": [], "lacking": [], "emptiest": None, "empty": None}
    amounts = np.array(asks, dtype=np.int64)
    least = np.maximum(amounts, 1)
    holds = (whole[where] >= amounts).all(axis=1)
    large = (sizes[where] >= amounts).all(axis=1)
    never = not bool(holds.any())

    def missing(room: Any, rows: Any) -> Any:
        return (np.maximum(0, amounts - room[rows]) / least).max(axis=1, initial=0.0)

    def nearest(room: Any, rows: Any) -> Any:
        spare = (room[rows] / least).min(axis=1, initial=np.inf)
        return rows[np.lexsort((rows, -spare, missing(room, rows)))]

    def row(machine: int, room: Any) -> dict[str, Any]:
        lacks = [
            {
                "resource": resource,
                "asks": int(asks[k]),
                "free": int(room[machine, k]),
                "short": max(0, int(asks[k] - room[machine, k])),
            }
            for k, resource in enumerate(resources)
        ]
        return {"machine": machines[machine], "resources": lacks}

    largest = []
    for k, resource in enumerate(resources):
        best = int(where[int(whole[where, k].argmax())])
        largest.append(
            {
                "resource": resource,
                "asks": int(asks[k]),
                "most": int(whole[best, k]),
                "size": int(sizes[best, k]),
                "machine": machines[best],
                "suffices": bool(whole[best, k] >= asks[k]),
            }
        )
    lacking = []
    if never:
        order = [*nearest(whole, where[large]).tolist(), *nearest(whole, where[~large]).tolist()]
        for m in order[:SHOWN]:
            found = row(m, whole)
            for k, entry in enumerate(found["resources"]):
                entry["size"] = int(sizes[m, k])
            lacking.append(found)
    quiet = where[~holds & (free[where] >= whole[where]).all(axis=1)]
    quiet = nearest(free, quiet[missing(free, quiet) <= NEAR])
    return {
        "never": never,
        "too_small": not bool(large.any()),
        "largest": largest,
        "lacking": lacking,
        "emptiest": row(int(nearest(free, where if never else where[holds])[0]), free),
        "empty": row(int(quiet[0]), free) if len(quiet) else None,
    }
