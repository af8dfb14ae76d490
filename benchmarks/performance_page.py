"""Writes docs/performance.md and its pictures from the kept results, so that every number there comes from a command.

python -m benchmarks.performance_page
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.machine import measured_on
from benchmarks.performance_plots import draw_all
from benchmarks.range_check import FACTOR, FLOOR, MOST
from benchmarks.rounds_presets import PRESETS

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "performance.md"
QUIET = 1.5
"""A load average above this, as a benchmark begins, says that others work beside it; up to 1 is the benchmark before."""

INTRODUCTION = """# Performance

Written by `python -m benchmarks.performance_page` from the results kept under [benchmarks/results](../benchmarks/results).
Run any command here again and then that one, and the page is yours.

Rounds at linear prices: events update arrays, tasks fold into classes and machines into groups, one network is solved, its
flow becomes whole tasks on machines, and every class is placed anew beside all others until nothing moves.
[Rounds of `flow`](engine.md), at the prices of exact forecasts, are another thing and have a page of their own.

## How it is measured

- *A round* is everything from events to decisions: tasks leave and come, the round decides, what it decided is booked.
  Certificates and peers are worked out in a run of their own.
- The mix, unless said otherwise: widths of 1, 2, 4 and 8 cores for 90, 6, 3 and 1 % of the tasks; 60 classes, each with a
  profile and memory of its own; machines of three types with 8, 16 and 24 cores; prices of interference (`flow`). Drawn by
  seed.
- p50, p95 and p99 are over the rounds of the run with the least p95, best of three runs, after warm-up. What is there after
  the set-up is frozen (`gc.freeze`).
- *gap* is (cost - bound) / (cost - what all tasks would cost if each had the cluster to itself), in every round; in every
  4th of `google-98`, every 10th of `huge`, every 20th of `poseidon`.
"""

GOALS = """
## Goals

| Preset | Goal | Measured | Met | Command |
|---|---|---|---|---|
{rows}
{missed}
"""

FIGURE_NAMES = {
    "p95_ms": ("p95", "ms"),
    "gap_p95": ("p95 of the gap", "%"),
    "rss_mib": ("memory", "MiB"),
    "ratio": ("ratio", ""),
    "ratio_98": ("ratio at 98 % use", ""),
}

BUCKETS = """
## What buckets can cost

Buckets of pressure are 1/8 wide here, and those of sensitivity as wide in cost. A task's price in the network is at most

    sum over features of coefficient * factor of the machine's kind * bucket / 2

off, and a round at most twice the sum of that over its tasks above the true optimum. That bound is printed with every
preset. The gap, whose bound is at exact prices, contains whatever buckets have really cost. `bucket = 0` keeps machines
apart unless they are equal.
"""

SCALING = """
## Against the size of the cluster

```sh
python -m benchmarks.round_scaling
```

The mix of `google` at 90 % use with 1 % churn. *greedy* is a list scheduler: waiting tasks in the order in which they came,
each where it costs least then, at the same exact prices. *uncompacted* is the same round as a network with every task and
machine by itself, solved from scratch. All solvers agreed on the optimal cost. *MiB* is the peak of a process of its own.

![Time of a round against the number of machines](images/performance-latency.png)

![Phases of a round, and memory](images/performance-phases.png)
"""

RANGES = """
## Does it still hold?

```sh
python -m benchmarks.range_check
```

measures the presets again and compares them with ranges around the kept results
([ranges.json](../benchmarks/results/ranges.json), made by `python -m benchmarks.range_check --set`). Times may be above the
kept ones by {factor:g} times the spread of the kept runs, by {floor:.0%} at least and {most:.0%} at most; gaps by a tenth
and 0.2 points; memory by 15 % and 32 MiB; sizes of networks by a quarter, up or down. A preset that is out twice is named,
and the exit code is 1; on another machine it is 2.
"""


def main() -> None:
    """Write the page and its pictures."""
    if (scaling := result("round_scaling")) is not None:
        draw_all(DOCS / "images", scaling)
    PAGE.write_text(render(), encoding="utf-8")
    print(f"wrote {PAGE.name}")


def render() -> str:
    """The page's text, of whatever has been measured."""
    rows = {name: row for name in PRESETS if (row := result(f"rounds-{name}")) is not None}
    parts = [INTRODUCTION, goals(rows), "\n## Presets\n"]
    parts += [preset_part(name, row) for name, row in rows.items()]
    parts.append(BUCKETS)
    if (scaling := result("round_scaling")) is not None:
        parts += [SCALING, kept("round_scaling", scaling)]
    parts.append(RANGES.format(factor=FACTOR, floor=FLOOR, most=MOST))
    return "".join(parts)


def goals(rows: Mapping[str, Any]) -> str:
    """Goals beside results."""
    lines, missed = [], []
    for name, row in rows.items():
        for goal in row["goals"]:
            what, unit = FIGURE_NAMES[goal["figure"]]
            side = "at least" if goal["least"] else "under"
            answer = {True: "yes", False: "**no**", None: "not measured"}[goal["met"]]
            shown = "-" if goal["measured"] is None else amount(goal["measured"], unit)
            lines.append(
                f"| `{name}` | {what} {side} {amount(goal['limit'], unit)} | {shown} | {answer} "
                f"| `python -m benchmarks.rounds --preset {name}` |"
            )
            if goal["met"] is False:
                missed.append(f"{what} of `{name}`")
    text = f"Missed: {', '.join(missed)}." if missed else "All goals are met."
    return GOALS.format(rows="\n".join(lines), missed=f"\n{text}")


def amount(value: float, unit: str) -> str:
    """A figure with its unit."""
    if unit == "%":
        return f"{100 * value:.3g} %"
    if not unit:
        return f"{value:.2f}"
    digits = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{digits} {unit}"


def preset_part(name: str, row: Mapping[str, Any]) -> str:
    """One preset: what it is, its command, its result."""
    return f"\n### {name}\n\n{PRESETS[name].told}\n\n```sh\npython -m benchmarks.rounds --preset {name}\n```\n" + kept(
        f"rounds-{name}", row, preliminary(name, row)
    )


def preliminary(name: str, row: Mapping[str, Any]) -> str:
    """What keeps a result from being the last word."""
    found = []
    if row["rounds"] < PRESETS[name].rounds or len(row["runs"]) < 3:
        found.append(f"{row['rounds']} rounds and {len(row['runs'])} runs only")
    if row["load_before"] > QUIET:
        found.append(f"others worked on the machine (load {row['load_before']:.1f})")
    return f" *Preliminary: {', '.join(found)}.*" if found else ""


def result(name: str) -> dict[str, Any] | None:
    """A kept result, if it is there."""
    path = RESULTS / f"{name}.json"
    if not path.is_file():
        return None
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def kept(name: str, outcome: Mapping[str, Any], note: str = "") -> str:
    """A kept table with the machine that it was measured on."""
    text = (RESULTS / f"{name}.txt").read_text(encoding="utf-8").rstrip()
    return f"\n```text\n{text}\n```\n\n{measured_on(outcome['machine'])}{note}\n"


if __name__ == "__main__":
    main()
