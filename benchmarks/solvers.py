"""The same networks solved from scratch by every solver that is installed, in CPU time, beside LEMON and the quick flow.

Families, each in growing sizes: *classes* have a price on most groups of machines and may wait, what rounds look like after
compaction; *ladder* has the same machines with slots of rising cost, once on the machine side; *quincy* has every task in
the graph, with eight machines, two racks and the whole cluster to go to. A solver that needed longer than --patience on one
size is not asked the next one of the family. All that answer must agree on the cost.

    python -m benchmarks.solvers
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.machine import describe_machine
from flowsched.network.dimacs_file import render_network
from flowsched.network.network import IntArray, Network
from flowsched.solvers import SOLVERS, Status, installed, make_solver
from flowsched.solvers.feasible import quick_flow
from flowsched_models.text_table import text_table

RESULTS = Path(__file__).parent / "results"
LEMON = "lemon"
PER_RACK, SLOTS, PER_JOB = 40, 12, 20


@click.command()
@click.option("--only", default=None, help="One family: classes, ladder or quincy.")
@click.option("--repeats", default=3, show_default=True, help="Solves of each network; the fastest counts.")
@click.option("--patience", default=20.0, show_default=True, help="Seconds after which a solver leaves the family.")
@click.option("--json", "as_json", is_flag=True)
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(only: str | None, repeats: int, patience: float, as_json: bool, keep: bool) -> None:
    """Measure and print a table."""
    rows: list[dict[str, Any]] = []
    for family, cases in FAMILIES.items():
        if only in (None, family):
            rows += measure(family, cases, repeats, patience)
    outcome = {"rows": rows, "machine": describe_machine()}
    text = table(rows)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "solvers.json").write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "solvers.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(json.dumps(outcome) if as_json else text)


def measure(
    family: str, cases: dict[str, Callable[[], Network]], repeats: int, patience: float
) -> Iterable[dict[str, Any]]:
    """A row for each network of a family."""
    # What starts warm is measured elsewhere: its first solve is somebody else's.
    solvers = {n: make_solver(n) for n in installed() if not SOLVERS[n].capabilities.warm_start}
    for solver in solvers.values():
        solver.solve(classes(2, 2, 0.5))  # imports and compiles
    quick_flow(classes(2, 2, 0.5))
    asked = [*solvers, *([LEMON] if shutil.which("dimacs-solver") else [])]
    for size, build in cases.items():
        network = build()
        times: dict[str, float] = {}
        costs = set()
        for name in list(asked):
            if name == LEMON:
                cost, best = _lemon(network, repeats, patience)
            else:
                cost, best = _fastest(solvers[name], network, repeats)
            if cost is not None:
                costs.add(cost)
                times[name] = best * 1e3
            if best > patience or cost is None:
                asked.remove(name)
        if len(costs) != 1:
            raise RuntimeError(f"{family} {size}: solvers disagree on the optimal cost: {sorted(costs)}")
        (optimum,) = costs
        began = time.process_time()
        quick = quick_flow(network)
        quick_ms = (time.process_time() - began) * 1e3
        yield {
            "family": family,
            "size": size,
            "nodes": len(network.supplies),
            "arcs": network.arc_count,
            "cpu_ms": times,
            "quick_ms": quick_ms,
            "quick_above": network.cost_of(quick.flow) / optimum - 1.0,
            "bound_below": 1.0 - quick.bound / optimum,
        }


def _fastest(solver: Any, network: Network, repeats: int) -> tuple[int | None, float]:
    best, cost = np.inf, None
    for _ in range(repeats):
        began = time.process_time()
        solution = solver.solve(network)
        took = time.process_time() - began
        best = min(best, took)
        if solution.status is not Status.OPTIMAL:
            raise RuntimeError(f"{solver.name} answers {solution.status}: {solution.report}")
        cost = solution.cost
        if took > 2.0:
            break
    return cost, float(best)


def _lemon(network: Network, repeats: int, patience: float) -> tuple[int | None, float]:
    """LEMON's own record of its simplex alone; no cost if it was not done in thrice the patience."""
    best, cost = np.inf, None
    with tempfile.NamedTemporaryFile("w", suffix=".dimacs") as file:
        file.write(render_network(network))
        file.flush()
        for _ in range(repeats):
            command = ["dimacs-solver", "-long", file.name]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=3 * patience, check=True)
            except subprocess.TimeoutExpired:
                return cost, np.inf
            said = done.stdout + done.stderr
            found = re.search(r"Min flow cost: (-?\d+)", said)
            took = re.search(r"Run NetworkSimplex: u: ([\d.e+-]+)s.*real: ([\d.e+-]+)s", said)
            if found is None or took is None:
                raise RuntimeError(f"dimacs-solver says: {said}")
            cost = int(found[1])
            # Its CPU time comes in steps of 10 ms, too coarse for short solves.
            best = min(best, float(took[1]) if float(took[1]) >= 0.2 else float(took[2]))
            if best > 2.0:
                break
    return cost, float(best)


