"""The comparison for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from flowsched_models.text_table import text_table


class IsolationColumn(NamedTuple):
    """A figure of a run."""

    key: str
    short: str
    """Its head in a terminal."""
    head: str
    """That on a page."""
    digits: int


COLUMNS = (
    IsolationColumn("deviation", "sd %", "Deviation, % of a core", 3),
    IsolationColumn("deviation_of_machine", "of machine", "% of the machine", 3),
    IsolationColumn("deviation_ratio", "x", "against deadline, ×", 1),
    IsolationColumn("mean_delay_ms", "mean delay ms", "Mean delay, ms", 3),
    IsolationColumn("delay_ratio", "x", "against deadline, ×", 1),
    IsolationColumn("p95_delay_ms", "p95 ms", "p95, ms", 2),
    IsolationColumn("max_delay_ms", "max ms", "longest, ms", 1),
)


def late_jobs(row: Mapping[str, Any]) -> str:
    """How many of the jobs of a run were late."""
    return f"{row['late_jobs']} of {row['jobs'] + row['open_jobs']}"


def render_table(outcome: dict[str, Any]) -> str:
    """One row per policy, then the deviation of each critical task by policy. ``outcome``: what :func:`run` returns."""
    head = ["policy", *(column.short for column in COLUMNS), "late jobs"]
    rows = [
        [row["policy"], *(_text(row[column.key], column.digits) for column in COLUMNS), late_jobs(row)]
        for row in outcome["table"]
    ]
    tasks = [task["task"] for task in outcome["runs"][0]["tasks"] if task["critical"]]
    inner = [["sd % of task", *tasks, "mean"]]
    for each in outcome["runs"]:
        own = {task["task"]: task["bandwidth_deviation"] for task in each["tasks"]}
        inner.append([each["policy"], *(_text(own[t], 3) for t in tasks), _text(each["mean_task_deviation"], 3)])
    return "\n".join([*text_table([head, *rows]), "", *text_table(inner), "", *about(outcome)])


def about(outcome: dict[str, Any]) -> list[str]:
    """What the figures are."""
    sleep = "for a fixed time after each slice of work" if outcome["sleep"] == "relative" else "until the next period"
    return [
        f"sd %: standard deviation of the CPU bandwidth of all critical tasks together, in per cent of one core, over "
        f"windows of {outcome['window_s']:g} s",
        f"within intervals of {outcome['interval_s']:g} s of constant need; x: against deadline; tasks sleep {sleep}",
        f"admission: {outcome['admission']['reason']}",
    ]


def _text(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
