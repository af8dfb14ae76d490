"""How profiles did, as plain data for other programs: one JSON object, or one CSV row per measured value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from flowsched_models.picked_fields import picked
from flowsched_models.quantity import format_cores
from flowsched_models.text_table import csv_table
from flowsched_models.validation.limit import Limit
from flowsched_models.validation.score import Errors, Quantity, Score
from flowsched_models.validation.validation import ScoreRow, Validation

VERSION = "flowsched/v1"
COLUMNS = (
    "quantity", "group", "schedule", "run", "year", "subject", "node", "machine_type", "cores", "threads", "sharing",
    "service", "start_s", "measured", "predicted", "error_pct", "rank",
)  # fmt: skip
"""Of the CSV; after them one column for every model to compare with."""
_KEYS = {Quantity.DURATION: "durations", Quantity.MAKESPAN: "makespans", Quantity.P95: "p95"}


def plain(validation: Validation, limits: Sequence[Limit], source: str) -> dict[str, Any]:
    """The object that ``--json`` prints; ``docs/predictions.md`` lists its keys."""
    return {
        "apiVersion": VERSION,
        "kind": "Validation",
        "data": source,
        "profiles": validation.profiles,
        "clients": dict(validation.clients),
        "without": [[part.value for part in parts] for parts, _ in validation.compared],
        **{key: [_row(row) for row in validation.rows(quantity)] for quantity, key in _KEYS.items()},
        "not_scored": [{"what": what, "why": why, "count": count} for what, why, count in validation.not_scored],
        "findings": [
            {
                **picked(finding.where, "file", "row", "column"),
                **picked(finding, "group", "text", "consequence"),
            }
            for finding in validation.findings
        ],
        "limits": [{**asdict(limit), "exceeded": limit.exceeded} for limit in limits],
    }


def csv_text(validation: Validation) -> str:
    """One row per measured value, as it was scored."""
    rows = [[*COLUMNS, *("predicted_without_" + "+".join(parts) for parts, _ in validation.compared)]]
    for i, score in enumerate(validation.scores):
        others = [f"{scores[i].predicted:.6g}" for _, scores in validation.compared]
        rows.append([*_cells(score), *others])
    return csv_table(rows)


def _row(row: ScoreRow) -> dict[str, Any]:
    return {
        "table": row.table,
        "name": row.name,
        **_errors(row.errors),
        "without": [_errors(errors) for errors in row.compared],
    }


def _errors(errors: Errors) -> dict[str, Any]:
    return {
        "count": errors.count,
        "median_pct": errors.median,
        "p90_pct": errors.p90,
        "bias_pct": errors.bias,
        "inside_50_pct": errors.inside_inner,
        "inside_90_pct": errors.inside_outer,
    }


def _cells(score: Score) -> list[str]:
    return [
        score.quantity.value,
        score.group,
        score.schedule,
        score.run,
        score.year,
        score.subject,
        score.node,
        score.machine_type,
        format_cores(score.cores) if score.cores else "",
        str(score.threads) if score.threads else "",
        score.sharing.value if score.sharing else "",
        score.service_sharing.value if score.service_sharing else "",
        f"{score.start_s:g}",
        f"{score.measured:.6g}",
        f"{score.predicted:.6g}",
        f"{100.0 * score.error:.3f}",
        "" if score.rank is None else f"{score.rank:.4f}",
    ]
