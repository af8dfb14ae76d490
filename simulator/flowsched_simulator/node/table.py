"""The comparison of controllers for a terminal: one row per run, and the seconds that each job ran."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flowsched_models.text_table import ruled_table

_Cell = Callable[[Any], str]

_COLUMNS: tuple[tuple[str, str, str, _Cell], ...] = (
    ("policy", "", "policy", str),
    ("qps_interval_s", "load", "every s", lambda v: f"{v:g}"),
    ("makespan_s", "makespan", "s", lambda v: "never" if v is None else f"{v:.1f}"),
    ("mean_completion_s", "compl.", "mean s", lambda v: "never" if v is None else f"{v:.1f}"),
    ("slo_violation_ratio", "over", "SLO %", lambda v: f"{100 * v:.2f}"),
    ("points", "", "points", str),
    ("worst_p95_us", "worst p95", "ms", lambda v: "-" if v is None else f"{v / 1000:.2f}"),
    ("worst_model_p95_us", "no noise", "ms", lambda v: "-" if v is None else f"{v / 1000:.2f}"),
    ("pauses", "", "pauses", str),
    ("service_core_changes", "services'", "core changes", str),
    ("job_core_changes", "jobs'", "core changes", str),
)


def render_node_table(result: dict[str, Any]) -> str:
    """Both tables, of an object as :func:`flowsched_simulator.node.comparison.node_result` makes it."""
    runs = result["runs"]
    several = len({run["qps_interval_s"] for run in runs}) > 1
    noisy = any(is_noisy(run) for run in runs)
    columns = [c for c in _COLUMNS if (several or c[0] != "qps_interval_s") and (noisy or c[0] != "worst_model_p95_us")]
    heads = [[c[1] for c in columns], [c[2] for c in columns]]
    comparison = ruled_table([*heads, *([text(run[key]) for key, _, _, text in columns] for run in runs)], heads=2)
    names = [job["job"] for job in runs[0]["jobs"]] if runs else []
    active = [
        ["active s", *(["every s"] if several else []), *names],
        *(
            [
                run["policy"],
                *([f"{run['qps_interval_s']:g}"] if several else []),
                *(_active(job) for job in run["jobs"]),
            ]
            for run in runs
        ),
    ]
    return "\n".join([*comparison, "", *ruled_table(active), "", _about(runs)])


def _active(job: dict[str, Any]) -> str:
    return f"{job['active_s']:.1f}" + ("" if job["end_s"] is not None else "+")


def _about(runs: Sequence[dict[str, Any]]) -> str:
    """What the figures are, in one or two sentences."""
    text = "active s: from start to end without pauses" + (
        " (+: not done)" if any(job["end_s"] is None for run in runs for job in run["jobs"]) else ""
    )
    if not any(is_noisy(run) for run in runs):
        return f"{text}; p95 as the models say, without noise."
    return f"{text}; p95 and SLO with {noise_words(runs)}; --noise 0 turns it off."


def is_noisy(run: Mapping[str, Any]) -> bool:
    """Whether p95 of a run carries noise."""
    return any(n["error"] > 0 or (n["stalls"] > 0 and n["stall"] > 0) for n in run["noise"])


def noise_words(runs: Sequence[Mapping[str, Any]]) -> str:
    """The noise of these runs in a sentence: how wide it is, and how often something stalls."""
    errors = sorted({n["error"] for run in runs for n in run["noise"]})
    stalls = sorted({n["stalls"] for run in runs for n in run["noise"] if n["stall"] > 0})
    text = f"the noise of a measurement (log-normal, {_percent(errors)}"
    if any(stalls):
        text += f", and a stall in {_percent(stalls)} of the points"
    return text + ")"


def _percent(values: Sequence[float]) -> str:
    low, high = f"{100 * values[0]:.1f}", f"{100 * values[-1]:.1f}"
    return f"{low} %" if low == high else f"{low} to {high} %"
