"""Rounds at linear prices, from events to decisions: p50 and p95 by preset, phase by phase, with gaps, goals and peers.

A round is: tasks leave and come, the round decides, what it decided is carried out. Certificates are worked out in a run of
their own, which decides the same; so are the peers. The run with the least p95 counts, best of ``--runs``. Memory is the
process's peak, set-up and all runs included, before certificates and peers.

    python -m benchmarks.rounds --preset google
    python -m benchmarks.rounds --preset all
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.machine import describe_machine
from benchmarks.rounds_locality import measure_locality
from benchmarks.rounds_peers import Peers, chosen_rounds, together
from benchmarks.rounds_presets import PRESETS, Preset, goal_sentences, judged
from benchmarks.rounds_run import SOLVER, Watch, best_run, compile_all, peak_rss_mib, run_rounds

RESULTS = Path(__file__).parent / "results"
PEER_ROUNDS = 3


@click.command()
@click.option("--preset", "name", type=click.Choice([*PRESETS, "all"]), required=True, help="The workload.")
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds that count; 200, of quincy 20.")
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="The best one counts.")
@click.option("--seed", default=0, show_default=True)
@click.option("--machines", type=click.IntRange(min=3), help="Another size than the preset's; tasks go with it.")
@click.option("--peers/--no-peers", default=True, show_default=True, help="Others on some of the same rounds.")
@click.option("--json", "as_json", is_flag=True)
@click.option("--keep/--no-keep", default=None, help="Keep the result under benchmarks/results; not at another size.")
def main(
    name: str,
    rounds: int | None,
    runs: int,
    seed: int,
    machines: int | None,
    peers: bool,
    as_json: bool,
    keep: bool | None,
) -> None:
    """Measure one workload and print it."""
    if name == "all":
        # A process of its own for each, so that memory is that of one preset.
        options = ["--runs", str(runs), "--seed", str(seed), "--peers" if peers else "--no-peers"]
        options += [] if rounds is None else ["--rounds", str(rounds)]
        options += [] if machines is None else ["--machines", str(machines)]
        options += ["--json"] if as_json else []
        options += [] if keep is None else ["--keep" if keep else "--no-keep"]
        for one in PRESETS:
            command = [sys.executable, "-m", "benchmarks.rounds", "--preset", one, *options]
            subprocess.run(command, check=True, cwd=Path(__file__).parent.parent)
        return
    preset = PRESETS[name] if machines is None else resized(PRESETS[name], machines)
    row = measure(preset, rounds or preset.rounds, runs, seed, peers)
    text = describe(row)
    if machines is None if keep is None else keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"rounds-{name}.json").write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
        (RESULTS / f"rounds-{name}.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(json.dumps(row) if as_json else text)


def resized(preset: Preset, machines: int, gap_every: int | None = None) -> Preset:
    """The preset with other machines; what waits and what comes at once in proportion."""
    share = machines / preset.machines
    burst = preset.course == "burst"
    return replace(
        preset,
        machines=machines,
        gap_every=gap_every or preset.gap_every,
        waiting=round(preset.waiting * share),
        tasks=max(1, round(preset.tasks * share)) if burst else preset.tasks,
    )


def measure(preset: Preset, rounds: int, runs: int, seed: int, peers: bool) -> dict[str, Any]:
    """One row: figures as the command prints them."""
    load = os.getloadavg()[0]
    locality = preset.course.startswith("quincy")
    row = (
        measure_locality(preset, rounds, runs, seed, peers) if locality else _measure(preset, rounds, runs, seed, peers)
    )
    return {
        **row,
        "goals": judged(preset, row),
        "seed": seed,
        "garbage_collector": "on; what is there after the set-up is frozen" if not locality else "on",
        "load_before": round(load, 2),
        "machine": describe_machine(),
    }


def _measure(preset: Preset, rounds: int, runs: int, seed: int, peers: bool) -> dict[str, Any]:
    compile_all()
    done = [run_rounds(preset, rounds, seed) for _ in range(runs)]
    best = best_run(done)
    rss = peak_rss_mib()
    watch = Watch(preset.gap_every)
    others = Peers(chosen_rounds(max(PEER_ROUNDS, rounds // 5), PEER_ROUNDS))  # early, before any task is due
    watched = run_rounds(preset, rounds, seed, together(watch, others) if peers else watch)
    best_run([best, watched])  # decided the same
    figures = watch.figures()
    return {
        "preset": preset.name,
        "machines": preset.machines,
        "tasks": best.tasks,
        "churn": round(float(np.mean(best.churn)), 4),
        "rounds": rounds,
        "solver": SOLVER,
        **best.quantiles(),
        "phases_ms": {stage: float(np.median(ms)) for stage, ms in best.phases_ms.items()},
        "gap_p50": figures.pop("gap_p50"),
        "gap_p95": figures.pop("gap_p95"),
        **{key: figures.pop(key) for key in ("arcs", "classes", "groups")},
        "rss_mib": rss,
        "came_p50": round(float(np.median(best.came))),
        **figures,
        "runs": [run.quantiles() for run in done],
        "peers": others.figures() if peers else {},
    }


def describe(row: Mapping[str, Any]) -> str:
    """A result in a few lines."""
    lines = [
        f"{row['preset']}: {row['machines']:,} machines, {row['tasks']:,} tasks, churn {100 * row['churn']:.3g} %, "
        f"{row['rounds']} rounds, best of {len(row['runs'])} runs"
        + (f", solver {row['solver']}" if "solver" in row else ""),
        f"round: p50 {row['p50_ms']:.2f} ms, p95 {row['p95_ms']:.2f} ms, p99 {row['p99_ms']:.2f} ms",
        "phases, p50 in ms: " + ", ".join(f"{stage} {ms:.2f}" for stage, ms in row["phases_ms"].items()),
        f"network: {row['arcs']:,} arcs, {row['classes']:,} classes, {row['groups']:,} groups; "
        f"memory at its peak {row['rss_mib']:,.0f} MiB",
    ]
    if row["gap_p50"] is not None:
        lines.append(f"gap: p50 {100 * row['gap_p50']:.2f} %, p95 {100 * row['gap_p95']:.2f} %")
    error = row.get("bucket_error", {})
    if error.get("bound_p50") is not None:
        of_cost = "" if error["of_cost_p50"] is None else f", {100 * error['of_cost_p50']:.1f} % of a round's cost"
        lines.append(f"what buckets can cost at most: {error['bound_p50']:.4g} (p50{of_cost})")
    if "sizes" in row:
        lines.append("per round, p50: " + ", ".join(f"{name} {n:,}" for name, n in row["sizes"].items()))
    if "ratio" in row:
        lines.append(f"OR-tools from scratch: {row['peer_ms']:.1f} ms; ratio {row['ratio']:.2f}")
    if "at_98" in row:
        lines.append(f"at 98 % use: p95 {row['at_98']['p95_ms']:.2f} ms; ratio {row['ratio_98']:.2f}")
    lines += goal_sentences(row["goals"])
    lines += describe_peers(row["peers"])
    return "\n".join(lines)


def describe_peers(peers: Mapping[str, Any]) -> list[str]:
    """What others did with some of the rounds."""
    lines = []
    if peers.get("ms"):
        lines.append("peers, p50 in ms: " + ", ".join(f"{name} {ms:.2f}" for name, ms in peers["ms"].items()))
    if peers.get("greedy_cost"):
        more = 100.0 * (peers["greedy_cost"] / peers["our_cost"] - 1.0) if peers["our_cost"] else 0.0
        gap = peers["greedy_gap_p50"]
        lines.append(
            f"plain greedy: cost {peers['greedy_cost']:.2f} where ours is {peers['our_cost']:.2f} ({more:+.1f} %)"
            + ("" if gap is None else f", gap {100 * gap:.1f} %")
            + f"; placed {peers['greedy_placed']:,}, ours {peers['our_placed']:,}"
        )
    return lines + [f"{name}: {why}" for name, why in peers.get("skipped", {}).items()]


if __name__ == "__main__":
    main()
