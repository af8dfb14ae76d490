"""The profiles of one machine: bundled ones, further files, and what was measured on the machine itself."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from flowsched.node import Node, NodeController, NodeLearner, NodeService, Reading
from flowsched.node.settings import NodeSettings
from flowsched_agent.configuration import Configuration, Controller, ServiceSpec
from flowsched_models.isolation.admission import Room
from flowsched_models.machine import MachineType
from flowsched_models.measuring.topology import read_topology
from flowsched_models.profiles import load_catalogue
from flowsched_models.quantity import misfit, shown
from flowsched_models.service import LatencyCurve, ServiceProfile

HERE = "this-machine"
"""Name of the machine type that is made after the machine itself."""
STATED_CLIENT = "stated"
_DEFAULTS = NodeSettings()
_FLOOR, _RISE, _SATURATED = 0.3, 0.2, 4.0
"""Of a service with stated capacities, p95 relative to the SLO: when idle, what load adds, and in saturation. Guesses: only
where p95 crosses the SLO is known."""
_KNEE = 0.03
"""Width of the knee relative to capacity: within the 1.9 to 2.7 % of the bundled profile of memcached."""


def stated_profile(name: str, spec: ServiceSpec, base: ServiceProfile | None) -> ServiceProfile:
    """A profile whose p95 is ``spec.slo_us`` exactly at each stated capacity (queries per second by number of cores).

    Numbers of cores that are not stated are estimated from the nearest, as for every profile. What neighbours do to the
    service is taken from ``base``, where there is one.
    """
    curves = tuple(
        _stated_curve(spec.threads, cores, capacity, spec.slo_us) for cores, capacity in sorted(spec.capacity.items())
    )
    fewest = min(curves, key=lambda curve: curve.cores)
    profile = base if base is not None else ServiceProfile(name, curves)
    return replace(
        profile,
        name=name,
        curves=curves,
        clients={spec.client or STATED_CLIENT: 1.0},
        # As busy as it can be at its capacity: nothing is known of lower loads.
        cpu_per_kqps=1000.0 * fewest.servers / fewest.qcap,
        latency_factor={},
        capacity_factor={},
    )


def _stated_curve(threads: int, cores: int, capacity: float, slo_us: float) -> LatencyCurve:
    a_us, b_us, q0 = _FLOOR * slo_us, _RISE * slo_us, 0.5 * capacity
    below = a_us + b_us * -math.expm1(-capacity / q0)
    saturated = _SATURATED * slo_us
    z = (slo_us - below) / (saturated - below)
    qcap = capacity / (1.0 + _KNEE * math.log(z / (1.0 - z)))
    return LatencyCurve(threads, cores, a_us, b_us, q0, qcap, saturated, _KNEE * qcap, max_measured_qps=capacity)


def machine_here(cores: Sequence[int], root: Path = Path("/")) -> MachineType:
    """A machine type of this machine's size; its speed is the reference type's, as it was not measured.

    Siblings are cores k and k + vcpus/2, for all k, or none: machine types know no other layout.
    """
    vcpus = max(os.cpu_count() or 1, max(cores, default=0) + 1)
    found = read_topology(root, range(vcpus))
    kind = MachineType(HERE, vcpus=vcpus, memory_mib=found.memory_mib or 1024, smt=True)
    return replace(kind, smt=vcpus > 1 and found.siblings == kind.siblings)


def service_of(node: Node, spec: ServiceSpec) -> NodeService:
    """A service as the controller knows it; its profile must be in the node's catalogue."""
    profile = node.catalogue.services[profile_name(spec)]
    client = spec.client or ""
    if client not in profile.clients:
        client = next(iter(profile.clients))
    cores = tuple(core for core in spec.cores if core in node.cores) or node.cores
    return NodeService(
        spec.name, profile.name, spec.threads, spec.slo_us, client, cores, spec.weight, fewest=spec.min_cores
    )


def profile_name(spec: ServiceSpec) -> str:
    """The profile of a service: its own, made of stated capacities, or the one it names."""
    return f"{spec.name}@{HERE}" if spec.capacity else str(spec.profile)


def node_of(configuration: Configuration, allowed: Sequence[int], root: Path = Path("/")) -> Node:
    """The machine as the configuration says; this process may use its ``allowed`` cores.

    Raises ``InputError`` with all mistakes of all files of profiles.
    """
    catalogue = load_catalogue(extra=configuration.profiles_files)
    wanted = tuple(core for core in configuration.cores if core in allowed) if configuration.cores else tuple(allowed)
    services = dict(catalogue.services)
    for spec in configuration.services:
        if spec.capacity:
            name = profile_name(spec)
            services[name] = stated_profile(name, spec, catalogue.services.get(spec.profile or ""))
    types = dict(catalogue.machine_types)
    machine_type = configuration.machine_type
    if machine_type is None:
        machine_type = HERE
        types[HERE] = machine_here(wanted, root)
    catalogue = replace(catalogue, services=services, machine_types=types)
    return Node(catalogue, machine_type, wanted)


def known_settings() -> Mapping[str, str]:
    """Names of the controller's settings by their camelCase ones; ``period`` is a key of its own in the file."""
    return {to_camel(f.name): f.name for f in fields(_DEFAULTS) if f.name != "period_s"}


def wrong_setting(name: str, value: Any) -> str | None:
    """What is wrong with a value of a setting in a file; None if nothing is."""
    kind = type(getattr(_DEFAULTS, name))
    if kind is int and isinstance(value, float):
        return f"must be a whole number, but is {shown(value)}"
    return misfit(value, kind)


@dataclass(frozen=True)
class Observer:
    """Decides nothing: for a look at a machine before anything is changed there."""

    period_s: float

    def decide(self, reading: Reading) -> None:
        """Leave everything as it is."""
        del reading


def settings_of(controller: Controller, period_s: float) -> NodeSettings:
    """The settings of the configured controller."""
    known = known_settings()
    given: dict[str, Any] = {known[key]: value for key, value in controller.settings.items()}
    return replace(_DEFAULTS, period_s=period_s, **given)


def controller_of(
    controller: Controller, node: Node, period_s: float, room: Room, learner: NodeLearner | None
) -> NodeController:
    """The configured controller of a node. ``room``: bandwidth that the kernel grants to deadlines; ``learner``: None where
    nothing is learnt of run times.
    """
    if controller.name == "observe":
        return Observer(period_s)
    from flowsched.node.flow_node import FlowNode  # compiles what it needs

    return FlowNode(node, settings_of(controller, period_s), room=room, learner=learner)
