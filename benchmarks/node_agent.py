"""The agent on this machine: real memcached, a load in steps, a batch job; against fixed allocations of the two cores.

python -m benchmarks.node_agent --write      keeps the results, draws the pictures and writes docs/node-agent-run.md
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import native
from benchmarks.live_node import LiveError
from benchmarks.load_generator.running_load import LoadError
from benchmarks.machine import describe_machine, measured_on
from benchmarks.node_agent_page import write_page
from benchmarks.node_calibration import ALONE_US, NodeCapacity, calibrate, find_site, p95_alone_us
from benchmarks.node_lessons import LESSONS, lessons_table, plain
from benchmarks.node_modes import MODES
from benchmarks.node_plots import draw_all
from benchmarks.node_run import Outcome, Window, run_mode, steps_for, table, write_windows

RESULTS = Path(__file__).parent / "results"
NAME = "node_agent"
IMAGES = Path(__file__).parent.parent / "docs" / "images"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep it if asked. Exit code 2: this machine cannot show it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.node_agent", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each of the five steps of load")
    parser.add_argument("--modes", nargs="+", metavar="WORD", help="only modes whose names hold one of these words")
    parser.add_argument("--lessons", nargs="*", choices=list(LESSONS), help="only these; none: no experiments beside")
    parser.add_argument(
        "--capacity",
        type=float,
        nargs=2,
        metavar="R",
        help="requests/s of one core and of two, instead of measuring them",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="keep the results, draw the pictures, write the page")
    asked = parser.parse_args(arguments)
    modes = [mode for mode in MODES if not asked.modes or any(word in mode.name for word in asked.modes)]
    try:
        outcome, windows = measure(
            [mode.name for mode in modes],
            asked.repetitions,
            asked.seconds,
            asked.lessons,
            asked.seed,
            asked.write,
            asked.capacity,
        )
    except (LiveError, LoadError, native.NativeError) as error:
        print(f"not measured: {error}", file=sys.stderr)
        return 2
    text = render(outcome)
    print(text)
    if asked.write:
        keep(RESULTS, outcome, windows, text)
        for path in draw_all(IMAGES, windows, outcome["points"]):
            print(f"drew {path.name}")
        write_page()
    return 0


def measure(
    names: Sequence[str],
    repetitions: int,
    seconds: float,
    lessons: Sequence[str] | None,
    seed: int,
    strict: bool,
    given: Sequence[float] | None,
) -> tuple[dict[str, Any], list[Window]]:
    """All modes in turn, repetition by repetition, so that what changes on the machine meets all of them."""
    load_before = os.getloadavg()[0]
    site = find_site()
    capacity = None if given is None else NodeCapacity(dict(zip((1, 2), given, strict=True)), _usual(given))
    if not site.fifo:
        print("SCHED_FIFO is refused: the generator competes with everybody for its core")
    capacity = capacity or calibrate(site)
    if doubt := capacity.doubt():
        if strict:
            raise LiveError(doubt)
        print(doubt)
    alone_us = p95_alone_us(site, capacity.closed[1])
    print(f"p95 alone at a tenth of one core: {alone_us:.0f} us")
    outcomes, windows = [], []
    for repetition in range(1, repetitions + 1):
        for mode in (mode for mode in MODES if mode.name in names):
            outcome, rows = run_mode(
                mode, site, capacity, steps_for(capacity, seconds), repetition, seed + repetition - 1
            )
            print(f"{mode.name}, {repetition}: {100 * outcome.violations:.1f} %", flush=True)
            outcomes.append(outcome)
            windows += rows
    points = []
    for name, lesson in LESSONS.items():
        if lessons is None or name in lessons:
            points += list(lesson(site, capacity, 2.0))
            print(f"measured: {name}", flush=True)
    return {
        "machine": describe_machine(),
        "load_before": load_before,
        "fifo": bool(site.fifo),
        "alone_us": alone_us,
        "capacity": {"closed": capacity.closed, "within_slo": capacity.within_slo},
        "seconds": seconds,
        "seed": seed,
        "outcomes": [asdict(outcome) for outcome in outcomes],
        "points": plain(points),
    }, windows


def _usual(closed: Sequence[float]) -> dict[int, float]:
    """What is usually within the SLO of what is served at most: 25,000 of 31,000 on one core, 30,000 of 42,000 on two."""
    return {1: 0.8 * closed[0], 2: 0.7 * closed[1]}


def render(outcome: dict[str, Any]) -> str:
    """The kept text."""
    capacity = NodeCapacity(
        *({int(n): v for n, v in outcome["capacity"][key].items()} for key in ("closed", "within_slo"))
    )
    outcomes = [Outcome(**each) for each in outcome["outcomes"]]
    steps = steps_for(capacity, outcome["seconds"])
    lines = [
        f"memcached serves at most {capacity.closed[1]:,.0f} requests/s on one core and {capacity.closed[2]:,.0f} on two "
        f"(gets of 200 missing keys); within 1 ms {capacity.within_slo[1]:,.0f} and {capacity.within_slo[2]:,.0f}; alone at "
        f"a tenth of one core its p95 is {outcome['alone_us']:.0f} us",
        "load: " + ", ".join(f"{step.rate:,.0f}/s for {step.seconds:g} s" for step in steps),
        f"load average before: {outcome['load_before']:.2f}",
    ]
    if outcome["alone_us"] > ALONE_US:
        lines.append(
            f"this machine is too noisy: the p95 alone is above {ALONE_US:g} us; differences below mean little"
        )
    lines += ["", table(outcomes)]
    for each in outcomes:
        if each.doubt:
            lines.append(f"{each.mode}, {each.repetition}: {each.doubt}")
    if outcome["points"]:
        lines += ["", lessons_table(outcome["points"])]
    return "\n".join(lines)


def keep(folder: Path, outcome: dict[str, Any], windows: Sequence[Window], text: str) -> None:
    """The text, the numbers, and a line per window of 100 ms."""
    (folder / f"{NAME}.txt").write_text(f"{text}\n\n{measured_on(outcome['machine'])}\n", encoding="utf-8")
    (folder / f"{NAME}.json").write_text(json.dumps(outcome, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    write_windows(folder / f"{NAME}.csv", windows)


if __name__ == "__main__":
    sys.exit(main())
