"""How far the load that a controller is ready for lags behind the load there is: ramps, waves, jumps, steady loads.

A counter is read every 100 ms. Under: by how much the load that is held ready falls short of the mean load until the next
reading, in per cent of that. Over: the same above it. Seeds draw the arrivals; nothing depends on the machine.

    python -m benchmarks.load_ramps
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.load_peers import trackers
from benchmarks.load_shapes import Shape, shapes
from benchmarks.machine import describe_machine, measured_on
from flowsched.node.load import LoadTracker

RESULTS = Path(__file__).parent / "results"
STEP_S = 0.1
_PARTS = 4
"""Points of the load that make the mean of one reading."""
_LOAD_STEP = math.log(1.02)
"""Loads that differ less decide alike (flow-node's own rounding)."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Arrivals:
    """Requests come at random; each counts as many queries."""

    name: str
    keys: int
    scale: float = 1.0
    """Of the shapes' loads."""


ARRIVALS = (
    Arrivals("single queries", 1),
    Arrivals("20 queries a request", 20),
    Arrivals("200 queries a request, 68 times the load, as in the agent's runs", 200, 68.0),
)


@click.command()
@click.option("--seeds", default=3, show_default=True, help="Seeds 0, 1, 2, ...")
@click.option("--shape", "names", multiple=True, help="Those that begin so; default: all.")
@click.option("--keep/--no-keep", default=True, help="Write the tables under benchmarks/results.")
def main(seeds: int, names: tuple[str, ...], keep: bool) -> None:
    """Run and print the tables."""
    chosen = [s for s in shapes() if not names or s.name.startswith(names)]
    rows = [row for arrivals in ARRIVALS for shape in chosen for row in measure(shape, arrivals, seeds)]
    machine = describe_machine()
    text = render(rows, seeds) + "\n\n" + measured_on(machine)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        lines = ",\n".join("  " + json.dumps(row) for row in rows)
        head = json.dumps({"machine": machine, "seeds": seeds}, indent=1).removesuffix("\n}")
        (RESULTS / "load_ramps.json").write_text(f'{head},\n "rows": [\n{lines}\n ]\n}}\n', encoding="utf-8")
        (RESULTS / "load_ramps.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(text)


def measure(shape: Shape, arrivals: Arrivals, seeds: int) -> list[Row]:
    """Figures of every tracker on one load."""
    runs = [_follow(shape, arrivals, seed) for seed in range(seeds)]
    return [
        {"arrivals": arrivals.name, "shape": shape.name, "tracker": name}
        | _figures(
            np.concatenate([load for load, _, _ in runs]),
            [said[name] for _, said, _ in runs],
        )
        | ({"ramp": round(float(np.mean([share for _, _, share in runs])), 4)} if name == "flow-node" else {})
        for name in trackers()
    ]


def _follow(shape: Shape, arrivals: Arrivals, seed: int) -> tuple[np.ndarray, Mapping[str, np.ndarray], float]:
    """The load after each reading, what each tracker said then, and the share of readings at which flow-node saw a ramp."""
    steps = math.ceil(shape.until_s / STEP_S)
    times = (np.arange((steps + 1) * _PARTS) + 0.5) * STEP_S / _PARTS
    load = arrivals.scale * np.array([shape.rate(float(t)) for t in times]).reshape(-1, _PARTS).mean(axis=1)
    counts = arrivals.keys * np.random.default_rng([seed, arrivals.keys]).poisson(load * STEP_S / arrivals.keys)
    followers = trackers()
    said: dict[str, list[float]] = {name: [] for name in followers}
    ramps = []
    for k, total in enumerate([0, *np.cumsum(counts[:steps]).tolist()]):
        for name, tracker in followers.items():
            tracker.read(k * STEP_S, total)
            said[name].append(tracker.qps)
            if name == "flow-node" and isinstance(tracker, LoadTracker):
                ramps.append(tracker.slope != 0.0)
    judged = slice(round(shape.from_s / STEP_S), None)
    return load[judged], {name: np.array(q)[judged] for name, q in said.items()}, float(np.mean(ramps[judged]))


def _figures(load: np.ndarray, said: list[np.ndarray]) -> Row:
    off = 100.0 * (np.concatenate(said) - load) / load
    under, over = np.maximum(-off, 0.0), np.maximum(off, 0.0)
    figures = {
        "under_p50": np.percentile(under, 50),
        "under_p95": np.percentile(under, 95),
        "under_max": under.max(),
        "under_5": 100.0 * (under > 5.0).mean(),
        "over_mean": over.mean(),
        "over_p95": np.percentile(over, 95),
        "moves_per_s": sum(_moves(q) for q in said) / (len(load) * STEP_S),
    }
    return {name: round(float(value), 2) for name, value in figures.items()}


def _moves(said: np.ndarray) -> int:
    """How often a load makes flow-node decide anew: rounded up to steps of 2 %, with its hysteresis."""
    moves, last = 0, math.inf
    for exact in np.log(np.maximum(said, 1.0)) / _LOAD_STEP:
        if not last - 1.5 < exact <= last:
            last = math.ceil(exact)
            moves += 1
    return moves


def render(rows: list[Row], seeds: int) -> str:
    """One table per kind of arrivals."""
    parts = []
    for arrivals in dict.fromkeys(r["arrivals"] for r in rows):
        lines = [
            f"Arrivals: {arrivals}; {seeds} seeds; a reading every {STEP_S * 1e3:g} ms",
            f"{'':<37}{'under, % of the load':>22}{'readings':>12}{'over, %':>16}{'moves':>8}{'ramp':>7}",
            f"{'load':<25}{'tracker':<12}{'p50':>7}{'p95':>7}{'max':>8}{'>5 %, %':>12}"
            f"{'mean':>8}{'p95':>8}{'/s':>8}{'%':>7}",
        ]
        before = ""
        for r in (r for r in rows if r["arrivals"] == arrivals):
            ramp = f"{100.0 * r['ramp']:7.1f}" if "ramp" in r else ""
            lines.append(
                f"{r['shape'] if r['shape'] != before else '':<25}{r['tracker']:<12}{r['under_p50']:7.1f}"
                f"{r['under_p95']:7.1f}{r['under_max']:8.1f}{r['under_5']:12.1f}{r['over_mean']:8.1f}{r['over_p95']:8.1f}"
                f"{r['moves_per_s']:8.2f}{ramp}"
            )
            before = r["shape"]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
