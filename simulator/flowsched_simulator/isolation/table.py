"""The comparison for a terminal."""

from __future__ import annotations

from typing import Any

from flowsched_models.text_table import text_table


def render_table(outcome: dict[str, Any]) -> str:
    """One row per policy, then the deviation of each critical task by policy. ``outcome``: what :func:`run` returns."""
    head = ["policy", "sd %", "of machine", "x", "mean delay ms", "x", "p95 ms", "max ms", "late jobs"]
    rows = [
        [
            row["policy"],
            _text(row["deviation"], 3),
            _text(row["deviation_of_machine"], 3),
            _text(row["deviation_ratio"], 1),
            _text(row["mean_delay_ms"], 3),
            _text(row["delay_ratio"], 1),
            _text(row["p95_delay_ms"], 2),
            _text(row["max_delay_ms"], 1),
            f"{row['late_jobs']} of {row['jobs'] + row['open_jobs']}",
        ]
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
