"""How good `flow`'s forecasts of starts and ends are: questions drawn from simulated queues, and what happened then.

In every round of a run, each task that waits may be asked for: when does it start, and when does it end? Of all these
questions of a load, over its seeds, so many are drawn, each as likely as any other. An interval holds if what happened lies
in it; four of five should. Beside `flow`'s forecast of a start stands what a queue that is served in order would say: how
many waited at least as long, divided by the jobs that the run completed per second, which nobody knows while it runs.

    python -m benchmarks.start_forecasts

Seeds 0 to 2 chose what counts before any error is seen (:mod:`flowsched.cluster.start_errors`); the default seeds report.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import click

from benchmarks.engine_workloads import SIXTY, Crowd, crowd_document, write
from benchmarks.machine import describe_machine, measured_on
from benchmarks.seed_range import SeedRange
from flowsched.cluster.decision import Decisions, Scheduler
from flowsched.cluster.snapshot import Snapshot
from flowsched.cluster.start_errors import SHARE, Interval
from flowsched.commands.solve import intervals
from flowsched_models.runtime import HostFactory
from flowsched_models.text_table import text_table
from flowsched_simulator import EngineOptions, load_scenario
from flowsched_simulator.policies import schedulers
from flowsched_simulator.simulation import Simulation

RESULTS = Path(__file__).parent / "results"
LOADS = (0.90, 1.19)
LOWEST, HIGHEST = 0.75, 0.85
"""Bars of the share of intervals that hold."""


@dataclass(frozen=True)
class Question:
    """A task that waits in a round; seconds of the run's clock."""

    task: str
    asked_s: float
    before: int
    """How many tasks waited at least as long, itself included."""
    start: Interval
    end: Interval | None


@dataclass
class Asking:
    """A scheduler whose waiting tasks are asked for after each round."""

    inner: Scheduler
    asked: list[Question] = field(default_factory=list)
    untold: int = 0
    """Questions without an answer: nothing is planned for the task."""

    @property
    def name(self) -> str:
        """As the scheduler's."""
        return self.inner.name

    def decide(self, snapshot: Snapshot) -> Decisions:
        """One round."""
        decisions = self.inner.decide(snapshot)
        oldest = sorted(decisions.postponements, key=lambda p: (-p.waited_s, p.task))
        for place, postponed in enumerate(oldest, 1):
            told = intervals(postponed, snapshot)
            if "start" not in told:
                self.untold += 1
                continue
            self.asked.append(Question(postponed.task, snapshot.now_s, place, told["start"], told.get("end")))
        return decisions


@dataclass(frozen=True)
class Answer:
    """A question, and what happened; seconds from when it was asked."""

    start_s: float
    end_s: float
    forecast_start_s: float
    forecast_end_s: float
    queue_start_s: float
    start_held: bool
    end_held: bool


def answers(crowd: Crowd, load: float, seed: int) -> tuple[list[Answer], int]:
    """All questions of a run with an answer, and how many had none."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = load_scenario(write(crowd_document(crowd, load, seed), Path(folder)))
    hosts = HostFactory(scenario.catalogue)
    ((_, inner),) = schedulers("flow", scenario, 0, EngineOptions(), hosts)
    asking = Asking(inner)
    run = Simulation(scenario, asking, hosts=hosts, variant="").run()
    starts = {job.job: job.start_s for job in run.jobs}
    ends = {job.job: job.end_s for job in run.jobs}
    rate = len(run.jobs) / max(end for end in ends.values() if end is not None)
    found = []
    for q in asking.asked:
        start_s, end_s = starts[q.task], ends[q.task]
        if start_s is None or end_s is None or q.end is None:
            continue
        found.append(
            Answer(
                start_s - q.asked_s,
                end_s - q.asked_s,
                q.start.expected_s - q.asked_s,
                q.end.expected_s - q.asked_s,
                q.before / rate,
                q.start.earliest_s <= start_s <= q.start.latest_s,
                q.end.earliest_s <= end_s <= q.end.latest_s,
            )
        )
    return found, asking.untold


def measure(crowd: Crowd, load: float, seeds: Sequence[int], questions: int) -> dict[str, Any]:
    """One row: a load."""
    every: list[Answer] = []
    untold = 0
    for seed in seeds:
        found, without = answers(crowd, load, seed)
        every += found
        untold += without
    drawn = random.Random(round(100 * load)).sample(every, min(questions, len(every)))
    return {
        "load": load,
        "asked": len(every) + untold,
        "untold": untold,
        "drawn": len(drawn),
        "starts_held": sum(a.start_held for a in drawn) / len(drawn),
        "ends_held": sum(a.end_held for a in drawn) / len(drawn),
        "start_error_s": median(abs(a.start_s - a.forecast_start_s) for a in drawn),
        "queue_error_s": median(abs(a.start_s - a.queue_start_s) for a in drawn),
        "end_error_s": median(abs(a.end_s - a.forecast_end_s) for a in drawn),
        "wait_s": median(a.start_s for a in drawn),
    }


@click.command()
@click.option("--seeds", type=SeedRange(), default="3-22", show_default=True, help="Of each load.")
@click.option("--questions", default=10_000, show_default=True, type=click.IntRange(1), help="Drawn of each load.")
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(seeds: range, questions: int, keep: bool) -> None:
    """Measure and print a table."""
    rows = [measure(SIXTY, load, seeds, questions) for load in LOADS]
    machine = describe_machine()
    text = f"{table(rows)}\nSeeds {seeds[0]} to {seeds[-1]} of each load, 60 machines, 400 jobs. {measured_on(machine)}"
    click.echo(text)
    if keep:
        result = {"seeds": [seeds[0], seeds[-1]], "rows": rows, "machine": machine}
        (RESULTS / "start_forecasts.json").write_text(json.dumps(result, indent=1) + "\n")
        (RESULTS / "start_forecasts.txt").write_text(text + "\n")
    missed = [row["load"] for row in rows if not all(LOWEST <= row[k] <= HIGHEST for k in ("starts_held", "ends_held"))]
    missed += [row["load"] for row in rows if row["start_error_s"] >= row["queue_error_s"]]
    if missed:
        raise SystemExit(f"a bar is missed at a load of {', '.join(f'{load:.0%}' for load in missed)}")


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each load."""
    lines = [["load", "questions", "no answer", f"starts in {SHARE:.0%}", f"ends in {SHARE:.0%}", "median wait s"]]
    lines[0] += ["error of start s", "of queue / rate s", "error of end s"]
    for row in rows:
        seconds = [f"{row[key]:.1f}" for key in ("wait_s", "start_error_s", "queue_error_s", "end_error_s")]
        shares = [f"{row['untold'] / row['asked']:.1%}", f"{row['starts_held']:.1%}", f"{row['ends_held']:.1%}"]
        lines.append([f"{row['load']:.0%}", f"{row['drawn']:,} of {row['asked']:,}", *shares, *seconds])
    return "\n".join(text_table(lines))


if __name__ == "__main__":
    main()
