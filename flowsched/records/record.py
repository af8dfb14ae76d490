"""The record of a round, version 5: the complete, replayable record as plain data.

Everything but ``timings`` is a function of the snapshot and the settings. Costs are in units of penalty, times in
seconds, widths in milli-CPU. Where there are many values they are numpy arrays; JSON has lists instead. The parts of a
round are levels: one where everything was decided together; on Kubernetes one or two for every priority.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from flowsched.cluster.decision import Certificate, Move, Placement, Postponement, Preemption
from flowsched.network.network import Network, term_columns

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RECORD_VERSION = "flowsched/v5"
RECORD_KIND = "Record"
LEVEL = "level"
"""Kind of every part."""
FORECAST = "forecast"
"""Prices of a level that passes of min-cost flow decided (and of the levels of baselines)."""
LINEAR = "linear"
"""Prices of a level that one network of classes and groups decided."""
POSTPONED = "postponed"
"""The cause of waiting where the round names none."""
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


def plain_placements(placements: Sequence[Placement], machines: Sequence[str]) -> dict[str, Any]:
    """Columns of tasks that start, with the index of each machine."""
    number = {name: i for i, name in enumerate(machines)}
    plain: dict[str, Any] = {
        "task": [p.task for p in placements],
        "machine": np.array([number[p.machine] for p in placements], dtype=np.int64),
        "width_milli": np.array([p.width_milli for p in placements], dtype=np.int64),
        "threads": np.array([p.threads for p in placements], dtype=np.int64),
        "cores": [list(p.cores) for p in placements],
        "cost": np.array([p.cost for p in placements], dtype=np.float64),
        "terms": term_columns([p.terms for p in placements]),
    }
    if any(p.devices for p in placements):
        plain["devices"] = [list(p.devices) for p in placements]
    return plain


def plain_postponements(postponements: Sequence[Postponement]) -> dict[str, Any]:
    """Columns of tasks that wait."""
    numbers: dict[str, int] = {}
    plain: dict[str, Any] = {
        "task": [p.task for p in postponements],
        "reason": np.array([numbers.setdefault(p.reason, len(numbers)) for p in postponements], dtype=np.int64),
        "reasons": [{"cause": POSTPONED, "text": text} for text in numbers],
        "cost": np.array([p.cost for p in postponements], dtype=np.float64),
        "terms": term_columns([p.terms for p in postponements]),
        "waited_s": np.array([p.waited_s for p in postponements], dtype=np.float64),
        "planned": [None if p.planned is None else asdict(p.planned) for p in postponements],
    }
    if any(p.by_choice for p in postponements):
        plain["by_choice"] = np.array([p.by_choice for p in postponements], dtype=np.bool_)
    return plain


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


def of_decision(parts: Sequence[Mapping[str, Any]], number: int) -> list[dict[str, Any]]:
    """Levels at linear prices that were decided together, as those of such a decision of their record."""
    return [{**part, "given": {**part["given"], "decision": number}} for part in parts]


def of_first(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same of what is overdue for longest, which goes before all others of its priority."""
    return [{**part, "given": {**part["given"], "goes_first": True}} for part in parts]


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
    """A dataclass as JSON has it: tuples become lists. What takes no GPUs does not say so."""
    plain = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(value).items()}
    if plain.get("devices") == []:
        del plain["devices"]
    return plain


Recipe = Callable[[], Mapping[str, Any]]
"""How to make a record: most are never looked at."""
