"""Thread sweeps: the time of a job alone, by threads."""

from __future__ import annotations

from dataclasses import replace

from flowsched_models.measurements.disturbance import undisturbed
from flowsched_models.measurements.group import Group, flag, measured, originals, threads_text
from flowsched_models.measurements.measurements import ThreadTime
from flowsched_models.measurements.table import MAX_THREADS, Row, Table


def read_threads(table: Table, group: Group) -> None:
    """Read ``threads.csv``: job, threads, real_s [, run, machine_type, node, cores, user_s, sys_s, suspect,
    max_rss_mib, other_cpus].
    """
    if not table.require(("job",), ("threads",), ("real_s",)):
        return
    times: list[tuple[Row, str, ThreadTime]] = []
    for row in originals(table, group, ("real_s", "user_s", "sys_s")):
        if group.not_a_job(row):
            continue
        job, threads, real_s = row.name("job"), row.count("threads", MAX_THREADS), measured(row, "real_s", group)
        cores = _core_count(row.cores("cores"), row.text("cores"))
        machine_type = group.machines.of(row, "threads")
        suspect = flag(row, "suspect", False)
        if not row.sound or threads is None or real_s is None:
            continue
        if suspect:
            group.leave_out(row.where("suspect"), f"the time of {job} on {threads_text(threads)} is marked as suspect")
            continue
        time = ThreadTime(group.name, machine_type, job, threads, cores, real_s, row.where("real_s"))
        time = replace(time, max_rss_mib=row.optional_number("max_rss_mib", 0.0))
        pinned = f" (cores: {row.text('cores')})" if cores else ""
        what = f"{job} on {threads_text(threads)} of {machine_type}{pinned}"
        times.append((row, what, time))
    group.thread_times.extend(undisturbed(times, group))


def _core_count(cores: tuple[int, ...], text: str) -> int | None:
    """``cores`` may be a list of cores (``0-3``) or, as one number, how many there were."""
    if not cores:
        return None
    return max(cores[0], 1) if text.isdigit() else len(cores)
