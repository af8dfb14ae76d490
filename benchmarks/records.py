"""What keeping a record of every round costs the rounds, at 12,500 machines.

Blocks of rounds without records and with them take turns, back to back or one a second; a pair of neighbouring blocks is
compared, so a slow minute of the machine hits both. The time of a round is from the fleet to decisions and, with records,
a recipe in the writer's queue; what the writer does meanwhile shows as far as it holds the rounds up. It is measured by the
clock and, where the system says how long a thread stood in line for a processor, without that: then what others do on the
machine does not count, and waiting for the interpreter's lock does. ``thread`` makes records in a thread of the same
process: what the writer would cost without a process of its own.

    python -m benchmarks.records
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.bulk_workload import MIB, SIZES_MILLI, Workload, cluster, many_classes
from benchmarks.machine import describe_machine
from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.cluster.settings import Settings
from flowsched.records.record import Recipe
from flowsched.records.record_file import pack_record
from flowsched.records.record_maker import RecordMaker
from flowsched.records.record_writer import RecordWriter
from flowsched.round.linear.bulk_outcome import BulkOutcome
from flowsched.round.linear.bulk_round import decide
from flowsched.solvers import Solver, make_solver
from flowsched_k8s.records.round_trace import Filtered, KubernetesTrace
from flowsched_models.text_table import text_table

RESULTS = Path(__file__).parent / "results"
MACHINES = 12_500
CLASSES = 20
RUNNING = 12
"""Tasks that run on every machine of the full cluster."""
KEEP = 20


@click.command()
@click.option("--machines", default=MACHINES, show_default=True)
@click.option("--only", default=None, help="One scenario by its name.")
@click.option("--pairs", default=20, show_default=True, help="Pairs of blocks, rounds back to back.")
@click.option("--rounds", default=10, show_default=True, help="Rounds of a block, back to back.")
@click.option("--period-pairs", default=8, show_default=True, help="Pairs of blocks, one round a second.")
@click.option("--period-rounds", default=4, show_default=True, help="Rounds of a block, one a second.")
@click.option("--json", "as_json", is_flag=True)
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(
    machines: int,
    only: str | None,
    pairs: int,
    rounds: int,
    period_pairs: int,
    period_rounds: int,
    as_json: bool,
    keep: bool,
) -> None:
    """Measure and print a table."""
    rows = []
    for name, tasks, full in (("2,000 tasks", 2000, False), ("4,000 tasks", 4000, False), ("full", 4000, True)):
        if only not in (None, name):
            continue
        bench = Bench(machines, tasks, full)
        sizes = bench.describe()
        for writer, pace, count, length, period_s in (
            ("process", "back to back", pairs, rounds, 0.0),
            ("thread", "back to back", max(2, pairs // 2), rounds, 0.0),
            ("process", "one a second", period_pairs, period_rounds, 1.0),
        ):
            figures = bench.measure(writer, count, length, period_s)
            rows.append({"scenario": name, "writer": writer, "pace": pace, **sizes, **figures})
            click.echo(f"{name}, {writer}, {pace}: {100 * figures['overhead']['median']:+.1f} % by the clock", err=True)
    outcome = {"rows": rows, "machine": describe_machine()}
    text = table(rows)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "records.json").write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "records.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(json.dumps(outcome) if as_json else text)


@dataclass(frozen=True)
class Round:
    """What one round took, in ms."""

    wall: float
    held: float
    """The same without waiting for a processor."""
    cpu: float


Block = list[Round]


def queued_s() -> float:
    """How long this thread has waited for a processor so far; 0 where the system does not say."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


class Bench:
    """One cluster with one set of pending tasks, decided on again and again."""

    def __init__(self, machines: int, tasks: int, full: bool) -> None:
        self.work = many_classes(machines, tasks, CLASSES)
        if full:
            self.work = replace(self.work, fleet=full_cluster(machines))
        self.solver = make_solver("ortools")
        self.number = 0

    def describe(self) -> dict[str, Any]:
        """Sizes, and what it takes to make and to hand over one record when nothing else is going on."""
        outcome = decide(self.work.cluster(), solver=self.solver, keep_record=True)
        recipe = round_recipe(self.work, self.solver, outcome, 0)
        maker = RecordMaker()
        packed = maker.make(recipe)
        here, there = [], []
        for _ in range(5):
            began = time.perf_counter()
            pack_record(recipe())
            here.append((time.perf_counter() - began) * 1e3)
            began = time.perf_counter()
            maker.make(recipe)
            there.append((time.perf_counter() - began) * 1e3)
        maker.close()
        return {
            "machines": self.work.fleet.machines.machine_count,
            "running": len(self.work.fleet),
            "tasks": sum(map(len, self.work.tasks)),
            "placed": len(outcome.placements),
            "groups": outcome.counts["groups"],
            "record_bytes": len(packed),
            "make_ms": float(np.median(here)),
            "make_in_process_ms": float(np.median(there)),
        }

    def measure(self, kind: str, pairs: int, rounds: int, period_s: float) -> dict[str, Any]:
        """Blocks in turns; which of a pair comes first alternates."""
        with tempfile.TemporaryDirectory() as folder:
            make = None if kind == "process" else pack_here
            writer = RecordWriter(Path(folder), KEEP, names=r"round-[0-9]+", make=make)
            # Both kinds once unmeasured: the process starts, memory is claimed.
            self.block(None, 3, 0.0)
            self.block(writer, 3, 0.0)
            writer.flush()
            before = writer.written, writer.dropped, writer.failed
            blocks: dict[bool, list[Block]] = {False: [], True: []}
            for pair in range(pairs):
                for on in (False, True) if pair % 2 else (True, False):
                    blocks[on].append(self.block(writer if on else None, rounds, period_s))
                    writer.flush()
            after = writer.written, writer.dropped, writer.failed
            writer.close()
        written, dropped, failed = (b - a for a, b in zip(before, after, strict=True))
        if written + dropped + failed != pairs * rounds:
            raise RuntimeError("records are missing from the counters")
        return {
            "rounds": pairs * rounds,
            "without_ms": spread([r.wall for block in blocks[False] for r in block]),
            "with_ms": spread([r.wall for block in blocks[True] for r in block]),
            "overhead": overhead(blocks, "wall"),
            "overhead_without_queueing": overhead(blocks, "held"),
            "overhead_cpu": overhead(blocks, "cpu"),
            "written": written,
            "dropped": dropped,
            "failed": failed,
        }

    def block(self, writer: RecordWriter | None, rounds: int, period_s: float) -> Block:
        """Rounds one after the other, each measured on this thread."""
        measured = []
        due = time.perf_counter()
        for _ in range(rounds):
            self.number += 1
            began = time.perf_counter(), queued_s(), time.thread_time()
            outcome = decide(self.work.cluster(), solver=self.solver, keep_record=writer is not None)
            if writer is not None:
                recipe = round_recipe(self.work, self.solver, outcome, self.number)
                writer.add(f"round-{self.number}", recipe)
            ended = time.perf_counter(), queued_s(), time.thread_time()
            wall, queued, cpu = ((b - a) * 1e3 for a, b in zip(began, ended, strict=True))
            measured.append(Round(wall, wall - queued, cpu))
            due += period_s
            time.sleep(max(0.0, due - time.perf_counter()))
        return measured


