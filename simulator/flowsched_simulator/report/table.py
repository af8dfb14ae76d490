"""The comparison table: one row per policy, the best value of each column marked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowsched.cluster.decision import NO_BOUND, proves_nothing
from flowsched_simulator.report.number import NOTHING, compact, fixed
from flowsched_simulator.run import bound_words, figure

OWN_POLICY = "flow"
"""The policy whose row is emphasised."""


@dataclass(frozen=True)
class Column:
    """A column of figures of which less is better, unless it says otherwise."""

    key: str
    group: str
    """Heading shared with the neighbours of the same group, with the unit."""
    heading: str
    """Own heading below it."""
    show: Callable[[float], str]
    more_is_better: bool = False


@dataclass(frozen=True)
class Cell:
    """A figure as shown, with what to sort it by."""

    text: str
    order: str
    """A number, or empty for nothing, which sorts last."""
    best: bool
    share: float | None = None
    """Length of its bar, relative to the greatest figure of the column; None where there is nothing to compare."""


@dataclass(frozen=True)
class Row:
    """A policy's figures."""

    policy: str
    variant: str
    own: bool
    cells: tuple[Cell, ...]
    certificate: str


def _decimals(count: int, factor: float = 1.0) -> Callable[[float], str]:
    return lambda value: fixed(value * factor, count)


_OF_SERVICES = "Service latency"
COLUMNS = (
    Column("makespan_s", "Makespan,\u00a0s", "all jobs", _decimals(1)),
    Column("mean_completion_s", "Completion,\u00a0s", "mean", _decimals(1)),
    Column("p95_completion_s", "Completion,\u00a0s", "p95", _decimals(1)),
    Column("mean_waiting_s", "Waiting,\u00a0s", "mean", _decimals(1)),
    Column("mean_slowdown", "Slowdown,\u00a0×", "mean", _decimals(2)),
    Column("slo_violation_ratio", _OF_SERVICES, "over SLO,\u00a0%", _decimals(1, 100)),
    Column("worst_p95_us", _OF_SERVICES, "worst p95,\u00a0ms", _decimals(2, 0.001)),
    Column("timings.round_ms.p50", "Round,\u00a0ms", "p50", _decimals(1)),
    Column("timings.round_ms.p99", "Round,\u00a0ms", "p99", _decimals(1)),
    Column("gap_absolute_max", "Largest gap", "cost", lambda value: compact(value, 3)),
    Column(
        "gap_relative_max",
        "Largest gap",
        "%",
        lambda value: NO_BOUND if proves_nothing(value) else compact(value * 100, 3),
    ),
)

OPTIONAL = (
    Column("missed", "Deadlines", "missed", _decimals(0)),
    Column("killed", "Jobs", "killed", _decimals(0)),
    Column("preemptions", "Changes", "preempted", _decimals(0)),
    Column("moves", "Changes", "moved", _decimals(0)),
    Column("mean_gpu_allocation", "GPUs, mean", "allocated,\u00a0%", _decimals(1, 100), more_is_better=True),
    Column("mean_gpu_fragmentation", "GPUs, mean", "fragmented,\u00a0%", _decimals(1, 100)),
)
"""Figures of runs in which some job has a deadline or a walltime, running jobs may be preempted or moved, or machines have
GPUs."""


def table_columns(table: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Return the columns of a table: optional ones only where a run has them, those of services only where some ran."""
    some = {c.key for c in (*COLUMNS, *OPTIONAL) if any(figure(row, c.key) is not None for row in table)}
    always = [c for c in COLUMNS if c.group != _OF_SERVICES or "worst_p95_us" in some]
    return [*always, *(column for column in OPTIONAL if column.key in some)]


def table_groups(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """Return the upper headings, each with how many columns it spans."""
    groups: list[tuple[str, int]] = []
    for column in columns:
        if groups and groups[-1][0] == column.group:
            groups[-1] = (column.group, groups[-1][1] + 1)
        else:
            groups.append((column.group, 1))
    return groups


def table_rows(table: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return the rows in the order given."""
    columns = [column_cells(column, [figure(row, column.key) for row in table]) for column in table_columns(table)]
    return [
        Row(
            policy=row["policy"],
            variant=row.get("variant") or "",
            own=row["policy"] == OWN_POLICY,
            cells=tuple(cells[number] for cells in columns),
            certificate=bound_words(row.get("certificate") or NOTHING),
        )
        for number, row in enumerate(table)
    ]


def column_cells(column: Column, values: Sequence[float | None]) -> list[Cell]:
    """Return the figures of one column as shown, the best of them marked."""
    known = [None if value is None or math.isnan(value) else value for value in values]
    texts = [NOTHING if value is None else column.show(value) for value in known]
    sign = -1.0 if column.more_is_better else 1.0
    best = _best_text([(sign * value, text) for value, text in zip(known, texts, strict=True) if value is not None])
    finite = [value for value in known if value is not None and math.isfinite(value)]
    most = max(finite, default=0.0) if best is not None else 0.0
    return [
        Cell(
            text,
            "" if value is None else repr(float(value)),
            text == best,
            value / most if value is not None and most > 0 and 0 <= value <= most else None,
        )
        for value, text in zip(known, texts, strict=True)
    ]


def _best_text(shown: Sequence[tuple[float, str]]) -> str | None:
    """Return the text of the least value, or None where all look the same and there is nothing to mark."""
    return min(shown)[1] if len({text for _, text in shown}) > 1 else None
