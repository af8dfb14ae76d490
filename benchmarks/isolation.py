"""SCHED_DEADLINE against CPU shares, by the models: the published 14 tasks, what was assumed varied, and a small machine.

Everything is simulated from seeds, so nothing here depends on the machine it runs on.

    python -m benchmarks.isolation
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from flowsched_models.isolation.simulation import Background
from flowsched_models.isolation.workload import Loop, Task
from flowsched_models.text_table import text_table
from flowsched_simulator.isolation import IsolationScenario, load_isolation_scenario, run
from flowsched_simulator.isolation.scenario import Reserved

RESULTS = Path(__file__).parent / "results"
STUDY, PERIODIC = "isolation-14-tasks", "isolation-14-tasks-periodic"
POLICIES = ("deadline", "shares-95", "shares-99", "equal")
FIGURES = (
    ("deviation", "sd %", 3),
    ("deviation_of_machine", "of machine", 3),
    ("mean_task_deviation", "of a task", 3),
    ("mean_delay_ms", "mean delay ms", 3),
    ("p95_delay_ms", "p95 ms", 2),
    ("max_delay_ms", "max ms", 1),
    ("late_jobs", "late", 0),
)


def cases(seeds: int, seconds: float) -> Iterator[tuple[str, IsolationScenario, int, tuple[str, ...]]]:
    """What is simulated: name, scenario, seed, policies."""
    study = load_isolation_scenario(STUDY)
    for name in (STUDY, PERIODIC):
        for seed in range(seeds):
            yield f"{name}, seed {seed}", replace(load_isolation_scenario(name), duration_s=seconds), seed, POLICIES
    two = ("deadline", "shares-95")
    varied = {
        "background in one group": replace(study, background=Background.GROUP),
        "a group for each critical task": replace(study, group_per_task=True),
        "period 50 ms": replace(study, loop=replace(study.loop, period_s=0.05)),
        "period 500 ms": replace(study, loop=replace(study.loop, period_s=0.5)),
        "windows of 5 s": replace(study, window_s=5.0),
        "ticks of 1 ms": replace(study, tick_s=0.001),
        "without noise": replace(study, loop=replace(study.loop, wakeup_us=0.001, work_deviation=0.0)),
        "reserved from history": replace(study, reserved=Reserved.HISTORY),
        "no margin": replace(study, margin=0.0),
    }
    for name, scenario in varied.items():
        yield name, replace(scenario, duration_s=seconds / 2), 0, two
    small = small_machine()
    yield "4 ms of 10 ms, two cores", small, 0, ("deadline", "shares-50", "shares-95", "shares-99")
    siblings = replace(small, background=Background.ROOT)
    yield "the same, background in the root", siblings, 0, ("deadline", "shares-95", "shares-99")
    yield "the same, no margin", replace(small, margin=0.0), 0, ("deadline",)


def small_machine() -> IsolationScenario:
    """What ``python -m benchmarks.bench_isolation`` measures: four processes beside it that always want to run."""
    tasks = (
        Task("critical", True, 0.4, duration_s=120.0),
        *(Task(f"hog-{k}", False, 0.86, duration_s=120.0) for k in range(4)),
    )
    return IsolationScenario(
        name="small",
        description="",
        source="benchmarks/isolation.py",
        cores=2,
        kernel="6.18",
        tasks=tasks,
        loop=Loop(period_s=0.01, interval_s=60.0),
        duration_s=120.0,
        window_s=0.1,
        tick_s=0.004,
        background=Background.GROUP,
        group_per_task=False,
        reserved=Reserved.INTERVAL,
        margin=0.1,
    )


@click.command()
@click.option("--seconds", default=1200.0, show_default=True, help="Of each of them; half for what is varied.")
@click.option("--seeds", default=2, show_default=True, help="Draws of each bundled scenario.")
@click.option("--json", "as_json", is_flag=True)
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(seconds: float, seeds: int, as_json: bool, keep: bool) -> None:
    """Simulate and print a table."""
    rows = []
    for name, scenario, seed, policies in cases(seeds, seconds):
        click.echo(name, err=True)
        for row in run(scenario, policies, seed)["table"]:
            row["interval_deviations"] = [min(row["interval_deviations"]), max(row["interval_deviations"])]
            rows.append({"case": name, **row})
    text = table(rows)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "isolation.json").write_text(
            json.dumps({"seeds": seeds, "seconds": seconds, "rows": rows}, indent=1) + "\n", "utf-8"
        )
        (RESULTS / "isolation.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(json.dumps(rows) if as_json else text)


def table(rows: list[dict[str, Any]]) -> str:
    """One line per case and policy; intervals: the least and the largest deviation in one."""
    head = ["case", "policy", *(title for _, title, _ in FIGURES), "intervals sd %", "sd x", "delay x"]
    body = []
    last = ""
    for row in rows:
        values = [f"{row[key]:.{digits}f}" for key, _, digits in FIGURES]
        low, high = row["interval_deviations"]
        ratios = ["-" if row[k] is None else f"{row[k]:.1f}" for k in ("deviation_ratio", "delay_ratio")]
        case = row["case"] if row["case"] != last else ""
        last = row["case"]
        body.append([case, row["policy"], *values, f"{low:.3f} to {high:.3f}", *ratios])
    return "\n".join(text_table([head, *body], left=(0, 1)))


if __name__ == "__main__":
    main()
