"""Chapter 4 of the thesis: topology-aware placement of jobs on machines with linked GPUs.

Table 7's prototype runs with values that :mod:`benchmarks.thesis_table7` fits; the two simulations with the profiles of
chapter 3. What the thesis says of their figures in words are orders: here ratios that must be below 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean

from benchmarks import thesis_table7
from benchmarks.thesis_cell import Cell, Kind, ThesisTable
from benchmarks.thesis_table7 import duration_s, job_of, linked, slowed
from flowsched.cluster.gpus import WHOLE_MILLI, GpuJob
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Task
from flowsched.gpu.topology_cost import TopologyCost
from flowsched_simulator import EngineOptions, Options, Run, Scenario, load_scenario, simulate
from flowsched_simulator.run import JobRun
from flowsched_simulator.scenario_file import BUNDLED
from flowsched_simulator.workload import drawn_workload

TABLE_7, SCENARIO_1, SCENARIO_2, QUEUE = "table-7", "scenario-1", "scenario-2", "scenario-2-queue"
BF, FCFS, TA, P, WORTH = "topo-best-fit", "fcfs", "topo-aware", "topo-aware-p", "topo-worth-p"
PARTITION, PARTITION_P = "topo-bipartition", "topo-bipartition-p"
TITLES = {
    BF: "BF",
    FCFS: "FCFS",
    TA: "TOPO-AWARE by flow",
    P: "TOPO-AWARE-P by flow",
    PARTITION: "TOPO-AWARE by bi-partitioning",
    PARTITION_P: "TOPO-AWARE-P by bi-partitioning",
    WORTH: "sets worth their demand, by flow",
}
POSTPONING = (P, PARTITION_P)
_FITTED = {FCFS, PARTITION, PARTITION_P}
"""Whose makespans are among what Table 7 is fitted to."""
_PUBLISHED_S = {FCFS: 456.2, BF: 461.7, PARTITION: 454.2, TA: 454.2, PARTITION_P: 356.9, P: 356.9}
_SLOWED = 0.01
"""A job that is slower by less is not held to be."""
SEEDS = (0, 1, 2, 3, 4)
_NO_DUE = EngineOptions(settings=Settings(due_age_s=1e9))
"""The thesis's policies know no bound on waiting."""
_VARIANT = "declared-own"
RATES = {10.0: (BF, FCFS, TA), 60.0: (BF, FCFS, PARTITION, TA, P)}
"""Arrivals a minute in scenario 2 and the policies that run at it: the published rate, and one that loads nine tenths of the
cluster in the end."""
TENTH, QUEUE_JOBS, QUEUE_RATE = 10, 1_000, 8.0
"""Scenario 2 at a tenth of its size, and arrivals a minute there that leave jobs waiting."""
_DECISION_MS = {BF: 440.0, FCFS: 450.0, PARTITION: 3000.0, TA: 3000.0, P: 3000.0}
"""Mean decision times of section 4.4."""


def run_of(scenario: Scenario, policy: str, seed: int = 0) -> Run:
    """A run of one policy."""
    variant = _VARIANT if policy in (BF, FCFS, PARTITION, PARTITION_P) else None
    print(f"{scenario.name}, seed {seed}: {policy}", file=sys.stderr)
    return simulate(scenario, policy, variant=variant, options=Options(seed=seed), engine=_NO_DUE)


