"""What the agent shows after a tick: its status, and the lines of the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flowsched.cluster.learnt_run_times import LearntRunTime, LearntRunTimes
from flowsched.node import Allocation, Node, NodeLearner, Reading
from flowsched_agent.actuation_plan import Kind
from flowsched_agent.error_reporter import ErrorReporter
from flowsched_agent.managed_target import ManagedService
from flowsched_agent.status import ServiceStatus, Status, TaskStatus
from flowsched_agent.targets import Targets
from flowsched_models.quantity import format_cores

MOST_SHOWN = 100
"""Classes with series of their own."""


@dataclass(eq=False)
class Publishing:
    """Makes both from the targets."""

    _targets: Targets
    _node: Node
    """Says which p95 a load means."""
    _error_reporter: ErrorReporter
    _learner: NodeLearner | None = None
    _shown: Mapping[str, LearntRunTime] = field(default_factory=dict)
    _shown_of: LearntRunTimes | None = None
    """What that was made from: ticks are many, and completions few."""

    def status(self, reading: Reading, acts: Counter[str]) -> Status:
        """After the tick of a reading; how the loop keeps its time is not in it."""
        busy = {r.service.name: r.busy_s for r in reading.services}
        services = {n: self._service(one, busy.get(n, 0.0)) for n, one in self._targets.services.items()}
        tasks = {}
        states = {r.task.name: r.state.value for r in reading.tasks}
        for name, one in self._targets.tasks.items():
            cores = one.has.cores or ()
            state = states.get(name, "done" if one.done else "absent")
            tasks[name] = TaskStatus(name, state, cores, one.weight, one.cpu_s, one.pauses)
        return Status(
            t_s=reading.t_s,
            services=services,
            tasks=tasks,
            errors=dict(self._error_reporter.errors),
            acts={kind.value: acts[kind] for kind in Kind},
            pauses=self._targets.past_pauses + sum(one.pauses for one in self._targets.tasks.values()),
            learnt=self._learnt(),
        )

    def _learnt(self) -> Mapping[str, LearntRunTime]:
        if self._learner is not None and self._learner.learnt is not self._shown_of:
            self._shown_of, self._shown = self._learner.learnt, self._learner.latest(MOST_SHOWN)
        return self._shown

    def _service(self, one: ManagedService, cpu_s: float) -> ServiceStatus:
        cores = one.has.cores if one.has.cores is not None else one.service.cores
        qps = self._targets.rates[one.name].per_second
        p95_us = None
        if qps is not None and cores:
            catalogue = self._node.catalogue
            profile = catalogue.services[one.service.profile]
            curve = profile.curve_or_estimate(one.service.threads, len(cores))
            machine = self._node.machine_type
            p95_us = profile.p95_us(curve, qps, one.service.client, machine_type=machine)
        return ServiceStatus(one.name, not one.silent, cores, one.service.slo_us, qps, p95_us, cpu_s)

    def rows(self, status: Status, granted: Allocation) -> Iterator[dict[str, Any]]:
        """Lines of the record. ``granted``: why each target has what it has."""
        for name, service in status.services.items():
            one = self._targets.services[name]
            grant = granted.services.get(name)
            yield {
                "kind": "service",
                "name": name,
                "state": "answers" if service.answers else "silent",
                "queries": one.queries,
                "qps": None if service.qps is None else f"{service.qps:.1f}",
                "p95_us": None if service.p95_us is None else f"{service.p95_us:.1f}",
                "cpu_s": f"{service.cpu_s:.6f}",
                "cores": format_cores(service.cores),
                "weight": one.has.weight,
                "reason": grant.reason if grant is not None else "",
            }
        for name, task in status.tasks.items():
            given = granted.tasks.get(name)
            yield {
                "kind": "task",
                "name": name,
                "state": task.state,
                "cpu_s": f"{task.cpu_s:.6f}",
                "cores": format_cores(task.cores),
                "weight": task.weight,
                "quota": self._targets.tasks[name].has.quota,
                "reason": given.reason if given is not None else "",
            }
