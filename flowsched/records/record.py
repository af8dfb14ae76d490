"""The record of a round, version 4: the complete, replayable record as plain data.

Everything but ``timings`` is a function of the snapshot and the settings. Costs are in units of penalty, times in
seconds, widths in milli-CPU. Where there are many values they are numpy arrays; JSON has lists instead. A round has
parts: one where everything was decided together; on Kubernetes one or two for every priority.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from flowsched.cluster.decision import Certificate, Move, Preemption
from flowsched.network.network import Network

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RECORD_VERSION = "flowsched/v4"
RECORD_KIND = "Record"
SEARCH_PART = "search"
NETWORK_PART = "network"
COST_MODEL = "flow"


def record_head(number: int, now_s: float, policy: str, solver: str, settings: DataclassInstance) -> dict[str, Any]:
    """What every record begins with."""
    return {
        "apiVersion": RECORD_VERSION,
        "kind": RECORD_KIND,
        "writer": writer(),
        "round": number,
        "now_s": now_s,
        "policy": policy,
        "solver": solver,
        "settings": asdict(settings),
    }


@cache
def writer() -> str:
    """The program that writes records, with its version."""
    try:
        return f"flowsched {version('flowsched')}"
    except PackageNotFoundError:
        return "flowsched"


def plain_nothing() -> dict[str, Any]:
    """The network of a round that solved none: a sink that nothing flows to."""
    none = np.zeros(0, dtype=np.int64)
    return Network(none, none, none, none, np.zeros(1, dtype=np.int64), 1.0, ("sink",)).to_plain(none)


def plain_certificate(certificate: Certificate | None) -> dict[str, Any] | None:
    """A certificate with both gaps; None if nothing was pending."""
    if certificate is None:
        return None
    gaps = {"gap_absolute": certificate.gap_absolute, "gap_relative": certificate.gap_relative}
    plain = plain_value(certificate)
    if certificate.machines is None:
        del plain["machines"]
    return {**plain, **gaps}


def plain_timings(timings_ms: Mapping[str, float]) -> dict[str, float]:
    """Milliseconds by stage, the unit in the key."""
    return {f"{stage.replace(' ', '_')}_ms": ms for stage, ms in timings_ms.items()}


def plain_changes(
    preemptions: Sequence[Preemption] | None,
    moves: Sequence[Move] | None,
    taken_back: Sequence[tuple[str, str, str]],
) -> dict[str, list[dict[str, Any]]]:
    """What a round changed of what ran before; keys for what the settings let. ``taken_back``: task, machine, for whom."""
    found: dict[str, list[dict[str, Any]]] = {}
    if preemptions is not None:
        found["preemptions"] = [plain_value(preemption) for preemption in preemptions]
        found["taken_back"] = [{"task": task, "machine": m, "room_for": by} for task, m, by in taken_back]
    if moves is not None:
        found["moves"] = [plain_value(move) for move in moves]
    return found


def finite_or_none(value: float) -> float | None:
    """A number as JSON has it; infinity is null."""
    return value if math.isfinite(value) else None


def plain_value(value: Any) -> dict[str, Any]:
    """A dataclass as JSON has it: tuples become lists. What takes no GPUs, or waits by no choice, does not say so."""
    plain = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(value).items()}
    if plain.get("devices") == []:
        del plain["devices"]
    if plain.get("by_choice") is False:
        del plain["by_choice"]
    return plain


Recipe = Callable[[], Mapping[str, Any]]
"""How to make a record: most are never looked at."""
