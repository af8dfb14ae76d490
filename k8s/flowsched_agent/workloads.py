"""What runs on the machine, besides what the configuration names: the pods of this node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flowsched_agent.configuration import ServiceSpec, TaskSpec
from flowsched_agent.controls.control import Control


@dataclass(frozen=True)
class Workload:
    """A service or a task that comes and goes."""

    spec: ServiceSpec | TaskSpec
    key: str
    """Another key is another workload, even under the same name: the uid of a pod and the ids of its containers."""
    allowed: tuple[int, ...] = ()
    """Cores that the cluster scheduler chose for it; empty: any."""


class Workloads:
    """Where further workloads come from; here from nowhere: only what the configuration names is there."""

    def present(self) -> Mapping[str, Workload]:
        """By name. Called by the loop each second, must not wait."""
        return {}

    def control(self, workload: Workload) -> Control | None:
        """How to steer one; None while it is not there. Raises ``ControlError``."""
        del workload
        return None
