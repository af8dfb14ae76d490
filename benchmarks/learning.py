"""What learning run times is worth to `flow`: without it, with it, and where the truth is told, where forecasts are wrong.

The jobs are those of `benchmarks.engine` at 60 machines, ten copies of each of 40 kinds, and a kind is a class. *none*
learns nothing, and takes a task that should have ended by its forecast to have 5 % of its work left, round after round;
*learning* is what `simulate` does; *oracle* knows true factors on run times where they follow from class and machine type,
and of all that runs the true factor and the true progress. *closed* is log(none / learning) / log(none / oracle), over the
runs in which the oracle wins more than 5 %. *informed* (`--informed`) knows of the truth what completions can tell: true
factors of a class from its first completion on, or the spread that errors are drawn with, where they follow from no class.
The best greedy rule with its variant is the one with the fewest SLO violations, then the least mean completion, on workloads
of other seeds; rules that use run times are told what was learnt.

    python -m benchmarks.learning
    python -m benchmarks.learning --worlds kind-0.8 --machines 12 --seeds 3 --no-keep
    python -m benchmarks.learning --worlds kind-0.8,iid-0.4 --seeds 2 --first-seed 1000 --informed --no-keep
    python -m benchmarks.learning --seeds 10 --processes 1 --no-keep --rows a.jsonl
    python -m benchmarks.learning --seeds 10 --first-seed 10 --processes 1 --no-keep --rows b.jsonl
    python -m benchmarks.learning --merge a.jsonl --merge b.jsonl

The last three run seeds in two parts, and print and keep the table of both: the rule to compare with is chosen on seeds that
are the same for all parts.

Seeds from 0 on are for reporting; those from 1000 on are for choosing constants.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from benchmarks.engine_workloads import SIXTY, TYPES, crowd_document
from benchmarks.machine import describe_machine, measured_on
from benchmarks.policies import ENGINE, interval
from flowsched.cluster.decision import Decisions, Scheduler
from flowsched.cluster.learning import Learning
from flowsched.cluster.learnt_run_times import LearntRunTime, LearntRunTimes
from flowsched.cluster.run_time_errors import RunTimeErrors
from flowsched.cluster.snapshot import MILLI, Running, Snapshot, Task
from flowsched.support.arrays import FloatArray
from flowsched_models.document import parse_document
from flowsched_models.neutral import NEUTRAL
from flowsched_models.runtime import HostFactory
from flowsched_models.text_table import text_table
from flowsched_simulator import Options, Run
from flowsched_simulator.comparison import best_variant, simulate_variants
from flowsched_simulator.drawn import selection_seeds
from flowsched_simulator.policies import schedulers
from flowsched_simulator.scenario import Objective, Scenario, Stragglers
from flowsched_simulator.scenario_file import read_scenario
from flowsched_simulator.simulation import Simulation
from flowsched_simulator.world import ErrorOf, World

RESULTS = Path(__file__).parent / "results"
RULES = ("best-fit", "lpt", "kube-default")
METRICS = ("mean_completion_s", "p95_completion_s", "makespan_s")
MODES = ("none", "learning", "oracle")
INFORMED = "informed"
WORTH_CLOSING = 1.05
"""Runs count for *closed* where *none* is that much above *oracle*."""
TOLD_ENDS = 10**6
"""Completions that a spread which is told counts for."""
COPIES = SIXTY.copies
JOBS_PER_MACHINE = 20 / 3


class Truth(NamedTuple):
    """How the truth differs from what policies are told."""

    sigma: float = 0.0
    """Standard deviation of the logarithm of the model error."""
    of: ErrorOf = "job"
    """What draws it."""
    neutral: bool = False
    """Whether all jobs are told to be like each other, of the neutral profile."""
    sensitivity: float = 0.0
    """Standard deviation of the logarithm of the error of sensitivities."""
    stragglers: Stragglers | None = None


WORLDS: Mapping[str, Truth] = {
    "kind-0.8": Truth(0.8, "class"),
    "iid-0.4": Truth(0.4, "job-and-machine"),
    "neutral": Truth(neutral=True),
    "type-0.4": Truth(0.4, "class-and-machine-type"),
    "exact": Truth(),
    "job-0.4": Truth(0.4, "job"),
    "sensitivity-0.4": Truth(sensitivity=0.4),
    "stragglers": Truth(stragglers=Stragglers(0.03, 4.0)),
}
DEFAULT = ("kind-0.8", "iid-0.4", "neutral", "type-0.4", "exact")


class Cell(NamedTuple):
    """One workload in one world."""

    world: str
    load: float
    seed: int
    machines: int


def scenario_of(cell: Cell) -> Scenario:
    """The jobs as policies are told of them, with their classes, and what of the truth a scenario says."""
    size = replace(SIXTY, of_each_type=cell.machines // len(TYPES))
    document = crowd_document(
        replace(size, draws=round(size.machines * JOBS_PER_MACHINE / COPIES)), cell.load, cell.seed
    )
    drawn = read_scenario(parse_document(json.dumps(document), "crowd"))
    classes: dict[tuple[str, float, int], str] = {}
    tasks, profiles, factors = [], {}, {}
    truth = WORLDS[cell.world]
    for task in drawn.tasks:
        kind = task.profile, task.scale, task.request_milli
        told = replace(task, run_class=classes.setdefault(kind, f"kind-{len(classes) + 1}"))
        if truth.neutral:
            profiles[task.name], factors[task.name] = task.profile, task.scale
            told = replace(told, profile=NEUTRAL, scale=1.0)
        tasks.append(told)
    return replace(
        drawn,
        tasks=tuple(tasks),
        true_profiles=profiles,
        run_time_factors=factors,
        sensitivity_error=truth.sensitivity,
        stragglers=truth.stragglers,
    )


class _FivePercentLeft(RunTimeErrors):
    """A task that goes on beyond 95 % of its forecast has 5 % of it left, however long it has run."""

    def length(self, done: float, error: float) -> float:  # noqa: ARG002
        return max(1.0, done + 0.05)

    def lengths(self, done: FloatArray, errors: FloatArray) -> FloatArray:  # noqa: ARG002
        return np.maximum(1.0, done + 0.05)


class _NothingLonger(RunTimeErrors):
    """A task takes as long as its forecast, which is the truth."""

    def length(self, done: float, error: float) -> float:  # noqa: ARG002
        return 1.0

    def lengths(self, done: FloatArray, errors: FloatArray) -> FloatArray:  # noqa: ARG002
        return np.ones(len(done))


class _TrueFactors(LearntRunTimes):
    """The truth where it follows from class and machine type."""

    def __init__(self, found: Mapping[tuple[str, str], float]) -> None:
        super().__init__()
        object.__setattr__(self, "found", found)
        object.__setattr__(self, "types", sorted({kind for _, kind in found}))

    found: Mapping[tuple[str, str], float]
    types: list[str]

    def shown(self, run_class: str, machine_type: str | None = None) -> LearntRunTime | None:
        known = [self.found[run_class, kind] for kind in self.types if (run_class, kind) in self.found]
        if not known:
            return None
        factor = self.found.get((run_class, str(machine_type)), math.exp(float(np.mean(np.log(known)))))
        return LearntRunTime(factor, 0.0, 1, 1)

    def factors(self, run_class: str) -> tuple[tuple[str, float], ...]:
        return tuple((kind, self.found[run_class, kind]) for kind in self.types if (run_class, kind) in self.found)

    @property
    def in_use(self) -> bool:
        return True


class _CompletedClasses(_TrueFactors):
    """The same of classes with completions alone."""

    def __init__(self, found: Mapping[tuple[str, str], float], completed: frozenset[str]) -> None:
        super().__init__({of: factor for of, factor in found.items() if of[0] in completed})


class Told:
    """A scheduler that is shown other estimates than the cluster's state has: what a mode knows of the truth."""

    def __init__(self, scheduler: Scheduler, mode: str) -> None:
        self.name, self._scheduler, self._mode = scheduler.name, scheduler, mode
        self.truth: TrueRunTimes | None = None
        self.cpu_s = 0.0

    def decide(self, snapshot: Snapshot) -> Decisions:
        """The decisions on what the mode knows."""
        if self._mode == "none":
            snapshot = replace(snapshot, run_time_errors=_FivePercentLeft())
        elif self._mode == "oracle":
            assert self.truth is not None
            running = tuple(self.truth.now(r, snapshot.now_s) for r in snapshot.running)
            known = self.truth.before
            snapshot = replace(snapshot, running=running, run_time_errors=_NothingLonger(), learnt_run_times=known)
        elif self._mode == INFORMED:
            assert self.truth is not None
            snapshot = self.truth.informed(snapshot)
        began = time.process_time()
        decisions = self._scheduler.decide(snapshot)
        self.cpu_s += time.process_time() - began
        return decisions


