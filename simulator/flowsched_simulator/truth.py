"""How the true machines of a run differ from the models: nothing, a factor of one width, or the profiles' own errors.

Beside that, a scenario may say that tasks have other profiles than policies are told, that profiles are sensitive to
neighbours otherwise than they state, and that some runs take longer.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from flowsched.cluster.occupied_machines import service_load
from flowsched.cluster.snapshot import Service, Task
from flowsched_models.catalogue import Catalogue
from flowsched_models.runtime import HostFactory
from flowsched_models.uncertainty import drawn_services, job_factors, machine_factors, normals
from flowsched_models.uncertainty import factors as drawn_factors
from flowsched_simulator.fixed_run_time import EstimatedRunTimes
from flowsched_simulator.scenario import Scenario, Stragglers
from flowsched_simulator.world import ErrorOf, ModelError, RunTimeError, World

Error = float | Literal["measured"] | RunTimeError
"""Standard deviation of the log of a factor on run times, or ``measured``: the errors that the profiles state."""

MAX_SIGMA = 3.0
"""Largest error of models and estimates, as a standard deviation of a logarithm."""
MAX_STRAGGLER = 100.0
"""Largest factor on run times of stragglers."""


class Draws:
    """The machines of a scenario as they may truly be, drawn from the errors that its profiles state.

    Draws depend on the seed and the names of jobs, machines and services: two schedules that are drawn with one seed meet
    the same machines.
    """

    def __init__(self, scenario: Scenario, tasks: Sequence[Task], seed: int, count: int) -> None:
        """``count`` draws; more draws begin with the same ones."""
        self.count = count
        self._scenario, self._seed = scenario, seed
        catalogue = scenario.catalogue
        self._jobs = {t.name: job_factors(catalogue, t.name, t.profile, seed, count) for t in tasks}
        self._machines = {m.name: machine_factors(catalogue, m.name, m.type, seed, count) for m in scenario.machines}
        types = {m.name: m.type for m in scenario.machines}
        self._services = {
            s.name: drawn_services(catalogue, s.name, service_load(s), types[s.machine], seed, count)
            for s in scenario.services
        }

    def world(self, draw: int) -> World:
        """The machines of one draw, idle at time 0."""
        scenario = self._scenario
        # Services of one profile have errors of their own, so each has a profile of its own.
        own = {_own(s): self._services[s.name][draw] for s in scenario.services}
        services = tuple(replace(s, profile=_own(s)) for s in scenario.services)
        catalogue = _true_catalogue(scenario, self._seed)
        hosts = HostFactory(replace(catalogue, services={**catalogue.services, **own}))
        error = _with_stragglers(scenario, self.error(draw), self._seed)
        return World(scenario.machines, services, hosts, error, scenario.true_profiles)

    def error(self, draw: int) -> RunTimeError:
        """Run-time factors of one draw."""
        jobs = {name: float(factors[draw]) for name, factors in self._jobs.items()}
        machines = {name: float(factors[draw]) for name, factors in self._machines.items()}
        return EstimatedRunTimes(self._scenario.run_time_factors, _Factors(jobs, machines))


@dataclass(frozen=True)
class _Factors:
    """Run-time factors of one draw."""

    jobs: Mapping[str, float]
    machines: Mapping[str, float]

    def factor(self, task: str, machine: str) -> float:
        return self.jobs[task] * self.machines[machine]


def true_world(
    scenario: Scenario, tasks: Sequence[Task], hosts: HostFactory, error: Error, seed: int, error_of: ErrorOf = "job"
) -> World:
    """The true machines of one run; ``hosts`` are those of the models. ``error_of`` says what an error by number is of."""
    if isinstance(error, str):
        return Draws(scenario, tasks, seed, 1).world(0)
    if isinstance(error, float | int):
        classes = {task.name: scenario.class_of(task) for task in tasks}
        types = {machine.name: machine.type for machine in scenario.machines}
        error = ModelError(error, seed, error_of, classes, types)
    error = _with_stragglers(scenario, EstimatedRunTimes(scenario.run_time_factors, error), seed)
    if scenario.sensitivity_error:
        hosts = HostFactory(_true_catalogue(scenario, seed))
    return World(scenario.machines, scenario.services, hosts, error, scenario.true_profiles)


@dataclass(frozen=True)
class _Straggling:
    """Some runs take longer than an error says, drawn for a task on a machine."""

    error: RunTimeError
    stragglers: Stragglers
    seed: int

    def factor(self, task: str, machine: str) -> float:
        words = [self.seed, *(zlib.crc32(word.encode()) for word in ("straggler", task, machine))]
        late = np.random.default_rng(words).random() < self.stragglers.share
        return self.error.factor(task, machine) * (self.stragglers.factor if late else 1.0)


def _with_stragglers(scenario: Scenario, error: RunTimeError, seed: int) -> RunTimeError:
    return error if scenario.stragglers is None else _Straggling(error, scenario.stragglers, seed)


def _true_catalogue(scenario: Scenario, seed: int) -> Catalogue:
    """The profiles as they are in truth: of jobs that are sensitive to their neighbours otherwise than policies are told."""
    sigma, jobs = scenario.sensitivity_error, scenario.catalogue.jobs
    if not sigma:
        return scenario.catalogue
    off = {name: float(drawn_factors(sigma, normals(seed, "sensitivity", name, 1))[0]) for name in jobs}
    true = {name: replace(job, sensitivity=job.sensitivity * off[name]) for name, job in jobs.items()}
    return replace(scenario.catalogue, jobs=true)


def _own(service: Service) -> str:
    return f"{service.profile} of {service.name}"