def table_7_cells() -> Iterator[Cell]:
    """Makespans and events of section 4.3.2."""
    runs = thesis_table7.outcomes(None, (*thesis_table7.POLICIES, WORTH))
    for policy, published in _PUBLISHED_S.items():
        kind = Kind.FITTED if policy in _FITTED else Kind.PREDICTED
        yield Cell(TABLE_7, "makespan, s", TITLES[policy], published, published, runs[policy].makespan_s, kind, 10.0)
    least = runs[P].makespan_s
    for policy in (BF, FCFS, TA):
        ratio = runs[policy].makespan_s / least
        yield Cell(
            TABLE_7, "makespan over that of TOPO-AWARE-P", TITLES[policy], 1.27, 1.30, ratio, Kind.PREDICTED, 0.005
        )
    others = [runs[policy].makespan_s for policy in (BF, FCFS, TA)]
    apart = 100.0 * (max(others) / min(others) - 1.0)
    yield Cell(TABLE_7, "largest of these over the smallest, %", "", 0.0, 2.0, apart, Kind.PREDICTED)
    for policy in (BF, FCFS, TA, P):
        kind = Kind.FITTED if policy == FCFS else Kind.PREDICTED
        yield Cell(TABLE_7, "job 0 ends at, s", TITLES[policy], 65.0, 75.0, job_of(runs[policy], 0).end_s or 0.0, kind)
    for policy, published in ((BF, 240.0), (FCFS, 240.0), (TA, 240.0), (PARTITION_P, 120.0), (P, 120.0)):
        kind = Kind.FITTED if policy in _FITTED else Kind.PREDICTED
        took = duration_s(job_of(runs[policy], 3))
        yield Cell(TABLE_7, "job 3 takes, s", TITLES[policy], published, published, took, kind, 12.0)
    for policy in (BF, FCFS, TA, P):
        most = 3.0 if policy == P else 0.0
        count = float(sum(map(linked, runs[policy].jobs)))
        yield Cell(TABLE_7, "jobs with peer to peer", TITLES[policy], most, most, count, Kind.PREDICTED)
    for policy in (BF, FCFS, TA, P):
        published = 0.0 if policy == P else 50.0
        lost = 100.0 * fmean(slowed(job_of(runs[policy], n)) for n in (1, 3, 4))
        band = 1.0 if policy == P else 15.0
        row = "slow-down of jobs 1, 3, 4 in the mean, %"
        yield Cell(TABLE_7, row, TITLES[policy], published, published, lost, Kind.PREDICTED, band)
    yield Cell(TABLE_7, "makespan, s", TITLES[WORTH], 0.0, 461.7, runs[WORTH].makespan_s, Kind.PREDICTED)


@dataclass(frozen=True)
class Outcome:
    """What came of some runs of one policy, in the mean."""

    wait_s: float
    slowdown: float
    slowed: float
    """Jobs that are slower than alone, in %."""
    violations: float
    """Jobs whose GPUs were of less utility, when they started, than they demand, in %."""
    makespan_s: float
    decision_ms: float
    """Of a round."""


def outcome(scenario: Scenario, policy: str, seeds: Sequence[int]) -> Outcome:
    """Of a policy, over seeds."""
    found = [_outcome_of(drawn_workload(scenario, seed), run_of(scenario, policy, seed)) for seed in seeds]
    return Outcome(*(fmean(values) for values in zip(*found, strict=True)))


def _outcome_of(scenario: Scenario, run: Run) -> tuple[float, ...]:
    jobs = run.jobs
    slower = [duration_s(job) / job.alone_s for job in jobs]
    return (
        fmean((job.start_s or 0.0) - job.submit_s for job in jobs),
        fmean(slower),
        100.0 * fmean(value > 1.0 + _SLOWED for value in slower),
        100.0 * violations(scenario, jobs) / len(jobs),
        run.makespan_s,
        fmean(r.solve_ms for r in run.rounds),
    )


def violations(scenario: Scenario, jobs: Sequence[JobRun]) -> int:
    """Jobs that started on GPUs of less utility than they demand: each machine played again."""
    tasks = {task.name: task for task in scenario.tasks}
    machines = {machine.name: machine.gpus for machine in scenario.machines}
    costs: dict[object, TopologyCost] = {}
    found = 0
    by_machine: dict[str, list[JobRun]] = {}
    for job in sorted(jobs, key=lambda j: (j.start_s or 0.0, j.job)):
        by_machine.setdefault(job.machine or "", []).append(job)
    for name, here in by_machine.items():
        gpus = machines[name]
        assert gpus is not None, "all machines have GPUs"
        cost = costs.setdefault(gpus, TopologyCost(scenario.catalogue, gpus))
        there: list[JobRun] = []
        for job in here:
            there = [other for other in there if (other.end_s or 0.0) > (job.start_s or 0.0) + 1e-9]
            found += _misses(cost, tasks[job.job], job, there)
            there.append(job)
    return found


def _misses(cost: TopologyCost, task: Task, job: JobRun, there: Sequence[JobRun]) -> bool:
    left = [WHOLE_MILLI] * cost.gpus.count
    for other in there:
        for device in other.devices:
            left[device] = 0
    beside = [GpuJob(other.profile, other.devices) for other in there]
    return cost.terms(job.profile, job.devices, beside, left).utility < (task.min_utility or 0.0) - 1e-9


@cache
def scenario_1() -> Mapping[str, Outcome]:
    """100 jobs on five machines, over five seeds."""
    scenario = load_scenario(BUNDLED / "thesis-100-jobs.yaml")
    return {policy: outcome(scenario, policy, SEEDS) for policy in (BF, FCFS, PARTITION, PARTITION_P, TA, P, WORTH)}


@cache
def scenario_2(rate_per_minute: float) -> Mapping[str, Outcome]:
    """10,000 jobs on 1,000 machines."""
    scenario = load_scenario(BUNDLED / "thesis-10000-jobs.yaml")
    scenario = replace(scenario, arrivals=replace(scenario.arrivals, rate_per_minute=rate_per_minute))
    return {policy: outcome(scenario, policy, SEEDS[:1]) for policy in RATES[rate_per_minute]}


