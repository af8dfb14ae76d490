"""What the controller is shown at a tick, read from the services and tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

from flowsched.node import Reading, ServiceReading, TaskReading, TaskState
from flowsched.node.task_waits import SeenTask
from flowsched_agent.actuation_plan import Has
from flowsched_agent.actuator import LinuxActuator
from flowsched_agent.clock import SystemClock
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.error_reporter import ErrorReporter
from flowsched_agent.guard import SILENT
from flowsched_agent.managed_target import ManagedService, ManagedTarget
from flowsched_agent.sensors.memcached import MemcachedCounters
from flowsched_agent.targets import Targets

LOG = logging.getLogger(__name__)

DOUBT_S = 10.0
"""For so long a service counts as not answering after a decision about it has failed."""
TELL_AGAIN_S = 60.0
"""Between two messages that a service does not answer."""


@dataclass(eq=False)
class Readings:
    """Reads all targets that exist."""

    _targets: Targets
    _actuator: LinuxActuator
    _clock: SystemClock
    _error_reporter: ErrorReporter
    """About what cannot be read."""

    def read(self, now: float) -> Reading:
        """The whole machine."""
        services = tuple(self._service(now, one) for one in self._targets.services.values())
        tasks = tuple(self._tasks())
        completed = self._targets.children.take_completed({entry.task.name for entry in tasks})
        ended = tuple(self._targets.tasks[name].task for name in completed if name in self._targets.tasks)
        return Reading(now, services, tasks, self._actuator.core_busy_s(), ended)

    def again(self, reading: Reading) -> Reading:
        """The same moment with what is known of the tasks by now."""
        return replace(reading, tasks=tuple(self._tasks()))

    def without(self, reading: Reading, name: str, why: str) -> Reading:
        """The same moment without an answer of a service whose numbers cannot be decided about, now and for a while."""
        one = self._targets.services[name]
        one.doubted_until_s = reading.t_s + DOUBT_S
        one.silent, one.queries = True, None
        self._doubt(one, "controller", why)
        services = tuple(replace(s, queries=None) if s.service.name == name else s for s in reading.services)
        return replace(reading, services=services)

    def waits(self) -> Iterator[SeenTask]:
        """What every task does that is there."""
        for one in self._targets.tasks.values():
            if one.control is not None if one.has.started else not one.done:
                yield one.name, _task_state(one.has), one.submitted_s

    def _service(self, now: float, one: ManagedService) -> ServiceReading:
        try:
            counters, at_s = self._believed(now, one), self._clock.now()
        except Exception as error:  # One service's fault must not leave the others unread.
            self._doubt(one, "service", f"reading it failed: {type(error).__name__}: {error}")
            counters, at_s = None, now
        one.silent = counters is None
        one.queries = None if counters is None else counters.queries
        busy_s = self._cpu_s(one)
        pid = None if counters is None else counters.pid
        return ServiceReading(one.service, one.queries, busy_s, pid, one.there, at_s)

    def _believed(self, now: float, one: ManagedService) -> MemcachedCounters | None:
        """What a service answers; None where it does not, and where that cannot be true."""
        stats = self._targets.stats[one.name]
        counters = stats.read()
        self._tell_silence(now, one, None if counters is not None else stats.problem or SILENT)
        rate = self._targets.rates[one.name]
        resets = rate.resets
        queries, pid = (None, None) if counters is None else (counters.queries, counters.pid)
        believed = rate.update(self._clock.now(), queries, pid)
        if rate.resets != resets:
            LOG.info("the counters began anew: another server", extra={"target": one.name})
        if rate.doubt is not None:
            self._doubt(one, "service", rate.doubt)
        return counters if believed and now >= one.doubted_until_s else None

    def _tell_silence(self, now: float, one: ManagedService, problem: str | None) -> None:
        """That it does not answer any more, or does again: once a minute, as a server may do both at every tick."""
        if problem is None:
            if one.silence_told:
                LOG.info("the service answers again", extra={"target": one.name})
            one.unanswered = one.silence_told = False
            return
        self._error_reporter.errors["service"] += not one.unanswered
        one.unanswered = True
        if not one.silence_told and now - one.silence_told_s >= TELL_AGAIN_S:
            one.silence_told, one.silence_told_s = True, now
            LOG.warning("the service does not answer: %s", problem, extra={"target": one.name})

    def _doubt(self, one: ManagedService, kind: str, why: str) -> None:
        """What a service says does not count, which is said once."""
        self._error_reporter.errors[kind] += 1
        sentence = f"{one.name}: {why}: that counts as no answer, so as its highest measured load"
        self._error_reporter.once(f"doubt {kind} {one.name}", sentence)

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
