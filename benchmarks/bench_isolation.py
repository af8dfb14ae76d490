"""What weights, SCHED_DEADLINE and SCHED_FIFO do for a critical task on this machine."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from benchmarks.isolation_bench.bench import measure, objection, remove_left_over
from benchmarks.isolation_bench.measured import BenchError, Measured, median_of
from benchmarks.isolation_bench.setting import DEFAULT, SETTINGS, CriticalTask, Setting
from benchmarks.isolation_bench.workers import find_program
from flowsched.cli import main
from flowsched_agent.controls.detected import Detected, detect
from flowsched_agent.system import System
from flowsched_models.command_line import StrictCommand
from flowsched_models.document import InputError, Problem, name_help
from flowsched_models.quantity import QuantityError, parse_duration_us
from flowsched_models.text_table import text_table

REFUSED = 3
"""Exit code where some settings could not be measured."""


@click.command(
    cls=StrictCommand,
    short_help="Measure how late a critical periodic task is.",
    epilog="Example: python -m benchmarks.bench_isolation --setting equal --setting deadline --repeat 5",
)
@click.option("--runtime", default="4ms", show_default=True, help="CPU time that each job of the critical task needs.")
@click.option("--period", default="10ms", show_default=True)
@click.option(
    "--seconds", type=click.FloatRange(0.5, 600), default=3.0, show_default=True, help="Of each run under each setting."
)
@click.option("--repeat", type=click.IntRange(1, 100), default=3, show_default=True, help="Runs; medians are shown.")
@click.option(
    "--background", type=click.IntRange(1, 1024), metavar="N", help="Processes that burn CPU. Default: two per core."
)
@click.option(
    "--setting", "names", multiple=True, metavar="NAME", help=f"Repeat for more: {', '.join(SETTINGS)}. Default: five."
)
@click.option("--relative-sleep", is_flag=True, help="Sleep for a fixed time after each job: lateness hides in it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every run.")
@click.pass_context
def bench_isolation(
    context: click.Context,
    runtime: str,
    period: str,
    seconds: float,
    repeat: int,
    background: int | None,
    names: tuple[str, ...],
    relative_sleep: bool,
    as_json: bool,
) -> None:
    """Measure how steady and how late a critical periodic task runs on this machine beside processes that burn CPU.

    Needs root, or CAP_SYS_NICE and cgroups that can be written. Processes and groups are removed whatever happens.

    Exit codes: 0 done, 2 bad input, 3 some settings are refused here (each with its reason).
    """
    task, settings = _read(runtime, period, seconds, background, names, relative_sleep)
    system = System()
    detected = detect(system)
    program = find_program()
    if program.note:
        click.echo(f"note: {program.note}", err=True)
    runs: dict[str, list[Measured]] = {}
    refused: dict[str, str] = {}
    with _ended_by_signals():
        remove_left_over(system, detected, lambda text: click.echo(f"note: {text}", err=True))
        for repetition in range(repeat):
            for setting in settings:
                if setting.name in refused:
                    continue
                if reason := objection(setting, detected):
                    refused[setting.name] = reason
                    continue
                click.echo(f"{setting.name}: run {repetition + 1} of {repeat}", err=True)
                try:
                    runs.setdefault(setting.name, []).append(measure(system, detected, program, setting, task))
                except BenchError as error:
                    refused[setting.name] = str(error)
    outcome = _outcome(task, detected, runs, refused, settings)
    click.echo(json.dumps(outcome, allow_nan=False) if as_json else _table(outcome))
    for name, reason in refused.items():
        click.echo(f"refused: {name}: {reason}", err=True)
    if refused:
        context.exit(REFUSED)


def _read(
    runtime: str, period: str, seconds: float, background: int | None, names: tuple[str, ...], relative_sleep: bool
) -> tuple[CriticalTask, list[Setting]]:
    """The options, checked together. Raises :class:`InputError`."""
    problems: list[Problem] = []
    times = {}
    for option, text in (("--runtime", runtime), ("--period", period)):
        try:
            times[option] = round(parse_duration_us(text))
        except QuantityError as error:
            problems.append(Problem(option, None, "", str(error), error.help))
    if len(times) == 2:
        if not 100 <= times["--period"] <= 1_000_000:
            problems.append(Problem("--period", None, "", f"{period} is not between 100us and 1s"))
        elif not 50 <= times["--runtime"] <= 0.85 * times["--period"]:
            message = f"{runtime} is not between 50us and 85 % of the period of {period}"
            problems.append(Problem("--runtime", None, "", message, "a margin of 10 % must fit below 95 %"))
    problems += [
        Problem("--setting", None, "", f"there is no setting '{name}'", name_help(name, SETTINGS))
        for name in names
        if name not in SETTINGS
    ]
    if problems:
        raise InputError(problems)
    window_us = max(100_000, 4 * times["--period"])
    task = CriticalTask(times["--runtime"], times["--period"], seconds, window_us, relative_sleep, background or 0)
    return task, [SETTINGS[name] for name in dict.fromkeys(names or DEFAULT)]


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the measurement as Ctrl-C does, so that it cleans up."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _outcome(
    task: CriticalTask,
    detected: Detected,
    runs: dict[str, list[Measured]],
    refused: dict[str, str],
    settings: list[Setting],
) -> dict[str, Any]:
    medians = {name: median_of(own) for name, own in runs.items()}
    base = medians.get("deadline")
    table = []
    for setting in settings:
        if (found := medians.get(setting.name)) is None:
            continue
        row = {key: _number(value) for key, value in found.to_json().items()}
        for key, figure in (("deviation_ratio", "deviation"), ("delay_ratio", "mean_delay_ms")):
            bottom = getattr(base, figure) if base is not None else 0.0
            row[key] = _number(getattr(found, figure) / bottom) if bottom > 0.0 else None
        table.append(row)
    return {
        "version": "flowsched/v1",
        "kind": "bench-isolation",
        "kernel": detected.kernel,
        "cores": len(detected.online),
        "cgroup": detected.cgroup,
        "runtime_us": task.runtime_us,
        "period_us": task.period_us,
        "window_us": task.window_us,
        "seconds": task.seconds,
        "relative_sleep": task.relative_sleep,
        "background": task.background or 2 * len(detected.online),
        "table": table,
        "runs": [{key: _number(value) for key, value in run.to_json().items()} for own in runs.values() for run in own],
        "refused": refused,
    }


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _table(outcome: dict[str, Any]) -> str:
    head = ["setting", "bandwidth %", "sd", "x", "mean delay ms", "x", "p95 ms", "max ms", "late jobs"]
    columns = (
        ("mean", 2),
        ("deviation", 3),
        ("deviation_ratio", 1),
        ("mean_delay_ms", 3),
        ("delay_ratio", 1),
        ("p95_delay_ms", 2),
        ("max_delay_ms", 2),
    )
    rows = [
        [
            row["setting"],
            *("-" if row[key] is None else f"{row[key]:.{digits}f}" for key, digits in columns),
            f"{row['late_jobs']} of {row['jobs']}",
        ]
        for row in outcome["table"]
    ]
    about = (
        f"Linux {outcome['kernel']}, {outcome['cores']} cores; {outcome['runtime_us'] / 1000:g} ms of CPU in every "
        f"{outcome['period_us'] / 1000:g} ms beside {outcome['background']} processes; sd of the bandwidth in % of a core "
        f"over {outcome['window_us'] / 1000:g} ms; medians; x: against deadline"
    )
    return "\n".join([*text_table([head, *rows]), "", about])


if __name__ == "__main__":
    main(bench_isolation)