@cache
def scenario_2_queue() -> Mapping[str, Outcome]:
    """A tenth of the jobs on a tenth of the machines, over five seeds."""
    scenario = load_scenario(BUNDLED / "thesis-10000-jobs.yaml")
    arrivals = scenario.arrivals
    scenario = replace(
        scenario,
        machines=scenario.machines[::TENTH],
        arrivals=replace(arrivals, rate_per_minute=QUEUE_RATE, jobs=QUEUE_JOBS),
    )
    return {policy: outcome(scenario, policy, SEEDS) for policy in (BF, FCFS, PARTITION, TA, P)}


def queue_cells() -> Iterator[Cell]:
    """What the text says of figure 20, where jobs wait."""
    found = scenario_2_queue()
    ratio = found[BF].wait_s / found[FCFS].wait_s
    yield Cell(QUEUE, f"waiting over that of {TITLES[FCFS]}", TITLES[BF], 0.0, 1.0, ratio, Kind.PREDICTED)
    ratio = (found[BF].slowdown - 1.0) / (found[FCFS].slowdown - 1.0)
    yield Cell(QUEUE, f"slow-down over that of {TITLES[FCFS]}", TITLES[BF], 0.0, 1.0, ratio, Kind.PREDICTED)
    yield from _orders(QUEUE, found)
    yield from _figures(QUEUE, found)
    for policy, one in found.items():
        yield Cell(QUEUE, "decision, ms", TITLES[policy], None, None, one.decision_ms, Kind.OURS)


def scenario_1_cells() -> Iterator[Cell]:
    """Figure 19, as the text has it."""
    found = scenario_1()
    for policy in POSTPONING:
        yield Cell(
            SCENARIO_1,
            "jobs below their minimal utility, %",
            TITLES[policy],
            0.0,
            0.0,
            found[policy].violations,
            Kind.PREDICTED,
        )
    yield from _orders(SCENARIO_1, found)
    yield from _figures(SCENARIO_1, found)


def scenario_2_cells() -> Iterator[Cell]:
    """Figure 20, as the text has it; and decision times."""
    for rate in RATES:
        yield from _rate_cells(SCENARIO_2, rate)


def _rate_cells(table: str, rate: float) -> Iterator[Cell]:
    found = scenario_2(rate)
    if P in found:
        yield from _orders(table, found)
    yield from _figures(table, found, f", {rate:g} a minute")
    for policy, one in found.items():
        row, published = f"decision, ms, {rate:g} a minute", _DECISION_MS[policy]
        yield Cell(table, row, TITLES[policy], 0.0, published, one.decision_ms, Kind.PREDICTED)


def _orders(table: str, found: Mapping[str, Outcome]) -> Iterator[Cell]:
    """What is said to be less than what, as ratios."""
    for policy in (TA, P):
        for other in (other for other in (FCFS, BF) if found[other].wait_s > 0.0):
            ratio = found[policy].wait_s / found[other].wait_s
            yield Cell(table, f"waiting over that of {TITLES[other]}", TITLES[policy], 0.0, 1.0, ratio, Kind.PREDICTED)
        ratio = (found[policy].slowdown - 1.0) / (found[FCFS].slowdown - 1.0)
        yield Cell(table, "slow-down over that of FCFS", TITLES[policy], 0.0, 1.0, ratio, Kind.PREDICTED)


def _figures(table: str, found: Mapping[str, Outcome], more: str = "") -> Iterator[Cell]:
    """Our own numbers, of which the thesis gives none."""
    for policy, one in found.items():
        for row, value in (
            ("mean waiting, s", one.wait_s),
            ("mean slow-down, %", 100.0 * (one.slowdown - 1.0)),
            ("jobs slowed, %", one.slowed),
            ("makespan, s", one.makespan_s),
        ):
            yield Cell(table, f"{row}{more}", TITLES[policy], None, None, value, Kind.OURS)


TABLES = (
    ThesisTable(TABLE_7, "six jobs on one machine with four linked GPUs (Table 7, section 4.3.2)", table_7_cells, 2),
    ThesisTable(SCENARIO_1, "100 jobs on 5 machines (Fig. 19), five seeds", scenario_1_cells, 3),
    ThesisTable(SCENARIO_2, "10,000 jobs on 1,000 machines (Fig. 20)", scenario_2_cells, 3),
    ThesisTable(QUEUE, "1,000 jobs on 100 machines, eight a minute (Fig. 20), five seeds", queue_cells, 3),
)
