"""Interference sweeps: the time of a job beside each source of interference."""

from __future__ import annotations

from flowsched_models.measurements.disturbance import undisturbed
from flowsched_models.measurements.group import Group, measured, originals
from flowsched_models.measurements.measurements import InterferenceTime
from flowsched_models.measurements.table import Row, Table


def read_interference(table: Table, group: Group) -> None:
    """Read ``interference.csv``: job, interference, real_s [, run, machine_type, node, other_cpus]."""
    if not table.require(("job",), ("interference",), ("real_s",)):
        return
    times: list[tuple[Row, str, InterferenceTime]] = []
    for row in originals(table, group, ("real_s", "user_s", "sys_s")):
        if group.not_a_job(row):
            continue
        job, kind, real_s = row.name("job"), row.name("interference").lower(), measured(row, "real_s", group)
        machine_type = group.machines.of(row, "interference")
        if row.sound and real_s is not None:
            time = InterferenceTime(group.name, machine_type, job, kind, real_s, row.where("real_s"))
            times.append((row, f"{job} beside {kind} on {machine_type}", time))
    group.interference_times.extend(undisturbed(times, group))
