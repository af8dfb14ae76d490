"""The cases of `benchmarks.plain_traces`: which jobs, on which machines, at which load, with which estimates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.plain_jobs import (
    ALIBABA_CORES,
    ALIBABA_MEMORY_MIB,
    Cluster,
    PlainJob,
    alibaba,
    at_load,
    drawn,
    nasa,
    philly,
    plain_scenario,
    segment,
)
from flowsched_simulator import Scenario

FORTY = Cluster(40, 16)
WIDTHS: dict[str, Sequence[int]] = {
    "2to8": range(2, 9),
    "powers": (1, 2, 4, 8, 16),
    "1to16": range(1, 17),
}
"""Cores of drawn jobs, each as likely."""


@dataclass(frozen=True)
class TraceFile:
    """Where a trace is, and which of its jobs count."""

    file: str
    """Its path below the folder of traces."""
    read: Callable[[Path], list[PlainJob]]

    def jobs(self, folder: Path, most_cores: int) -> list[PlainJob]:
        """Those that fit a machine with so many cores, in order of submission."""
        return [job for job in _read(self.read, folder / self.file) if job.cores <= most_cores]


@functools.lru_cache(maxsize=1)
def _read(read: Callable[[Path], list[PlainJob]], path: Path) -> list[PlainJob]:
    """A trace is read once for all its cases."""
    return read(path)


TRACES = {
    "nasa": TraceFile("swf_nasa_ipsc/NASA-iPSC-1993-3.1-cln.swf.gz", nasa),
    "alibaba": TraceFile("alibaba2017_batch/jobs.csv.gz", alibaba),
    "philly": TraceFile("philly/philly_jobs.csv.gz", philly),
}


@dataclass(frozen=True)
class Case:
    """A row of the table."""

    source: str
    """One of ``WIDTHS``, whose jobs are drawn, or of ``TRACES``, of which a segment is cut."""
    load: float
    cluster: Cluster = FORTY
    jobs: int = 1000
    sigma: float = 0.0
    """Standard deviation of the logarithm of what estimates are off by."""
    name_of_size: bool = False
    """Whether the name says how large the cluster is."""

    @property
    def name(self) -> str:
        """Such as ``1to16-40x32-1.1`` or ``nasa-1.1-sigma-0.5``."""
        size = f"-{self.cluster.machines}x{self.cluster.cores}" if self.name_of_size else ""
        return f"{self.source}{size}-{self.load:g}" + (f"-sigma-{self.sigma:g}" if self.sigma else "")

    @property
    def file(self) -> str | None:
        """The file that it needs below the folder of traces."""
        return TRACES[self.source].file if self.source in TRACES else None

    def jobs_of(self, seed: int, traces: Path | None = None) -> list[PlainJob]:
        """Its jobs by a seed, the same at every load but for when they come. ``traces``: the folder of traces."""
        if self.source in WIDTHS:
            found = drawn(WIDTHS[self.source], self.jobs, seed)
        else:
            if traces is None:
                raise ValueError(f"{self.name} needs the folder of traces")
            found = segment(TRACES[self.source].jobs(traces, self.cluster.cores), self.jobs, seed)
        return at_load(found, self.cluster, self.load)

    def scenario(self, jobs: Sequence[PlainJob]) -> Scenario:
        """As a scenario; estimates are drawn by the seed of the run."""
        return plain_scenario(self.name, jobs, self.cluster, self.sigma)


NASA_MACHINES = Cluster(10, 128)
"""Ten of the machine of the log: every job fits one, and places matter."""
ALIBABA_MACHINES = Cluster(4, ALIBABA_CORES, ALIBABA_MEMORY_MIB)
PHILLY_MACHINES = Cluster(40, 8)
LOADS = (0.9, 1.1)
_WIDEST = Case("1to16", 1.1)
_NASA = Case("nasa", 1.1, NASA_MACHINES)
_CASES = (
    *(Case(source, load) for source in WIDTHS for load in LOADS),
    replace(_WIDEST, cluster=Cluster(40, 32), name_of_size=True),
    replace(_WIDEST, cluster=Cluster(400, 16), jobs=4000, name_of_size=True),
    *(replace(_NASA, load=load) for load in LOADS),
    replace(_WIDEST, sigma=0.5),
    replace(_NASA, sigma=0.5),
    *(Case("alibaba", load, ALIBABA_MACHINES, 4000) for load in LOADS),
    *(Case("philly", load, PHILLY_MACHINES) for load in LOADS),
)
CASES = {case.name: case for case in _CASES}
RELAXED = ("alibaba", "philly")
"""Sources where only waiting has a bar, and a wider one."""
