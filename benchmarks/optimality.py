"""How far from optimal rounds at cluster scale are: small ones beside CP-SAT's optimum, large ones beside their bound.

Part one draws small rounds of every kind (2 to 10 machines, 3 to 20 tasks; widths that divide and that do not; memory, GPUs,
services' limits, labels, barred machines; from idle to more than there is room for) and says how much more than the
optimum the engine's plan costs, with and without exchanges, and how far below it the bound is. Part two fills 1,000 machines
to 50 ... 99 % and says how large the certified gap is.

    python -m benchmarks.optimality
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.machine import describe_machine
from benchmarks.scale_workload import CORE, draw_mix, filled
from benchmarks.small_worlds import varied
from flowsched.scale.exact import ExactLevel
from flowsched.scale.round import RoundOutcome, Rounds, RoundSettings
from flowsched.scale.small_round import bound_prices
from flowsched.solvers import make_solver
from flowsched_models.text_table import text_table

RESULTS = Path(__file__).parent / "results"
USES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
COMING = 0.02
"""Share of the cores that the tasks of a round ask for."""
EDGES = (0.0, 1e-6, 0.001, 0.005, 0.01, 0.03, np.inf)
SEED = 11
NOTHING = 1e-9


@click.command()
@click.option("--instances", default=200, show_default=True, help="Small rounds.")
@click.option("--machines", default=1000, show_default=True, help="Machines of the large rounds.")
@click.option("--rounds", default=5, show_default=True, help="Large rounds for each use, each on a cluster of its own.")
@click.option("--json", "as_json", is_flag=True)
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(instances: int, machines: int, rounds: int, as_json: bool, keep: bool) -> None:
    """Measure and print both parts."""
    outcome: dict[str, Any] = {
        "small": small_rounds(instances),
        "use": [at_use(machines, use, rounds) for use in USES],
        "machine": describe_machine(),
    }
    text = table(outcome)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "optimality.json").write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "optimality.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(json.dumps(outcome) if as_json else text)


def small_rounds(instances: int) -> dict[str, Any]:
    """Distances of small rounds from the optimum, as shares of what the optimum costs."""
    rows = []
    for seed in range(instances):
        plain = one_small(seed, RoundSettings(exchange_tasks=0))
        rows.append({**one_small(seed, RoundSettings()), "passes_only": plain["distance"]})
    proven = [r for r in rows if r["proven"]]
    return {
        "instances": instances,
        "proven": len(proven),
        "engine": spread([r["distance"] for r in proven]),
        "passes_only": spread([r["passes_only"] for r in proven]),
        "bound_below": spread([r["bound_below"] for r in proven]),
        "bound_above": sum(r["bound_below"] < -1e-6 for r in proven),
        "believed_off": spread([r["believed_off"] for r in rows]),
        "exchange_ms": spread([r["exchange_ms"] for r in rows]),
        "exact_ms": spread([r["exact_ms"] for r in rows]),
    }


def one_small(seed: int, settings: RoundSettings) -> dict[str, Any]:
    """One small round beside the optimum."""
    world = varied(seed)
    ledger = world.ledger()
    outcome = Rounds(ledger, make_solver("ortools"), settings).decide(world.now_s, world.barred_rows(ledger))
    level = outcome.levels[0]
    began = time.perf_counter()
    prices = bound_prices(level.evidence, level.primal)
    answer = ExactLevel(level.evidence).solve(ledger.task_class[outcome.tasks], outcome.machines, prices=prices)
    took = (time.perf_counter() - began) * 1e3
    certificate = outcome.certificate
    if certificate is None:
        raise RuntimeError(f"seed {seed}: nothing waits")
    best = max(answer.value, NOTHING)
    return {
        "proven": answer.proven,
        "distance": max(0.0, level.primal - answer.value) / best if answer.value > NOTHING else 0.0,
        "bound_below": (answer.value - certificate.bound) / best if answer.value > NOTHING else 0.0,
        "believed_off": believed_off(outcome),
        "exchange_ms": outcome.timings_ms.get("exchange", 0.0),
        "exact_ms": took,
    }


def at_use(machines: int, use: float, rounds: int) -> dict[str, Any]:
    """Gaps of rounds after which about so much of a cluster's cores is used."""
    gaps, absolute, off, ms, left = [], [], [], [], 0
    tasks = 0
    for seed in range(rounds):
        mix = draw_mix(60, SEED)
        ledger = filled(machines, mix, use - COMING, SEED + seed)
        rng = np.random.default_rng([SEED, seed, 2])
        cores = int(ledger.allocatable[:, 0].sum() / CORE * COMING)
        widths = np.array([c.width_milli // CORE for c in mix.classes])
        drawn = rng.choice(len(widths), size=cores, p=mix.share)
        drawn = drawn[np.cumsum(widths[drawn]) <= cores]
        numbers = np.array([ledger.intern(c) for c in mix.classes])
        ledger.submit(numbers[drawn], np.zeros(len(drawn)))
        rounds_of = Rounds(ledger, make_solver("ortools"))
        began = time.perf_counter()
        outcome = rounds_of.decide(1.0)
        ms.append((time.perf_counter() - began) * 1e3)
        certificate = outcome.certificate
        if certificate is None:
            raise RuntimeError("nothing waits")
        gaps.append(certificate.gap_relative)
        absolute.append(certificate.gap_absolute / len(drawn))
        off.append(believed_off(outcome))
        left += len(outcome.waits)
        tasks += len(drawn)
    return {
        "use": use,
        "machines": machines,
        "tasks": tasks // rounds,
        "waiting": left / rounds,
        "gap": spread(gaps),
        "gap_per_task": float(np.mean(absolute)),
        "believed_off": spread(off),
        "first_round_ms": float(np.median(ms)),
    }


def believed_off(outcome: RoundOutcome) -> float:
    """How far what placements were believed to cost is from what they cost at the end of the round, as a share."""
    paid = float(outcome.cost.sum())
    return abs(paid - float(outcome.believed.sum())) / paid if paid > NOTHING else 0.0


def spread(values: list[float]) -> dict[str, Any]:
    """Mean, worst, and how many lie between the edges."""
    array = np.array(values)
    counts = np.histogram(array, bins=[-np.inf, *EDGES[1:]])[0]
    return {
        "mean": float(array.mean()) if len(array) else 0.0,
        "p95": float(np.quantile(array, 0.95)) if len(array) else 0.0,
        "worst": float(array.max(initial=0.0)),
        "histogram": counts.tolist(),
        "edges": [e for e in EDGES[1:] if np.isfinite(e)],
    }


def table(outcome: dict[str, Any]) -> str:
    """Both parts as text."""
    small = outcome["small"]
    heads = ["share of the optimum's cost", "mean", "p95", "worst", "none", "<0.1 %", "<0.5 %", "<1 %", "<3 %", "more"]
    lines = [heads]
    for name, key in (
        ("above it: as the engine plans", "engine"),
        ("above it: without exchanges", "passes_only"),
        ("below it: the bound", "bound_below"),
    ):
        row = small[key]
        lines.append([name, *(f"{100 * row[k]:.3f} %" for k in ("mean", "p95", "worst")), *map(str, row["histogram"])])
    text = f"{small['instances']} small rounds, {small['proven']} optima proven; bound above: {small['bound_above']}\n"
    text += columns(lines)
    text += f"\nexchanges {small['exchange_ms']['mean']:.1f} ms, worst {small['exchange_ms']['worst']:.1f}; "
    text += f"CP-SAT {small['exact_ms']['mean']:.0f} ms, worst {small['exact_ms']['worst']:.0f}\n\n"
    lines = [["use", "tasks", "waiting", "gap mean", "gap worst", "gap per task", "believed off, worst"]]
    for row in outcome["use"]:
        lines.append(
            [
                f"{100 * row['use']:.0f} %",
                str(row["tasks"]),
                f"{row['waiting']:.1f}",
                f"{100 * row['gap']['mean']:.2f} %",
                f"{100 * row['gap']['worst']:.2f} %",
                f"{row['gap_per_task']:.5f}",
                f"{100 * row['believed_off']['worst']:.3f} %",
            ]
        )
    machines = outcome["use"][0]["machines"] if outcome["use"] else 0
    return text + f"{machines} machines, by use after the round\n" + columns(lines)


def columns(lines: list[list[str]]) -> str:
    """Cells in columns, the first one left."""
    return "\n".join(text_table(lines, indent=""))


if __name__ == "__main__":
    main()