def round_recipe(work: Workload, solver: Solver, outcome: BulkOutcome, number: int) -> Recipe:
    """The record of a round as the Kubernetes side keeps it: with titles, and what filters said to every class."""
    assert outcome.record is not None
    fleet, tasks = work.fleet, [task for names in work.tasks for task in names]
    everywhere = np.ones(fleet.machines.rows, dtype=np.bool_)
    masks = [everywhere if places.allowed is None else places.allowed for places in work.places]
    return KubernetesTrace(
        number=number,
        now_s=float(number),
        solver=solver.name,
        settings=Settings(),
        titles={task: f"namespace/{task}" for task in tasks},
        running=(),
        parts=(partial(outcome.record, 0),),
        told=(),
        filters=tuple(
            Filtered(tuple(names), ("", "node(s) didn't match"), (~mask).astype(np.int16), mask)
            for names, mask in zip(work.tasks, masks, strict=True)
        ),
        names=fleet.machines.names,
        order=fleet.machines.order(),
        since_s=dict.fromkeys(tasks, 0.0),
        rounds_waited={},
        timings_ms=outcome.timings_ms,
    ).record


def pack_here(recipe: Recipe) -> bytes:
    """What the process does, in the thread that asks."""
    return pack_record(recipe())


def full_cluster(machines: int) -> BookedTasks:
    """The same machines with twelve small tasks of different kinds on each: a hundred and fifty thousand in all."""
    rng = np.random.default_rng(machines)
    fleet = cluster(machines, 0.0)
    for i in range(machines):
        cpu = SIZES_MILLI[i % len(SIZES_MILLI)]
        for k in range(RUNNING):
            fleet.book(
                f"running-{i}-{k}",
                f"node-{i:05d}",
                {"cpu": int(rng.integers(1, 6)) * cpu // 100, "memory": 256 * MIB, "pods": 1},
                sensitivity=float(rng.choice((0.5, 0.8, 0.9, 1.1))),
                pressure=float(rng.choice((0.003, 0.006, 0.009, 0.02))),
            )
    return fleet


def spread(values: list[float]) -> dict[str, float]:
    return {"p50": float(np.percentile(values, 50)), "p90": float(np.percentile(values, 90))}


def overhead(blocks: dict[bool, list[Block]], measure: str) -> dict[str, float]:
    """Relative growth of a block's median round over its neighbour's; median and p90 over all pairs.

    ``of_p90``: growth of the slow rounds, the 90th percentile of all rounds.
    """
    values = {on: [[getattr(r, measure) for r in block] for block in those] for on, those in blocks.items()}
    pairs = [float(np.median(b)) / float(np.median(a)) - 1.0 for a, b in zip(values[False], values[True], strict=True)]
    slow = {on: spread([v for block in those for v in block])["p90"] for on, those in values.items()}
    return {
        "median": float(np.median(pairs)),
        "p90": float(np.percentile(pairs, 90)),
        "of_p90": slow[True] / slow[False] - 1.0,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Times in ms; overheads in percent."""
    heads = [
        "scenario",
        "writer",
        "rounds",
        "without p50",
        "p90",
        "with p50",
        "p90",
        "overhead %",
        "p90",
        "not queueing %",
        "p90",
        "CPU %",
    ]
    heads += ["record KiB", "make ms", "written", "dropped"]
    lines = [heads, *([*_texts(row)] for row in rows)]
    return "\n".join(text_table(lines, left=(), indent=""))


def _texts(row: dict[str, Any]) -> Iterator[str]:
    yield from (row["scenario"], row["writer"], row["pace"])
    for key in ("without_ms", "with_ms"):
        yield from (f"{row[key][q]:.1f}" for q in ("p50", "p90"))
    for key in ("overhead", "overhead_without_queueing"):
        yield from (f"{100 * row[key][q]:+.1f}" for q in ("median", "p90"))
    yield f"{100 * row['overhead_cpu']['median']:+.1f}"
    yield f"{row['record_bytes'] / 1024:.0f}"
    yield f"{row['make_ms' if row['writer'] == 'thread' else 'make_in_process_ms']:.0f}"
    yield from (str(row[key]) for key in ("written", "dropped"))


if __name__ == "__main__":
    main()
