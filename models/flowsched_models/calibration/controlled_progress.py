"""How far the run-time model takes the jobs of a controlled run in the time that they took: 1 where it is right."""

from __future__ import annotations

import math

from flowsched_models.catalogue import Catalogue
from flowsched_models.measurements.controlled_run import ControlledRun, RunningJob, Stretch
from flowsched_models.runtime import Host, HostFactory, Occupant, Resident, ServiceLoad

START_DELAY_S = 0.3
"""A container's program runs so long after its start is logged."""
_LOAD_STEP = 2000.0
"""Queries per second. Loads are rounded to it, so that equal moments are computed once; a service's CPU follows slowly."""
_TINY = 1e-9


def progress(run: ControlledRun, catalogue: Catalogue, hosts: HostFactory, machine_type: str) -> dict[str, float]:
    """Work that each job does between its logged start and end, as a share of all its work.

    Pauses, cores, weights and the load are those of the log. ``hosts`` are of the catalogue. A service that it does not know
    is not there.
    """
    done = dict.fromkeys(run.executions, 0.0)
    for stretch in run.stretches:
        if stretch.jobs:
            host = hosts.host(machine_type, _loads(run, stretch, catalogue))
            _advance(run, stretch, host, done)
    return done


def _loads(run: ControlledRun, stretch: Stretch, catalogue: Catalogue) -> tuple[ServiceLoad, ...]:
    profile = catalogue.services.get(run.service)
    if profile is None:
        return ()
    qps = _LOAD_STEP * round(stretch.qps / _LOAD_STEP)
    client = next(iter(profile.clients))  # it changes what p95 is seen, not what CPU is used
    return (ServiceLoad(run.service, stretch.service_cores, run.service_threads, 1.0, qps, client),)


def _advance(run: ControlledRun, stretch: Stretch, host: Host, done: dict[str, float]) -> None:
    """Progress over a stretch; phases end within it."""
    t_s = stretch.t_s
    while t_s < stretch.end_s - _TINY:
        next_s = stretch.end_s
        moving: list[tuple[RunningJob, Occupant, float]] = []
        for job in stretch.jobs:
            ready_s = run.executions[job.job][0] + START_DELAY_S
            if ready_s > t_s + _TINY:
                next_s = min(next_s, ready_s)
                continue
            course = host.course(Resident(job.job, 1.0, job.threads, job.cores, job.weight))
            first, last, serial = course
            early = done[job.job] < serial - _TINY
            moving.append((job, first if early else last, serial if early else math.inf))
        rates = host.rates(tuple(occupant for _, occupant, _ in moving)).progress
        for job, occupant, mark in moving:
            next_s = min(next_s, t_s + (mark - done[job.job]) / rates[occupant])
        next_s = max(next_s, t_s + _TINY)
        for job, occupant, mark in moving:
            reached = done[job.job] + rates[occupant] * (next_s - t_s)
            done[job.job] = mark if abs(mark - reached) < _TINY else reached
        t_s = next_s
