"""``flowsched measure``: the runs that a profile of one's own job is made from."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click

from flowsched_models.command_line import StrictCommand
from flowsched_models.document import InputError
from flowsched_models.measuring.clock import MachineClock
from flowsched_models.measuring.machine_entry import earlier_types, write_machine
from flowsched_models.measuring.measured_row import Subject
from flowsched_models.measuring.measurement import NOISE_CPUS, Measurement, MeasurementSummary
from flowsched_models.measuring.process_runner import ProcessRunner
from flowsched_models.measuring.remaining_time import in_words
from flowsched_models.measuring.request import DEFAULT_KINDS, Request, check_request
from flowsched_models.measuring.run_plan import ResultTable, RunPlan, plan_runs
from flowsched_models.measuring.tables import Tables
from flowsched_models.measuring.topology import read_topology
from flowsched_models.output import make_folder

INCOMPLETE = 3
"""Exit code where some runs failed and left no rows."""
_BUSY_LOAD = 0.5
_EXAMPLE_S = 60.0


@click.command(
    cls=StrictCommand,
    short_help="Measure a program and write tables for calibrate.",
    context_settings={"allow_interspersed_args": False},
    epilog="Example: flowsched measure --no-interference --job xz --out data/my-lab -- xz -T+{threads} -k -c numbers.txt",
)
@click.option("--job", required=True, metavar="NAME", help="Name of the job, and of its profile later.")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DATA", help="Folder for the tables.")
@click.option("--threads", metavar="LIST", help="Numbers of threads.  [default: 1, 2, 4, ... and all cores]")
@click.option("--runs", type=click.IntRange(1, 1000), default=3, show_default=True, help="Repetitions of every run.")
@click.option("--cores", metavar="SET", help="Cores to use, as 0-3.  [default: all that this process may use]")
@click.option(
    "--interference",
    metavar="LIST",
    default=DEFAULT_KINDS,
    show_default=True,
    help="Disturb the program by: cpu, l1d, l1i, l2, llc, membw, or all. Needs stress-ng.",
)
@click.option("--no-interference", is_flag=True, help="Do not disturb the program: no stress-ng needed.")
@click.option(
    "--sharing/--no-sharing",
    default=True,
    show_default=True,
    help="Run two copies at once, on the same and other cores.",
)
@click.option("--machine-type", metavar="NAME", help="Name of this kind of machine.  [default: machine-<n>cpu]")
@click.option(
    "--rest",
    type=click.FloatRange(0, 3600),
    default=2.0,
    show_default=True,
    metavar="S",
    help="Pause before every run.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=3600.0,
    show_default=True,
    metavar="S",
    help="Longest time of one run; a longer one is ended and left out.",
)
@click.option("--resume", is_flag=True, help="Go on behind the runs that are in DATA already.")
@click.option("--redo-disturbed", is_flag=True, help="With --resume: make disturbed runs again; keep the quieter ones.")
@click.option("--dry-run", is_flag=True, help="Print the runs and how long they take, and run nothing.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def measure(
    job: str,
    out: Path,
    threads: str | None,
    runs: int,
    cores: str | None,
    interference: str,
    no_interference: bool,
    sharing: bool,
    machine_type: str | None,
    rest: float,
    timeout: float,
    resume: bool,
    redo_disturbed: bool,
    dry_run: bool,
    program: tuple[str, ...],
) -> int:
    """Measure PROGRAM on this machine and write the tables that calibrate reads.

    Write -- before PROGRAM. {threads} in its arguments becomes the number of threads, {copy} the number of the copy (1,
    or 2 where two run at once); OMP_NUM_THREADS, FLOWSCHED_THREADS and FLOWSCHED_COPY are set to the same.

    PROGRAM runs alone on 1, 2, ... threads; on one thread beside aggressors; and beside a second copy of itself.
    Interrupted, the rows of all finished runs are in DATA, and --resume goes on. Exit code 3: some runs failed.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise InputError.one("flowsched measure", "programs can be pinned to cores on Linux only")
    request = check_request(
        read_topology(),
        job=job,
        machine_type=machine_type,
        threads=threads,
        cores=cores,
        interference=None if no_interference else interference,
        program=program,
    )
    plan = plan_runs(request.topology, request.threads, request.kinds, runs, sharing)
    for line in _foreword(request, plan, program):
        click.echo(line, err=True)
    if dry_run:
        if resume:
            _check_program(Tables(out), Subject(request.job, request.machine_type), program)
        for line in _plan_lines(plan, rest):
            click.echo(line)
        return 0
    tables, earlier = Tables(out), earlier_types(out)
    subject = Subject(request.job, request.machine_type)
    with tempfile.TemporaryDirectory() as folder, _interruptible():
        clock = MachineClock()
        runner = ProcessRunner(clock, request.stress_ng, Path(folder))
        measurement = Measurement(
            plan, subject, program, tables, runner, clock,
            rest_s=rest, limit_s=timeout, say=_say, redo=redo_disturbed,
        )  # fmt: skip
        _check_earlier(tables, measurement, subject, program, resume)
        make_folder(out)
        try:
            summary = measurement.run()
        except KeyboardInterrupt:
            done = f"{measurement.summary.done} of {measurement.summary.planned} runs are in {out}"
            click.echo(f"{done}; the same command with --resume goes on behind them", err=True)
            raise
        finally:
            if measurement.summary.done:
                _describe(request, tables, earlier, program)
    return _afterword(summary, out)


