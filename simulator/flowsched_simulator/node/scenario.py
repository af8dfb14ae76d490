"""A scenario of one machine: its services with their loads, its jobs, and what published designs say about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flowsched.node import Node, NodeService, NodeTask
from flowsched_models.catalogue import Catalogue
from flowsched_simulator.node.scenario_form import PolicyForm
from flowsched_simulator.node.wave import LoadRange


@dataclass(frozen=True)
class Load:
    """The load of one service. At least one of both is there."""

    wave: tuple[float, ...] = ()
    """Queries per second, interval by interval."""
    span: LoadRange | None = None
    """What a load is drawn from where a run has a seed for it, or where there is no wave."""


@dataclass(frozen=True)
class NodeScenario:
    """Read from YAML by :func:`flowsched_simulator.node.scenario_file.load_node_scenario`."""

    name: str
    description: str
    catalogue: Catalogue = field(repr=False)
    machine_type: str
    cores: tuple[int, ...]
    """Virtual CPUs that may be allocated."""
    services: tuple[NodeService, ...]
    loads: tuple[Load, ...]
    """[services]"""
    tasks: tuple[NodeTask, ...]
    submit_s: tuple[float, ...]
    """[tasks] when each job is submitted."""
    qps_interval_s: float = 10.0
    start_delay_s: float = 0.0
    """How long a program takes to start."""
    hints: Mapping[str, PolicyForm] = field(default_factory=dict)
    """By policy."""
    source: str = "<memory>"

    def hint(self, policy: str) -> PolicyForm:
        """What a policy's design fixes here."""
        return self.hints.get(policy, PolicyForm())

    @property
    def node(self) -> Node:
        """The machine as a controller knows it."""
        return Node(self.catalogue, self.machine_type, self.cores)
