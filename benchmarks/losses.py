"""Where a baseline beat `flow` in the kept random comparison: how often, and the worst cases.

python -m benchmarks.losses
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import click

from benchmarks.policies import BASELINES, METRICS, RESULTS


@click.command()
@click.option("--worst", default=5, show_default=True, help="Cases to list per model error.")
def main(worst: int) -> None:
    """Read benchmarks/results/policies-random.json and print."""
    rows: list[dict[str, Any]] = json.loads((RESULTS / "policies-random.json").read_text(encoding="utf-8"))["rows"]
    click.echo(render_losses(rows, worst))


def render_losses(rows: list[dict[str, Any]], worst: int) -> str:
    """Counts by metric, and the largest differences with the seed that shows each again."""
    lines = []
    for error in sorted({row["model_error"] for row in rows}):
        counts: Counter[str] = Counter()
        cases = []
        pairs = 0
        for row in (r for r in rows if r["model_error"] == error):
            for metric in METRICS[:3]:
                for name in BASELINES:
                    pairs += 1
                    ours, theirs = row["figures"]["flow"][metric], row["figures"][name][metric]
                    if ours >= theirs:
                        counts[metric] += 1
                        cases.append(
                            (ours / theirs - 1.0, f"load {row['load']:.0%}, seed {row['seed']}: {name}, {metric}")
                        )
        share = ", ".join(f"{metric} {counts[metric]}" for metric in METRICS[:3])
        lines.append(f"model error {error:g}: a baseline is as good or better in {counts.total()} of {pairs} pairs")
        lines.append(f"  by metric: {share}")
        lines += [f"  {100 * excess:+.1f} %  {case}" for excess, case in sorted(cases, reverse=True)[:worst]]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
