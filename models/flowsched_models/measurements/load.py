"""Read a folder of measurements from any source: the documented tables, or the course's folders as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from flowsched_models.document import InputError, Problem, Problems
from flowsched_models.measurements.controlled_runs import controlled_runs
from flowsched_models.measurements.course import (
    DROPPED_JOBS,
    JOBS_OF_LOWEST_WEIGHT,
    THROTTLED_JOBS,
    Course,
    read_course,
    start_year,
    why_unknown,
)
from flowsched_models.measurements.executions import read_executions
from flowsched_models.measurements.group import Group
from flowsched_models.measurements.interference import read_interference
from flowsched_models.measurements.latency import read_latency_interference, read_latency_runs, read_latency_sweep
from flowsched_models.measurements.load_runs import (
    LOWEST_WEIGHT,
    load_intervals,
    read_load_events,
    read_load_runs,
)
from flowsched_models.measurements.machines import Machines, read_machines
from flowsched_models.measurements.measurements import Finding, Measurements, Run, Where
from flowsched_models.measurements.quirks import leave_out_quirks
from flowsched_models.measurements.table import Table, read_table
from flowsched_models.measurements.threads import read_threads

Reader = Callable[[Table, Group], None]
TABLES: dict[str, tuple[str, Reader]] = {
    "threads.csv": ("parsec_threads.csv", read_threads),
    "interference.csv": ("parsec_interference.csv", read_interference),
    "executions.csv": ("part3_jobs.csv", read_executions),
    "latency_sweep.csv": ("part4_sweep.csv", read_latency_sweep),
    "latency_interference.csv": ("memcached_interference.csv", read_latency_interference),
    "latency_runs.csv": ("part3_memcached.csv", read_latency_runs),
    "load_runs.csv": ("part4_trace.csv", read_load_runs),
    "load_events.csv": ("part4_jobs.csv", read_load_events),
}
"""By the documented name of a table: the course's name of it, and its reader."""
MACHINES = "machines.csv"
_FORM = f"a table is named {', '.join(list(TABLES)[:-1])} or {list(TABLES)[-1]}"


def load_measurements(path: Path, *, year: str | None = None, years: Sequence[str] = ()) -> Measurements:
    """Read the tables of a folder, or of each folder in it; one folder is one group.

    ``year`` is the year of the course for groups that do not tell theirs; ``years`` keeps the groups of some years.
    What is suspicious is left out and named in ``findings``. What cannot be read is refused: raises
    :class:`flowsched_models.document.InputError` with everything that is wrong, by file, row and column.
    """
    problems = Problems()
    folders = _group_folders(path)
    course = _course_around(path, folders, problems)
    course = replace(course, unread=bool(problems.found))
    groups = [_read_group(folder, path, course, year or "", problems) for folder in folders]
    problems.raise_any()
    leave_out_quirks(groups)
    measurements = _gather(groups, _without_tables(path, folders))
    if not years:
        return measurements
    if not set(years) & set(measurements.years.values()):
        found = ", ".join(sorted(set(measurements.years.values()))) or "none that is known"
        message = f"no group of {' or '.join(years)} is here"
        raise InputError.one(path, message, f"years: {found}")
    return measurements.of_years(*years)


def _group_folders(path: Path) -> list[Path]:
    """The folder itself if it holds a table, else the folders in it that do."""
    try:
        if not path.is_dir():
            what = "this is a file; measurements are a folder of tables" if path.exists() else "there is no such folder"
            raise InputError.one(path, what, _FORM)
        found = [path] if _has_table(path) else [f for f in sorted(path.iterdir()) if f.is_dir() and _has_table(f)]
    except (OSError, ValueError) as error:
        what = f"the folder cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InputError.one(path, what) from None
    if not found:
        message = "there is no table of measurements in this folder, nor in a folder in it"
        there = ", ".join(sorted(p.name for p in path.glob("*.csv"))[:8])
        raise InputError.one(path, message, _FORM + (f" (found: {there})" if there else ""))
    return found


def _has_table(folder: Path) -> bool:
    return any((folder / name).is_file() for known, (alias, _) in TABLES.items() for name in (known, alias))


def _without_tables(path: Path, folders: Sequence[Path]) -> list[Finding]:
    """Folders beside the groups that hold tables, but none that is known: a name may be misspelled."""
    if list(folders) == [path]:
        return []
    others = [f for f in sorted(path.iterdir()) if f.is_dir() and f not in folders and any(f.glob("*.csv"))]
    text = "the folder holds tables, but none of the kinds that are read"
    return [Finding(Where(f.name, 0), text, "left out", f.name) for f in others]


