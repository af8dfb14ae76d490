"""Chapter 4 of the thesis: topology-aware placement of jobs on machines with linked GPUs.

Table 7's prototype runs with values that :mod:`benchmarks.thesis_table7` fits; the two simulations with the profiles of
chapter 3. What the thesis says of their figures in words are orders: here ratios that must be below 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean

from benchmarks import thesis_table7
from benchmarks.thesis_cell import Cell, Kind, ThesisTable
from benchmarks.thesis_table7 import QUANTITIES, duration_s, events, job_of, linked, slowed
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Task
from flowsched.gpu.devices import WHOLE_MILLI, GpuJob
from flowsched.gpu.topology_cost import TopologyCost
from flowsched_simulator import EngineOptions, Options, Run, Scenario, load_scenario, simulate
from flowsched_simulator.run import JobRun
from flowsched_simulator.scenario_file import BUNDLED
from flowsched_simulator.workload import drawn_workload

TABLE_7, SCENARIO_1, SCENARIO_2, QUEUE = "table-7", "scenario-1", "scenario-2", "scenario-2-queue"
BF, FCFS, TA, P, WORTH = "topo-best-fit", "fcfs", "topo-aware", "topo-aware-p", "topo-worth-p"
PARTITION, PARTITION_P, IN_ORDER = "topo-bipartition", "topo-bipartition-p", "topo-bipartition-fifo"
TITLES = {
    BF: "BF",
    FCFS: "FCFS",
    TA: "TOPO-AWARE by flow",
    P: "TOPO-AWARE-P by flow",
    PARTITION: "TOPO-AWARE by bi-partitioning",
    PARTITION_P: "TOPO-AWARE-P by bi-partitioning",
    IN_ORDER: "TOPO-AWARE in strict order",
    WORTH: "sets worth their demand, by flow",
}
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
IN_SCENARIO_1 = (BF, FCFS, IN_ORDER, PARTITION, PARTITION_P, TA, P, WORTH)
_DECISION_MS = {BF: 440.0, FCFS: 450.0, PARTITION: 3000.0, TA: 3000.0, P: 3000.0}
"""Mean decision times of section 4.4 on the thesis's machine: only their ratios can be compared."""
_SAME_RATIO = 0.5
"""Share of a ratio of decision times by which ours may differ from it."""
LESS, CLEARLY_LESS = 0.999, 0.95
"""The largest ratio that counts as less; and where the thesis says "clearly" or "significantly"."""
_NOTHING = 1e-6
"""Seconds of waiting, or shares of a run, that are rounding."""


def run_of(scenario: Scenario, policy: str, seed: int = 0) -> Run:
    """A run of one policy."""
    variant = _VARIANT if policy in (BF, FCFS, PARTITION, PARTITION_P, IN_ORDER) else None
    print(f"{scenario.name}, seed {seed}: {policy}", file=sys.stderr)
    return simulate(scenario, policy, variant=variant, options=Options(seed=seed), engine=_NO_DUE)


