"""The loop: read, decide, act, a tick at a time; and everything put back at the end."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from flowsched.node import Allocation, Node, NodeController, NodeLearner, Reading, ServiceGrant, TaskGrant
from flowsched.node.service_error import ServiceError
from flowsched.node.task_waits import TaskWaits
from flowsched_agent.actuation_plan import Kind, plan
from flowsched_agent.actuator import LinuxActuator
from flowsched_agent.catalogue import settings_of
from flowsched_agent.clock import SystemClock
from flowsched_agent.configuration import Configuration
from flowsched_agent.error_reporter import ErrorReporter
from flowsched_agent.guard import Guarded, Overdue, guarded
from flowsched_agent.managed_target import ManagedTarget, ManagedTask, has_of
from flowsched_agent.publishing import Publishing
from flowsched_agent.readings import Readings
from flowsched_agent.recorder import Recorder
from flowsched_agent.restoring import stop_commands
from flowsched_agent.state_file import Started, StateFile
from flowsched_agent.status import Status
from flowsched_agent.targets import Targets, about
from flowsched_agent.workloads import Workloads

LOG = logging.getLogger(__name__)

RESCAN_S = 1.0
"""Between looks for processes and threads that are new or gone."""
FAILED = "the controller failed"


class Agent:
    """One agent on one machine. Not for several threads, except :attr:`status` and :meth:`stop`."""

    def __init__(
        self,
        configuration: Configuration,
        node: Node,
        controller: NodeController,
        actuator: LinuxActuator,
        clock: SystemClock,
        *,
        state_file: StateFile | None = None,
        workloads: Workloads | None = None,
        recorder: Recorder | None = None,
        on_second: Callable[[Status], None] | None = None,
        learner: NodeLearner | None = None,
    ) -> None:
        """Nothing is read or changed yet. ``state_file``: None in a dry run; its lock must be held. ``learner``: the
        controller's; what it learns is kept in the file and shown.

        ``on_second`` is called with the status each second; what it raises is said and forgotten.
        """
        self._configuration = configuration
        self._node = node
        self._controller = controller
        self._clock = clock
        self._recorder = recorder
        self._on_second = on_second
        self._error_reporter = ErrorReporter()
        file = None if configuration.hands_off else state_file
        workloads = workloads or Workloads()
        self._targets = Targets(
            configuration, node, actuator, workloads, file, self._error_reporter, self._forget, learner
        )
        self._readings = Readings(self._targets, actuator, clock, self._error_reporter)
        self._waits = TaskWaits(settings_of(configuration.controller, configuration.period_s).due_s)
        self._publishing = Publishing(self._targets, node, self._error_reporter, learner)
        self._wanted = Allocation()
        self._granted = Allocation()
        """The requested settings, as far as the rules of this agent allow it."""
        self._acts: Counter[str] = Counter()
        self._ticks = self._overruns = self._missed = 0
        self._looked_s = float("-inf")
        self._stopping = False
        self.status = Status(clock.now())
        """After the latest tick; replaced whole, so that other threads may read it."""

    # From start to end

    def adopt(self, commands: tuple[Started, ...]) -> None:
        """Take over commands that an earlier agent started and left running."""
        self._targets.adopt(commands)

    def run(self, duration_s: float | None = None, ticks: int | None = None) -> None:
        """Tick until stopped, for ``duration_s`` seconds or a number of ticks. Restores nothing: see :meth:`finish`."""
        period = self._configuration.period_s
        began = self._clock.now()
        number = 0
        while not self._stopping:
            due = began + number * period
            if duration_s is not None and due - began > duration_s + 1e-9:
                break
            self._clock.wait_until(due)
            if self._stopping:
                break
            if self._clock.now() < due:
                continue  # woken before the time
            try:
                self.tick()
            except Exception as error:  # Nothing but a request ends the loop.
                self._error_reporter.fault("tick", f"a tick failed: {type(error).__name__}: {error}")
                LOG.debug("a tick failed", exc_info=True)
            if ticks is not None and self._ticks >= ticks:
                break
            number += 1
            late = (self._clock.now() - began) / period - number
            if late > 1e-6:
                # The next tick is the next whole one: nothing is made up for.
                self._overruns += 1
                self._missed += math.ceil(late - 1e-6)
                number += math.ceil(late - 1e-6)
                self._error_reporter.once(
                    "overrun", "a tick took longer than the period; further ones are only counted"
                )

    def stop(self) -> None:
        """End :meth:`run` after the tick that is under way. Safe in signal handlers."""
        self._stopping = True

    def finish(self) -> bool:
        """Put everything back and say goodbye to started commands; whether all of it could be put back. Never raises."""
        whole = True
        for managed in reversed([*self._targets.all()]):
            whole = self._targets.restore(managed) and whole
        commands = self._targets.originals.commands
        if self._configuration.on_exit == "stop":
            for sentence in stop_commands(commands.values()):
                LOG.warning("%s", sentence)
            commands.clear()
        for stats in self._targets.stats.values():
            stats.close()
        if whole:
            self._targets.originals.close()
        return whole

    # One tick

    def tick(self) -> None:
        """Read, decide and act once. Never raises for what happens on the machine."""
        now = self._clock.now()
        self._ticks += 1
        second = now - self._looked_s >= RESCAN_S - 1e-9
        if second:
            self._looked_s = now
            self._targets.look(now)
        self._waits.note(now, self._readings.waits())
        try:
            reading = self._readings.read(now)
        except Exception:
            self._carry_out()  # What is overdue runs, even where nothing can be read.
            raise
        reading = self._decide(reading)
        known = self._unweighed()
        self._carry_out()
        if new := self._unweighed() - known:
            # Who turns out to have no low weight must not share a core until the next tick.
            for name in sorted(new):
                sentence = f"{name} cannot be given a low weight, so it shares no core with a service"
                self._error_reporter.once(f"shares {name}", sentence)
            reading = self._decide(self._readings.again(reading))
            self._carry_out()
        self._publish(reading, self._clock.now() - now)
        if second and self._on_second is not None:
            try:
                self._on_second(self.status)
            except Exception as error:  # A report that fails must not stop the control.
                self._error_reporter.fault("report", f"{type(error).__name__}: {error}")

    def _decide(self, reading: Reading) -> Reading:
        """Decide; the reading that was decided for: without the answers of services because of which it failed."""
        decided: Allocation | None = None
        try:
            while True:
                try:
                    decided = self._controller.decide(reading)
                    break
                except ServiceError as fault:
                    if not any(s.service.name == fault.service and s.queries is not None for s in reading.services):
                        raise
                    LOG.debug(FAILED, exc_info=True)
                    reading = self._readings.without(reading, fault.service, str(fault))
        except Exception as error:  # A fault of the controller must not leave the machine as it happens to be.
            self._error_reporter.fault("controller", f"{FAILED}: {type(error).__name__}: {error}")
            LOG.debug(FAILED, exc_info=True)
            decided = Allocation(
                {name: ServiceGrant(one.service.cores, FAILED) for name, one in self._targets.services.items()},
                {name: TaskGrant(False, reason=FAILED) for name in self._targets.tasks},
            )
        if decided is not None:
            self._wanted = Allocation(
                {**self._wanted.services, **decided.services}, {**self._wanted.tasks, **decided.tasks}
            )
        return reading

    def _forget(self, name: str) -> None:
        """What was decided for one is not for the next of its name."""
        self._wanted = Allocation(
            {n: g for n, g in self._wanted.services.items() if n != name},
            {n: g for n, g in self._wanted.tasks.items() if n != name},
        )

    def _unweighed(self) -> set[str]:
        return {name for name, one in self._targets.tasks.items() if not one.shares}

    def _carry_out(self) -> None:
        if self._configuration.controller.name == "observe":
            return
        self._granted = guarded(
            self._within_placement(self._wanted),
            [Guarded(one.service, one.silent, one.there) for one in self._targets.services.values()],
            self._targets.tasks,
            self._node.cores,
            self._unweighed(),
            [*self._overdue()],
        )
        services = {n: one for n, one in self._targets.services.items() if one.control is not None}
        tasks = {
            n: one for n, one in self._targets.tasks.items() if one.control is not None or self._targets.startable(one)
        }
        for act in plan(has_of(services), has_of(tasks), self._granted):
            one: ManagedTarget | None = services.get(act.target) or tasks.get(act.target)
            if one is None:
                continue
            self._acts[act.kind] += 1
            LOG.debug("%s", act, extra=about(act.target, reason=act.reason))
            if act.kind is Kind.START:
                assert isinstance(one, ManagedTask)
                self._targets.start(one, act)
            else:
                self._targets.on(one, partial(one.do, act, self._configuration.hands_off))

    def _overdue(self) -> Iterator[Overdue]:
        """Tasks that must run by now, with where they may."""
        for name, one in self._targets.tasks.items():
            # What is not decided about goes on as it is.
            if name in self._waits.due and (name in self._wanted.tasks or not (one.has.started and one.has.run)):
                workload = self._targets.workloads.get(name)
                allowed = () if workload is None else workload.allowed
                yield Overdue(name, allowed, self._waits.due_s, pinned=not one.owed)

    def _within_placement(self, wanted: Allocation) -> Allocation:
        """Tasks of the cluster keep to the cores that the cluster scheduler chose, where any of them is granted.

        Those with bandwidth of their own are not pinned.
        """
        tasks = dict(wanted.tasks)
        for name, grant in wanted.tasks.items():
            if name not in self._targets.tasks:
                continue
            if self._targets.tasks[name].owed:
                tasks[name] = replace(grant, cores=())
                continue
            workload = self._targets.workloads.get(name)
            if workload is not None and workload.allowed and grant.cores:
                cores = tuple(core for core in grant.cores if core in workload.allowed)
                tasks[name] = replace(grant, cores=cores or grant.cores)
        return Allocation(wanted.services, tasks)

    def _publish(self, reading: Reading, took_s: float) -> None:
        self.status = replace(
            self._publishing.status(reading, self._acts),
            ticks=self._ticks,
            overruns=self._overruns,
            missed=self._missed,
            last_tick_s=took_s,
        )
        if self._recorder is not None:
            try:
                self._recorder.write(reading.t_s, self._publishing.rows(self.status, self._granted))
            except OSError as error:
                self._error_reporter.fault("record", f"the record cannot be written: {error}")
