"""How the true machine of a run differs from the models that a controller knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from flowsched.node import NodeService
from flowsched_models.catalogue import Catalogue
from flowsched_models.runtime import ServiceLoad
from flowsched_models.uncertainty import drawn_services, job_factors, machine_factors
from flowsched_simulator.node.scenario import NodeScenario
from flowsched_simulator.node.task_classes import class_of
from flowsched_simulator.truth import Error
from flowsched_simulator.world import ErrorOf, ModelError

_MACHINE = "node"


@dataclass(frozen=True)
class Truth:
    """What :class:`flowsched_simulator.node.machine.NodeMachine` is built from."""

    catalogue: Catalogue
    services: tuple[NodeService, ...]
    slowdown: Mapping[str, float]
    """By job: its work beyond what its profile says."""


def true_machine(scenario: NodeScenario, error: Error, seed: int, error_of: ErrorOf = "job-and-machine") -> Truth:
    """The models themselves for error 0, else factors drawn with the seed, one for each of what ``error_of`` says.

    ``measured`` draws the machine, each job and each service from the errors that the profiles state.
    """
    catalogue = scenario.catalogue
    if error != "measured":
        classes, types = {t.name: class_of(t) for t in scenario.tasks}, {_MACHINE: scenario.machine_type}
        factors = ModelError(error, seed, error_of, classes, types) if isinstance(error, float | int) else error
        slowdown = {t.name: factors.factor(t.name, _MACHINE) for t in scenario.tasks}
        return Truth(catalogue, scenario.services, slowdown)
    (machine,) = machine_factors(catalogue, _MACHINE, scenario.machine_type, seed, 1)
    slowdown = {t.name: float(machine * job_factors(catalogue, t.name, t.profile, seed, 1)[0]) for t in scenario.tasks}
    own, services = {}, []
    for service in scenario.services:
        load = ServiceLoad(service.profile, service.cores, service.threads, service.weight, 0.0, service.client)
        name = f"{service.profile} of {service.name}"
        (own[name],) = drawn_services(catalogue, service.name, load, scenario.machine_type, seed, 1)
        services.append(replace(service, profile=name))
    return Truth(replace(catalogue, services={**catalogue.services, **own}), tuple(services), slowdown)
