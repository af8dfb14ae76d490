"""Simulated starts of given run times against an event loop in integers: how many differ, of 100,000 jobs.

Times are whole seconds or thousandths, so that ends and arrivals coincide all the time, which random ones hide.

    python -m benchmarks.exact_runs
    python -m benchmarks.exact_runs --rule easy --milliseconds
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

import click

from benchmarks.integer_loop import Job, Started, starts_of
from flowsched.cluster.snapshot import MILLI, Machine, Task
from flowsched_models.catalogue import Catalogue
from flowsched_models.execution import INSTANT_S
from flowsched_models.given_run_time import fixed_profile
from flowsched_models.machine import MachineType
from flowsched_models.text_table import text_table
from flowsched_simulator import Run, Scenario, simulate

CORES = 8
"""Of each machine."""
_BOX = MachineType("box", vcpus=CORES, memory_mib=1 << 20)
RULES = ("fcfs", "sjf", "easy")


def round_jobs(seed: int, count: int, load: float, cores: int) -> list[Job]:
    """Round run times and mixed widths, several jobs in one second: what coincides in whole seconds."""
    rng = random.Random(seed)
    widths, runs = (1, 1, 2, 2, 3, 4, 5, 8), (60, 300, 600, 600, 3600, 7200)
    step = sum(widths) / len(widths) * sum(runs) / len(runs) / (load * cores)
    at = 0.0
    found: list[Job] = []
    for _ in range(count):
        at += rng.choice((0.0, 0.0, 0.5, 1.5, 3.0)) * step
        found.append(Job(60 * round(at / 60), rng.choice(runs), rng.choice(widths)))
    return found


def trace_jobs(seed: int, count: int, load: float, cores: int) -> list[Job]:
    """As the traces of the OpenDC archive have them: whole seconds, bursts, few long ones among many that are short."""
    rng = random.Random(seed)
    sizes = [min(8, 2 ** min(3, int(rng.expovariate(0.9)))) for _ in range(count)]
    runs = [max(1, round(rng.lognormvariate(5.0, 1.4))) for _ in range(count)]
    step = sum(size * run for size, run in zip(sizes, runs, strict=True)) / count / (load * cores)
    at = 0.0
    found: list[Job] = []
    while len(found) < count:
        burst = min(count - len(found), 1 + int(rng.expovariate(0.4)))
        at += rng.expovariate(1.0 / (step * 3.0))
        found += [Job(round(at), runs[k], sizes[k]) for k in range(len(found), len(found) + burst)]
    return found


GENERATORS: dict[str, Callable[[int, int, float, int], list[Job]]] = {"round": round_jobs, "trace": trace_jobs}


def scenario_of(jobs: Sequence[Job], machines: int, per_s: int = 1) -> Scenario:
    """The same jobs for the simulator; ``per_s``: their units of time in a second."""
    bare = Catalogue(jobs={}, services={}, machine_types={_BOX.name: _BOX})
    profile = fixed_profile(bare, None)
    boxes = [Machine(f"m{k:05d}", _BOX.name, CORES * MILLI, _BOX.memory_mib, CORES) for k in range(machines)]
    tasks = []
    for i, job in enumerate(jobs):
        milli, name = job.cores * MILLI, f"j{i:07d}"
        times = job.run / per_s, job.submit / per_s
        tasks.append(Task(name, name, profile.name, times[0], milli, (milli,), 1, times[1]))
    known = Catalogue(jobs={profile.name: profile}, services={}, machine_types=bare.machine_types)
    return Scenario("exact", "", known, tuple(boxes), (), tuple(tasks))


def started(run: Run) -> list[Started]:
    """When, in seconds, and on which machine each job started."""
    return [(j.start_s, int(str(j.machine)[1:])) for j in run.jobs if j.start_s is not None]  # type: ignore[misc]


@click.command()
@click.option("--jobs", "count", type=click.IntRange(min=1), default=100_000, show_default=True)
@click.option("--machines", type=click.IntRange(min=1), default=50, show_default=True, help=f"Of {CORES} cores each.")
@click.option("--load", default=0.7, show_default=True, help="Part of the cores that is busy on average.")
@click.option("--rule", "rules", type=click.Choice(RULES), multiple=True, default=RULES, show_default=True)
@click.option("--like", type=click.Choice([*GENERATORS]), default="trace", show_default=True)
@click.option("--milliseconds", is_flag=True, help="Times in thousandths of seconds instead of whole ones.")
@click.option("--seed", default=0, show_default=True)
def main(
    count: int, machines: int, load: float, rules: Sequence[str], like: str, milliseconds: bool, seed: int
) -> None:
    """Print how many starts, and machines, differ from the event loop's."""
    jobs = GENERATORS[like](seed, count, load, machines * CORES)
    per_s = 1000 if milliseconds else 1
    rows = [("rule", "jobs", "that wait", "starts that differ", "machines that differ", "CPU s")]
    for rule in rules:
        began = time.process_time()
        run = simulate(scenario_of(jobs, machines, per_s), rule, variant="declared-own")
        cpu_s = time.process_time() - began
        pairs = list(zip(started(run), starts_of([CORES] * machines, jobs, rule), strict=True))
        late = sum(abs(ours - right / per_s) > INSTANT_S for (ours, _), (right, _) in pairs)
        elsewhere = sum(ours != right for (_, ours), (_, right) in pairs)
        waited = sum(right > job.submit for (_, (right, _)), job in zip(pairs, jobs, strict=True))
        rows.append((rule, f"{count:,}", f"{waited:,}", f"{late:,}", f"{elsewhere:,}", f"{cpu_s:.0f}"))
    print("\n".join(text_table(rows)))


if __name__ == "__main__":
    main()
