"""What there is to plan: machines as the models see them, tasks that wait, and tasks that run and stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from flowsched.cluster.occupied_machines import service_load
from flowsched.cluster.resource import covers
from flowsched.cluster.snapshot import Machine, Service, Snapshot, StartDelay, Task
from flowsched.planner.rules import WEIGHTS_MILLI, PlanRules
from flowsched_models.catalogue import Catalogue
from flowsched_models.lookahead import Lookahead
from flowsched_models.profile import JobProfile
from flowsched_models.runtime import Host, HostFactory


class Seat(NamedTuple):
    """A task's place in a plan of one machine. A tuple, because plans are looked up by it all the time."""

    job: int
    """Index into the problem's jobs."""
    threads: int
    cores: tuple[int, ...]
    """Virtual CPUs it may use, ascending."""
    width_milli: int
    """Its CPU request, and its weight where cores are shared."""
    after: int = -1
    """Job of the same machine after whose end it is bound; -1 for one that is bound as soon as it is submitted."""


@dataclass(frozen=True)
class Job:
    """A task and where it stands in time; seconds from now."""

    task: Task
    profile: JobProfile
    submit_s: float
    ready_s: float
    """When its program runs if it is bound as soon as possible."""
    progress: float = 0.0
    site: int | None = None
    """Machine of a task that runs already; None for one that can be planned."""
    seat: Seat | None = None
    """How it runs there."""

    @property
    def bound_s(self) -> float:
        """The earliest moment at which it can be bound."""
        return max(0.0, self.submit_s)


@dataclass(frozen=True)
class Site:
    """A machine."""

    machine: Machine
    host: Host
    services: tuple[Service, ...]
    limits_us: tuple[float, ...]
    """What each service's p95 may reach."""
    cores: tuple[int, ...]
    """Virtual CPUs that tasks may use."""
    batch_cores: tuple[int, ...]
    """Those of them that belong to no service."""
    siblings: tuple[tuple[int, int], ...]
    """Pairs of virtual CPUs on one physical core, as far as they slow each other down."""
    cpu_milli: int
    """What tasks may request in total."""
    memory_mib: int
    resources: Mapping[str, int]

    @cached_property
    def units(self) -> tuple[tuple[int, ...], ...]:
        """Physical cores that tasks may use, as far as siblings slow each other down."""
        here = set(self.cores)
        pair_of = {c: tuple(k for k in pair if k in here) for pair in self.siblings for c in pair}
        return tuple(dict.fromkeys(pair_of.get(c, (c,)) for c in self.cores))

    @cached_property
    def core_sets(self) -> tuple[tuple[int, ...], ...]:
        """Core sets worth trying: everything, blocks of neighbours, blocks of whole physical cores."""
        found: dict[tuple[int, ...], None] = {}
        for cores in dict.fromkeys((self.batch_cores, self.cores)):
            if not cores:
                continue
            found[cores] = None
            here = set(cores)
            units: list[list[tuple[int, ...]]] = [
                [(c,) for c in cores],
                [tuple(k for k in pair if k in here) for pair in self.siblings if here & set(pair)],
            ]
            for blocks in units:
                for first in range(len(blocks)):
                    for last in range(first, len(blocks)):
                        found[tuple(sorted(c for block in blocks[first : last + 1] for c in block))] = None
        return tuple(found)


@dataclass(frozen=True)
class Problem:
    """A moment of a cluster, as a search needs it."""

    now_s: float
    catalogue: Catalogue
    sites: tuple[Site, ...]
    jobs: tuple[Job, ...]
    """Tasks that wait, then tasks that run."""
    start_delay: StartDelay
    rules: PlanRules

    @cached_property
    def free(self) -> tuple[int, ...]:
        """Jobs that can be planned."""
        return tuple(j for j, job in enumerate(self.jobs) if job.site is None)

    @cached_property
    def timed(self) -> bool:
        """Whether room must be checked moment by moment: jobs that come later, or further resources."""
        return any(job.submit_s > 0.0 or job.task.resources for job in self.jobs)

    @cached_property
    def sites_of(self) -> tuple[tuple[int, ...], ...]:
        """For each job, the machines that are large enough for it and that it may run on."""
        return tuple(
            (job.site,) if job.site is not None else tuple(s for s, site in enumerate(self.sites) if takes(site, job))
            for job in self.jobs
        )

    def threads_of(self, job: int, cores: int) -> int:
        """Threads that a job starts on so many cores."""
        found = self.jobs[job]
        return found.task.threads_on(cores, found.profile)

    @cached_property
    def _thread_counts(self) -> dict[tuple[int, int], tuple[int, ...]]:
        return {}

    def thread_counts(self, job: int, cores: int) -> tuple[int, ...]:
        """Every number of threads that a job may start with on at most so many cores, ascending."""
        found = self._thread_counts.get((job, cores))
        if found is None:
            counts = {self.threads_of(job, n) for n in range(1, cores + 1)}
            found = self._thread_counts[job, cores] = tuple(sorted(counts))
        return found

    @cached_property
    def widths_of(self) -> tuple[tuple[int, ...], ...]:
        """Widths that each job may be given, ascending."""
        if self.rules.weights == "equal" or not self.rules.share_cores:
            # No two tasks share a core, so a weight would only take room.
            return tuple((job.task.widths_milli[0],) for job in self.jobs)
        if self.rules.weights == "widths":
            return tuple(job.task.widths_milli for job in self.jobs)
        return tuple(
            job.task.widths_milli
            if job.profile.has_given_run_time  # it would take as long with any weight
            else tuple(sorted({*WEIGHTS_MILLI, *job.task.widths_milli}))
            for job in self.jobs
        )


