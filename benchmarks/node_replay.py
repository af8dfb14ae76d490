"""A logged run as a script for the simulated machine: what its controller did, at the times at which it would have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flowsched.node import NodeService, NodeTask, TaskGrant
from flowsched_models.calibration.controlled_progress import START_DELAY_S
from flowsched_models.catalogue import Catalogue
from flowsched_models.measurements.controlled_run import ControlledRun
from flowsched_models.measurements.load_event import LoadEvent
from flowsched_simulator.node.machine import NodeMachine

STEP_S = 0.25
"""Ends are seen after this long at most."""
START_FOLLOWS_S = 6.0
"""A start so soon after the end of another job waited for it: some controllers fetch an image first."""
CHANGE_FOLLOWS_S = 0.7
"""The same for new cores and for a job that runs again: controllers look every 0.1 to 0.5 s."""
LONGEST_S = 3600.0


@dataclass(frozen=True)
class Replayed:
    """A run as the simulator has it."""

    makespan_s: float
    active_s: Mapping[str, float]
    """By job: seconds that it ran, pauses excluded."""


@dataclass
class _Job:
    threads: int
    cores: tuple[int, ...] = ()
    weight: float = 1.0
    started: bool = False
    waiting: bool = False
    cores_from: int = -1
    """Place in the log of the event that its cores are from, as ``waiting_from``."""
    waiting_from: int = -1
    active_s: float = 0.0


@dataclass
class _Script:
    """Events with their place in the log: at a time of the log, or so many seconds after an end."""

    at: list[tuple[float, int, LoadEvent]] = field(default_factory=list)
    after: dict[str, list[tuple[float, int, LoadEvent]]] = field(default_factory=dict)


def script(run: ControlledRun) -> _Script:
    """What follows an end, and what follows the load.

    Pauses follow the load, so they keep their times. A job that starts soon after the end of another one follows it, and so
    do changes that come at once.
    """
    ends = sorted((end, job) for job, (_, end) in run.executions.items())
    found = _Script()
    for place, event in enumerate(run.events):
        if event.kind == "end":
            continue
        longest = START_FOLLOWS_S if event.kind == "start" else CHANGE_FOLLOWS_S
        before = [(end, job) for end, job in ends if 0.0 <= event.t_s - end <= longest and job != event.job]
        if event.job == run.service or event.kind == "pause" or not before:
            found.at.append((event.t_s, place, event))
        else:
            end, job = before[-1]
            found.after.setdefault(job, []).append((event.t_s - end, place, event))
    return found


def replay(
    run: ControlledRun, catalogue: Catalogue, machine_type: str, scales: Mapping[str, float] | None = None
) -> Replayed:
    """Play a run to the end of its last job. ``scales`` multiplies the work of jobs.

    A run that takes longer than measured sees its load from the beginning again.
    """
    cores = tuple(range(catalogue.machine_types[machine_type].vcpus))
    client = next(iter(catalogue.services[run.service].clients))
    service = NodeService(run.service, run.service, run.service_threads, 1000.0, client, cores)
    machine = NodeMachine(catalogue, machine_type, cores, (service,))
    machine.set_cores(run.service, run.service_cores())
    jobs = {
        e.job: _Job(e.threads or 1, weight=e.weight) for e in run.events if e.kind == "start" and e.job != run.service
    }
    for name, job in jobs.items():
        machine.submit(NodeTask(name, name, job.threads), (scales or {}).get(name, 1.0))
    plan = script(run)
    origin = min(0.0, *(t for t, _, _ in plan.at))
    due = sorted(plan.at, key=lambda item: item[:2])
    running = set(jobs)
    first = last = None
    length = run.loads[-1][1]
    while running and machine.now_s < LONGEST_S:
        now = machine.now_s + origin
        while due and due[0][0] <= now + 1e-9:
            _, place, event = due.pop(0)
            if event.job == run.service:
                machine.set_cores(run.service, event.cores)
            elif event.job in running:
                _apply(event, place, jobs[event.job])
                first = now if first is None and event.kind == "start" else first
                _grant(machine, event.job, jobs[event.job])
        machine.set_load(run.service, run.qps(now if now < length else now % length))
        to_s = min(now + STEP_S, due[0][0] if due else LONGEST_S)
        moving = [job for name, job in jobs.items() if name in running and job.started and not job.waiting]
        was = machine.now_s
        ended = machine.advance(to_s - origin)
        for job in moving:
            job.active_s += machine.now_s - was
        for end_s, name in ended:
            jobs[name].active_s -= machine.now_s - end_s
            running.discard(name)
            last = end_s + origin
            due += [(last + lag, place, event) for lag, place, event in plan.after.get(name, ())]
        if ended:
            due.sort(key=lambda item: item[:2])
        for moments in machine.moments.values():
            moments.clear()
    if running or first is None or last is None:
        raise RuntimeError(f"{run.name}: {', '.join(sorted(running))} did not end within {LONGEST_S:g} s")
    return Replayed(last - first, {name: job.active_s for name, job in jobs.items()})


def _apply(event: LoadEvent, place: int, job: _Job) -> None:
    """What follows an end may come before or after what follows the load: the state is that of the later one in the log."""
    if event.kind == "start":
        job.started = True
    if event.cores and place > job.cores_from:
        job.cores, job.cores_from = event.cores, place
    if event.kind in ("pause", "unpause") and place > job.waiting_from:
        job.waiting, job.waiting_from = event.kind == "pause", place


def _grant(machine: NodeMachine, name: str, job: _Job) -> None:
    if job.started:
        grant = TaskGrant(not job.waiting, job.cores, job.weight)
        machine.set_grant(name, grant, start_delay_s=START_DELAY_S)
