"""How much later `objective: makespan` ends than `completion` does, and what its rounds cost.

The batch is one that fits without a gap: on each machine of 8 cores two jobs of 4.8 cores and 240 s, eight of 2.4 cores and
60 s, and 24 of 0.8 cores and 20 s take 480 s, and no plan ends before. Random scenarios have jobs with given run times, or
jobs with measured models; all are there at the start, or they arrive in a Poisson process.

    python -m benchmarks.makespans
    python -m benchmarks.makespans --first-seed 300 --count 20
    python -m benchmarks.makespans --estimate-error 0.5 --count 10

With an error, the estimates of given run times are off by a factor of that standard deviation of its logarithm for each job,
and makespans are compared with those of greedy rules that have the same estimates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import click
import numpy as np

from benchmarks.machine import describe_machine, measured_on
from benchmarks.random_scenario import Recipe, random_scenario
from flowsched.cluster.snapshot import Task
from flowsched_models.profiles import load_catalogue
from flowsched_models.text_table import text_table
from flowsched_simulator import Options, Run, Scenario, make_scenario, simulate
from flowsched_simulator.arrivals import Arrivals
from flowsched_simulator.scenario import Objective

IDEAL_S = 480.0
"""Of the batch."""
KINDS = ((4.8, 240, 2), (2.4, 60, 8), (0.8, 20, 24))
"""Cores, seconds, and how many on each machine."""
GREEDY = ("best-fit", "lpt", "kube-default", "most-allocated")
"""Rules that a makespan is compared with where estimates are off."""
FIRST_SEED = 200
"""When to keep the plan of completion was chosen on seeds below."""


def batch(machines: int) -> Scenario:
    """The batch that fits without a gap, on so many machines."""
    return make_scenario(
        machines=[{"type": "e2-standard-8", "copies": machines}],
        jobs=[
            {"name": f"job-{run_s}", "request": cores, "runtime_s": run_s, "copies": count * machines}
            for cores, run_s, count in KINDS
        ],
    )


def given(seed: int) -> Scenario:
    """Jobs with given run times, from half a core to all cores of a machine; all there at the start."""
    rng = np.random.default_rng([seed, 37])
    machines, cores = int(rng.integers(2, 6)), int(rng.choice([8, 16]))
    spread = float(rng.uniform(0.2, 0.8))
    jobs = []
    for _ in range(int(rng.integers(20, 71))):
        width = float(rng.choice([0.5, 1, 1, 2, 2, 3, 4, 6, 8]))
        jobs.append({"request": width, "runtime_s": int(rng.lognormal(math.log(120.0), spread)) + 1, "copies": 1})
    kinds = [{"name": f"job-{k}", **job} for k, job in enumerate(jobs)]
    return make_scenario(machines=[{"cores": cores, "memory": "64Gi", "copies": machines}], jobs=kinds)


def measured(seed: int) -> Scenario:
    """Jobs with measured models beside services; all there at the start."""
    rng = np.random.default_rng([seed, 38])
    recipe = Recipe(machines=int(rng.integers(3, 9)), jobs=int(rng.integers(15, 41)), services=1)
    return replace(random_scenario(load_catalogue(), seed, recipe), arrivals=Arrivals())


def arriving(scenario: Scenario, seed: int) -> Scenario:
    """The same jobs one after the other in a Poisson process, some 0.5 to 1.1 of what the machines can do."""
    load = float(np.random.default_rng([seed, 39]).uniform(0.5, 1.1))
    work_s = sum(scenario.catalogue.jobs[t.profile].work_s * t.scale * _cores(t) for t in scenario.tasks)
    cores = sum(m.vcpus for m in scenario.machines)
    per_s = load * cores / (work_s / len(scenario.tasks))
    return replace(scenario, arrivals=Arrivals("poisson", 60.0 * per_s))


def _cores(task: Task) -> float:
    """What a second of a task's work takes: its request for a given run time, one core otherwise."""
    return task.request_milli / 1000.0 if len(task.widths_milli) == 1 else 1.0


@dataclass(frozen=True)
class Pair:
    """A scenario under both objectives, flow told nothing else."""

    completion: Run
    makespan: Run

    @property
    def ratio(self) -> float:
        """The makespan under ``makespan`` over that under ``completion``."""
        return self.makespan.makespan_s / self.completion.makespan_s

    def round_ms(self, quantile: str) -> tuple[float, float]:
        """Wall time of the rounds: under ``completion``, under ``makespan``."""
        one, other = (run.summary()["timings"]["round_ms"][quantile] for run in (self.completion, self.makespan))
        return one, other