def _course_around(path: Path, folders: Sequence[Path], problems: Problems) -> Course:
    """The course's tables over all groups; of the folder above, if ``path`` is one group's."""
    if list(folders) != [path]:
        return read_course(path, problems)
    if not any((path / alias).is_file() for alias, _ in TABLES.values()):
        return Course()
    # The folder above was not asked for, so what is wrong in it is not reported.
    ignored = Problems()
    course = read_course(path.resolve().parent, ignored)
    return Course() if ignored.found else course


def _read_group(folder: Path, root: Path, course: Course, year: str, problems: Problems) -> Group:
    name = folder.resolve().name
    prefix = "" if folder == root else f"{folder.name}/"
    tables: list[tuple[Table, Reader]] = []
    is_course = unread = False
    for known, (alias, reader) in TABLES.items():
        there = [n for n in (known, alias) if (folder / n).exists()]
        if len(there) == 2:
            both = f"{known} and {alias} are the same table under two names"
            problems.add(Problem(str(folder), None, "", both, "take one of them out"))
        elif there:
            is_course = is_course or there[0] == alias
            if (table := read_table(folder / there[0], prefix + there[0], problems)) is not None:
                tables.append((table, reader))
            elif reader is read_executions:
                unread = True
    group = Group(name, Machines())
    if is_course:
        _place_in_course(group, tables, replace(course, unread=course.unread or unread), year)
    if (folder / MACHINES).is_file():
        group.machines = _with_own_machines(folder / MACHINES, prefix + MACHINES, group.machines, problems)
    for table, reader in tables:
        reader(table, group)
        problems.extend(table.problems())
    return group


def _place_in_course(group: Group, tables: Sequence[tuple[Table, Reader]], course: Course, year: str) -> None:
    started = next((start_year(table) for table, reader in tables if reader is read_executions), "")
    group.year = course.year_of.get(group.name) or started or year
    known_year = course.years.get(group.year)
    if known_year is None:
        group.machines = Machines(missing=why_unknown(group.year, course.years), unread=course.unread)
    else:
        group.machines = known_year.machines()
        group.service_qps, group.jobs = known_year.load_qps, known_year.jobs
    group.dropped_jobs = DROPPED_JOBS
    group.refused_runs = course.refused_runs.get(group.name, {})
    group.refused_loads = course.refused_loads.get(group.name, {})
    group.throttled_jobs = THROTTLED_JOBS.get(group.name, frozenset())
    group.job_weight = LOWEST_WEIGHT if group.name in JOBS_OF_LOWEST_WEIGHT else 1.0
    group.suspect_times = frozenset(course.suspect_times.get(group.name, ()))


def _with_own_machines(path: Path, file: str, given: Machines, problems: Problems) -> Machines:
    table = read_table(path, file, problems)
    if table is None:
        return Machines(missing="mend machines.csv first")
    own = read_machines(table)
    problems.extend(table.problems())
    types, roles, vcpus = {**given.types, **own.types}, {**given.roles, **own.roles}, {**given.vcpus, **own.vcpus}
    return Machines(types, roles, vcpus, own.missing or given.missing, given.unread)


def _gather(groups: Sequence[Group], findings: Sequence[Finding]) -> Measurements:
    intervals = tuple(interval for group in groups for interval in load_intervals(group))
    controlled = tuple(run for group in groups for run in controlled_runs(group))
    found = [*findings, *(finding for group in groups for finding in group.findings)]
    return Measurements(
        tuple(time for group in groups for time in group.thread_times),
        tuple(time for group in groups for time in group.interference_times),
        tuple(_with_load(run, group) for group in groups for run in group.runs),
        tuple(point for group in groups for point in group.latency_points),
        tuple(point for group in groups for point in group.latency_interference),
        tuple(w for group in groups for w in group.latency_windows if (w.schedule, w.run) not in group.left_out_runs),
        load_intervals=intervals,
        controlled_runs=controlled,
        findings=tuple(sorted(found, key=lambda f: (f.where.file, f.where.row, f.where.column, f.text))),
        years={group.name: group.year for group in groups if group.year},
    )


def _with_load(run: Run, group: Group) -> Run:
    """A run whose services have a load: that of its windows where nothing else tells it."""
    services = []
    for service in run.services:
        loads = [
            window.qps
            for window in group.latency_windows
            if (window.schedule, window.run) == (run.schedule, run.run) and window.service in ("", service.profile)
        ]
        services.append(replace(service, qps=median(loads)) if service.qps is None and loads else service)
    return replace(run, services=tuple(services))
