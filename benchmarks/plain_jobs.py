"""Plain jobs of `benchmarks.plain_traces`: drawn, or cut from a log, at an exact load; as a scenario of equal machines."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.batch_log import INSTANT_S, read_log
from flowsched_models.document import InputError
from flowsched_simulator import Scenario, make_scenario
from flowsched_simulator.arrivals import Arrivals, arrival_times

MEDIAN_RUN_S, SPREAD = 60.0, 1.0
LEAST_RUN_S, MOST_RUN_S = 5.0, 400.0
"""Drawn run times are log-normal with this median and standard deviation of the logarithm, cut off at these ends."""
MOST_INSTANCES = 200
"""Tasks of the Alibaba trace with more instances are left out: a few of them would be the whole segment."""
ALIBABA_CORES, ALIBABA_MEMORY_MIB = 64, 1 << 20
"""A machine of the Alibaba trace, whose memory is 1 there."""


@dataclass(frozen=True)
class PlainJob:
    """A job with a given run time. Times in seconds; ``cores`` may be a fraction."""

    submit_s: float
    run_s: float
    cores: float
    memory_mib: int = 1


@dataclass(frozen=True)
class Cluster:
    """Equal machines."""

    machines: int
    cores: int
    memory_mib: int = 1 << 20


def drawn(widths: Sequence[int], count: int, seed: int) -> list[PlainJob]:
    """So many jobs whose cores are drawn from ``widths``, each as likely, in a Poisson process of one job a second."""
    rng = np.random.default_rng([seed, 41])
    cores = rng.choice(widths, size=count).tolist()
    runs = np.clip(rng.lognormal(np.log(MEDIAN_RUN_S), SPREAD, count), LEAST_RUN_S, MOST_RUN_S).tolist()
    submits = arrival_times(Arrivals("poisson", 60.0), count, seed).tolist()
    return [PlainJob(*job) for job in zip(submits, runs, cores, strict=True)]


def segment(jobs: Sequence[PlainJob], count: int, seed: int) -> list[PlainJob]:
    """So many consecutive jobs from a place that the seed draws, the first submitted at 0. Raises ``ValueError`` if there
    are fewer.
    """
    if len(jobs) < count:
        raise ValueError(f"a segment of {count} jobs needs as many, got {len(jobs)}")
    first = int(np.random.default_rng([seed, 43]).integers(0, len(jobs) - count + 1))
    found = jobs[first : first + count]
    return [replace(job, submit_s=job.submit_s - found[0].submit_s) for job in found]


def load_of(jobs: Sequence[PlainJob], cluster: Cluster) -> float:
    """Offered work over what the cluster can do between time 0 and the last submission, of CPU or of memory, whichever is
    more.
    """
    span_s = max(job.submit_s for job in jobs)
    cpu = sum(job.run_s * job.cores for job in jobs) / cluster.cores
    memory = sum(job.run_s * job.memory_mib for job in jobs) / cluster.memory_mib
    return max(cpu, memory) / (cluster.machines * span_s)


def at_load(jobs: Sequence[PlainJob], cluster: Cluster, load: float) -> list[PlainJob]:
    """The same jobs with all times of submission multiplied by one number, which gives the load exactly."""
    factor = load_of(jobs, cluster) / load
    return [replace(job, submit_s=job.submit_s * factor) for job in jobs]


def plain_scenario(name: str, jobs: Sequence[PlainJob], cluster: Cluster, estimate_error: float = 0.0) -> Scenario:
    """The jobs on the cluster, each with its run time, CPU and memory."""
    digits = len(str(len(jobs)))
    return make_scenario(
        machines=[{"cores": cluster.cores, "memory": f"{cluster.memory_mib}Mi", "copies": cluster.machines}],
        jobs=[
            {
                # Names in the order of the numbers: rules break ties by name.
                "name": f"job-{k:0{digits}d}",
                "request": job.cores,
                "runtime_s": job.run_s,
                "memory": f"{job.memory_mib}Mi",
                "submit_s": job.submit_s,
            }
            for k, job in enumerate(jobs, 1)
        ],
        name=name,
        objective="completion",
        estimate_error=estimate_error,
    )


def nasa(path: Path) -> list[PlainJob]:
    """Jobs of a log in the Standard Workload Format; their cores are processors of its one machine."""
    return [PlainJob(job.submit_s, max(job.run_s, INSTANT_S), job.processors) for job in read_log(path)[1]]


def alibaba(path: Path) -> list[PlainJob]:
    """Instances of the tasks of the Alibaba trace, each a job, in order of submission."""

    def of(row: dict[str, str]) -> list[PlainJob]:
        count = int(row["instances_num"])
        memory_mib = max(1, round(float(row["memory"]) * ALIBABA_MEMORY_MIB))
        job = PlainJob(float(row["submit_time"]), float(row["duration"]), float(row["cpu"]), memory_mib)
        return [job] * count if count <= MOST_INSTANCES else []

    return _rows(path, of)


def philly(path: Path) -> list[PlainJob]:
    """Jobs of the Philly trace in order of submission; their cores are GPUs."""

    def of(row: dict[str, str]) -> list[PlainJob]:
        submit_s = np.datetime64(row["timestamp"], "s").astype(np.int64)
        return [PlainJob(float(submit_s), float(row["duration"]), int(row["num_gpus"]))]

    return _rows(path, of)


def _rows(path: Path, of: Callable[[dict[str, str]], list[PlainJob]]) -> list[PlainJob]:
    """Jobs of a CSV file, packed by gzip, in order of submission. Raises :class:`InputError` for a row that has none."""
    found = []
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        for number, row in enumerate(csv.DictReader(lines), 2):
            try:
                found += of(row)
            except (KeyError, TypeError, ValueError) as error:
                raise InputError.one(f"{path}:{number}", f"not a row of this trace: {error}") from None
    return sorted(found, key=lambda job: job.submit_s)
