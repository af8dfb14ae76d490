"""The engine beside its peers: over time at 60 and 300 machines, bundled scenarios, one pod more, and without its network.

Five parts, one table each, with the bars that the engine has to keep to; results are kept under
benchmarks/results/engine-PART.json and .txt, and `python -m benchmarks.engine_page` writes docs/engine.md from them.

    python -m benchmarks.engine --part sixty --seeds 5 --old ../flowsched-ded5fd7
    python -m benchmarks.engine --part three-hundred --seeds 5
    python -m benchmarks.engine --part demo
    python -m benchmarks.engine --part cliff --seeds 3
    python -m benchmarks.engine --part ablation --seeds 5
    python -m benchmarks.engine --part sixty --quick

Runs take from minutes (`demo`, `cliff`) to hours (`sixty` with the old engine). `--add` measures in portions: kept rows of
other workloads and schedulers stay, if they were measured on the same machine.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from benchmarks import engine_ablation, engine_cliff, engine_crowds, engine_demo, engine_large
from benchmarks.engine_workloads import LOADS, SIXTY, THREE_HUNDRED, Crowd
from benchmarks.machine import describe_machine, measured_on
from flowsched_simulator.baselines.registry import COMPARED

RESULTS = Path(__file__).parent / "results"
CROWDS = {"sixty": SIXTY, "three-hundred": THREE_HUNDRED}
QUICK_LOADS = (0.74,)
Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Request:
    """What to measure."""

    part: str
    seeds: tuple[int, ...]
    loads: tuple[float, ...]
    schedulers: tuple[str, ...]
    """Empty for all."""
    old: Path | None
    quick: bool
    share_service_cores: bool = True
    workloads: tuple[str, ...] = ()
    """Of `ablation`: beginnings of names; empty for all."""


@dataclass(frozen=True)
class Part:
    """One table: how it is measured and shown, and which rows are about the same thing."""

    measure: Callable[[Request], Iterable[dict[str, Any]]]
    table: Callable[[Rows], str]
    bars: Callable[[Rows], list[dict[str, Any]]]
    key: tuple[str, ...]
    """Keys of a row that say what was measured; a new row replaces a kept one with the same values."""


def measure_crowd(request: Request) -> Iterable[dict[str, Any]]:
    """Rows of `sixty` and `three-hundred`."""
    crowd: Crowd = engine_crowds.QUICK if request.quick else CROWDS[request.part]
    crowd = replace(crowd, share_service_cores=request.share_service_cores)
    names = request.schedulers or engine_crowds.every_scheduler(request.part, request.old)
    if request.quick and not request.schedulers:
        names = tuple(n for n in engine_crowds.QUICK_SCHEDULERS if n in names)
    return engine_crowds.measure(crowd, request.loads, request.seeds, names, request.old)


def crowd_part(name: str) -> Part:
    """One of the two parts with arrivals."""
    return Part(
        measure_crowd,
        lambda rows: engine_crowds.table(name, rows),
        lambda rows: engine_crowds.bars(name, rows),
        ("load", "seed", "scheduler"),
    )


PARTS: dict[str, Part] = {
    **{name: crowd_part(name) for name in CROWDS},
    "demo": Part(lambda r: engine_demo.measure(r.quick, r.old), engine_demo.table, engine_demo.bars, ("what",)),
    "cliff": Part(
        lambda r: engine_cliff.measure(r.seeds, r.quick), engine_cliff.table, engine_cliff.bars, ("seed", "pods")
    ),
    "large": Part(
        lambda r: engine_large.measure(r.seeds, r.quick),
        engine_large.table,
        engine_large.bars,
        ("seed", "machines", "tasks"),
    ),
    "ablation": Part(
        lambda r: engine_ablation.measure(r.loads, r.seeds, r.quick, r.workloads),
        engine_ablation.table,
        engine_ablation.bars,
        ("workload", "scenario"),
    ),
}


@click.command()
@click.option("--part", type=click.Choice(list(PARTS)), default="sixty", show_default=True)
@click.option("--seeds", default=5, show_default=True, type=click.IntRange(1), help="Number of seeds.")
@click.option("--first-seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--loads", default=",".join(f"{x:g}" for x in LOADS), show_default=True, help="Work over capacity.")
@click.option("--schedulers", default="", help="Only these, by name; 'old' is the engine of --old. Default: all.")
@click.option("--workloads", default="", help="Only these of ablation, by how their names begin. Default: all.")
@click.option(
    "--old",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A checkout of the commit to compare with; it runs in turn with this tree.",
)
@click.option(
    "--service-cores",
    type=click.Choice(["shared", "own"]),
    default="shared",
    show_default=True,
    help="Whether light jobs may use services' cores (sixty, three-hundred).",
)
@click.option("--quick", is_flag=True, help="Small sizes and one seed, to see that everything runs; keeps nothing.")
@click.option("--add", is_flag=True, help="Keep what was measured before of other workloads and schedulers.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON instead of a table.")
@click.option("--keep/--no-keep", default=True, help="Keep the result under benchmarks/results.")
def main(
    part: str,
    seeds: int,
    first_seed: int,
    loads: str,
    schedulers: str,
    workloads: str,
    old: Path | None,
    service_cores: str,
    quick: bool,
    add: bool,
    as_json: bool,
    keep: bool,
) -> None:
    """Measure one part and print its table."""
    chosen = tuple(name for name in schedulers.split(",") if name)
    numbers = (first_seed,) if quick else tuple(range(first_seed, first_seed + seeds))
    share = service_cores == "shared"
    named = tuple(name for name in workloads.split(",") if name)
    request = Request(part, numbers, QUICK_LOADS if quick else read_loads(loads), chosen, old, quick, share, named)
    kept = earlier(part) if add else []
    began, load_before = time.perf_counter(), os.getloadavg()[0]
    fresh: list[dict[str, Any]] = []
    outcome, text = made(part, kept, load_before, began)
    for row in PARTS[part].measure(request):
        fresh.append(row)
        outcome, text = made(part, merged(kept, fresh, PARTS[part].key), load_before, began)
        if keep and not quick:
            save(outcome, text)  # row by row: a run of hours may be interrupted
    click.echo(json.dumps(outcome) if as_json else f"{text}\n\n{measured_on(outcome['machine'])}")


def made(part: str, rows: Rows, load_before: float, began: float) -> tuple[dict[str, Any], str]:
    """The result of some rows, as data and as text."""
    outcome = {
        "part": part,
        "rows": list(rows),
        "bars": PARTS[part].bars(rows) if rows else [],
        "machine": describe_machine(),
        "load_before": load_before,
        "seconds": round(time.perf_counter() - began, 1),
    }
    return outcome, PARTS[part].table(rows) if rows else "nothing was measured"


def save(outcome: Mapping[str, Any], text: str) -> None:
    """Keep a result."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"engine-{outcome['part']}.json"
    path.write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".txt").write_text(text + "\n", encoding="utf-8")