def table_7_cells() -> Iterator[Cell]:
    """Makespans and events of section 4.3.2."""
    runs = thesis_table7.outcomes(None, (*thesis_table7.POLICIES, WORTH))

    def row(
        name: str,
        published: Mapping[str, tuple[float, float]],
        ours: Callable[[Run], float],
        band: float,
        what: str = "",
        implied: Collection[str] = (),
    ) -> Iterator[Cell]:
        seen: set[object] = set()
        for policy, (low, high) in published.items():
            run = runs[policy]
            if (policy, what) in thesis_table7.TARGETS:
                kind = Kind.FITTED
            elif policy in implied or thesis_table7.is_fitted_number(what, low, high) or events(run) in seen:
                kind = Kind.DERIVED
            else:
                kind = Kind.PREDICTED
            seen.add(events(run))
            yield Cell(TABLE_7, name, TITLES[policy], low, high, ours(run), kind, band)

    makespans_s = {FCFS: 456.2, BF: 461.7, PARTITION: 454.2, TA: 454.2, PARTITION_P: 356.9, P: 356.9}
    published = {policy: (s, s) for policy, s in makespans_s.items()}
    yield from row("makespan, s", published, QUANTITIES["makespan"], 10.0, "makespan")
    least = runs[P].makespan_s
    for policy in (FCFS, BF, TA):
        ratio = runs[policy].makespan_s / least
        yield Cell(
            TABLE_7, "makespan over that of TOPO-AWARE-P", TITLES[policy], 1.27, 1.30, ratio, Kind.DERIVED, 0.005
        )
    others = [runs[policy].makespan_s for policy in (FCFS, BF, TA)]
    apart = 100.0 * (max(others) / min(others) - 1.0)
    yield Cell(TABLE_7, "largest of these over the smallest, %", "", 0.0, 2.0, apart, Kind.DERIVED)
    published = dict.fromkeys((FCFS, BF, TA, P), (65.0, 75.0))
    yield from row("job 0 ends at, s", published, QUANTITIES["job 0 ends"], 0.0, "job 0 ends")
    published = {**dict.fromkeys((FCFS, BF, TA), (240.0, 240.0)), **dict.fromkeys((PARTITION_P, P), (120.0, 120.0))}
    yield from row("job 3 takes, s", published, QUANTITIES["job 3 takes"], 12.0, "job 3 takes")
    published = {**dict.fromkeys((FCFS, BF, TA), (0.0, 0.0)), P: (1.0, 3.0)}
    # Under P job 3 takes the seconds that are fitted only with peer to peer.
    yield from row(
        "jobs with peer to peer", published, lambda run: float(sum(map(linked, run.jobs))), 0.0, implied=(P,)
    )
    spread, packed = dict.fromkeys((FCFS, BF, TA), (50.0, 50.0)), {P: (0.0, 0.0)}
    for published, band in ((spread, 15.0), (packed, 1.0)):
        name = "slow-down of jobs 1 and 4 in the mean, %"
        yield from row(name, published, lambda run: 100.0 * fmean(slowed(job_of(run, n)) for n in (1, 4)), band)
    for policy, (low, high) in {**spread, **packed}.items():
        lost = 100.0 * slowed(job_of(runs[policy], 3))
        band = 1.0 if policy == P else 15.0
        yield Cell(TABLE_7, "slow-down of job 3, %", TITLES[policy], low, high, lost, Kind.DERIVED, band)
    yield Cell(TABLE_7, "makespan, s", TITLES[WORTH], None, None, runs[WORTH].makespan_s, Kind.OURS)


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

    def same_runs(self, other: Outcome) -> bool:
        """Whether the jobs of another outcome ran as those of this one: then it is no second value."""
        return replace(self, decision_ms=0.0) == replace(other, decision_ms=0.0)


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
    return {policy: outcome(scenario, policy, SEEDS) for policy in IN_SCENARIO_1}


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
    yield from _figure_20(QUEUE, found)
    yield from _figures(QUEUE, found)
    for policy, one in found.items():
        yield Cell(QUEUE, "decision, ms", TITLES[policy], None, None, one.decision_ms, Kind.OURS)


def scenario_1_cells() -> Iterator[Cell]:
    """Figure 19, as the text has it."""
    found = scenario_1()
    patient = {policy: found[policy] for policy in (P, PARTITION_P)}
    row = "jobs below their minimal utility, %"
    yield from _judged(SCENARIO_1, row, patient, lambda one: one.violations, 0.0)
    yield from _judged(SCENARIO_1, "jobs that P slows, %", patient, lambda one: one.slowed, 0.0)
    new = {policy: found[policy] for policy in (TA, P, IN_ORDER)}
    for other in (FCFS, BF):
        yield from _less(SCENARIO_1, "waiting", _wait_s, new, other, found[other], CLEARLY_LESS)
    less = {policy: found[policy] for policy in (BF, TA, P, IN_ORDER)}
    yield from _less(SCENARIO_1, "jobs slowed", lambda one: one.slowed, less, FCFS, found[FCFS], LESS)
    for other in (TA, IN_ORDER):
        for what, value in (("waiting", _wait_s), ("slow-down", _excess)):
            yield from _less(SCENARIO_1, what, value, {P: found[P]}, other, found[other], LESS)
    yield from _figures(SCENARIO_1, found)
    for policy in (BF, FCFS, PARTITION, IN_ORDER):
        row = "jobs below their minimal utility, %"
        yield Cell(SCENARIO_1, row, TITLES[policy], None, None, found[policy].violations, Kind.OURS)