def takes(site: Site, job: Job) -> bool:
    """Whether an otherwise empty machine has room for a job, and the job may run there."""
    task = job.task
    allowed = task.machines is None or site.machine.name in task.machines
    return (
        allowed and bool(site.cores) and task.memory_mib <= site.memory_mib and covers(site.resources, task.resources)
    )


def problem_of(snapshot: Snapshot, rules: PlanRules, hosts: HostFactory | None = None) -> Problem:
    """The problem of planning everything that a snapshot has pending; what runs stays where and as it is.

    Tasks may be submitted later than ``now_s``. Relations, task groups and utilities are not planned:
    :func:`flowsched.planner.scope.outside` says what a plan would ignore.
    """
    hosts = hosts or HostFactory(snapshot.catalogue)
    sites = tuple(_site(snapshot, machine, rules, hosts) for machine in snapshot.machines)
    index = {site.machine.name: s for s, site in enumerate(sites)}
    now, delay = snapshot.now_s, snapshot.start_delay
    jobs = []
    for task in snapshot.pending:
        wait = delay.at_submission_s if snapshot.is_new(task) else delay.after_waiting_s
        submit = task.submit_s - now
        expected = replace(task, scale=snapshot.expected_scale(task))
        jobs.append(Job(expected, snapshot.catalogue.jobs[task.profile], submit, max(0.0, submit) + wait))
    for running in snapshot.running:
        seat = Seat(len(jobs), running.threads, running.cores, running.width_milli)
        profile = snapshot.catalogue.jobs[running.task.profile]
        ready = max(0.0, running.start_s - now)
        submit = min(0.0, running.task.submit_s - now)
        machine_type = sites[index[running.machine]].machine.type
        estimate = snapshot.estimate(running.task, running.progress, machine_type, running.factor)
        task = replace(running.task, scale=estimate.scale)
        jobs.append(Job(task, profile, submit, ready, estimate.done, index[running.machine], seat))
    return Problem(now, snapshot.catalogue, sites, tuple(jobs), delay, rules)


def _site(snapshot: Snapshot, machine: Machine, rules: PlanRules, hosts: HostFactory) -> Site:
    services = tuple(s for s in snapshot.services if s.machine == machine.name)
    batch = snapshot.batch_cores(machine)
    open_cores = rules.service_cores
    if open_cores is None:
        open_cores = snapshot.share_service_cores or rules.weights == "free"
    cores = tuple(range(machine.vcpus)) if open_cores and rules.share_cores else batch
    host = hosts.host(machine.type, [service_load(s) for s in services])
    return Site(
        machine=machine,
        host=host,
        services=services,
        limits_us=_limits_us(host, services, rules.slo_margin),
        cores=cores,
        batch_cores=batch,
        siblings=snapshot.catalogue.machine_types[machine.type].siblings,
        cpu_milli=machine.cpu_milli - sum(s.width_milli for s in services),
        memory_mib=machine.memory_mib - sum(s.memory_mib for s in services),
        resources=dict(machine.resources),
    )


def _limits_us(host: Host, services: tuple[Service, ...], margin: float) -> tuple[float, ...]:
    """What each service's p95 may reach. One that is beyond the margin without any task may reach its goal."""
    if not services:
        return ()
    alone = Lookahead(host, 0.0, 0.0, 0.0).run(()).peak_p95_us[0]
    return tuple(
        s.slo_us * (margin if p95 <= margin * s.slo_us else max(1.0, margin))
        for s, p95 in zip(services, alone.tolist(), strict=True)
    )
