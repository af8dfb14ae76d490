"""What is suspicious in measurements that can be read: it is left out, and named with a reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from flowsched_models.measurements.group import Group, threads_text
from flowsched_models.measurements.measurements import Finding, MeasuredExecution, Run, Where
from flowsched_models.measurements.sweep_quirks import (
    leave_out_cpu_quirks,
    leave_out_pinning_quirks,
    leave_out_thread_quirks,
)

TOO_SHORT = 0.3
"""A job below this share of the fastest time known for it was aborted, or had a small input. Real ones are above 0.7."""
FEW = 2
"""So many other runs at least are needed to say what a run of their schedule is like."""
Known = Mapping[tuple[str, str, str], Mapping[int, float]]
"""Seconds by thread count, by group ("" for all groups of a year), year and job. Inputs differ between years."""
COPY_JOBS = 3
"""Two runs with so many jobs and all the same times are one run: clocks of whole seconds repeat for a single job."""


def leave_out_quirks(groups: Sequence[Group]) -> None:
    """Leave out what cannot be true, then what the data's owner says not to use."""
    leave_out_thread_quirks(groups)
    known = _known_times(groups)
    for group in groups:
        leave_out_pinning_quirks(group)
        leave_out_cpu_quirks(group)
        _runs(group, known)
        _flagged(group)
    for group in groups:
        _only_once(group)


def _runs(group: Group, known: Known) -> None:
    """Copies first: a run that is there twice must not vouch for itself."""
    first: dict[tuple[object, ...], Run] = {}
    kept = []
    for run in group.runs:
        same = first.setdefault(tuple(_placed_times(run)), run)
        if same is not run and len(run.executions) >= COPY_JOBS:
            text = f"all its times equal those of run '{same.name}', so it is a copy"
            group.leave_out_run((run.schedule, run.run), run.executions[0].where, text)
        else:
            kept.append(run)
    group.runs = kept
    for run in kept:
        if reason := _missing(group, run) or _repeated(group, run) or _too_short(group, run, kept, known):
            where, text = reason
            group.leave_out_run((run.schedule, run.run), where, text)
    group.runs = [run for run in kept if (run.schedule, run.run) not in group.left_out_runs]


def _placed_times(run: Run) -> Iterator[tuple[object, ...]]:
    for e in sorted(run.executions, key=lambda e: (e.job, e.start_s)):
        yield e.job, e.node, e.cores, e.threads, e.start_s, e.end_s


def _missing(group: Group, run: Run) -> tuple[Where, str] | None:
    """Jobs that belong to the run and are not in it: they never started, or their rows are lost."""
    there = {e.job for e in run.executions}
    expected = set(group.jobs)
    like = [{e.job for e in r.executions} for r in group.runs if r.schedule == run.schedule and r is not run]
    if not expected and run.schedule and len(like) >= FEW:
        expected = set.intersection(*like)
    if not (missing := sorted(expected - there)):
        return None
    # Column job of its first row: what is missing has no row of its own.
    first = min(run.executions, key=lambda e: e.where.row).where
    verb = "is" if len(missing) == 1 else "are"
    return Where(first.file, first.row, "job"), f"{', '.join(missing)} {verb} missing: killed, or its rows are lost"


def _repeated(group: Group, run: Run) -> tuple[Where, str] | None:
    """In the course, every job runs once."""
    if not group.jobs:
        return None
    seen: set[str] = set()
    for e in sorted(run.executions, key=lambda e: e.where.row):
        if e.job in seen:
            return Where(e.where.file, e.where.row, "job"), f"{e.job} is there twice, so two runs may be mixed"
        seen.add(e.job)
    return None


