"""How the true machines of a run differ from the models: nothing, a factor of one width, or the profiles' own errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from flowsched.cluster.cluster_state import service_load
from flowsched.cluster.snapshot import Service, Task
from flowsched_models.runtime import HostFactory
from flowsched_models.uncertainty import drawn_services, job_factors, machine_factors
from flowsched_simulator.fixed_run_time import EstimatedRunTimes
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.world import ErrorOf, ModelError, RunTimeError, World

Error = float | Literal["measured"] | RunTimeError
"""Standard deviation of the log of a factor on run times, or ``measured``: the errors that the profiles state."""

MAX_SIGMA = 3.0
"""Largest error of models and estimates, as a standard deviation of a logarithm."""


class Draws:
    """The machines of a scenario as they may truly be, drawn from the errors that its profiles state.

    Draws depend on the seed and the names of jobs, machines and services: two schedules that are drawn with one seed meet
    the same machines.
    """

    def __init__(self, scenario: Scenario, tasks: Sequence[Task], seed: int, count: int) -> None:
        """``count`` draws; more draws begin with the same ones."""
        self.count = count
        self._scenario = scenario
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
        hosts = HostFactory(replace(scenario.catalogue, services={**scenario.catalogue.services, **own}))
        return World(scenario.machines, services, hosts, self.error(draw))

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
    return World(scenario.machines, scenario.services, hosts, EstimatedRunTimes(scenario.run_time_factors, error))


def _own(service: Service) -> str:
    return f"{service.profile} of {service.name}"