def both(scenario: Scenario, seed: int = 0) -> Pair:
    """Play a scenario under both."""
    runs = [
        simulate(replace(scenario, objective=objective), "flow", options=Options(seed=seed))
        for objective in (Objective.COMPLETION, Objective.MAKESPAN)
    ]
    return Pair(*runs)


FAMILIES: dict[str, Callable[[int], Scenario]] = {
    "given run times, all at the start": given,
    "measured jobs, all at the start": measured,
    "given run times, Poisson": lambda seed: arriving(given(seed), seed),
    "measured jobs, Poisson": lambda seed: arriving(measured(seed), seed),
}


def batch_rows(sizes: Iterator[int]) -> Iterator[tuple[str, ...]]:
    """The batch on so many machines."""
    for machines in sizes:
        pair = both(batch(machines))
        times = [f"{ms:.0f}" for quantile in ("p50", "p99") for ms in pair.round_ms(quantile)]
        ends = [f"{run.makespan_s:.1f}" for run in (pair.completion, pair.makespan)]
        yield (str(machines), *ends, f"{IDEAL_S:.1f}", *times)


def beside_greedy(scenario: Scenario, seed: int, error: float) -> list[float]:
    """Makespans of flow and of each rule, with estimates that are off."""
    asked = replace(scenario, objective=Objective.MAKESPAN, estimate_error=error)
    return [simulate(asked, policy, options=Options(seed=seed)).makespan_s for policy in ("flow", *GREEDY)]


def estimate_rows(error: float, seeds: Sequence[int]) -> Iterator[tuple[str, ...]]:
    """A line for the batch on five machines, and one for random scenarios with given run times: geometric means of the
    makespan over that of each rule, and over that of the rule that is best on each seed.
    """
    yield "scenarios", "seeds", *(f"over {rule}" for rule in GREEDY), "over the best on each seed"
    drawn: dict[str, Callable[[int], Scenario]] = {
        "batch, 5 machines": lambda _: batch(5),
        "given run times, all at the start": given,
    }
    for name, make in drawn.items():
        ends = np.array([beside_greedy(make(seed), seed, error) for seed in seeds])
        over = np.column_stack([ends[:, 1:], ends[:, 1:].min(axis=1)])
        means = np.exp(np.log(ends[:, :1] / over).mean(axis=0))
        yield name, f"{seeds[0]}-{seeds[-1]}", *(f"{mean:.3f}" for mean in means)


@click.command()
@click.option("--first-seed", default=FIRST_SEED, show_default=True)
@click.option("--count", default=50, show_default=True, help="Scenarios of each kind.")
@click.option("--machines", multiple=True, type=int, default=(1, 2, 3, 5, 10, 20, 35, 50), show_default=True)
@click.option("--family", "families", multiple=True, type=click.Choice([*FAMILIES]), default=[*FAMILIES])
@click.option(
    "--estimate-error",
    "error",
    type=click.FloatRange(0.0),
    help="Compare with greedy rules, estimates off by this, and no more.",
)
def main(
    first_seed: int, count: int, machines: tuple[int, ...], families: tuple[str, ...], error: float | None
) -> None:
    """Print the batch's makespans and round times, and the ratios of the random scenarios."""
    if error is not None:
        print("\n".join(text_table(list(estimate_rows(error, range(first_seed, first_seed + count))))))
        print(measured_on(describe_machine()))
        return
    head = ("machines", "completion s", "makespan s", "ideal s", "p50 ms", "p50 ms", "p99 ms", "p99 ms")
    print("\n".join(text_table([head, *batch_rows(iter(machines))])) + "\n", flush=True)
    rows = [("scenarios", "seeds", "mean ratio", "longest", "shorter", "longer", "above 1.02")]
    for family in families:
        seeds = range(first_seed, first_seed + count)
        ratios = np.array([both(FAMILIES[family](seed), seed).ratio for seed in seeds])
        counts = (np.sum(ratios < 1.0 - 1e-9), np.sum(ratios > 1.0 + 1e-9), np.sum(ratios > 1.02))
        rows.append(
            (family, f"{seeds[0]}-{seeds[-1]}", f"{ratios.mean():.4f}", f"{ratios.max():.4f}", *map(str, counts))
        )
        apart = (f"{s}: {ratio:.3f}" for s, ratio in zip(seeds, ratios, strict=True) if abs(ratio - 1.0) > 1e-9)
        click.echo(f"{family}: {', '.join(apart)}", err=True)
    print("\n".join(text_table(rows)))
    print(measured_on(describe_machine()))


if __name__ == "__main__":
    main()
