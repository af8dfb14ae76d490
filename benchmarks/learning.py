"""What learning run times is worth: `flow` with it over `flow` without it, in worlds where forecasts are off.

Jobs are copies of some kinds, and the truth differs from the models for a kind, for a kind on a machine type, or for each
job on each machine, of which nothing can be learnt. `exact` has no error: learning is on all the same.

    python -m benchmarks.learning
    python -m benchmarks.learning --worlds kind-0.8 --machines 12 --jobs 80 --seeds 3

Seeds from 0 on are for reporting; those from 1000 on are for choosing constants.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import click
import numpy as np

from benchmarks.policies import ENGINE, interval
from benchmarks.random_scenario import Recipe, random_scenario
from flowsched_models.profiles import load_catalogue
from flowsched_models.text_table import text_table
from flowsched_simulator import Options, simulate
from flowsched_simulator.run_classes import Learning
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.world import ErrorOf

WORLDS: Mapping[str, tuple[float, ErrorOf]] = {
    "kind-0.8": (0.8, "class"),
    "type-0.4": (0.4, "class-and-machine-type"),
    "iid-0.4": (0.4, "job-and-machine"),
    "exact": (0.0, "job"),
}
"""Standard deviation of the logarithm of the model error, and what draws it."""
MACHINES_PER_SERVICE = 5
JOBS_PER_KIND = 10
METRICS = ("mean_completion_s", "p95_completion_s", "makespan_s")


class World(NamedTuple):
    """One truth, and a policy on it."""

    name: str
    load: float
    seed: int
    machines: int
    jobs: int
    policy: str


def scenario_of(world: World) -> Scenario:
    """A random cluster, with jobs that are copies of some kinds: profile, scale and request are those of the kind."""
    services = max(1, world.machines // MACHINES_PER_SERVICE)
    recipe = Recipe(machines=world.machines, jobs=world.jobs, services=services, load=world.load)
    drawn = random_scenario(load_catalogue(), world.seed, recipe)
    kinds = drawn.tasks[: max(1, world.jobs // JOBS_PER_KIND)]
    chosen = np.random.default_rng([world.seed, 11]).integers(len(kinds), size=world.jobs).tolist()
    tasks = []
    for k, kind in enumerate(chosen):
        name = f"kind-{kind + 1}-{k + 1}"
        tasks.append(replace(kinds[kind], name=name, job=name, run_class=f"kind-{kind + 1}"))
    return replace(drawn, tasks=tuple(tasks))


def figures(world: World) -> dict[str, Any]:
    """What a policy reaches in a world with and without learning."""
    scenario = scenario_of(world)
    sigma, error_of = WORLDS[world.name]
    variant = None if world.policy == "flow" else "declared-own"
    row: dict[str, Any] = {"world": world.name, "load": world.load, "seed": world.seed, "policy": world.policy}
    modes: tuple[Learning, ...] = ("off", "on")
    for learning in modes:
        options = Options(seed=world.seed, model_error=sigma, error_of=error_of, learning=learning)
        summary = simulate(scenario, world.policy, options=options, engine=ENGINE, variant=variant).summary()
        row[learning] = {name: summary[name] for name in METRICS}
        row[learning]["slo_violation_percent"] = 100.0 * summary["slo_violation_ratio"]
    return row


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """With learning over without, geometric means over seeds and loads with 95 % intervals; SLO windows as means."""
    by_world: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_world[row["world"], row["policy"]].append(row)
    lines = [["world", "policy", "runs", "mean completion", "p95 completion", "makespan", "SLO windows % off / on"]]
    for (world, policy), found in by_world.items():
        line = [world, policy, str(len(found))]
        for metric in METRICS:
            logs = np.array([math.log(row["on"][metric] / row["off"][metric]) for row in found])
            mean, low, high = (math.exp(value) for value in interval(logs))
            line.append(f"{mean:.3f} [{low:.3f}, {high:.3f}]")
        slo = [float(np.mean([row[mode]["slo_violation_percent"] for row in found])) for mode in ("off", "on")]
        lines.append([*line, f"{slo[0]:.2f} / {slo[1]:.2f}"])
    return "with learning over without (less is better), geometric mean [95 % bootstrap interval]\n\n" + "\n".join(
        text_table(lines, left=range(len(lines[0])), indent="")
    )


def measured(worlds: Sequence[World], processes: int | None) -> Iterator[dict[str, Any]]:
    """A row per world, in their order."""
    with multiprocessing.Pool(processes) as pool:
        for i, row in enumerate(pool.imap(figures, worlds)):
            if sys.stderr.isatty():
                click.echo(f"\r{i + 1} of {len(worlds)}", err=True, nl=False)
            yield row


@click.command()
@click.option("--worlds", default=",".join(WORLDS), show_default=True)
@click.option("--loads", default="0.74,1.19", show_default=True)
@click.option("--policies", default="flow", show_default=True, help="Baselines run at what jobs declare, on own cores.")
@click.option("--machines", default=60, show_default=True)
@click.option("--jobs", default=400, show_default=True)
@click.option("--seeds", default=10, show_default=True)
@click.option("--first-seed", default=0, show_default=True)
@click.option("--processes", type=int, help="At once; default: one per core.")
@click.option("--json", "as_json", is_flag=True, help="Print all rows as JSON instead of the table.")
def main(
    worlds: str,
    loads: str,
    policies: str,
    machines: int,
    jobs: int,
    seeds: int,
    first_seed: int,
    processes: int | None,
    as_json: bool,
) -> None:
    """Run the worlds and print their table."""
    unknown = set(worlds.split(",")) - set(WORLDS)
    if unknown:
        raise click.UsageError(f"--worlds: there is no {min(unknown)}; known: {', '.join(WORLDS)}")
    cells = [
        World(name, float(load), seed, machines, jobs, policy)
        for name in worlds.split(",")
        for policy in policies.split(",")
        for load in loads.split(",")
        for seed in range(first_seed, first_seed + seeds)
    ]
    rows = list(measured(cells, processes))
    click.echo(json.dumps(rows) if as_json else table(rows))


if __name__ == "__main__":
    main()
