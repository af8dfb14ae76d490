"""Load for memcached, with honest latencies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.load_generator.load_plan import LoadPlan
from benchmarks.load_generator.rows import LoadRow, write_rows
from benchmarks.load_generator.running_load import LoadError, LoadResult, run_load
from benchmarks.load_generator.self_check import bottleneck, describe
from benchmarks.load_generator.steps import LoadStep, parse_steps, steps_of_wave
from flowsched.cli import main
from flowsched_models.command_line import StrictCommand
from flowsched_models.document import InputError, Problem
from flowsched_models.quantity import QuantityError, format_rate, parse_cores, parse_duration_us, parse_rate

DISTURBED = 3
"""Exit code where the generator itself was the bottleneck."""


@click.command(
    cls=StrictCommand,
    epilog="Example: python -m benchmarks.load --steps 8K:3,34K:3,8K:3 --keys-per-get 200 --slo 1ms --out rows.csv",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where memcached is.")
@click.option("--port", type=click.IntRange(1, 65535), default=11211, show_default=True)
@click.option("--rate", metavar="R", help="Requests per second: 30000 or 30K.")
@click.option(
    "--seconds", type=click.FloatRange(0, 1e6, min_open=True), default=10.0, show_default=True, help="With --rate."
)
@click.option("--steps", metavar="R:S,...", help="Steps instead of one rate: requests per second and seconds of each.")
@click.option(
    "--wave", type=click.Path(path_type=Path), metavar="FILE", help="A CSV file with a column qps, one line per step."
)
@click.option(
    "--interval",
    type=click.FloatRange(0, 1e6, min_open=True),
    default=10.0,
    show_default=True,
    help="With --wave: seconds of every step.",
)
@click.option("--closed", is_flag=True, help="Closed loop for --seconds: what the server answers at most.")
@click.option("--connections", type=click.IntRange(1, 4096), default=16, show_default=True)
@click.option("--keys-per-get", type=click.IntRange(1, 1000), default=1, show_default=True, help="Keys of one request.")
@click.option(
    "--values",
    type=click.IntRange(0, 1_000_000),
    default=0,
    show_default=True,
    help="Store so many values first and ask for those; 0: ask for keys that are not there.",
)
@click.option("--value-bytes", type=click.IntRange(1, 500_000), default=64, show_default=True)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=1, show_default=True, help="Of the arrivals.")
@click.option("--cpus", metavar="SET", help="Cores for the generator, as 0-1,3.")
@click.option(
    "--fifo", type=click.IntRange(0, 99), default=0, metavar="P", help="Run the generator as SCHED_FIFO (needs rights)."
)
@click.option("--slo", metavar="T", help="Count the windows of 100 ms whose p95 is over this: 1ms.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="A CSV file, a line per window of 100 ms.")
def load(
    host: str,
    port: int,
    rate: str | None,
    seconds: float,
    steps: str | None,
    wave: Path | None,
    interval: float,
    closed: bool,
    connections: int,
    keys_per_get: int,
    values: int,
    value_bytes: int,
    seed: int,
    cpus: str | None,
    fifo: int,
    slo: str | None,
    out: Path | None,
) -> int:
    """Offer a load to memcached and measure its latency.

    Open loop: requests leave as a Poisson process, whether or not earlier ones were answered, and a latency counts from
    when its request was due. So stalls are seen, also those of the generator, which says when it was the bottleneck itself.

    One request is one get; memcached counts every key of it. Exit codes: 0 done, 2 bad input or no server, 3 the
    generator was the bottleneck.
    """
    if sum((rate is not None, steps is not None, wave is not None, closed)) != 1:
        raise click.UsageError("give one of --rate, --steps, --wave and --closed")
    try:
        slo_us = None if slo is None else parse_duration_us(slo)
        cores = () if cpus is None else parse_cores(cpus)
        chosen: tuple[LoadStep, ...] = (LoadStep(0.0 if rate is None else parse_rate(rate), seconds),)
    except QuantityError as error:
        raise click.UsageError(f"{error.message}; {error.help}" if error.help else error.message) from None
    if steps is not None:
        chosen = parse_steps(steps)
    elif wave is not None:
        chosen = steps_of_wave(wave, interval)
    plan = LoadPlan(
        chosen,
        host,
        port,
        connections,
        keys_per_get,
        values=values,
        value_bytes=value_bytes,
        seed=seed,
        closed=closed,
        cpus=cores,
        fifo=fifo,
    )
    try:
        result = run_load(plan)
    except LoadError as error:
        raise InputError([Problem("benchmarks.load", None, "", str(error))]) from None
    if out is not None:
        write_rows(out, result.rows)
    for line in (*_table(result), *describe(result)):
        click.echo(line)
    if slo_us is not None:
        click.echo(_violations(result.rows, slo_us))
    return DISTURBED if bottleneck(result) else 0


def _table(result: LoadResult) -> list[str]:
    head = ("seconds", "offered/s", "answered/s", "mean us", "p50 us", "p95 us", "p99 us", "max us")
    lines: list[tuple[str, ...]] = [head]
    for step in result.steps:
        length = min(step.end_s, result.totals.took_s) - step.start_s
        numbers = (step.mean_us, step.p50_us, step.p95_us, step.p99_us, step.max_us)
        offered = "closed" if result.plan.closed else format_rate(step.offered)
        lines.append(
            (
                f"{step.start_s:g}-{step.start_s + length:.3g}",
                offered,
                f"{step.answered / length:,.0f}",
                *("-" if number is None else f"{number:,.0f}" for number in numbers),
            )
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]


def _violations(rows: Sequence[LoadRow], slo_us: float) -> str:
    measured = [row for row in rows if row.due]
    over = sum(1 for row in measured if row.lost or row.p95_us is None or row.p95_us > slo_us)
    share = 100.0 * over / len(measured) if measured else 0.0
    return f"p95 over {slo_us:g} us in {over} of {len(measured)} windows of 100 ms ({share:.1f} %)"


if __name__ == "__main__":
    main(load)
