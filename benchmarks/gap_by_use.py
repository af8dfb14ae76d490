"""How far rounds can be from optimal, by how full the cluster is: the certified gap of the `google` mix, and the greedy's.

python -m benchmarks.gap_by_use
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from benchmarks.machine import describe_machine
from benchmarks.rounds import measure, resized
from benchmarks.rounds_presets import PRESETS
from flowsched_models.text_table import text_table

RESULTS = Path(__file__).parent / "results"
USES = "0.5,0.7,0.8,0.85,0.9,0.93,0.96,0.98,0.99"


@click.command()
@click.option("--uses", default=USES, show_default=True, help="Shares of all cores that are used as a round begins.")
@click.option("--machines", type=click.IntRange(min=3), default=2_000, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=50, show_default=True, help="Rounds of each use.")
@click.option("--seed", default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True)
@click.option("--keep/--no-keep", default=True, show_default=True, help="Keep the result under benchmarks/results.")
def main(uses: str, machines: int, rounds: int, seed: int, as_json: bool, keep: bool) -> None:
    """Measure every use and print a table."""
    rows = [one_use(float(use), machines, rounds, seed) for use in uses.split(",")]
    outcome = {"rows": rows, "machine": describe_machine()}
    text = table(rows)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "gap_by_use.json").write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "gap_by_use.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(json.dumps(outcome) if as_json else text)


def one_use(use: float, machines: int, rounds: int, seed: int) -> dict[str, Any]:
    """One row: 1 % of the tasks leave before each round, and as many come."""
    preset = replace(resized(PRESETS["google"], machines, gap_every=1), use=use)
    return {"use": use, **measure(preset, rounds, 1, seed, True)}


def table(rows: list[dict[str, Any]]) -> str:
    """Gaps in per cent."""
    heads = [
        "use",
        "tasks",
        "placed",
        "left waiting",
        "gap p50 %",
        "gap p95 %",
        "greedy's gap %",
        "buckets % of cost",
        "p50 ms",
    ]
    lines = [heads]
    for row in rows:
        shares = [
            row["gap_p50"],
            row["gap_p95"],
            row["peers"].get("greedy_gap_p50"),
            row["bucket_error"]["of_cost_p50"],
        ]
        lines.append(
            [
                f"{row['use']:.0%}",
                *(f"{n:,}" for n in (row["tasks"], row["sizes"]["placed"], row["sizes"]["left_waiting"])),
                *("-" if share is None else f"{100 * share:.2f}" for share in shares),
                f"{row['p50_ms']:.2f}",
            ]
        )
    return "\n".join(text_table(lines, left=(), indent=""))


if __name__ == "__main__":
    main()
