"""Chapter 5 of M. Amaral's thesis (UPC 2019) as scenarios: warm-up, Rodinia jobs, and a run of one cell of its tables.

Given by the thesis: machines, jobs, arrivals, warm-up time, network shares (figure 14) and makespans. All else is an
assumption with a value in :class:`Assumptions` or in ``FOOTPRINTS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from flowsched.cluster.snapshot import Machine, Task
from flowsched.disaggregation.coupled import coupled, serving_profile
from flowsched.gpu.devices import MachineGpus, TaskGpus
from flowsched.relations.relation import TaskGroup
from flowsched_models.catalogue import Catalogue
from flowsched_models.given_run_time import fixed_profile
from flowsched_models.gpu_profile import Contention, GpuProfile
from flowsched_models.machine import MachineType
from flowsched_models.profile import JobProfile
from flowsched_simulator import Options, simulate
from flowsched_simulator.policies import EngineOptions
from flowsched_simulator.run import Run
from flowsched_simulator.scenario import Scenario

GPUS, VCPUS, MEMORY_MIB = 4, 160, 512 * 1024
"""Of a Firestone machine (table 6): 2 sockets of 10 cores with 8 threads, 4 K80, 512 GB."""
WARM_UP_S, ARRIVALS_PER_S = 800.0, 16.0
CPU_OF_JOB = 10
"""Virtual CPUs that a job asks for: any value will do, as warm-up jobs leave a number of such places."""
SHARES: Mapping[str, tuple[float, float]] = {
    "b+tree": (0.002, 0.01),
    "needleman-wunsch": (0.17, 0.49),
    "back-propagation": (0.05, 0.06),
    "gaussian": (0.01, 0.09),
    "lavamd": (0.02, 0.03),
    "pathfinder": (0.02, 0.11),
    "srad": (0.03, 0.08),
    "hotspot": (0.02, 0.08),
}
"""Share of run time that is spent in the network, alone and beside a network benchmark (figure 14). HotSpot's are not given:
the medians of the others."""
SPLITS = 400
"""Points of a curve."""


@dataclass(frozen=True)
class Assumptions:
    """What the thesis does not say, one set for all cells."""

    mean_s: float = 62.0
    """Mean run time of a job with a local GPU on an idle network."""
    sigma: float = 0.5
    """Standard deviation of the logarithm of run times, of all types."""
    pressure: float = 0.1
    """What a job that reaches its GPU over a machine's network puts on it; the network benchmark of figure 14 is 1."""
    local: bool = False
    """Whether jobs go through the network with local GPUs too."""
    interval_s: float = 2.0
    """Between rounds."""
    remote_price: float = 1.5
    wait_step: float = 1.0
    slack: float = 1.1
    """The thesis's goal is "the expected completion time": a run alone with a local GPU, and a tenth more."""

    def policy_settings(self) -> list[tuple[str, str]]:
        """Of DRMaestro's policies, as they are typed."""
        return [(key, repr(getattr(self, key))) for key in ("remote_price", "wait_step", "slack")]


@dataclass(frozen=True)
class Cell:
    """A run of the thesis: experiment, and what is switched on."""

    experiment: str
    disaggregated: bool
    aware: bool = False

    @property
    def key(self) -> str:
        """For tables and files."""
        return f"{self.experiment} {'remote' if self.disaggregated else 'local'} {'policy' if self.aware else 'plain'}"


@dataclass(frozen=True)
class Experiment:
    """Size of an experiment."""

    machines: int
    jobs: int
    per_s: float = ARRIVALS_PER_S
    """Arrivals."""


EIGHTH = "4b/8"
"""An eighth of 4b in all respects, to try many values on."""
ROOMY = "4b/8+"
"""The same with the warm-up of experiment 1, which leaves CPU for twice as many jobs."""
EXPERIMENTS = {
    "1": Experiment(4, 512),
    "4a": Experiment(4, 64),
    "4b": Experiment(128, 4096),
    EIGHTH: Experiment(16, 512, ARRIVALS_PER_S / 8.0),
    ROOMY: Experiment(16, 512, ARRIVALS_PER_S / 8.0),
}
"""2 is the simulation of 1, and 3 the first row of 4b."""
PUBLISHED_S = {
    Cell("1", False): 2486.0,
    Cell("1", True): 2191.0,
    Cell("4a", False): 413.08,
    Cell("4a", True): 261.77,
    Cell("4a", False, True): 418.83,
    Cell("4a", True, True): 300.07,
    Cell("4b", False): 1087.73,
    Cell("4b", True): 972.20,
    Cell("4b", False, True): 959.21,
    Cell("4b", True, True): 862.15,
}
"""Makespans: figure 23, tables 9 and 10."""
CELLS = tuple(Cell(e, d, a) for e in ("1", "4a", "4b") for a in (False, True) for d in (False, True))
"""All that are run; of experiment 1 the thesis has none with the policy."""
FITTED = tuple(PUBLISHED_S)[:4]
"""Cells that values are fitted to."""
WARM_UP_FITTED = (Cell("4b", False), Cell("4b", True))
"""Cells that what the warm-up leaves in 4b is fitted to."""
Footprints = Mapping[str, tuple[int, ...]]
"""By experiment: jobs whose CPU the warm-up leaves on each machine; repeated over all machines."""
FOOTPRINTS: Footprints = {
    "1": (14, 2, 0, 0),
    "4a": (7, 7, 2, 0),
    "4b": (7, 0, 0, 0),
    EIGHTH: (7, 0, 0, 0),
    ROOMY: (14, 2, 0, 0),
}
"""6 of 16 GPUs are usable locally in experiment 1 (figure 23); 10 of 16 in 4a, which ends before the warm-up; 4 of 16 in 4b,
which follows from table 10 and the work of experiment 1. How much more CPU is left is fitted in 4a and 4b."""


