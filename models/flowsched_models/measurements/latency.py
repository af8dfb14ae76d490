"""Latencies of services: sweeps of the load, sweeps beside interference, and windows of runs."""

from __future__ import annotations

from flowsched_models.measurements.group import Group, flag, measured, originals
from flowsched_models.measurements.measurements import LatencyInterference, LatencyPoint, LatencyWindow
from flowsched_models.measurements.table import MAX_THREADS, Row, Table

LOADS = ("qps", "target_qps")


def read_latency_sweep(table: Table, group: Group) -> None:
    """Read ``latency_sweep.csv``.

    Columns: threads, cores, qps or target_qps, p95_us [, service, run, machine_type, node, cpu_util_pct].
    """
    if not table.require(("threads",), ("cores",), LOADS, ("p95_us",)):
        return
    for row in originals(table, group, ("qps", "p95_us")):
        threads, cores = row.count("threads", MAX_THREADS), row.count("cores")
        qps, target, p95_us = _load(row, group), row.load("target_qps"), measured(row, "p95_us", group)
        percent = row.optional_number("cpu_util_pct", 0)
        machine_type, service = group.machines.of(row, "latency_sweep"), row.text("service") or group.service
        if not row.sound or threads is None or cores is None or qps is None or p95_us is None:
            continue
        where = row.where("p95_us")
        group.latency_points.append(
            LatencyPoint(group.name, service, machine_type, threads, cores, qps, p95_us, percent, where, target)
        )


def read_latency_interference(table: Table, group: Group) -> None:
    """Read ``latency_interference.csv``.

    Columns: interference, qps or target_qps, p95_us [, service, run, machine_type, node].
    """
    if not table.require(("interference",), LOADS, ("p95_us",)):
        return
    for row in originals(table, group, ("qps", "p95_us")):
        kind, qps, target = row.name("interference").lower(), _load(row, group), row.load("target_qps")
        p95_us = measured(row, "p95_us", group)
        machine_type, service = group.machines.of(row, "latency_interference"), row.text("service") or group.service
        if row.sound and qps is not None and p95_us is not None:
            where = row.where("p95_us")
            group.latency_interference.append(
                LatencyInterference(group.name, service, machine_type, kind, qps, p95_us, where, target)
            )


def read_latency_runs(table: Table, group: Group) -> None:
    """Read ``latency_runs.csv``: run, t_start_s, t_end_s, qps, p95_us [, schedule, in_window, service].

    Windows outside the run (``in_window`` 0) are passed over.
    """
    if not table.require(("run",), ("t_start_s",), ("t_end_s",), LOADS, ("p95_us",)):
        return
    for row in table:
        schedule, run, service = row.text("schedule"), row.name("run"), row.text("service") or group.service
        start_s, end_s = row.number("t_start_s"), row.number("t_end_s")
        qps, p95_us = _load(row, group), measured(row, "p95_us", group)
        inside = flag(row, "in_window", True)
        if start_s is not None and end_s is not None and end_s < start_s:
            row.refuse("t_end_s", f"the window ends at {end_s:g} s, before it starts at {start_s:g} s")
        if (
            row.sound
            and inside
            and start_s is not None
            and end_s is not None
            and qps is not None
            and p95_us is not None
        ):
            where = row.where("p95_us")
            group.latency_windows.append(
                LatencyWindow(group.name, schedule, run, start_s, end_s, qps, p95_us, where, service)
            )


def _load(row: Row, group: Group) -> float | None:
    """The load that was achieved, else the one asked for."""
    column = row.first(*LOADS)
    if not row.measured(column):
        group.leave_out(row.where(column), "no value was measured")
    return row.load(column)