def scenario_2_cells() -> Iterator[Cell]:
    """Figure 20, as the text has it; and decision times."""
    for rate in RATES:
        yield from _rate_cells(SCENARIO_2, rate)


def _rate_cells(table: str, rate: float) -> Iterator[Cell]:
    found, more = scenario_2(rate), f", {rate:g} a minute"
    yield from _figure_20(table, found, more)
    yield from _figures(table, found, more)
    for policy, one in found.items():
        yield Cell(table, f"decision, ms{more}", TITLES[policy], None, None, one.decision_ms, Kind.OURS)
    for policy, kind in _kinds(found).items():
        if policy != FCFS:
            ratio, row = _DECISION_MS[policy] / _DECISION_MS[FCFS], f"decision over that of FCFS{more}"
            ours = found[policy].decision_ms / found[FCFS].decision_ms
            yield Cell(table, row, TITLES[policy], ratio, ratio, ours, kind, _SAME_RATIO * ratio)


def _wait_s(one: Outcome) -> float:
    return one.wait_s


def _excess(one: Outcome) -> float:
    return one.slowdown - 1.0


def _figure_20(table: str, found: Mapping[str, Outcome], more: str = "") -> Iterator[Cell]:
    """FCFS is worst, then BF; the topology-aware ones are significantly better than both, in slow-down and in waiting."""
    new = {policy: found[policy] for policy in (TA, P) if policy in found}
    for what, value in (("waiting", _wait_s), ("slow-down", _excess)):
        for other, better, most in ((FCFS, {BF: found[BF]}, LESS), (FCFS, new, CLEARLY_LESS), (BF, new, CLEARLY_LESS)):
            yield from _less(table, what, value, better, other, found[other], most, more)


def _less(
    table: str,
    what: str,
    value: Callable[[Outcome], float],
    better: Mapping[str, Outcome],
    other: str,
    worse: Outcome,
    most: float,
    more: str = "",
) -> Iterator[Cell]:
    """What is said to be less than the same of another policy, as ratios of which ``most`` is the largest.

    Where there is nothing of both, neither is less: the ratio is 1.
    """
    row, least = f"{what} over that of {TITLES[other]}{more}", max(value(worse), _NOTHING)
    yield from _judged(table, row, better, lambda one: max(value(one), _NOTHING) / least, most)


def _judged(
    table: str, row: str, found: Mapping[str, Outcome], value: Callable[[Outcome], float], most: float
) -> Iterator[Cell]:
    """Values that should be from 0 to ``most``."""
    for policy, kind in _kinds(found).items():
        yield Cell(table, row, TITLES[policy], 0.0, most, value(found[policy]), kind)


def _kinds(found: Mapping[str, Outcome]) -> Mapping[str, Kind]:
    """By policy: the first of those with the same runs is predicted, and implies what the others have."""
    kinds: dict[str, Kind] = {}
    for policy, one in found.items():
        repeats = any(one.same_runs(found[before]) for before in kinds)
        kinds[policy] = Kind.DERIVED if repeats else Kind.PREDICTED
    return kinds


def _figures(table: str, found: Mapping[str, Outcome], more: str = "") -> Iterator[Cell]:
    """Our own numbers, of which the thesis gives none."""
    for policy, one in found.items():
        for row, number in (
            ("mean waiting, s", one.wait_s),
            ("mean slow-down, %", 100.0 * (one.slowdown - 1.0)),
            ("jobs slowed, %", one.slowed),
            ("makespan, s", one.makespan_s),
        ):
            yield Cell(table, f"{row}{more}", TITLES[policy], None, None, number, Kind.OURS)


TABLES = (
    ThesisTable(TABLE_7, "six jobs on one machine with four linked GPUs (Table 7, section 4.3.2)", table_7_cells, 2),
    ThesisTable(SCENARIO_1, "100 jobs on 5 machines (Fig. 19), five seeds", scenario_1_cells, 3),
    ThesisTable(SCENARIO_2, "10,000 jobs on 1,000 machines (Fig. 20)", scenario_2_cells, 3),
    ThesisTable(QUEUE, "1,000 jobs on 100 machines, eight a minute (Fig. 20), five seeds", queue_cells, 3),
)
