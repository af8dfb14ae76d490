"""Replays a given schedule in the simulator: placements from elsewhere, on our machines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from flowsched.cluster.snapshot import MILLI, Service, Task
from flowsched_models.document import InputError, Problem
from flowsched_models.execution import INSTANT_S
from flowsched_models.quantity import count_cores
from flowsched_models.runtime import HostFactory, Resident
from flowsched_simulator.run import JobRun, Run
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.schedule import Schedule, ScheduledTask
from flowsched_simulator.simulation import Options
from flowsched_simulator.truth import true_world
from flowsched_simulator.workload import drawn_workload, workload
from flowsched_simulator.world import World

_NEVER = float("inf")


@dataclass(frozen=True)
class Played:
    """When the tasks of a schedule began and ended, by job."""

    begun_s: Mapping[str, float]
    ended_s: Mapping[str, float]
    overcommitted: Mapping[str, Problem]
    """By machine, when requests first exceeded it."""
    killed: frozenset[str] = frozenset()
    """Tasks that were killed at their walltime."""


def replay(scenario: Scenario, schedule: Schedule, options: Options | None = None) -> Run:
    """Run a schedule of a scenario's jobs.

    A task starts at its ``start_s`` sharp, or ``after`` another ends plus the scenario's delay for a container that is made
    after a wait. Its weight is its request; without one, an equal split of each core among the schedule's tasks that may
    use it. Raises :class:`InputError` if requests exceed a machine at some moment: such a schedule cannot be placed.
    """
    options = options or Options()
    scenario = drawn_workload(scenario, options.seed)
    placed = replace(scenario, services=placed_services(scenario, schedule))
    tasks = {t.name: t for t in scenario.tasks}
    world = true_world(
        placed,
        tuple(tasks.values()),
        HostFactory(scenario.catalogue),
        options.model_error,
        options.seed,
        options.error_of,
    )
    played = play(placed, schedule, tasks, world)
    if played.overcommitted:
        raise InputError([next(iter(played.overcommitted.values()))])
    begun, ended = played.begun_s, played.ended_s
    weights = weights_of(schedule)
    batch_cores = placed.batch_cores()
    terms = {name: scenario.terms_of(task.job) for name, task in tasks.items()}
    jobs = tuple(
        JobRun(
            job=tasks[entry.job].job,
            profile=tasks[entry.job].profile,
            machine=entry.machine,
            cores=entry.cores,
            width_milli=round(weights[entry.job] * MILLI),
            threads=entry.threads,
            submit_s=tasks[entry.job].submit_s,
            bound_s=begun[entry.job],
            start_s=begun[entry.job],
            end_s=ended[entry.job],
            alone_s=terms[entry.job].at_most_s(
                world.alone_s(tasks[entry.job], scenario.machines, batch_cores, entry.machine)
            ),
            deadline_s=terms[entry.job].deadline_s,
            task="" if entry.job == tasks[entry.job].job else entry.job,
            walltime_s=terms[entry.job].walltime_s,
            killed=None if terms[entry.job].walltime_s is None else entry.job in played.killed,
        )
        for entry in schedule.tasks
    )
    latency = world.latency(min(begun.values()), max(ended.values()))
    return Run(scenario.name, "schedule", schedule.name, options.seed, jobs, latency, ())


def play(placed: Scenario, schedule: Schedule, tasks: Mapping[str, Task], world: World) -> Played:
    """Run a schedule on the machines of ``world``; ``placed``: the scenario, its services where the schedule has them."""
    weights = weights_of(schedule)
    waiting = {t.job: t for t in schedule.tasks}
    starts: dict[str, float] = {job: t.start_s for job, t in waiting.items() if t.start_s is not None}
    begun: dict[str, float] = {}
    ended: dict[str, float] = {}
    overcommitted: dict[str, Problem] = {}
    killed: set[str] = set()
    now = 0.0
    while waiting or len(ended) < len(begun):
        due = min((at for job, at in starts.items() if job in waiting), default=_NEVER)
        first_s = min(due, world.next_event_s())
        ends = world.advance(first_s + INSTANT_S)
        now = max(now, first_s, world.now_s)
        for job, end_s, was_killed in ends:
            ended[job] = end_s
            killed.update([job] * was_killed)
            for other in waiting.values():
                if other.after == job:
                    starts[other.job] = end_s + placed.start_delay.after_waiting_s
        for job in [j for j in waiting if starts.get(j, _NEVER) <= first_s + INSTANT_S]:
            entry = waiting.pop(job)
            begun[job] = now
            problem = _overcommit(placed, schedule, weights, begun, ended, entry, now)
            if problem is not None:
                overcommitted.setdefault(entry.machine, problem)
            task = tasks[job]
            resident = Resident(
                task.profile,
                task.scale,
                entry.threads,
                entry.cores,
                weights[job],
                task.memory_mib,
                ready_s=now,
                limit=None if entry.limit_milli is None else entry.limit_milli / MILLI,
            )
            world.start(job, entry.machine, resident, now, placed.terms_of(task.job).walltime_s)
    world.settle(now)
    return Played(begun, ended, overcommitted, frozenset(killed))


def placed_services(scenario: Scenario, schedule: Schedule) -> tuple[Service, ...]:
    """The scenario's services where the schedule has them."""
    places = schedule.services
    return tuple(replace(s, **dict(places[s.name])) if s.name in places else s for s in scenario.services)


