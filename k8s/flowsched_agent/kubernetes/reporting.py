"""What the agent tells the cluster: annotations of its node, and the load of each service on its pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flowsched_agent.status import ServiceStatus, Status
from flowsched_k8s import names
from flowsched_models.quantity import format_cores

Annotations = Mapping[str, str | None]
"""None takes an annotation away."""


@dataclass(frozen=True)
class Report:
    """What is to be written now."""

    node: Annotations
    pods: Mapping[str, Annotations]
    """By the name of the service."""


@dataclass
class Reporter:
    """Decides when something is worth a write: at most once per period, and only on change."""

    period_s: float
    change: float
    _node: dict[str, str] | None = None
    _loads: dict[str, float] | None = None
    _last_s: float = float("-inf")

    def due(self, status: Status, pods: Mapping[str, str]) -> Report | None:
        """The report of this status; None if there is nothing new. ``pods``: paths of the service pods by name.

        Loads that differ by less than ``change`` of what was written are not new.
        """
        if status.t_s - self._last_s < self.period_s:
            return None
        told = self._loads or {}
        loads = {
            name: told[name] if name in told and _close(service.qps, told[name], self.change) else service.qps
            for name, service in status.services.items()
            if service.qps is not None
        }
        node = _node(status, loads)
        written = self._node
        if node == written and loads == told:
            return None
        pod_loads = {
            name: {names.LOAD: load_text(load)}
            for name, load in loads.items()
            if name in pods and told.get(name) != load
        }
        changed: dict[str, str | None] = {k: v for k, v in node.items() if written is None or written.get(k) != v}
        self._node, self._loads, self._last_s = node, loads, status.t_s
        return Report(changed, pod_loads)

    def forget(self) -> None:
        """What was written last did not arrive: all of it is new again."""
        self._node = self._loads = None


def load_text(qps: float) -> str:
    """A load as the cluster scheduler reads it: whole queries per second."""
    return str(max(0, round(qps)))


def _node(status: Status, loads: Mapping[str, float]) -> dict[str, str]:
    services = status.services.values()
    states = [task.state for task in status.tasks.values()]
    return {
        names.SERVICE_LOAD: _joined({name: load_text(load) for name, load in loads.items()}),
        names.SERVICE_HEADROOM: _joined({s.name: _headroom(s) for s in services if s.headroom is not None}),
        names.SERVICE_CORES: _joined({s.name: format_cores(s.cores) or "none" for s in services}, ";"),
        names.BATCH_TASKS: f"running={states.count('running')},paused={states.count('paused')}",
    }


def _headroom(service: ServiceStatus) -> str:
    """In steps of a tenth: finer ones would change with every report."""
    assert service.headroom is not None
    return f"{max(-9.9, round(service.headroom, 1)):.1f}"


def _joined(parts: Mapping[str, str], separator: str = ",") -> str:
    return separator.join(f"{name}={value}" for name, value in sorted(parts.items()))


def _close(qps: float | None, written: float, change: float) -> bool:
    return qps is not None and abs(qps - written) <= change * max(written, 1.0)