def _too_short(group: Group, run: Run, runs: Sequence[Run], known: Known) -> tuple[Where, str] | None:
    """Jobs that end far sooner than the same job can."""
    short: list[tuple[MeasuredExecution, float]] = []
    for e in sorted(run.executions, key=lambda e: e.where.row):
        tables = [known[key] for key in ((group.name, run.year, e.job), ("", run.year, e.job)) if key in known]
        # Two tables may contradict each other; then the shorter time is given the benefit of the doubt.
        least = min((_least(table, e.threads) for table in tables), default=0.0) or _of_its_schedule(e, run, runs)
        if e.duration_s <= 0 or e.duration_s < TOO_SHORT * least:
            short.append((e, least))
    if not short:
        return None
    told = ", ".join(
        f"{e.job} takes {e.duration_s:g} s" + (f" where {least:.0f} s or more are usual" if least else "")
        for e, least in short
    )
    return short[0][0].where, f"{told}: aborted, or a small input"


def _of_its_schedule(e: MeasuredExecution, run: Run, runs: Sequence[Run]) -> float:
    """The median of the same job, placed in the same way, in other runs of its schedule."""
    like = [
        o.duration_s
        for r in runs
        if r is not run and r.schedule == run.schedule
        for o in r.executions
        if (o.job, o.machine_type, o.cores, o.threads) == (e.job, e.machine_type, e.cores, e.threads)
    ]
    return median(like) if len(like) >= FEW else 0.0


def _least(times: Mapping[int, float], threads: int) -> float:
    """The least that so many threads can take: the best time on as many or more; beyond them all, linear speed-up."""
    enough = [seconds for count, seconds in times.items() if count >= threads]
    most = max(times)
    return min(enough) if enough else times[most] * most / threads


def _known_times(groups: Sequence[Group]) -> Known:
    """From thread sweeps: the medians. For a job in no sweep of its year: each group's fastest execution."""
    seen: dict[tuple[str, str, str], dict[int, list[float]]] = {}
    for group in groups:
        for time in group.thread_times:
            for name in (group.name, ""):
                counts = seen.setdefault((name, group.year, time.job), {})
                counts.setdefault(time.threads, []).append(time.real_s)
    known = {place: {n: median(times) for n, times in counts.items()} for place, counts in seen.items()}
    fastest: dict[tuple[str, str], dict[str, tuple[float, int]]] = {}
    for group in groups:
        for run in group.runs:
            for e in run.executions:
                best = fastest.setdefault((run.year, e.job), {})
                best[group.name] = min((e.duration_s, e.threads), best.get(group.name, (e.duration_s, e.threads)))
    for (year, job), best in fastest.items():
        if len(best) > FEW:
            middle = sorted(best.values())[len(best) // 2]
            known.setdefault(("", year, job), {middle[1]: middle[0]})
    return known


def _flagged(group: Group) -> None:
    """What the data's owner says not to use, as far as it was not found already."""
    for run in group.runs:
        key = (run.schedule, run.run)
        if key in group.refused_runs:
            group.leave_out_run(key, run.executions[0].where, group.refused_runs[key])
    group.runs = [run for run in group.runs if (run.schedule, run.run) not in group.left_out_runs]
    kept = []
    for time in group.thread_times:
        if (time.job, time.threads) in group.suspect_times:
            text = (
                f"the time of {time.job} on {threads_text(time.threads)} is marked as suspect in threads_by_group.csv"
            )
            group.leave_out(time.where, text)
        else:
            kept.append(time)
    group.thread_times = kept


def _only_once(group: Group) -> None:
    """What can be used, but has nothing to be checked against."""
    if len(group.runs) == 1:
        run = group.runs[0]
        text = f"run '{run.name}' is the only run of its group: nothing tells how its times vary"
        group.findings.append(Finding(run.executions[0].where, text, "kept", group.name))
    counts: dict[tuple[str, str], set[int]] = {}
    for time in group.thread_times:
        counts.setdefault((time.job, time.machine_type), set()).add(time.threads)
    for time in group.thread_times:
        if len(counts.pop((time.job, time.machine_type), ())) == 1:
            text = f"{time.job} was measured on {threads_text(time.threads)} only: nothing tells its speed-up"
            group.findings.append(Finding(time.where, text, "kept", group.name))