def _check_earlier(
    tables: Tables, measurement: Measurement, subject: Subject, program: tuple[str, ...], resume: bool
) -> None:
    """Rows of this job that are there already must be wanted, and of the same program."""
    there = measurement.runs_there()
    name = f"job '{subject.job}' on '{subject.machine_type}'"
    if there and not resume:
        message = f"{there} of these runs of {name} are here already"
        raise InputError.one(tables.folder, message, "go on behind them: --resume")
    _check_program(tables, subject, program)


def _check_program(tables: Tables, subject: Subject, program: tuple[str, ...]) -> None:
    """Rows of one job on one type are of one program."""
    name = f"job '{subject.job}' on '{subject.machine_type}'"
    for row in tables.rows("programs", job=subject.job, machine_type=subject.machine_type):
        if row.get("program", "") != shlex.join(program):
            message = f"{name} was measured as another program: {row.get('program', '')}"
            help = "use another --job or --out"
            raise InputError.one(tables.path("programs"), message, help)


def _describe(request: Request, tables: Tables, earlier: Mapping[str, Any], program: tuple[str, ...]) -> None:
    """What the rows come from: the machine, its type, the program."""
    kind, topology = request.machine_type, request.topology
    tables.put("machines", [{"node": kind, "machine_type": kind, "vcpus": str(topology.vcpus)}])
    told = {"job": request.job, "machine_type": kind, "program": shlex.join(program), "processor": topology.model}
    tables.put("programs", [told])
    write_machine(tables.folder, earlier, kind, topology)


@contextmanager
def _interruptible() -> Iterator[None]:
    """A polite end or a closed terminal is an interrupt, too: rows stay and programs are ended."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(line: str) -> None:
    click.echo(line, err=True)
    sys.stderr.flush()


def _foreword(request: Request, plan: RunPlan, program: tuple[str, ...]) -> Iterator[str]:
    for warning in request.topology.warnings():
        yield f"warning: {warning}"
    load = os.getloadavg()[0]
    if load >= _BUSY_LOAD:
        yield f"warning: the machine is not quiet (load average {load:.2f}): end other programs, or wait a minute"
    if max(request.threads) > 1 and not any("{threads}" in word for word in program):
        yield "note: no {threads} in the arguments: the program must read OMP_NUM_THREADS or FLOWSCHED_THREADS"
    for note in plan.notes:
        yield f"note: {note}"


def _plan_lines(plan: RunPlan, rest_s: float) -> Iterator[str]:
    rounds = max(r.number for r in plan.runs)
    setups = [r.setup for r in plan.runs if r.number == 1]
    yield f"1 warm-up ({plan.warm_up}), then {len(plan.runs)} runs, {rounds} of each:"
    for setup in setups:
        yield f"  {setup.table}.csv: {setup}"
    low, high, rest = plan.bounds(rest_s)
    yield (
        f"Time: {low:.0f} to {high:.0f} times one run on one thread, and {in_words(rest)} of rest. If that run takes "
        f"{in_words(_EXAMPLE_S)}: {in_words(low * _EXAMPLE_S + rest)} to {in_words(high * _EXAMPLE_S + rest)}."
    )


def _afterword(summary: MeasurementSummary, out: Path) -> int:
    for failure in summary.failures:
        click.echo(f"left out: {failure}", err=True)
    if not summary.warmed_up:
        raise InputError.one("PROGRAM", "the warm-up run failed, so nothing was measured", "see above")
    for advice in summary.advice:
        click.echo(f"warning: {advice}", err=True)
    if summary.noisy:
        click.echo(
            f"warning: during {summary.noisy} runs others used {NOISE_CPUS:g} CPUs or more: see other_cpus in the rows",
            err=True,
        )
    tables = ", ".join(f"{t}.csv" for t in ResultTable if (out / f"{t}.csv").exists())
    click.echo(f"{summary.done} of {summary.planned} runs are in {out}: {tables}")
    if summary.noisy:
        click.echo("Next: the same command with --resume --redo-disturbed, when the machine is quiet; then")
        click.echo(f"      flowsched calibrate {shlex.quote(str(out))} --out my-profiles.yaml")
    elif summary.done:
        click.echo(f"Next: flowsched calibrate {shlex.quote(str(out))} --out my-profiles.yaml")
    return INCOMPLETE if summary.failures else 0
