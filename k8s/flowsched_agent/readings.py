"""What the controller is shown at a tick, read from the services and tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

from flowsched.node import Reading, ServiceReading, TaskReading, TaskState
from flowsched_agent.actuation_plan import Has
from flowsched_agent.actuator import LinuxActuator
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.error_reporter import ErrorReporter
from flowsched_agent.managed_target import ManagedService, ManagedTarget
from flowsched_agent.targets import Targets

LOG = logging.getLogger(__name__)


@dataclass(eq=False)
class Readings:
    """Reads all targets that exist."""

    _targets: Targets
    _actuator: LinuxActuator
    _error_reporter: ErrorReporter
    """About what cannot be read."""

    def read(self, now: float) -> Reading:
        """The whole machine."""
        services = tuple(self._service(now, one) for one in self._targets.services.values())
        return Reading(now, services, tuple(self._tasks()), self._actuator.core_busy_s())

    def again(self, reading: Reading) -> Reading:
        """The same moment with what is known of the tasks by now."""
        return replace(reading, tasks=tuple(self._tasks()))

    def _service(self, now: float, one: ManagedService) -> ServiceReading:
        stats = self._targets.stats[one.name]
        counters = stats.read()
        silent = counters is None
        if silent != one.silent:
            if silent:
                self._error_reporter.errors["service"] += 1
                LOG.warning("the service does not answer: %s", stats.problem, extra={"target": one.name})
            else:
                LOG.info("the service answers again", extra={"target": one.name})
        one.silent = silent
        one.queries = None if counters is None else counters.queries
        pid = None if counters is None else counters.pid
        rate = self._targets.rates[one.name]
        resets = rate.resets
        rate.update(now, one.queries, pid)
        if rate.resets != resets:
            LOG.info("the counters began anew: another server", extra={"target": one.name})
        busy_s = self._cpu_s(one)
        return ServiceReading(one.service, one.queries, busy_s, pid, one.there)

    def _tasks(self) -> Iterator[TaskReading]:
        for one in list(self._targets.tasks.values()):
            self._targets.children.reap(one.name)
            if one.has.started:
                if one.control is None:
                    continue
                one.cpu_s = max(one.cpu_s, self._cpu_s(one))
                if one.control is None:
                    continue
            elif one.done:
                continue
            task = replace(one.task, shares=one.shares)
            yield TaskReading(task, _task_state(one.has), one.submitted_s, one.cpu_s)

    def _cpu_s(self, one: ManagedTarget) -> float:
        if one.control is None:
            return 0.0
        try:
            return one.control.cpu_s()
        except ControlError as error:
            if error.gone:
                self._targets.gone(one, str(error))
            else:
                self._error_reporter.errors["control"] += 1
                self._error_reporter.once(f"cpu {one.name}", str(error))
            return 0.0


def _task_state(has: Has) -> TaskState:
    if not has.started:
        return TaskState.QUEUED
    return TaskState.RUNNING if has.run else TaskState.PAUSED