class Arcs:
    """Collects columns of arcs, broadcast against each other."""

    def __init__(self) -> None:
        self._parts: list[IntArray] = []

    def add(self, tails: Any, heads: Any, capacities: Any, costs: Any) -> None:
        columns = np.broadcast_arrays(*np.atleast_1d(tails, heads, capacities, costs))
        self._parts.append(np.stack(columns).astype(np.int64))

    def network(self, supplies: IntArray) -> Network:
        tails, heads, capacities, costs = np.concatenate(self._parts, axis=1)
        return Network(tails, heads, capacities, costs, supplies, 1.0)


def classes(classes: int, groups: int, load: float) -> Network:
    """Classes with a price on seven of ten groups, costs as fine as the engine scales them."""
    rng = np.random.default_rng([classes, groups, round(load * 100)])
    room = rng.integers(10, 200, groups)
    total = int(room.sum() * load)
    count = rng.multinomial(total, np.full(classes, 1.0 / classes))
    waiting, sink = classes + groups, classes + groups + 1
    arcs = Arcs()
    tails, heads = np.nonzero(rng.random((classes, groups)) < 0.7)
    arcs.add(tails, classes + heads, np.minimum(count[tails], room[heads]), rng.integers(0, 1 << 30, len(tails)))
    arcs.add(np.arange(classes), waiting, count, 1 << 31)
    arcs.add(waiting, sink, total, 0)
    arcs.add(classes + np.arange(groups), sink, room, 0)
    return arcs.network(np.concatenate([count, np.zeros(groups + 1, dtype=np.int64), [-total]]))


