"""What the horizon is worth: `flow` with 1, 2, 3 and 5 slots on the bundled scenarios, as they are and with scaled times.

One slot is a round without a horizon: a job starts now or waits for the next round. With more, it may wait for the next
completions on a machine. Everything is simulated and known to the policy, so nothing here depends on the machine it runs on.

    python -m benchmarks.horizon
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.variations import NAMES, scaled
from flowsched.cluster.settings import Settings
from flowsched_models.text_table import text_table
from flowsched_simulator import EngineOptions, Scenario, load_scenario, simulate

RESULTS = Path(__file__).parent / "results"
SLOTS = (1, 2, 3, 5)
ARRIVALS = "parsec-poisson"


@click.command()
@click.option("--draws", default=10, show_default=True, help="Scaled workloads of each scenario.")
@click.option("--json", "as_json", is_flag=True)
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(draws: int, as_json: bool, keep: bool) -> None:
    """Simulate and print a table."""
    rows = [row for name in (*NAMES, ARRIVALS) for row in measure(name, draws)]
    text = table(rows)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "horizon.json").write_text(json.dumps({"draws": draws, "rows": rows}, indent=1) + "\n", "utf-8")
        (RESULTS / "horizon.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(json.dumps(rows) if as_json else text)


def measure(name: str, draws: int) -> list[dict[str, Any]]:
    """Figures of each number of slots on one scenario, and their means over scaled workloads relative to one slot."""
    base = load_scenario(name)
    worlds = [base, *(scaled(base, seed) for seed in range(draws))]
    figures = np.array([[run(world, slots) for world in worlds] for slots in SLOTS])
    ratio = figures / figures[:1]
    return [
        {
            "scenario": name,
            "slots": slots,
            "makespan_s": float(figures[i, 0, 0]),
            "mean_completion_s": float(figures[i, 0, 1]),
            "scaled_makespan_percent": float((ratio[i, 1:, 0].mean() - 1.0) * 100.0),
            "scaled_makespan_worst_percent": float((ratio[i, 1:, 0].max() - 1.0) * 100.0),
            "scaled_mean_completion_percent": float((ratio[i, 1:, 1].mean() - 1.0) * 100.0),
        }
        for i, slots in enumerate(SLOTS)
    ]


def run(world: Scenario, slots: int) -> tuple[float, float]:
    """Makespan and mean completion in seconds."""
    summary = simulate(world, engine=EngineOptions(Settings(slots=slots, exact_limit=0))).summary()
    return summary["makespan_s"], summary["mean_completion_s"]


def table(rows: list[dict[str, Any]]) -> str:
    """One line for each scenario and number of slots; the scaled columns are against one slot."""
    heads = ["scenario", "slots", "makespan s", "mean completion s", "scaled: makespan %", "worst %", "completion %"]
    lines = [heads]
    for row in rows:
        lines.append(
            [
                str(row["scenario"]),
                str(row["slots"]),
                f"{row['makespan_s']:.1f}",
                f"{row['mean_completion_s']:.1f}",
                f"{row['scaled_makespan_percent']:+.1f}",
                f"{row['scaled_makespan_worst_percent']:+.1f}",
                f"{row['scaled_mean_completion_percent']:+.1f}",
            ]
        )
    return "\n".join(text_table(lines, left=(), indent=""))


if __name__ == "__main__":
    main()