@dataclass(frozen=True)
class CellRun:
    """What is kept of a run."""

    cell: str
    makespan_s: float
    remote_share: float
    """Of jobs whose GPU was on another machine."""
    slowdown: tuple[float, float, float]
    """Run time over run time alone: median, 95th percentile, largest."""
    waiting_s: float
    """Mean."""
    decision_ms: tuple[float, float, float]
    """Mean, median, 99th percentile of rounds."""
    gpus: list[list[float]]
    """Time and GPUs in use."""
    decisions: list[list[float]]
    """Time and milliseconds of rounds."""

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def catalogue(assumed: Assumptions) -> Catalogue:
    """The eight applications, what serves their GPUs, and the machine."""
    types = Catalogue({}, {}, {"firestone": MachineType("firestone", VCPUS, MEMORY_MIB)})
    base = fixed_profile(types, None)
    jobs: dict[str, JobProfile] = {base.name: base}
    for name, (alone, loaded) in SHARES.items():
        network = Contention((1.0 - alone) / (1.0 - loaded) - 1.0, assumed.pressure)
        gpus = GpuProfile(network=network, remote=1.0 / (1.0 - alone), network_when_local=assumed.local)
        profile = replace(base, name=name, gpus=gpus)
        for one in (profile, serving_profile(profile)):
            jobs[one.name] = one
    return replace(types, jobs=jobs)


def scenario_of(cell: Cell, assumed: Assumptions, footprints: Footprints, seed: int) -> Scenario:
    """A cell's cluster, warm-up and jobs."""
    size = EXPERIMENTS[cell.experiment]
    rng = np.random.default_rng([seed, size.machines, size.jobs])
    names = [f"m{k:03d}" for k in range(size.machines)]
    machines = tuple(
        Machine(name, "firestone", VCPUS * 1000, MEMORY_MIB, VCPUS, gpus=MachineGpus("K80", GPUS)) for name in names
    )
    known = catalogue(assumed)
    base = next(iter(known.jobs))
    left = footprints[cell.experiment]
    tasks: list[Task] = []
    for k, name in enumerate(names):
        if milli := 1000 * (VCPUS - CPU_OF_JOB * left[k % len(left)]):
            warm = Task(f"warm-{name}", f"warm-{name}", base, WARM_UP_S, milli, (milli,), 1024, 0.0)
            tasks.append(replace(warm, machines=(name,), priority=1))
    at = np.cumsum(rng.exponential(1.0 / size.per_s, size.jobs))
    kinds = rng.integers(0, len(SHARES), size.jobs)
    drawn = rng.lognormal(-(assumed.sigma**2) / 2.0, assumed.sigma, size.jobs)
    lengths = assumed.mean_s * drawn / drawn.mean()
    applications = tuple(SHARES)
    milli = 1000 * CPU_OF_JOB
    groups = []
    for k in range(size.jobs):
        name = f"j{k:04d}"
        whole = Task(
            name, name, applications[int(kinds[k])], float(lengths[k]), milli, (milli,), 1024, float(at[k]),
            gpus=TaskGpus(1),
        )  # fmt: skip
        parts = coupled(whole) if cell.disaggregated else (whole,)
        tasks += parts
        if cell.disaggregated:
            groups.append(TaskGroup(name, len(parts)))
    return Scenario(
        cell.key,
        "",
        known,
        machines,
        (),
        tuple(tasks),
        task_groups=tuple(groups),
        barriers=frozenset(g.name for g in groups),
    )


def run_cell(
    cell: Cell, assumed: Assumptions, footprints: Footprints = FOOTPRINTS, seed: int = 0, policy: str = ""
) -> CellRun:
    """One run. ``policy``: instead of the cell's own."""
    name = policy or ("drmaestro-network" if cell.aware else "drmaestro")
    settings = {name: assumed.policy_settings()}
    run = simulate(
        scenario_of(cell, assumed, footprints, seed),
        name,
        options=Options(seed=seed, round_interval_s=assumed.interval_s),
        engine=EngineOptions(network_settings=settings),
    )
    return summary_of(cell, run)


def summary_of(cell: Cell, run: Run) -> CellRun:
    """What is kept of a run; warm-up jobs are no part of it."""
    jobs = [o for o in run.outcomes if not o.job.startswith("warm-")]
    place = {j.name: j.machine for j in run.jobs}
    ends = np.array([np.inf if o.end_s is None else o.end_s for o in jobs])
    starts = np.array([o.submit_s + (o.waiting_s or 0.0) for o in jobs])
    slow = (ends - starts) / np.array([o.alone_s for o in jobs])
    remote = [place.get(f"{o.job}/gpu-1", place[o.job]) != place[o.job] for o in jobs]
    times = np.linspace(0.0, float(ends.max()), SPLITS)
    used = np.searchsorted(np.sort(starts), times, "right") - np.searchsorted(np.sort(ends), times, "right")
    ms = np.array([r.solve_ms for r in run.rounds])
    every = max(1, len(run.rounds) // SPLITS)
    return CellRun(
        cell.key,
        float(ends.max()),
        float(np.mean(remote)),
        (float(np.median(slow)), float(np.percentile(slow, 95)), float(slow.max())),
        float(np.mean([o.waiting_s or 0.0 for o in jobs])),
        (float(ms.mean()), float(np.median(ms)), float(np.percentile(ms, 99))),
        [[round(float(t), 2), int(n)] for t, n in zip(times, used, strict=True)],
        [[round(r.t_s, 2), round(r.solve_ms, 3)] for r in run.rounds[::every]],
    )
