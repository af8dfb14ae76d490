"""The comparison table for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flowsched.cluster.decision import NO_BOUND, proves_nothing
from flowsched_models.text_table import ruled_table, spelt
from flowsched_simulator.run import bound_words, figure

_Cell = Callable[[Any], str]


def _number(digits: int) -> _Cell:
    return lambda v: "never" if v is None else f"{v:.{digits}f}"


def _optional(text: Callable[[Any], str]) -> _Cell:
    return lambda v: "-" if v is None else text(v)


def _short(variant: str) -> str:
    """``4, shared`` for ``request 4, shared cores``: the heading says the rest."""
    return variant.replace("declared request", "declared").replace("request ", "").replace(" cores", "")


_COLUMNS: tuple[tuple[str, str, str, _Cell], ...] = (
    ("policy", "", "policy", str),
    ("variant", "", "variant", _short),
    ("makespan_s", "makespan", "s", _number(1)),
    ("mean_completion_s", "compl.", "mean s", _number(1)),
    ("p95_completion_s", "compl.", "p95 s", _number(1)),
    ("mean_waiting_s", "waiting", "mean s", _number(1)),
    ("mean_slowdown", "slow-", "down", _number(2)),
    ("slo_violation_ratio", "over", "SLO %", lambda v: f"{100 * v:.1f}"),
    ("worst_p95_us", "worst", "p95 ms", _optional(lambda v: f"{v / 1000:.2f}")),
    ("missed", "deadlines", "missed", _optional(str)),
    ("killed", "jobs", "killed", _optional(str)),
    ("preemptions", "pre-", "empted", _optional(str)),
    ("moves", "", "moves", _optional(str)),
    ("mean_gpu_allocation", "GPUs", "alloc. %", _optional(lambda v: f"{100 * v:.1f}")),
    ("mean_gpu_fragmentation", "GPUs", "fragm. %", _optional(lambda v: f"{100 * v:.1f}")),
    ("timings.round_ms.p50", "round", "p50 ms", _optional(_number(1))),
    ("timings.round_ms.p99", "round", "p99 ms", _optional(_number(1))),
    ("gap_absolute_max", "gap", "cost", _optional(lambda v: f"{v:.3f}")),
    ("gap_relative_max", "gap", "%", _optional(lambda v: NO_BOUND if proves_nothing(v) else f"{100 * v:.1f}")),
    ("certificate", "gap", "to", _optional(bound_words)),
)


def variants_line(rows: Sequence[Mapping[str, Any]]) -> str:
    """How the variants of a comparison were chosen, in a line; empty where there was nothing to choose.

    ``rows``: anything with ``policy``, and ``variant_seeds`` where a variant was chosen.
    """
    by_seeds: dict[tuple[int, ...], list[str]] = {}
    for row in rows:
        if row.get("variant_seeds") is not None:
            by_seeds.setdefault(tuple(row["variant_seeds"]), []).append(row["policy"])
    parts = [
        f"chosen by runs with seeds {spelt(seeds)}, not by the reported ones"
        if seeds
        else "the best of this scenario, where nothing is drawn"
        for seeds in by_seeds
    ]
    if len(parts) > 1:
        parts = [f"of {', '.join(names)} {part}" for names, part in zip(by_seeds.values(), parts, strict=True)]
    return f"variants: {'; '.join(parts)}" if parts else ""


def render_table(rows: Sequence[dict[str, Any]]) -> str:
    """How variants were chosen, two lines of headings, and one line per run; numbers to the right.

    Columns that say nothing anywhere are left out.
    """
    chosen = variants_line(rows)
    cells = [[text(figure(row, key)) for key, _, _, text in _COLUMNS] for row in rows]
    shown = [c for c in range(len(_COLUMNS)) if any(line[c] not in ("", "-") for line in cells)]
    above = {"variant": "" if not chosen else "chosen" if any(row.get("variant_seeds") for row in rows) else "best"}
    lines = [
        [above.get(head[0], head[1]) for head in _COLUMNS],
        [head[2] for head in _COLUMNS],
        *cells,
    ]
    left = [n for n, c in enumerate(shown) if c < 2]
    table = ruled_table([[line[c] for c in shown] for line in lines], heads=2, left=left)
    return "\n".join([chosen] * bool(chosen) + table)
