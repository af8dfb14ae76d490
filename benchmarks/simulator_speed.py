"""How fast the simulator is: events a second and memory of ten thousand jobs on a thousand machines, beside SimPy.

Jobs have fixed run times (exponential, five minutes in the mean) and ask for 1, 1, 2 or 4 of a machine's eight cores; they
arrive at random so that 80 % of the cores are asked for. `simpy` is first come, first served and first fit in forty lines of
SimPy; `fcfs` is the same rule in flowsched's simulator, whose results have to be equal; `flow` decides with networks and
certifies its rounds. Each runs in a process of its own. An event is an arrival or an end of a job.

    python -m benchmarks.simulator_speed
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import simpy

from benchmarks.machine import describe_machine, measured_on
from flowsched_models.text_table import text_table
from flowsched_simulator import Scenario, make_scenario, simulate

RESULTS = Path(__file__).parent / "results"
CORES = 8
REQUESTS = (1, 1, 2, 4)
MEAN_RUN_S = 300.0
STEP_S = 0.1
"""Times are multiples of this, as in logs."""
ENGINES = ("simpy", "fcfs", "flow")


@dataclass(frozen=True)
class World:
    """What is simulated."""

    machines: int
    jobs: int
    load: float
    seed: int


@dataclass(frozen=True)
class SizedJob:
    """A job of a fixed run time. Times in seconds."""

    submit_s: float
    run_s: float
    cores: int


def jobs_of(world: World) -> list[SizedJob]:
    """The jobs of a world, in order of submission."""
    rng = np.random.default_rng(world.seed)
    rate = world.load * world.machines * CORES / (float(np.mean(REQUESTS)) * MEAN_RUN_S)
    submits = np.cumsum(rng.exponential(1.0 / rate, world.jobs))
    runs = rng.exponential(MEAN_RUN_S, world.jobs)
    cores = rng.choice(REQUESTS, world.jobs)
    return [
        SizedJob(_in_steps(submit), max(STEP_S, _in_steps(run)), int(asked))
        for submit, run, asked in zip(submits.tolist(), runs.tolist(), cores.tolist(), strict=True)
    ]


def _in_steps(time_s: float) -> float:
    return round(round(time_s / STEP_S) * STEP_S, 1)


def scenario_of(world: World) -> Scenario:
    """The same as a scenario."""
    digits = len(str(world.jobs))
    return make_scenario(
        machines=[{"type": "e2-standard-8", "copies": world.machines}],
        jobs=[
            {"name": f"job-{k:0{digits}d}", "request": job.cores, "runtime_s": job.run_s, "submit_s": job.submit_s}
            for k, job in enumerate(jobs_of(world))
        ],
        objective="completion",
        name="simulator-speed",
    )


def simpy_waits_s(world: World) -> list[float]:
    """[jobs] waiting times of first come, first served with first fit, by SimPy."""
    jobs = jobs_of(world)
    env = simpy.Environment()
    free = [simpy.Container(env, CORES, CORES) for _ in range(world.machines)]
    queue: deque[int] = deque()
    waits = [0.0] * len(jobs)
    changed = env.event()

    def changes() -> None:
        if not changed.triggered:
            changed.succeed()

    def arrivals() -> Iterator[Any]:
        for k, job in enumerate(jobs):
            yield env.timeout(job.submit_s - env.now)
            queue.append(k)
            changes()

    def running(k: int, machine: simpy.Container) -> Iterator[Any]:
        waits[k] = env.now - jobs[k].submit_s
        yield env.timeout(jobs[k].run_s)
        yield machine.put(jobs[k].cores)
        changes()

    def dispatcher() -> Iterator[Any]:
        nonlocal changed
        while True:
            yield changed
            changed = env.event()
            while queue:
                asked = jobs[queue[0]].cores
                machine = next((m for m in free if m.level >= asked), None)
                if machine is None:
                    break
                yield machine.get(asked)
                env.process(running(queue.popleft(), machine))

    env.process(arrivals())
    env.process(dispatcher())
    env.run()
    return waits


def flowsched_waits_s(world: World, policy: str) -> list[float]:
    """[jobs] waiting times in flowsched's simulator; of a baseline with cores of its own for every job."""
    variant = None if policy == "flow" else "declared-own"
    run = simulate(scenario_of(world), policy, variant=variant)
    return [float("inf") if job.waiting_s is None else job.waiting_s for job in run.outcomes]


def measure(world: World, engine: str) -> dict[str, Any]:
    """CPU seconds of this process from the start of the simulation, and its largest memory."""
    began = time.process_time()
    waits = simpy_waits_s(world) if engine == "simpy" else flowsched_waits_s(world, engine)
    cpu_s = time.process_time() - began
    return {
        "engine": engine,
        "events": 2 * world.jobs,
        "mean_waiting_s": float(np.mean(waits)),
        "most_waiting_s": float(np.max(waits)),
        "timings": {"cpu_s": cpu_s, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024},
    }


def in_its_own_process(world: World, engine: str) -> dict[str, Any]:
    """The same in a fresh process, so that memory is its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, world, engine).result()


@click.command()
@click.option("--machines", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--jobs", type=click.IntRange(1), default=10_000, show_default=True)
@click.option("--load", type=click.FloatRange(0.0, min_open=True), default=0.8, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--engine", "engines", multiple=True, type=click.Choice(ENGINES), default=ENGINES, show_default=True)
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(machines: int, jobs: int, load: float, seed: int, engines: tuple[str, ...], keep: bool) -> None:
    """Simulate the same jobs by each engine, and print a table."""
    world = World(machines, jobs, load, seed)
    rows = []
    for engine in engines:
        rows.append(in_its_own_process(world, engine))
        click.echo(f"{engine}: {rows[-1]['timings']['cpu_s']:.1f} s of CPU", err=True)
    machine = describe_machine()
    text = f"{table(rows)}\n{jobs} jobs on {machines} machines at {100 * load:g} % load, seed {seed}. {measured_on(machine)}"
    if keep:
        RESULTS.mkdir(exist_ok=True)
        outcome = {"machines": machines, "jobs": jobs, "load": load, "seed": seed, "machine": machine, "rows": rows}
        (RESULTS / "simulator_speed.json").write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "simulator_speed.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(text)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each engine."""
    lines = [["engine", "events", "CPU s", "events per CPU s", "peak MiB", "waiting mean s", "most s"]]
    for row in rows:
        cpu_s = row["timings"]["cpu_s"]
        lines.append(
            [
                row["engine"],
                str(row["events"]),
                f"{cpu_s:.1f}",
                f"{row['events'] / cpu_s:.0f}",
                f"{row['timings']['peak_mib']:.0f}",
                f"{row['mean_waiting_s']:.2f}",
                f"{row['most_waiting_s']:.1f}",
            ]
        )
    return "\n".join(text_table(lines))


if __name__ == "__main__":
    main()
