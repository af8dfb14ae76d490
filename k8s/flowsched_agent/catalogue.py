"""The profiles of one machine: bundled ones, further files, and what was measured on the machine itself."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from flowsched.node import Node, NodeController, NodeService, Reading
from flowsched.node.settings import NodeSettings
from flowsched_agent.configuration import Configuration, Controller, ServiceSpec
from flowsched_models.isolation.admission import Room
from flowsched_models.machine import MachineType
from flowsched_models.profiles import load_catalogue
from flowsched_models.quantity import shown
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
    """A machine type of this machine's size; its speed is the reference type's, as it was not measured."""
    vcpus = max(os.cpu_count() or 1, max(cores, default=0) + 1)
    return MachineType(HERE, vcpus=vcpus, memory_mib=_memory_mib(root), smt=_has_siblings(vcpus, root))


def _memory_mib(root: Path) -> int:
    try:
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                return max(1, int(line.split()[1]) // 1024)
    except (OSError, ValueError, IndexError):
        pass
    return 1024


def _has_siblings(vcpus: int, root: Path) -> bool:
    """Whether cores k and k + vcpus/2 share one physical core, for all k: the only layout that machine types know."""
    half = vcpus // 2
    if vcpus < 2 or vcpus % 2:
        return False
    for core in range(vcpus):
        path = root / f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
        try:
            text = path.read_text().strip()
        except OSError:
            return False
        pair = (core % half, core % half + half)
        if text not in (f"{pair[0]},{pair[1]}", f"{pair[0]}-{pair[1]}"):
            return False
    return True


@dataclass(frozen=True)
class Believed:
    """What the agent believes of its machine: the node, and the profile and client of each service."""

    node: Node
    allowed: tuple[int, ...]

    def service(self, spec: ServiceSpec) -> NodeService:
        """A service as the controller knows it; its profile must be in the node's catalogue."""
        profile = self.node.catalogue.services[profile_name(spec)]
        client = spec.client or ""
        if client not in profile.clients:
            client = next(iter(profile.clients))
        cores = tuple(core for core in spec.cores if core in self.allowed) or self.allowed
        return NodeService(
            spec.name, profile.name, spec.threads, spec.slo_us, client, cores, spec.weight, fewest=spec.min_cores
        )


def profile_name(spec: ServiceSpec) -> str:
    """The profile of a service: its own, made of stated capacities, or the one it names."""
    return f"{spec.name}@{HERE}" if spec.capacity else str(spec.profile)


def believed(configuration: Configuration, allowed: Sequence[int], root: Path = Path("/")) -> Believed:
    """What the configuration says of this machine, whose process may use the ``allowed`` cores.

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
    return Believed(Node(catalogue, machine_type, wanted), wanted)


@dataclass(frozen=True)
class KnownSetting:
    """One setting of the controller."""

    name: str
    kind: type

    def wrong(self, value: Any) -> str | None:
        """What is wrong with a value in a file; None if nothing is."""
        if self.kind is bool:
            return None if isinstance(value, bool) else f"must be true or false, but is {shown(value)}"
        if self.kind is str:
            return None if isinstance(value, str) else f"must be text, but is {shown(value)}"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return f"must be a number, but is {shown(value)}"
        if self.kind is int and not isinstance(value, int):
            return f"must be a whole number, but is {shown(value)}"
        return None


def known_settings() -> Mapping[str, KnownSetting]:
    """The settings of the controller by their camelCase names."""
    return {
        to_camel(f.name): KnownSetting(f.name, type(getattr(_DEFAULTS, f.name)))
        for f in fields(_DEFAULTS)
        if f.name != "period_s"  # a key of its own in the file
    }


@dataclass(frozen=True)
class Observer:
    """Decides nothing: for a look at a machine before anything is changed there."""

    period_s: float

    def decide(self, reading: Reading) -> None:
        """Leave everything as it is."""
        del reading


MakeController = Callable[[Node], NodeController]


def controller_maker(controller: Controller, period_s: float, room: Room | None = None) -> MakeController:
    """What makes the configured controller for a node. ``room``: bandwidth that the kernel grants to deadlines."""
    if controller.name == "observe":
        return lambda _: Observer(period_s)

    def make(node: Node) -> NodeController:
        from flowsched.node.flow_node import FlowNode  # compiles what it needs

        known = known_settings()
        given = {known[key].name: value for key, value in controller.settings.items()}
        made: NodeController = FlowNode(node, replace(_DEFAULTS, period_s=period_s, **given), room=room)
        return made

    return make


def prepare(node: Node) -> None:
    """Compile what the decisions for a node need, where that was not done before: up to a minute."""
    from flowsched.node import flow_node

    flow_node.prepare(node)
