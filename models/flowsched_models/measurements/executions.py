"""Executions: when each job of each run started and ended, where, on which cores."""

from __future__ import annotations

from collections.abc import Sequence

from flowsched_models.measurements.group import Group, RunKey, flag
from flowsched_models.measurements.measurements import MeasuredExecution, Placed, Run
from flowsched_models.measurements.table import MAX_THREADS, Row, Table
from flowsched_models.quantity import format_cores


def read_executions(table: Table, group: Group) -> None:
    """Read ``executions.csv``.

    Columns: run, job, threads, start_s, end_s, and node or machine_type [, schedule, cores, cpu_request, cpu_limit,
    exit_code, valid]. A row without an end that started before 0, or of a known service, is a latency service.
    """
    if not table.require(("run",), ("job",), ("threads",), ("start_s",), ("end_s",), ("node", "machine_type")):
        return
    by_run: dict[RunKey, list[Row]] = {}
    seen: dict[tuple[str, ...], Row] = {}
    for row in table:
        first = seen.setdefault(tuple(row.text(c) for c in table.columns), row)
        if first is not row:
            group.leave_out(row.where("job"), f"the row repeats row {first.line}: it is a copy")
            continue
        by_run.setdefault((row.text("schedule"), row.name("run")), []).append(row)
    for key, rows in by_run.items():
        _read_run(key, rows, group)


def _read_run(key: RunKey, rows: Sequence[Row], group: Group) -> None:
    executions: list[MeasuredExecution] = []
    services: list[Placed] = []
    reasons: list[tuple[Row, str, str]] = []
    for row in rows:
        job, threads = row.name("job"), row.count("threads", MAX_THREADS)
        # A service may have been there before the clock was first read.
        start_s = row.optional_number("start_s") if job == group.service else row.number("start_s")
        end_s = row.optional_number("end_s", 0.0)
        machine_type = group.machines.of(row, "executions")
        cores = _cores(row, machine_type, group)
        request, limit = row.cpu("cpu_request"), row.cpu("cpu_limit")
        exit_code = row.optional_number("exit_code")
        valid = flag(row, "valid", True)
        if end_s is not None and start_s is not None and end_s < start_s:
            row.refuse("end_s", f"{job} ends at {end_s:g} s, before it starts at {start_s:g} s")
        if not row.sound or threads is None:
            continue
        node = row.text("node") or machine_type
        if end_s is None and (job == group.service or (start_s is not None and start_s < 0)):
            services.append(Placed(job, node, machine_type, cores, threads, request, group.service_qps, limit))
            continue
        if start_s is None or start_s < 0:
            start_s = start_s or 0.0
            row.refuse("start_s", f"the value must not be negative, but is {start_s:g}", _CLOCK)
            continue
        if not valid:
            reasons.append((row, "valid", f"{job} is marked as not valid"))
        if exit_code not in (None, 0):
            reasons.append((row, "exit_code", f"{job} ended with exit code {exit_code:g}{_signal(exit_code)}"))
        if end_s is None:
            reasons.append((row, "end_s", f"{job} has no end"))
            continue
        executions.append(
            MeasuredExecution(
                job, node, machine_type, cores, threads, request, limit, start_s, end_s, row.where("end_s")
            )
        )
    if not all(row.sound for row in rows):
        return
    if reasons:
        row, column, _ = reasons[0]
        group.leave_out_run(key, row.where(column), "; ".join(dict.fromkeys(text for _, _, text in reasons)))
    elif not executions:
        group.leave_out_run(key, rows[0].where("job"), "no job ran in it")
    else:
        executions.sort(key=lambda e: (e.start_s, e.job))
        schedule, run = key
        group.runs.append(Run(group.name, schedule, run, group.year, tuple(executions), tuple(services)))


_CLOCK = "the clock starts with the first job; only a latency service may start before it, and has no end"


def _signal(exit_code: float | None) -> str:
    return " (killed, as a rule for want of memory)" if exit_code == 137 else ""


def _cores(row: Row, machine_type: str, group: Group) -> tuple[int, ...]:
    """The cores of a row, without those that the machine does not have: ``taskset`` ignores them, too."""
    cores = row.cores("cores")
    count = group.machines.vcpus.get(machine_type)
    if count is None or not cores or cores[-1] < count:
        return cores
    there = tuple(core for core in cores if core < count)
    if not there:
        row.refuse("cores", f"{machine_type} has {count} cores, and none of {format_cores(cores)}")
        return cores
    group.correct(
        row.where("cores"),
        f"cores {format_cores(cores)} are asked for, but {machine_type} has {count}: read as {format_cores(there)}",
    )
    return there