def read_loads(text: str) -> tuple[float, ...]:
    """Loads as numbers. Raises :class:`click.BadParameter`."""
    try:
        loads = tuple(float(part) for part in text.split(","))
    except ValueError:
        loads = ()
    if not loads or min(loads) <= 0.0:
        raise click.BadParameter(
            f"expected numbers above 0 with commas between them, got '{text}'", param_hint="--loads"
        )
    return loads


def earlier(part: str) -> list[dict[str, Any]]:
    """Rows that are kept of a part. Raises :class:`click.ClickException` if they are of another machine."""
    path = RESULTS / f"engine-{part}.json"
    if not path.is_file():
        return []
    outcome = json.loads(path.read_text(encoding="utf-8"))
    if outcome["machine"] != describe_machine():
        raise click.ClickException(f"{path.name} was measured on another machine; measure it again without --add")
    rows: list[dict[str, Any]] = outcome["rows"]
    if any(row.get("scheduler") in COMPARED and "selection" not in row for row in rows):
        raise click.ClickException(
            f"{path.name} has baselines whose variants were chosen by the reported runs; measure it again without --add"
        )
    return rows


def merged(kept: Rows, fresh: Rows, key: Sequence[str]) -> list[dict[str, Any]]:
    """Fresh rows, and the kept ones that are about something else.

    Raises :class:`click.ClickException` where rows of one load and seed are of different workloads.
    """
    measured = {tuple(row.get(k) for k in key) for row in fresh}
    rows = [row for row in kept if tuple(row.get(k) for k in key) not in measured] + list(fresh)
    digests: dict[tuple[Any, Any], str] = {}
    for row in rows:
        if "digest" in row and digests.setdefault((row["load"], row["seed"]), row["digest"]) != row["digest"]:
            raise click.ClickException("the kept results are of other workloads; measure them again without --add")
    return rows


if __name__ == "__main__":
    main()
