"""What runs on the machine, besides what the configuration names: the pods of this node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from flowsched_agent.configuration import ServiceSpec, TaskSpec
from flowsched_agent.steered import Handle


@dataclass(frozen=True)
class Workload:
    """A service or a task that comes and goes."""

    spec: ServiceSpec | TaskSpec
    key: str
    """Another key is another workload, even under the same name: the uid of a pod and the ids of its containers."""
    allowed: tuple[int, ...] = ()
    """Cores that the cluster scheduler chose for it; empty: any."""


class Workloads(Protocol):
    """Where further workloads come from."""

    def present(self) -> Mapping[str, Workload]:
        """By name. Called by the loop each second, must not wait."""
        ...

    def handle(self, workload: Workload) -> Handle | None:
        """How to steer one; None while it is not there. Raises ``ControlError``."""
        ...


class NoWorkloads:
    """Only what the configuration names."""

    def present(self) -> Mapping[str, Workload]:
        """See :class:`Workloads`."""
        return {}

    def handle(self, workload: Workload) -> Handle | None:
        """See :class:`Workloads`."""
        del workload
        return None
