"""Which logs of controllers tell a whole run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flowsched_models.measurements.controlled_run import ControlledRun
from flowsched_models.measurements.group import Group
from flowsched_models.measurements.load_event import LoadEvent, LoadRunKey
from flowsched_models.measurements.load_runs import has_cores, load_run_events, run_name
from flowsched_models.measurements.measurements import LoadRow
from flowsched_models.quantity import format_cores


def controlled_runs(group: Group) -> Iterator[ControlledRun]:
    """The runs of a group whose log tells who had which cores from start to end; of the others, why not.

    Runs of which the readers of the load said something already are passed over without another word.
    """
    vcpus = group.machines.vcpus
    refused: dict[str, list[tuple[str, LoadRow]]] = {}
    for key, rows, events, threads in load_run_events(group):
        service = rows[0].service
        if key in group.refused_loads or threads is None or not has_cores(events, service):
            continue
        count = vcpus.get(rows[0].machine_type)
        reason = _why_not(events, service, count, rows[0].machine_type, group.jobs)
        if reason:
            refused.setdefault(reason, []).append((run_name(key), rows[0]))
        else:
            yield _run(group, key, rows, _known(events, service), threads)
    for reason, runs in refused.items():
        names = ", ".join(f"'{name}'" for name, _ in runs)
        group.leave_out(runs[0][1].where, f"the controller's log of {names} tells no run: {reason}")


def _run(
    group: Group, key: LoadRunKey, rows: Sequence[LoadRow], events: list[LoadEvent], threads: int
) -> ControlledRun:
    service = rows[0].service
    starts = {e.job: e.t_s for e in events if e.kind == "start" and e.job != service}
    ends = {e.job: e.t_s for e in events if e.kind == "end" and e.job != service}
    loads = tuple(sorted((row.t_start_s, row.t_end_s, row.qps) for row in rows))
    return ControlledRun(
        group.name,
        group.year,
        key[0],
        float(key[1]) if key[1] else loads[0][1] - loads[0][0],
        key[2],
        rows[0].machine_type,
        service,
        threads,
        tuple(events),
        loads,
        {job: (starts[job], ends[job]) for job in sorted(starts)},
        group.throttled_jobs & set(starts),
    )


def _known(events: Sequence[LoadEvent], service: str) -> list[LoadEvent]:
    """Events of the service and of jobs; a job that is said to start or end twice did so the first time.

    An event with neither cores nor threads is of the controller itself.
    """
    real = {e.job for e in events if e.cores or e.threads}
    seen: set[tuple[str, str]] = set()
    found = []
    for event in events:
        once = event.kind in ("start", "end")
        if event.job not in real or (once and (event.job, event.kind) in seen):
            continue
        if once:
            seen.add((event.job, event.kind))
        if event.job == service and event.kind != "start" and not event.cores:
            continue
        found.append(event)
    return found


def _why_not(
    events: Sequence[LoadEvent], service: str, vcpus: int | None, machine_type: str, jobs: frozenset[str]
) -> str | None:
    """Why a log does not tell who had which cores; None where it does."""
    for event in events:
        if vcpus is not None and event.cores and max(event.cores) >= vcpus:
            cores = format_cores(event.cores)
            return (
                f"{event.job} is said to have cores {cores} of the {vcpus} of {machine_type}, so its cores mean others"
            )
    known = _known(events, service)
    there = {e.job for e in known if e.job != service}
    placed: set[str] = set()
    for event in known:
        if event.cores:
            placed.add(event.job)
        if event.job != service and event.kind == "start" and (event.threads is None or event.job not in placed):
            return f"nothing tells the threads or the cores of {event.job} at its start"
    for job in sorted(there | jobs):
        kinds = [e.kind for e in known if e.job == job]
        if "start" not in kinds or "end" not in kinds:
            return f"{job} has no {'end' if 'start' in kinds else 'start'}"
    return None
