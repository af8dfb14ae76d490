"""A log of a parallel machine, replayed: bounded slowdown of FCFS, EASY backfilling and others, with exact estimates.

Reads the Standard Workload Format (https://www.cs.huji.ac.il/labs/parallel/workload/swf.html), plain or gzip. The machine is
one with as many CPUs as the log's header says; each job needs its processors at once, for exactly its run time, wherever it
runs. `--compress 1.3` divides all times of submission by 1.3, which raises the load. The bounded slowdown of a job is
max(1, (wait + run) / max(run, 10 s)).

    python -m benchmarks.batch_log NASA-iPSC-1993-3.1-cln.swf.gz
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.machine import describe_machine
from flowsched.cluster.snapshot import MILLI, Machine, Task
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import InputError, Problem
from flowsched_models.given_run_time import fixed_profile
from flowsched_models.machine import MachineType
from flowsched_models.text_table import text_table
from flowsched_simulator import Run, Scenario, simulate
from flowsched_simulator.policies import check_policies

RESULTS = Path(__file__).parent / "results"
THRESHOLD_S = 10.0
"""Shorter jobs count as this long in the bounded slowdown."""
INSTANT_S = 1e-3
"""Run time of a job whose log says 0 s, so that it has a start and an end."""
VARIANT = "declared-own"
"""What rules grant: the processors that a job asks for, to itself."""
_FIELDS = 18


@dataclass(frozen=True)
class BatchJob:
    """A line of the log. Times in seconds."""

    number: int
    submit_s: float
    run_s: float
    processors: int


def read_log(path: Path) -> tuple[int, list[BatchJob]]:
    """Processors of the machine, and the jobs in order of submission, of equals in order of their numbers.

    Jobs without a known run time or number of processors are left out. Raises :class:`InputError` with the line.
    """
    processors, jobs = 0, []
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for number, line in enumerate(lines, 1):
            if line.startswith(";"):
                key, _, value = line.lstrip("; ").partition(":")
                if key.strip() == "MaxProcs" and value.strip().isdigit():
                    processors = int(value)
                continue
            fields = line.split()
            if not fields:
                continue
            job = _job(fields, str(path), number)
            if job.run_s >= 0.0 and job.processors > 0:
                jobs.append(job)
    if not jobs:
        raise InputError([Problem(str(path), None, "", "has no job with a run time and processors")])
    jobs.sort(key=lambda job: (job.submit_s, job.number))
    return max(processors, *(job.processors for job in jobs)), jobs


def _job(fields: Sequence[str], source: str, line: int) -> BatchJob:
    try:
        if len(fields) != _FIELDS:
            raise ValueError
        return BatchJob(int(fields[0]), float(fields[1]), float(fields[3]), int(fields[4]))
    except ValueError:
        message = f"is no line of the Standard Workload Format: {_FIELDS} numbers, got {len(fields)} words"
        raise InputError([Problem(source, line, "", message)]) from None


def scenario_of(name: str, processors: int, jobs: Sequence[BatchJob], compress: float = 1.0) -> Scenario:
    """The jobs on one machine with so many CPUs of the same speed, arriving ``compress`` times as fast."""
    kind = MachineType("parallel-machine", vcpus=processors, memory_mib=len(jobs))
    bare = Catalogue(jobs={}, services={}, machine_types={kind.name: kind})
    profile = fixed_profile(bare, None)
    digits = len(str(max(job.number for job in jobs)))
    tasks = []
    for job in jobs:
        # Names in the order of the numbers: rules break ties by name.
        title, width = f"job-{job.number:0{digits}d}", job.processors * MILLI
        lasting_s = max(job.run_s, INSTANT_S)
        tasks.append(Task(title, title, profile.name, lasting_s, width, (width,), 1, job.submit_s / compress))
    return Scenario(
        name=name,
        description="",
        catalogue=replace(bare, jobs={profile.name: profile}),
        machines=(Machine("machine", kind.name, processors * MILLI, kind.memory_mib, processors),),
        services=(),
        tasks=tuple(tasks),
    )


def waits_s(run: Run) -> np.ndarray[Any, np.dtype[np.float64]]:
    """[jobs] seconds from submission to start; infinite for what never started."""
    return np.array([np.inf if j.waiting_s is None else j.waiting_s for j in run.jobs])


def bounded_slowdowns(run: Run, runs_s: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """[jobs] max(1, (wait + run) / max(run, 10 s)), with these run times; infinite for what never started."""
    runs = np.asarray(runs_s, dtype=np.float64)
    return np.maximum(1.0, (waits_s(run) + runs) / np.maximum(runs, THRESHOLD_S))


def measure(name: str, processors: int, jobs: Sequence[BatchJob], compress: float, policy: str) -> dict[str, Any]:
    """Figures of one policy at one load."""
    scenario = scenario_of(name, processors, jobs, compress)
    began = time.process_time()
    run = simulate(scenario, policy, variant=VARIANT)
    cpu_s = time.process_time() - began
    slowdown = bounded_slowdowns(run, [job.run_s for job in jobs])
    work = sum(job.run_s * job.processors for job in jobs)
    return {
        "compress": compress,
        "policy": policy,
        "jobs": len(jobs),
        "load": work / processors / (max(job.submit_s for job in jobs) / compress or 1.0),
        "mean_bounded_slowdown": float(slowdown.mean()),
        "p95_bounded_slowdown": float(np.percentile(slowdown, 95)),
        "mean_waiting_s": float(waits_s(run).mean()),
        "rounds": len(run.rounds),
        "timings": {"cpu_s": cpu_s},
    }


@click.command()
@click.argument("log", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--policy", "policies", multiple=True, default=("fcfs", "easy"), show_default=True)
@click.option(
    "--compress", multiple=True, type=click.FloatRange(0.0, min_open=True), default=(1.0, 1.3), show_default=True
)
@click.option("--jobs", "count", type=click.IntRange(1), help="The first jobs only.")
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(log: Path, policies: tuple[str, ...], compress: tuple[float, ...], count: int | None, keep: bool) -> None:
    """Replay LOG under each policy at each load, and print a table."""
    try:
        names = check_policies(policies)
        processors, jobs = read_log(log)
    except InputError as error:
        raise click.UsageError("\n".join(str(p) for p in error.problems)) from error
    jobs = jobs[:count]
    rows = []
    for factor in compress:
        for policy in names:
            rows.append(measure(log.name, processors, jobs, factor, policy))
            click.echo(f"{policy}, arrivals x {factor:g}: {rows[-1]['timings']['cpu_s']:.0f} s of CPU", err=True)
    text = table(rows)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        outcome = {"log": log.name, "processors": processors, "machine": describe_machine(), "rows": rows}
        (RESULTS / "batch_log.json").write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "batch_log.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(text)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each policy and load."""
    lines = [["arrivals", "load", "policy", "bounded slowdown", "p95", "waiting s", "jobs", "CPU s"]]
    lines += [
        [
            f"x {row['compress']:g}",
            f"{row['load']:.2f}",
            row["policy"],
            f"{row['mean_bounded_slowdown']:.3f}",
            f"{row['p95_bounded_slowdown']:.2f}",
            f"{row['mean_waiting_s']:.1f}",
            str(row["jobs"]),
            f"{row['timings']['cpu_s']:.0f}",
        ]
        for row in rows
    ]
    return "\n".join(text_table(lines, left=(), indent=""))


if __name__ == "__main__":
    main()
