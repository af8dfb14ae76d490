"""The comparison table for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

_Cell = Callable[[Any], str]


def _number(digits: int) -> _Cell:
    return lambda v: "never" if v is None else f"{v:.{digits}f}"


def _optional(text: Callable[[Any], str]) -> _Cell:
    return lambda v: "-" if v is None else text(v)


_COLUMNS: tuple[tuple[str, str, _Cell], ...] = (
    ("policy", "policy", str),
    ("variant", "its best variant", str),
    ("makespan_s", "makespan s", _number(1)),
    ("mean_completion_s", "mean compl. s", _number(1)),
    ("p95_completion_s", "p95 compl. s", _number(1)),
    ("mean_waiting_s", "mean wait s", _number(1)),
    ("mean_slowdown", "slowdown", _number(2)),
    ("slo_violation_ratio", "SLO viol. %", lambda v: f"{100 * v:.1f}"),
    ("worst_p95_us", "worst p95 ms", _optional(lambda v: f"{v / 1000:.2f}")),
    ("round_ms_p50", "round ms p50", _number(1)),
    ("round_ms_p99", "p99", _number(1)),
    ("gap_absolute_max", "gap abs.", _optional(lambda v: f"{v:.3f}")),
    ("gap_relative_max", "gap rel. %", _optional(lambda v: f"{100 * v:.1f}")),
    ("certificate", "by", _optional(str)),
)


def render_table(rows: Sequence[dict[str, Any]]) -> str:
    """One line per run, columns aligned; numbers to the right. Columns that say nothing in any row are left out."""
    cells = [[text(row[key]) for key, _, text in _COLUMNS] for row in rows]
    shown = [c for c in range(len(_COLUMNS)) if any(line[c] not in ("", "-") for line in cells)]
    heads = [title for _, title, _ in _COLUMNS]
    widths = {c: max(len(heads[c]), *(len(line[c]) for line in cells)) for c in shown}

    def render(line: Sequence[str]) -> str:
        parts = [line[c].ljust(widths[c]) if c < 2 else line[c].rjust(widths[c]) for c in shown]
        return "  ".join(parts).rstrip()

    rule = "  ".join("-" * widths[c] for c in shown)
    return "\n".join([render(heads), rule, *(render(line) for line in cells)])
