"""Checks that rounds are as fast, as close to optimal and as small as the kept results say, within noise.

Measures presets of `benchmarks.rounds` again (or reads a fresh result) and compares them with the ranges under
benchmarks/results/ranges.json, which `--set` makes from the kept results. A preset that is out of its range is measured once
more; what is out both times counts.

Exit code 0: all within their ranges. 1: something is out; a sentence for each. 2: nothing could be compared, because the
ranges are of another machine or there is none: neither good news nor bad.

    python -m benchmarks.range_check
    python -m benchmarks.range_check --preset google
    python -m benchmarks.range_check --set
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.machine import describe_machine
from benchmarks.rounds_presets import PRESETS

RESULTS = Path(__file__).parent / "results"
RANGES = RESULTS / "ranges.json"
FACTOR = 3.0
"""A time may be above the kept one by so many times the spread of the kept runs, relative to the best of them."""
FLOOR = 0.25
"""It may always be above by this share: runs of one process differ less than two processes do."""
MOST = 1.0
"""And never by more than this: kept runs that are further apart were disturbed, and twice the time is no noise."""


class NothingToCompareError(click.ClickException):
    """A result that cannot be read or measured."""

    exit_code = 2


@dataclass(frozen=True)
class Rule:
    """How far a figure may be from the kept one."""

    figure: str
    share: float
    absolute: float = 0.0
    above: bool = True
    """Whether there is an upper end."""
    below: bool = False
    """Whether there is a lower end."""
    timed: bool = False
    """Whether the spread of the runs widens the range."""


RULES = (
    Rule("p50_ms", FLOOR, timed=True),
    Rule("p95_ms", FLOOR, timed=True),
    Rule("ratio", FLOOR, timed=True),
    Rule("ratio_98", FLOOR),
    Rule("gap_p50", 0.1, 0.002),
    Rule("gap_p95", 0.1, 0.002),
    Rule("rss_mib", 0.15, 32.0),
    Rule("arcs", 0.25, below=True),
    Rule("classes", 0.25, below=True),
    Rule("groups", 0.25, below=True),
)
"""Times, gaps and memory may fall without notice; a network of another size is another benchmark, whichever way."""
MORE_IS_BETTER = {("quincy-incremental", "ratio"), ("quincy-incremental", "ratio_98")}


def make_ranges(row: Mapping[str, Any]) -> dict[str, Any]:
    """The ranges of one kept result."""
    figures: dict[str, Any] = {}
    for rule in RULES:
        kept = row.get(rule.figure)
        if kept is None:
            continue
        runs = [run[rule.figure] for run in row.get("runs", []) if rule.figure in run] if rule.timed else []
        share = min(max(rule.share, FACTOR * spread(runs)), MOST)
        room = share * kept + rule.absolute
        above, below = rule.above, rule.below
        if (row["preset"], rule.figure) in MORE_IS_BETTER:
            # Times that much longer.
            above, below, room = False, True, kept - kept / (1.0 + share)
        figures[rule.figure] = {
            "kept": kept,
            "low": kept - room if below else None,
            "high": kept + room if above else None,
        }
    settings = {key: row[key] for key in ("machines", "rounds", "seed")}
    return {**settings, "runs": len(row.get("runs", [])) or 1, "machine": row["machine"], "figures": figures}


def spread(runs: Sequence[float]) -> float:
    """How far the worst of some runs is above the best, relative to that."""
    return (max(runs) - min(runs)) / min(runs) if runs and min(runs) > 0.0 else 0.0


def other_machine(ranges: Mapping[str, Any], machine: Mapping[str, Any]) -> list[str]:
    """What is different about the machine, a few words each; nothing if it is the same."""
    kept = ranges["machine"]
    return [
        f"{key} {machine.get(key, 'unknown')} instead of {kept.get(key, 'unknown')}"
        for key in sorted({*kept, *machine})
        if kept.get(key) != machine.get(key)
    ]


def outside(ranges: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, str]:
    """A sentence for every figure that has left its range, by figure."""
    found = {}
    for figure, span in ranges["figures"].items():
        value = row.get(figure)
        if value is None:
            found[figure] = f"{row['preset']}: {figure} is missing; {span['kept']:.4g} was kept"
            continue
        for end, over in (("high", True), ("low", False)):
            limit = span[end]
            if limit is not None and (value > limit if over else value < limit):
                found[figure] = (
                    f"{row['preset']}: {figure} is {value:.4g}, {'above' if over else 'below'} {limit:.4g}; "
                    f"{span['kept']:.4g} was kept"
                )
    return found


def different_course(ranges: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    """Settings in which a result is no repetition of what was kept; the number of rounds may differ."""
    return [f"{key} {row[key]} instead of {ranges[key]}" for key in ("machines", "seed") if row[key] != ranges[key]]


@click.command()
@click.option("--preset", "names", type=click.Choice(list(PRESETS)), multiple=True, help="Only these; may be repeated.")
@click.option("--result", type=click.Path(path_type=Path), help="A fresh result, instead of measuring one.")
@click.option("--rounds", type=click.IntRange(min=1), help="Other than the kept result has.")
@click.option("--set", "make", is_flag=True, help="Make the ranges of the presets from the kept results.")
def main(names: tuple[str, ...], result: Path | None, rounds: int | None, make: bool) -> None:
    """Compare, or make the ranges."""
    known = load_ranges()
    if make:
        set_ranges(names, known)
        return
    if result is not None:
        fresh = read_result(result)
        sys.exit(verdict([check(known, fresh["preset"], lambda _: fresh)]))
    wanted = names or tuple(name for name in PRESETS if name in known)
    if not wanted:
        click.echo("There are no ranges yet: measure with python -m benchmarks.rounds, then use --set.")
        sys.exit(2)
    sys.exit(
        verdict([check(known, name, lambda ranges, name=name: measure_again(name, ranges, rounds)) for name in wanted])
    )


def check(known: Mapping[str, Any], name: str, measure: Any) -> int:
    """One preset: 0 within, 1 out, 2 not comparable; says so."""
    ranges = known.get(name)
    if ranges is None:
        click.echo(f"{name}: there is no range to compare with; make one with --set.")
        return 2
    differences = other_machine(ranges, describe_machine())
    if differences:
        click.echo(
            f"{name}: cannot be compared, because the kept result is of another machine: {', '.join(differences)}."
        )
        return 2
    row = measure(ranges)
    differences = different_course(ranges, row) + other_machine(ranges, row["machine"])
    if differences:
        click.echo(f"{name}: cannot be compared, because the result is of another course: {', '.join(differences)}.")
        return 2
    out = outside(ranges, row)
    if out:
        # A noisy minute hits one measurement, a slower program both. A result that was read comes out the same again.
        again = outside(ranges, measure(ranges))
        out = {figure: again[figure] for figure in out if figure in again}
    for sentence in out.values():
        click.echo(f"{sentence}.")
    if not out:
        click.echo(f"{name}: all {len(ranges['figures'])} figures are within their ranges.")
    return 1 if out else 0


def verdict(codes: Sequence[int]) -> int:
    """The exit code of several checks: what is out comes first, then what could not be compared."""
    return 1 if 1 in codes else max(codes, default=2)


def measure_again(name: str, ranges: Mapping[str, Any], rounds: int | None) -> dict[str, Any]:
    """A fresh result, in a process of its own."""
    options = {"--rounds": rounds or ranges["rounds"], "--runs": ranges["runs"], "--seed": ranges["seed"]}
    words = [str(word) for pair in options.items() for word in pair]
    command = [sys.executable, "-m", "benchmarks.rounds", "--preset", name, "--json", "--no-keep", "--no-peers", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent)
    if done.returncode:
        last = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise NothingToCompareError(f"{name} could not be measured: {last[-1]}")
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def set_ranges(names: Sequence[str], known: dict[str, Any]) -> None:
    """Write the ranges of some presets, or of all that have a kept result."""
    for name in names or PRESETS:
        path = RESULTS / f"rounds-{name}.json"
        if not path.is_file():
            click.echo(f"{name}: there is no kept result; measure with python -m benchmarks.rounds --preset {name}.")
            continue
        row = read_result(path)
        known[name] = make_ranges(row)
        click.echo(f"{name}: {len(known[name]['figures'])} ranges.")
        apart = spread([run["p95_ms"] for run in row.get("runs", []) if "p95_ms" in run])
        if FACTOR * apart > MOST:
            click.echo(
                f"{name}: p95 of the kept runs differs by {100 * apart:.0f} %, so the machine was disturbed; "
                "measure again when it is quiet."
            )
    RANGES.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def load_ranges() -> dict[str, Any]:
    """The kept ranges by preset."""
    return read_result(RANGES) if RANGES.is_file() else {}


def read_result(path: Path) -> dict[str, Any]:
    """A JSON file of this package."""
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NothingToCompareError(f"{path} cannot be read as a result: {error}") from None
    return data


if __name__ == "__main__":
    main()
