"""How the time of a round grows with the cluster, phase by phase, beside peers, with memory: the `google` mix at 90 % use.

The slope of log time against log machines is printed for all sizes and for those from 1,000 machines on. Each size runs in
a process of its own, so that memory is its own.

    python -m benchmarks.round_scaling
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.machine import describe_machine
from benchmarks.rounds import measure, resized
from benchmarks.rounds_presets import PRESETS
from flowsched_models.text_table import text_table

RESULTS = Path(__file__).parent / "results"
SIZES = "100,300,1000,3000,12500,30000,100000"
STEADY = 1_000
"""From so many machines on a round is more than what every round costs."""
CERTIFICATES = 20
"""So many rounds of each size have one."""


@click.command()
@click.option("--sizes", default=SIZES, show_default=True, help="Machines.")
@click.option(
    "--rounds", type=click.IntRange(min=1), default=100, show_default=True, help="Rounds that count, per size."
)
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="The best one counts.")
@click.option("--seed", default=0, show_default=True)
@click.option("--peers/--no-peers", default=True, show_default=True)
@click.option("--json", "as_json", is_flag=True)
@click.option("--keep/--no-keep", default=True, show_default=True, help="Keep the result under benchmarks/results.")
def main(sizes: str, rounds: int, runs: int, seed: int, peers: bool, as_json: bool, keep: bool) -> None:
    """Measure every size and print a table."""
    rows = [alone(int(size), rounds, runs, seed, peers) for size in sizes.split(",")]
    outcome = {"rows": rows, "slopes": slopes(rows), "machine": describe_machine()}
    text = table(outcome)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "round_scaling.json").write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "round_scaling.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(json.dumps(outcome) if as_json else text)


def alone(machines: int, rounds: int, runs: int, seed: int, peers: bool) -> dict[str, Any]:
    """One size, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(one_size, machines, rounds, runs, seed, peers).result()


def one_size(machines: int, rounds: int, runs: int, seed: int, peers: bool) -> dict[str, Any]:
    """One row."""
    preset = resized(PRESETS["google"], machines, gap_every=max(1, rounds // CERTIFICATES))
    return measure(preset, rounds, runs, seed, peers)


def slope(sizes: Sequence[float], times: Sequence[float]) -> float | None:
    """Slope of the line through the logarithms by least squares; None of fewer than two sizes."""
    if len(set(sizes)) < 2:
        return None
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def slopes(rows: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Of the median round: over all sizes, from ``STEADY`` machines on, and of what the greedy takes."""
    steady = [row for row in rows if row["machines"] >= STEADY]
    greedy = [row for row in steady if "greedy" in row["peers"].get("ms", {})]
    return {
        "all": slope([row["machines"] for row in rows], [row["p50_ms"] for row in rows]),
        "steady": slope([row["machines"] for row in steady], [row["p50_ms"] for row in steady]),
        "greedy_steady": slope([row["machines"] for row in greedy], [row["peers"]["ms"]["greedy"] for row in greedy]),
    }


def table(outcome: dict[str, Any]) -> str:
    """Milliseconds by size; phases are medians."""
    rows = outcome["rows"]
    stages = list(dict.fromkeys(stage for row in rows for stage in row["phases_ms"]))
    others = list(dict.fromkeys(name for row in rows for name in row["peers"].get("ms", {})))
    heads = ["machines", "tasks", "arcs", "p50 ms", "p95 ms", *stages, "gap p50 %", "MiB", *others]
    lines = [heads]
    for row in rows:
        phases = [f"{row['phases_ms'].get(stage, 0.0):.2f}" for stage in stages]
        ms = row["peers"].get("ms", {})
        lines.append(
            [
                *(f"{row[name]:,}" for name in ("machines", "tasks", "arcs")),
                *(f"{row[name]:.2f}" for name in ("p50_ms", "p95_ms")),
                *phases,
                "-" if row["gap_p50"] is None else f"{100 * row['gap_p50']:.2f}",
                f"{row['rss_mib']:.0f}",
                *(f"{ms[name]:.1f}" if name in ms else "-" for name in others),
            ]
        )
    text = "\n".join(text_table(lines, left=(), indent=""))
    found = outcome["slopes"]
    named = {
        "all": "over all sizes",
        "steady": f"from {STEADY:,} machines on",
        "greedy_steady": "of the greedy from there on",
    }
    told = ", ".join(f"{found[key]:.2f} {what}" for key, what in named.items() if found[key] is not None)
    return f"{text}\n\nslope of log p50 against log machines: {told or 'one size has none'}"


if __name__ == "__main__":
    main()
