"""Rounds of `flow` against the size of the cluster, stage by stage, and the solvers side by side.

Each size is a cluster of 2-, 4- and 8-core machines in equal parts, half of its cores busy, with one pending job for every
machine. The networks of one round's passes are solved by every solver in the same run.

    python -m benchmarks.round_times
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.machine import describe_machine
from flowsched.cluster.compaction import compact
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import MILLI, Machine, Running, Snapshot, StartDelay, Task
from flowsched.round.scheduler import FlowScheduler, begin_round, decide
from flowsched.solvers import SOLVERS, make_solver
from flowsched_models.profiles import load_catalogue
from flowsched_models.runtime import HostFactory
from flowsched_models.text_table import text_table

RESULTS = Path(__file__).parent / "results"
TYPES = ("n2d-highcpu-2", "n2d-highmem-4", "e2-standard-8")


@click.command()
@click.option("--sizes", default="3,9,30,60", show_default=True, help="Machines.")
@click.option("--rounds", default=5, show_default=True, help="Different random rounds per size.")
@click.option("--json", "as_json", is_flag=True)
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(sizes: str, rounds: int, as_json: bool, keep: bool) -> None:
    """Measure and print a table."""
    rows = [measure(int(size), rounds) for size in sizes.split(",")]
    outcome = {"rows": rows, "machine": describe_machine()}
    text = table(rows)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "round_times.json").write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "round_times.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(json.dumps(outcome) if as_json else text)


def measure(machines: int, rounds: int) -> dict[str, Any]:
    """CPU time of whole rounds by stage in ms, and each solver's time on the same passes."""
    settings = Settings(exact_limit=0)
    hosts = HostFactory(load_catalogue())
    stages: dict[str, list[float]] = {}
    by_solver: dict[str, list[float]] = {name: [] for name in SOLVERS}
    arcs: list[int] = []
    passes: list[int] = []
    for seed in range(rounds):
        snapshot = draw_snapshot(machines, seed)
        scheduler = FlowScheduler(make_solver("ortools"), settings, hosts=hosts, clock=time.process_time)
        decisions = scheduler.decide(snapshot)
        for stage, ms in decisions.timings_ms.items():
            stages.setdefault(stage, []).append(ms)
        begun = begin_round(compact(snapshot, hosts), hosts, settings)
        deciding, _ = decide(begun, make_solver("ortools"), settings)
        networks = [one.network.network for one in deciding.passes]
        passes.append(len(networks))
        arcs.append(sum(network.arc_count for network in networks))
        costs = set()
        for name in SOLVERS:
            solver = make_solver(name)
            started = time.perf_counter()
            costs.add(sum(solver.solve(network).cost for network in networks))
            by_solver[name].append((time.perf_counter() - started) * 1e3)
        if len(costs) != 1:
            raise click.ClickException(f"the solvers disagree about {machines} machines, seed {seed}: costs {costs}")
    return {
        "machines": machines,
        "pending": machines,
        "rounds": rounds,
        "passes": round(float(np.mean(passes))),
        "arcs": round(float(np.mean(arcs))),
        "round_ms": {"p50": _percentile(stages["decide"], 50), "max": max(stages["decide"])},
        "stages_ms": {stage: _percentile(ms, 50) for stage, ms in stages.items() if stage != "decide"},
        "solver_ms": {name: _percentile(ms, 50) for name, ms in by_solver.items()},
    }


def draw_snapshot(machines: int, seed: int) -> Snapshot:
    """A random half-full cluster with one pending job per machine."""
    catalogue = load_catalogue()
    rng = np.random.default_rng([seed, machines])
    names = sorted(catalogue.jobs)
    cluster = []
    running = []
    for i in range(machines):
        kind = catalogue.machine_types[TYPES[i % len(TYPES)]]
        machine = Machine(f"m{i:04d}", kind.name, kind.vcpus * MILLI, kind.memory_mib, kind.vcpus)
        cluster.append(machine)
        free = machine.memory_mib
        for k in range(kind.vcpus // 2):
            job = catalogue.jobs[names[int(rng.integers(len(names)))]]
            if job.memory_mib > free:
                continue
            free -= job.memory_mib
            task = _task(f"r{i}-{k}", job.name, job.memory_mib, float(np.round(rng.uniform(0.3, 3.0), 1)), -50.0)
            cores = tuple(range(kind.vcpus))
            progress = float(np.round(rng.uniform(0.0, 0.9), 1))
            running.append(
                Running(task, machine.name, MILLI, job.threads_for(len(cores)), cores, -50.0, -49.0, progress)
            )
    pending = []
    for i in range(machines):
        job = catalogue.jobs[names[int(rng.integers(len(names)))]]
        pending.append(_task(f"p{i}", job.name, job.memory_mib, float(np.round(rng.uniform(0.3, 3.0), 1)), 0.0))
    return Snapshot(
        0.0, catalogue, tuple(cluster), (), tuple(running), tuple(pending), start_delay=StartDelay(1.0, 3.0)
    )


def _task(name: str, profile: str, memory_mib: int, scale: float, submit_s: float) -> Task:
    task = Task(name, name, profile, scale, MILLI, (MILLI,), memory_mib, submit_s)
    return replace(task, widths_milli=(MILLI, 2 * MILLI, 4 * MILLI))


def table(rows: list[dict[str, Any]]) -> str:
    """Milliseconds, medians over the rounds of a size."""
    heads = [
        "machines",
        "pending",
        "passes",
        "arcs",
        "round p50 ms",
        "max",
        *rows[0]["stages_ms"],
        *(f"{n} solve" for n in SOLVERS),
    ]
    lines = [heads]
    for row in rows:
        figures = [
            row["round_ms"]["p50"],
            row["round_ms"]["max"],
            *row["stages_ms"].values(),
            *row["solver_ms"].values(),
        ]
        lines.append(
            [
                str(row["machines"]),
                str(row["pending"]),
                str(row["passes"]),
                str(row["arcs"]),
                *(f"{ms:.2f}" for ms in figures),
            ]
        )
    return "\n".join(text_table(lines, left=(), indent=""))


def _percentile(values: list[float], q: float) -> float:
    return float(np.percentile(values, q))


if __name__ == "__main__":
    main()
