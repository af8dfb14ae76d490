"""Round time of bulk rounds against the size of the cluster, stage by stage, beside a plain greedy on the same demand.

The peer places the same tasks in their order, each on the machine where it costs least then, with the same prices and
constraints and with vectorised masks: a list scheduler at its best. Both end with the total of what their placements cost,
one after the other. The certificate is computed after the round, apart.

    python -m benchmarks.bulk_rounds
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.machine import describe_machine
from flowsched.cluster.fleet import Fleet
from flowsched.relations.relation import Relation, RelationKind
from flowsched.scale.bulk_input import input_of_fleet
from flowsched.scale.bulk_outcome import BulkOutcome
from flowsched.scale.bulk_round import place
from flowsched.scale.demand import Demand
from flowsched.scale.machine_arrays import FIXED
from flowsched.scale.reasons import Closing
from flowsched.solvers import make_solver
from flowsched_models.text_table import text_table

RESULTS = Path(__file__).parent / "results"
SIZES_MILLI = (4000, 8000, 16000)
MIB = 2**20


@click.command()
@click.option("--only", default=None, help="One scenario by its name.")
@click.option("--repeats", default=5, show_default=True, help="Rounds per scenario; the median counts.")
@click.option("--json", "as_json", is_flag=True)
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(only: str | None, repeats: int, as_json: bool, keep: bool) -> None:
    """Measure and print a table."""
    rows = [measure(name, repeats) for name in SCENARIOS if only in (None, name)]
    outcome = {"rows": rows, "machine": describe_machine()}
    text = table(rows)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "bulk_rounds.json").write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "bulk_rounds.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(json.dumps(outcome) if as_json else text)


def measure(name: str, repeats: int) -> dict[str, Any]:
    """One scenario: both contenders in turn, so that a slow minute of the machine hits both."""
    fleet, demands = SCENARIOS[name]()
    solver = make_solver("ortools")
    ours, theirs, copies = [], [], []
    outcome: BulkOutcome | None = None
    greedy: tuple[int, float] = (0, 0.0)
    place(fleet, demands, solver=solver)
    for _ in range(repeats):
        began = time.perf_counter()
        twin = fleet.copy()
        copies.append((time.perf_counter() - began) * 1e3)
        began = time.perf_counter()
        outcome = place(twin, demands, solver=solver)
        ours.append((time.perf_counter() - began) * 1e3)
        began = time.perf_counter()
        greedy = place_greedily(fleet, demands)
        theirs.append((time.perf_counter() - began) * 1e3)
    began = time.perf_counter()
    if outcome is None or outcome.certificate is None:
        raise RuntimeError(f"{name}: nothing was measured")
    return {
        "scenario": name,
        "machines": fleet.machine_count,
        "tasks": sum(len(d.tasks) for d in demands),
        "classes": len(demands),
        "groups": outcome.counts["groups"],
        "solves": outcome.counts["solves"],
        "copy_ms": float(np.median(copies)),
        "round_ms": float(np.median(ours)),
        "round_max_ms": max(ours),
        "certify_ms": (time.perf_counter() - began) * 1e3,
        "stages_ms": dict(outcome.timings_ms),
        "placed": len(outcome.placements),
        "cost": sum((p.cost for p in outcome.placements), 0.0),
        "bound": outcome.certificate.bound,
        "gap_relative": outcome.certificate.gap_relative,
        "greedy_ms": float(np.median(theirs)),
        "greedy_placed": greedy[0],
        "greedy_cost": greedy[1],
    }


def place_greedily(fleet: Fleet, demands: list[Demand]) -> tuple[int, float]:
    """Tasks placed and their total cost."""
    ledger = input_of_fleet(fleet, demands).ledger()
    none = np.zeros(0, dtype=np.int64)
    state = Closing.of(ledger, none, none)
    prices = ledger.table()
    placed, total = 0, 0.0
    for c, demand in enumerate(demands):
        needs, effect = ledger.demands[c], ledger.effects[c]
        price = state.prices(c)
        # What one task of the class more adds to the price of the next.
        step = (prices.coefficients[c] * effect / FIXED * ledger.factors[ledger.kind]).sum(axis=1)
        slots = (state.free[:, needs > 0] // needs[needs > 0]).min(axis=1)
        limited = effect > 0
        if limited.any():
            spare = ledger.limits[:, limited] - state.readings[:, limited]
            slots = np.minimum(slots, (spare // effect[limited]).min(axis=1))
        tie = state.model.tie[:, 0] + (state.model.tie[:, 1:] * state.free[:, [0, state.model.memory]]).sum(axis=1)
        for _ in demand.tasks:
            open_ = slots > 0
            for _, refused in state.relations.refusals(c):
                open_ &= ~refused
            cost = np.where(open_, price + 1e-9 * tie, np.inf)
            m = int(cost.argmin())
            if cost[m] == np.inf:
                break
            total += float(price[m])
            placed += 1
            price[m] += step[m]
            slots[m] -= 1
            state.free[m] -= needs
            state.readings[m] += effect
            tie[m] = state.model.tie[m] @ [1.0, state.free[m, 0], state.free[m, state.model.memory]]
            state.relations.note(c, np.array([m]))
    return placed, total


def cluster(machines: int, busy: float) -> Fleet:
    """Machines of three sizes in three zones; a share of their cores runs tasks of seven kinds."""
    rng = np.random.default_rng([machines, round(busy * 100)])
    fleet = Fleet()
    for i in range(machines):
        cpu = SIZES_MILLI[i % len(SIZES_MILLI)]
        allocatable = {"cpu": cpu, "memory": cpu * 4 * MIB, "pods": 110}
        fleet.put_machine(f"node-{i:05d}", allocatable, {"zone": f"zone-{i % 3}"})
        for k in range(int(rng.binomial(cpu // 1000, busy))):
            fleet.book(
                f"running-{i}-{k}",
                f"node-{i:05d}",
                {"cpu": 1000, "memory": 1024 * MIB, "pods": 1},
                sensitivity=float(rng.choice((0.5, 0.8, 0.9, 1.1))),
                pressure=float(rng.choice((0.012, 0.024, 0.036, 0.1))),
            )
    return fleet


def one_class(machines: int, tasks: int, busy: float) -> tuple[Fleet, list[Demand]]:
    """A replicated service of half a core."""
    names = tuple(f"task-{i}" for i in range(tasks))
    return cluster(machines, busy), [
        Demand("one", names, {"cpu": 500, "memory": 512 * MIB, "pods": 1}, sensitivity=0.8, pressure=0.015)
    ]


def many_classes(machines: int, tasks: int, classes: int) -> tuple[Fleet, list[Demand]]:
    """Batch jobs of different widths and profiles; a fifth of the classes may use half of the machines only."""
    fleet = cluster(machines, 0.3)
    rng = np.random.default_rng([machines, tasks, classes])
    demands = []
    for c in range(classes):
        width = int(rng.choice((250, 500, 1000, 2000)))
        demands.append(
            Demand(
                f"class-{c}",
                tuple(f"task-{c}-{i}" for i in range(tasks // classes)),
                {"cpu": width, "memory": int(rng.integers(1, 8)) * 256 * MIB, "pods": 1},
                allowed=np.arange(fleet.rows) % 2 == 0 if c % 5 == 0 else None,
                sensitivity=float(rng.choice((0.5, 0.8, 1.1))),
                pressure=float(rng.choice((0.012, 0.024, 0.1))) * width / 1000,
            )
        )
    return fleet, demands


def related(machines: int, sets: int, size: int, kind: RelationKind, key: str) -> tuple[Fleet, list[Demand]]:
    """Sets of equal tasks that are limited to one on a machine, or spread over zones."""
    fleet = cluster(machines, 0.0)
    demands = []
    for c in range(sets):
        fleet.declare(Relation(f"set-{c}", kind, key))
        demands.append(
            Demand(
                f"set-{c}",
                tuple(f"task-{c}-{i}" for i in range(size)),
                {"cpu": 250, "memory": 256 * MIB, "pods": 1},
                sensitivity=0.8,
                pressure=0.0075,
                holds=(f"set-{c}",),
                joins=(f"set-{c}",),
            )
        )
    return fleet, demands


SCENARIOS: dict[str, Callable[[], tuple[Fleet, list[Demand]]]] = {
    "small": lambda: many_classes(60, 120, 6),
    "one class, empty": lambda: one_class(5000, 5000, 0.0),
    "one class, busy": lambda: one_class(5000, 5000, 0.5),
    "20 classes": lambda: many_classes(5000, 5000, 20),
    "20 classes, tight": lambda: many_classes(400, 2400, 20),
    "200 classes": lambda: many_classes(1000, 5000, 200),
    "one on a machine": lambda: related(400, 20, 360, RelationKind.LIMIT, "machine"),
    "spread over zones": lambda: related(400, 20, 250, RelationKind.SPREAD, "zone"),
}


def table(rows: list[dict[str, Any]]) -> str:
    """Times in ms, medians; cost is the sum over placements."""
    heads = ["scenario", "machines", "tasks", "groups", "solves", "round ms", "max", "bound ms", "greedy ms"]
    heads += ["placed", "greedy", "cost", "greedy cost", "gap"]
    lines = [heads]
    for row in rows:
        lines.append(
            [
                row["scenario"],
                *(str(row[k]) for k in ("machines", "tasks", "groups", "solves")),
                *(f"{row[k]:.0f}" for k in ("round_ms", "round_max_ms", "certify_ms", "greedy_ms")),
                *(str(row[k]) for k in ("placed", "greedy_placed")),
                *(f"{row[k]:.2f}" for k in ("cost", "greedy_cost")),
                f"{row['gap_relative']:.3f}",
            ]
        )
    return "\n".join(text_table(lines, left=(), indent=""))


if __name__ == "__main__":
    main()
