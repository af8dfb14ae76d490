"""A controller that never changes what the service has."""

from __future__ import annotations

from flowsched.node import Allocation, Node, Reading, ServiceGrant, TaskGrant
from flowsched_simulator.node.baselines.free_cores import without_services


class Static:
    """Every service keeps its first cores forever; the jobs get all others, one after the other in order of submission."""

    period_s = 0.1

    def __init__(self, node: Node, service_cores: int) -> None:
        """``service_cores``: virtual CPUs of each service, at most those that it may have."""
        self._node = node
        self._service_cores = service_cores
        self._running: str | None = None
        self._begun = False

    def decide(self, reading: Reading) -> Allocation | None:
        """The next job, once the one before is done; None: it runs on."""
        owned = {s.service.name: s.service.cores[: self._service_cores] for s in reading.services}
        services = {} if self._begun else {name: ServiceGrant(cores) for name, cores in owned.items()}
        self._begun = True
        names = [t.task.name for t in reading.tasks]
        tasks = {}
        if self._running not in names:
            self._running = names[0] if names else None
            if self._running is not None:
                tasks[self._running] = TaskGrant(
                    True, without_services(f"static-{self._service_cores}", self._node.cores, owned.values())
                )
        return Allocation(services, tasks) if services or tasks else None