def ladder(classes: int, racks: int, load: float) -> Network:
    """Classes pay for racks, and every slot of a machine costs more than the one before."""
    rng = np.random.default_rng([classes, racks, round(load * 100)])
    machines = racks * PER_RACK
    total = int(machines * SLOTS * load)
    count = rng.multinomial(total, np.full(classes, 1.0 / classes))
    rack, machine = classes + np.arange(racks), classes + racks + np.arange(machines)
    waiting, sink = classes + racks + machines, classes + racks + machines + 1
    arcs = Arcs()
    arcs.add(np.repeat(np.arange(classes), racks), np.tile(rack, classes), PER_RACK * SLOTS,
             rng.integers(0, 1000, classes * racks))  # fmt: skip
    arcs.add(np.arange(classes), waiting, count, 100_000)
    arcs.add(waiting, sink, total, 0)
    arcs.add(rack[np.arange(machines) // PER_RACK], machine, SLOTS, 0)
    for slot in range(SLOTS):
        arcs.add(machine, sink, 1, (slot + 1) * 100)
    return arcs.network(np.concatenate([count, np.zeros(racks + machines + 1, dtype=np.int64), [-total]]))


def quincy(machines: int, load: float) -> Network:
    """Every task may wait, go anywhere in the cluster or, cheaper, to eight machines and up to two racks; three in ten of
    the machines are of a hot fifth (Isard et al., "Quincy: fair scheduling for distributed computing clusters", 2009).
    """
    rng = np.random.default_rng([machines, round(load * 100)])
    racks, tasks = -(-machines // PER_RACK), int(machines * SLOTS * load)
    jobs = -(-tasks // PER_JOB)
    task = np.arange(tasks)
    job, cluster = tasks + np.arange(jobs), tasks + jobs
    rack, machine = cluster + 1 + np.arange(racks), cluster + 1 + racks + np.arange(machines)
    sink = cluster + 1 + racks + machines
    arcs = Arcs()
    arcs.add(task, job[task // PER_JOB], 1, rng.integers(1500, 4000, tasks))
    arcs.add(task, cluster, 1, rng.integers(400, 1000, tasks))
    for _ in range(8):
        hot = rng.random(tasks) < 0.3
        chosen = np.where(hot, rng.integers(0, max(1, machines // 5), tasks), rng.integers(0, machines, tasks))
        arcs.add(task, machine[chosen], 1, rng.integers(0, 300, tasks))
    for _ in range(2):
        some = task[rng.random(tasks) < 0.8]
        arcs.add(some, rack[rng.integers(0, racks, len(some))], 1, rng.integers(200, 600, len(some)))
    arcs.add(cluster, rack, PER_RACK * SLOTS, 0)
    arcs.add(rack[np.arange(machines) // PER_RACK], machine, SLOTS, 0)
    arcs.add(machine, sink, SLOTS, 0)
    arcs.add(job, sink, PER_JOB, 0)
    return arcs.network(
        np.concatenate([np.ones(tasks, dtype=np.int64), np.zeros(sink - tasks, dtype=np.int64), [-tasks]])
    )


FAMILIES: dict[str, dict[str, Callable[[], Network]]] = {
    "classes": {
        "10 x 50": lambda: classes(10, 50, 0.8),
        "20 x 200": lambda: classes(20, 200, 0.8),
        "60 x 1000": lambda: classes(60, 1000, 0.8),
        "60 x 5000": lambda: classes(60, 5000, 0.8),
        "60 x 5000 full": lambda: classes(60, 5000, 1.2),
    },
    "ladder": {
        "100 machines": lambda: ladder(10, 3, 0.9),
        "400 machines": lambda: ladder(10, 10, 0.9),
        "2000 machines": lambda: ladder(20, 50, 0.9),
        "8000 machines": lambda: ladder(20, 200, 0.9),
    },
    "quincy": {
        "10 machines": lambda: quincy(10, 0.9),
        "100 machines": lambda: quincy(100, 0.9),
        "1000 machines": lambda: quincy(1000, 0.9),
        "1000 m., full": lambda: quincy(1000, 1.1),
        "4000 machines": lambda: quincy(4000, 0.9),
    },
}


def table(rows: list[dict[str, Any]]) -> str:
    """CPU times in ms; what the quick flow costs above the optimum, and how far its bound is below."""
    names = [n for n in (*SOLVERS, LEMON) if any(n in row["cpu_ms"] for row in rows)]
    lines = [["network", "size", "nodes", "arcs", *(f"{n} ms" for n in names), "quick ms", "above", "bound"]]
    for row in rows:
        lines.append(
            [
                row["family"],
                row["size"],
                *(str(row[k]) for k in ("nodes", "arcs")),
                *(f"{row['cpu_ms'][n]:.1f}" if n in row["cpu_ms"] else "-" for n in names),
                f"{row['quick_ms']:.1f}",
                f"{100 * row['quick_above']:.1f} %",
                f"-{100 * row['bound_below']:.1f} %",
            ]
        )
    return "\n".join(text_table(lines, left=(), indent=""))


if __name__ == "__main__":
    main()