def caveats(scenario: Scenario, schedule: Schedule, seed: int = 0) -> tuple[str, ...]:
    """Sentences for what no policy would do or the models can only guess: memory, thread counts, early starts."""
    free = {m.name: m.memory_mib for m in scenario.machines}
    for service in placed_services(scenario, schedule):
        free[service.machine] -= service.memory_mib
    tasks = {t.name: t for t in workload(scenario, seed)}
    weights = weights_of(schedule)
    notes = []
    for t in schedule.tasks:
        submitted = tasks[t.job].submit_s
        if t.start_s is not None and t.start_s < submitted:
            notes.append(f"{t.job} starts at {t.start_s:g} s and is submitted only at {submitted:g} s")
        needs = tasks[t.job].memory_mib
        if needs > free[t.machine]:
            notes.append(
                f"{t.job} asks for {needs} MiB and {t.machine} has {free[t.machine]} MiB beside its services; "
                "how long it runs there is a guess"
            )
        profile = scenario.catalogue.jobs[tasks[t.job].profile]
        asked = tasks[t.job].request_milli
        if profile.has_given_run_time and weights[t.job] * MILLI < asked:
            notes.append(
                f"{t.job} asks for {count_cores(asked)} and has {count_cores(round(weights[t.job] * MILLI))}; its run time "
                "is given, and is taken to be the same"
            )
        if profile.threads_power_of_two and t.threads & (t.threads - 1):
            notes.append(
                f"{t.job} was measured with 1, 2, 4 and 8 threads only; how long it runs with {t.threads} is a guess"
            )
    if any(terms.after for terms in scenario.job_terms.values()):
        notes.append("jobs start when the schedule says so: `after` of the scenario's jobs is not looked at")
    placed = {t.job for t in schedule.tasks}
    absent = [name for name in tasks if name not in placed]
    if absent:
        notes.append(f"the schedule leaves out {', '.join(absent)}")
    return tuple(notes)


def weights_of(schedule: Schedule) -> dict[str, float]:
    """Request of each task in cores."""
    users: dict[tuple[str, int], int] = defaultdict(int)
    for t in schedule.tasks:
        for core in t.cores:
            users[t.machine, core] += 1
    return {
        t.job: (
            sum(1.0 / users[t.machine, core] for core in t.cores)
            if t.request_milli is None
            else t.request_milli / MILLI
        )
        for t in schedule.tasks
    }


def _overcommit(
    scenario: Scenario,
    schedule: Schedule,
    weights: dict[str, float],
    begun: dict[str, float],
    ended: dict[str, float],
    entry: ScheduledTask,
    now_s: float,
) -> Problem | None:
    machine = next(m for m in scenario.machines if m.name == entry.machine)
    here = [t for t in schedule.tasks if t.machine == machine.name and t.job in begun and t.job not in ended]
    if all(t.request_milli is None for t in here):
        return None
    asked = sum(weights[t.job] for t in here if t.request_milli is not None)
    asked += sum(s.width_milli for s in scenario.services if s.machine == machine.name) / MILLI
    if asked <= machine.cpu_milli / MILLI + 1e-9:
        return None
    names = ", ".join(t.job for t in here)
    return Problem(
        schedule.source,
        None,
        f"tasks of {machine.name}",
        f"requests of {asked:g} cores at {now_s:g} s ({names} and the services) exceed the machine's "
        f"{machine.cpu_milli / MILLI:g}",
        "lower a request, or leave it out for an equal split of the cores",
    )