class TrueRunTimes:
    """True run times over what the profile that is told forecasts of them, as far as an oracle knows them."""

    def __init__(self, cell: Cell, scenario: Scenario, world: World) -> None:
        self._world, self._scenario = world, scenario
        self._hosts = {m.type: HostFactory(scenario.catalogue).host(m.type, ()) for m in scenario.machines}
        found = {}
        truth = WORLDS[cell.world]
        self._sigma = truth.sigma
        if truth.neutral or truth.of.startswith("class"):
            first = {task.run_class: task for task in scenario.tasks}
            machines = {machine.type: machine for machine in scenario.machines}
            for run_class, task in first.items():
                for kind, machine in machines.items():
                    cores = tuple(range(min(machine.vcpus, task.request_milli // MILLI)))
                    found[run_class, kind] = world.error_factor(task.name, machine.name) * self._profiles(
                        task, kind, cores
                    )
        self.before = _TrueFactors(found)
        """What is known before a task runs: what follows from its class and the machine's type."""

    def informed(self, snapshot: Snapshot) -> Snapshot:
        """A snapshot in which is known what completions can have told by then."""
        if not self.before.found:
            told = RunTimeErrors.of(TOLD_ENDS, TOLD_ENDS * self._sigma**2)
            return replace(snapshot, run_time_errors=told)
        completed = frozenset(entry.run_class for entry in snapshot.learnt_run_times.classes)
        running = tuple(self.now(r, snapshot.now_s) if r.task.run_class in completed else r for r in snapshot.running)
        known = _CompletedClasses(self.before.found, completed)
        return replace(snapshot, running=running, learnt_run_times=known)

    def now(self, running: Running, now_s: float) -> Running:
        """A running task with its true factor, and the share of its work that is done."""
        name = running.machine
        kind = next(m.type for m in self._scenario.machines if m.name == name)
        factor = self._world.error_factor(running.task.name, name) * self._profiles(running.task, kind, running.cores)
        task, known = running.task, self.before.of(running.task.run_class, kind)
        if known is not None and not math.isclose(known.factor, factor):
            # Of another profile the factor depends on the cores, which were not known before.
            task = replace(task, run_class="")
        progress = min(1.0, self._world.progress(task.name, name, now_s))
        return replace(running, task=task, factor=factor, progress=progress)

    def _profiles(self, task: Task, kind: str, cores: tuple[int, ...]) -> float:
        """Run time alone by the true profile over that by the one that is told."""
        true, told = self._scenario.true_profiles.get(task.name, task.profile), task.profile
        host, jobs = self._hosts[kind], self._scenario.catalogue.jobs
        if true == told:
            return 1.0
        threads = task.threads_on(len(cores), jobs[told])
        return host.alone_s(true, threads, cores) / host.alone_s(told, threads, cores)


LEARNING: Mapping[str, Learning] = {"none": "off", "learning": "on", "oracle": "observe", INFORMED: "observe"}
"""The oracle has classes, by which it knows true factors, and not what is learnt of them; so has *informed*."""


def options_of(cell: Cell, seed: int, mode: str) -> Options:
    """The truth of a world, drawn by a seed."""
    truth = WORLDS[cell.world]
    return Options(seed=seed, model_error=truth.sigma, error_of=truth.of, learning=LEARNING[mode])


def run_of(cell: Cell, mode: str) -> dict[str, Any]:
    """What `flow` reaches in a mode, and the CPU time of its rounds and of the whole run."""
    scenario = scenario_of(cell)
    hosts = HostFactory(scenario.catalogue)
    ((_, scheduler),) = list(schedulers("flow", scenario, cell.seed, ENGINE, hosts))
    told = Told(scheduler, mode)
    simulation = Simulation(scenario, told, options_of(cell, cell.seed, mode), hosts=hosts)
    told.truth = TrueRunTimes(cell, scenario, simulation.world)
    began = time.process_time()
    run = simulation.run()
    return {
        **figures(run),
        "rounds": len(run.rounds),
        "rounds_cpu_s": round(told.cpu_s, 3),
        "cpu_s": round(time.process_time() - began, 3),
    }


def figures(run: Run) -> dict[str, float]:
    """Of any policy."""
    summary = run.summary()
    return {**{m: summary[m] for m in METRICS}, "slo_violation_percent": 100.0 * summary["slo_violation_ratio"]}


@lru_cache
def best_greedy(world: str, load: float, machines: int, reported: tuple[int, ...]) -> tuple[str, str]:
    """The rule and its variant that are best on workloads of other seeds than are reported."""
    summaries: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for seed in selection_seeds(reported):
        cell = Cell(world, load, seed, machines)
        scenario = scenario_of(cell)
        for rule in RULES:
            for run in simulate_variants(scenario, rule, options=options_of(cell, seed, "learning")):
                summaries[f"{rule}|{run.variant}"].append(run.summary())
    rule, variant = best_variant(summaries, Objective.COMPLETION).split("|")
    return rule, variant


def row_of(asked: tuple[Cell, tuple[int, ...], tuple[str, ...]]) -> dict[str, Any]:
    """All modes on one workload in one world, and the best greedy rule."""
    cell, reported, modes = asked
    rule, variant = best_greedy(cell.world, cell.load, cell.machines, reported)
    (greedy,) = simulate_variants(
        scenario_of(cell), rule, options=options_of(cell, cell.seed, "learning"), variants={variant}
    )
    found = {mode: run_of(cell, mode) for mode in modes}
    return {**cell._asdict(), "greedy": {"rule": rule, "variant": variant, **figures(greedy)}, **found}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line per world and load: means over the best greedy's, what is closed, and ratios to *none* with 95 % intervals."""
    by_world: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        for load in (f"{row['load']:.0%}", "all"):
            by_world[row["world"], load].append(row)
    heads = ["world", "load", "runs", "none", "learning", "oracle", "closed (runs)", "learning / none", "its p95"]
    bounded = all(INFORMED in row for row in rows)
    lines = [[*heads, "SLO windows %: none", "learning", *(["informed closes"] if bounded else [])]]
    for (world, load), found in by_world.items():
        over = [f"{geometric([r[mode][METRICS[0]] / r['greedy'][METRICS[0]] for r in found]):.3f}" for mode in MODES]
        ratios = []
        for metric in METRICS[:2]:
            logs = np.array([math.log(row["learning"][metric] / row["none"][metric]) for row in found])
            mean, low, high = (math.exp(value) for value in interval(logs))
            ratios.append(f"{mean:.3f} [{low:.3f}, {high:.3f}]")
        slo = [f"{np.mean([row[mode]['slo_violation_percent'] for row in found]):.2f}" for mode in MODES[:2]]
        bound = [closed_text(found, INFORMED)] if bounded else []
        lines.append([world, load, str(len(found)), *over, closed_text(found), *ratios, *slo, *bound])
    return (
        "mean completion of flow over that of the best greedy rule with learning, geometric means over seeds\n\n"
        + "\n".join(text_table(lines, left=range(len(lines[0])), indent=""))
    )


def closed(rows: Sequence[Mapping[str, Any]], by: str = "learning") -> tuple[float, int] | None:
    """Share of the oracle's gain that a mode has, over the runs where there is one, and how many these are."""
    gains = []
    for row in rows:
        none, own, oracle = (row[mode][METRICS[0]] for mode in ("none", by, "oracle"))
        if none / oracle > WORTH_CLOSING:
            gains.append((math.log(none / own), math.log(none / oracle)))
    return (math.fsum(g for g, _ in gains) / math.fsum(o for _, o in gains), len(gains)) if gains else None


def merged(parts: Sequence[Path]) -> list[dict[str, Any]]:
    """The rows of several runs, by seed, each cell once.

    Raises ``ValueError`` where two have the same cell.
    """
    found: dict[Cell, dict[str, Any]] = {}
    for part in parts:
        for line in part.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            cell = Cell(row["world"], row["load"], row["seed"], row["machines"])
            if cell in found:
                raise ValueError(f"{part}: {cell} is there twice")
            found[cell] = row
    return [found[cell] for cell in sorted(found, key=lambda cell: cell.seed)]


def closed_text(rows: Sequence[Mapping[str, Any]], by: str = "learning") -> str:
    """The same for a table."""
    found = closed(rows, by)
    return "-" if found is None else f"{found[0]:.0%} ({found[1]})"


def geometric(ratios: Sequence[float]) -> float:
    """Geometric mean."""
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def rows_of(
    cells: Sequence[Cell], reported: tuple[int, ...], modes: tuple[str, ...], processes: int | None
) -> Iterator[dict[str, Any]]:
    """A row per cell, in their order."""
    with multiprocessing.Pool(processes) as pool:
        yield from pool.imap(row_of, [(cell, reported, modes) for cell in cells])


@click.command()
@click.option("--worlds", default=",".join(DEFAULT), show_default=True, help=f"Of {', '.join(WORLDS)}.")
@click.option("--loads", default="0.74,1.19", show_default=True)
@click.option("--machines", default=60, show_default=True, help="A multiple of three.")
@click.option("--seeds", default=10, show_default=True)
@click.option("--first-seed", default=0, show_default=True)
@click.option("--informed", is_flag=True, help="Also run a scheduler that knows what one completion can tell.")
@click.option("--processes", type=int, help="At once; default: one per core.")
@click.option("--rows", type=click.Path(path_type=Path, dir_okay=False), help="Write rows here as they come.")
@click.option(
    "--merge",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Run nothing: the table of these files of --rows.",
)
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(
    worlds: str,
    loads: str,
    machines: int,
    seeds: int,
    first_seed: int,
    informed: bool,
    processes: int | None,
    rows: Path | None,
    merge: tuple[Path, ...],
    keep: bool,
) -> None:
    """Run the worlds and print their table."""
    unknown = set(worlds.split(",")) - set(WORLDS)
    if unknown:
        raise click.UsageError(f"--worlds: there is no {min(unknown)}; known: {', '.join(WORLDS)}")
    reported = tuple(range(first_seed, first_seed + seeds))
    cells = [
        Cell(name, float(load), seed, machines)
        for seed in reported
        for name in worlds.split(",")
        for load in loads.split(",")
    ]
    modes = (*MODES, INFORMED) if informed else MODES
    found = merged(merge)
    for row in () if merge else rows_of(cells, reported, modes, processes):
        found.append(row)
        if rows is not None:
            with rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    machine = describe_machine()
    text = f"{table(found)}\n{measured_on(machine)}"
    if keep:
        RESULTS.mkdir(exist_ok=True)
        plain = json.dumps({"machine": machine, "rows": found}, indent=1)
        (RESULTS / "learning.json").write_text(plain + "\n", encoding="utf-8")
        (RESULTS / "learning.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    main()
