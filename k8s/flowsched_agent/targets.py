"""The services and tasks of one agent: who is there, who comes and goes, and how each is put back."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field

from flowsched.node import Node, NodeLearner, NodeTask
from flowsched.node.node_learner import run_class_of
from flowsched_agent.actuation_plan import Actuation, Has, Kind
from flowsched_agent.actuator import LinuxActuator
from flowsched_agent.catalogue import profile_name, service_of
from flowsched_agent.children import Children
from flowsched_agent.configuration import Configuration, ServiceSpec, TaskSpec
from flowsched_agent.controls.control import Control
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.error_reporter import ErrorReporter
from flowsched_agent.managed_target import GoneError, ManagedService, ManagedTarget, ManagedTask
from flowsched_agent.original_settings import OriginalSettings
from flowsched_agent.rates import Rate
from flowsched_agent.sensors.memcached import MemcachedStats
from flowsched_agent.state_file import Started, StateError, StateFile
from flowsched_agent.workloads import Workload, Workloads

LOG = logging.getLogger(__name__)

BELIEVED = 2.0
"""A load beyond so many times the highest that was ever measured on all cores of a service cannot be true."""
NEUTRAL_JOB = "neutral"
"""Profile of jobs that were not measured."""


@dataclass(eq=False)
class Targets:
    """All steered targets, by name."""

    _configuration: Configuration
    _node: Node
    _actuator: LinuxActuator
    _workloads: Workloads
    state_file: InitVar[StateFile | None]
    _error_reporter: ErrorReporter
    _forget: Callable[[str], None]
    """What was decided for one that has gone: the next of its name is another."""
    learner: InitVar[NodeLearner | None] = None
    services: dict[str, ManagedService] = field(default_factory=dict)
    tasks: dict[str, ManagedTask] = field(default_factory=dict)
    stats: dict[str, MemcachedStats] = field(default_factory=dict)
    rates: dict[str, Rate] = field(default_factory=dict)
    workloads: dict[str, Workload] = field(default_factory=dict)
    """Those that are not from the configuration."""
    past_pauses: int = 0
    """Of tasks that are gone."""
    _adopted: dict[str, Started] = field(default_factory=dict)
    _postponed: set[str] = field(default_factory=set)

    def __post_init__(self, state_file: StateFile | None, learner: NodeLearner | None) -> None:
        """No target is known yet."""
        on_exit = self._configuration.on_exit
        self.originals = OriginalSettings(state_file, on_exit, self.all, self._error_reporter, learner)
        self.children = Children(self._error_reporter)

    def all(self) -> Iterator[ManagedTarget]:
        """Services, then tasks."""
        yield from [*self.services.values(), *self.tasks.values()]

    def adopt(self, commands: tuple[Started, ...]) -> None:
        """Take over commands that an earlier agent started and left running."""
        self._adopted = {command.name: command for command in commands}

    # Who comes

    def look(self, now: float) -> None:
        """Find processes and threads that are new, let go of those that are gone, set again what is set."""
        self._postponed.clear()
        self._meet_workloads(now)
        for spec in self._configuration.services:
            if spec.name not in self.services:
                self._meet_service(spec, Has(weight=1.0))
        for task in self._configuration.tasks:
            if task.name not in self.tasks:
                self._meet_task(task, now)
        for one in self.all():
            self._meet(one)
        self.originals.write()
        for one in self.all():
            if one.control is not None and not self._configuration.hands_off:
                self.on(one, one.renew)

    def _meet_workloads(self, now: float) -> None:
        present = self._workloads.present()
        for name, workload in list(self.workloads.items()):
            if present.get(name) != workload:
                self._let_go(name, "it left this node or changed")
                del self.workloads[name]
        for name, workload in present.items():
            if name in self.services or name in self.tasks:
                continue
            spec = workload.spec
            if isinstance(spec, TaskSpec):
                self._meet_task(spec, now)
            elif (profile := profile_name(spec)) not in self._node.catalogue.services:
                self._error_reporter.once(
                    f"profile {name}", f"there is no profile {profile} for {name}: it is left alone"
                )
                continue
            else:
                self._meet_service(spec, Has())
            self.workloads[name] = workload

    def _meet_service(self, spec: ServiceSpec, has: Has) -> None:
        service = service_of(self._node, spec)
        self.services[spec.name] = ManagedService(spec.name, spec=spec, service=service, has=has)
        self.stats[spec.name] = self._actuator.stats(spec, self._configuration.stats_timeout_s)
        most = BELIEVED * self._node.highest_load(service)
        self.rates[spec.name] = Rate(most_per_s=most, least_s=0.5 * self._configuration.period_s)

    def _meet_task(self, spec: TaskSpec, now: float) -> None:
        profile = spec.profile or NEUTRAL_JOB
        if profile not in self._node.catalogue.jobs:
            profile = NEUTRAL_JOB
        deadline = None if spec.deadline is None else spec.deadline.owed
        run_class = spec.run_class or run_class_of(spec.name)
        task = NodeTask(spec.name, profile, spec.threads, spec.scale, deadline, spec.priority, run_class=run_class)
        started = spec.command is None
        self.tasks[spec.name] = ManagedTask(
            spec.name, spec=spec, task=task, submitted_s=now, has=Has(run=started, started=started)
        )

    def _meet(self, one: ManagedTarget) -> None:
        """Find the processes of a target that has none; let go of one that has lost them."""
        if one.control is not None:
            if one.control.alive():
                return
            self.gone(one, "its processes have ended")
            if one.name not in self.services and one.name not in self.tasks:
                return
        control = self._found(one)
        if control is None:
            return
        one.control, one.written, one.owed = control, False, False
        self.originals.taken(one.name)
        control.before_first(lambda: self.originals.write(must=True))
        one.refused.clear()
        one.unweighed = False
        run = True
        with contextlib.suppress(ControlError):
            run = not control.paused()
        one.has = Has(run=run)
        LOG.info("found", extra=about(one.name, pid=control.pid))
        deadline = one.task.deadline if isinstance(one, ManagedTask) else None
        if isinstance(one, ManagedService) and one.service.weight != 1.0:
            self.originals.write()
            if not self._configuration.hands_off:
                self.on(one, lambda: one.do(Actuation(one.name, Kind.WEIGHT, weight=one.service.weight), dry_run=False))
        elif deadline is not None:
            self.originals.write()
            if not self._configuration.hands_off:
                self.on(one, lambda: one.owe(deadline))

    def _found(self, one: ManagedTarget) -> Control | None:
        announce = self.originals.announcer(one.name)
        try:
            workload = self.workloads.get(one.name)
            if workload is not None:
                return self._workloads.control(workload)
            if isinstance(one, ManagedService):
                return self._actuator.find(one.name, one.spec.find, announce)
            if not isinstance(one, ManagedTask):
                return None
            if one.spec.find is not None:
                return None if one.done else self._actuator.find(one.name, one.spec.find, announce)
            left = self._adopted.pop(one.name, None)
            if left is not None and left.runs():
                LOG.info("a command of an earlier agent goes on", extra={"target": one.name, "pid": left.pid})
                self.originals.commands[one.name] = left
                return self._actuator.of_process(one.name, left.pid, announce)
        except ControlError as error:
            if not error.gone:
                self._error_reporter.fault(f"find {one.name}", str(error), "control")
        except StateError as error:
            self._error_reporter.fault("state", str(error))
        except (OSError, ValueError) as error:
            self._error_reporter.fault(f"find {one.name}", f"{one.name} cannot be looked for: {error}", "control")
        return None

    # What is done to them

    def on(self, one: ManagedTarget, act: Callable[[], None]) -> None:
        """Do something to one; what fails is said, and who is gone is let go of."""
        errors = one.errors
        try:
            act()
        except GoneError as error:
            self.gone(one, str(error))
        except Exception as error:  # One target's fault must not keep the others waiting.
            self._error_reporter.fault(f"act {one.name}", f"{one.name}: {type(error).__name__}: {error}", "control")
        if one.errors > errors:
            self._error_reporter.errors["control"] += one.errors - errors

    def start(self, one: ManagedTask, act: Actuation) -> None:
        """Start its command, with the cores and the weight that it is to have."""
        command = one.spec.command
        assert command is not None
        if self._configuration.hands_off:
            one.has = one.has.after(act)
            return

        def prepare(started: Started) -> None:
            self.originals.commands[one.name] = started
            one.control = self._actuator.of_process(one.name, started.pid, self.originals.announcer(one.name))
            self.originals.taken(one.name)
            self.originals.write(must=True)
            one.has = Has(run=True, started=True)
            if one.task.deadline is not None:
                one.owe(one.task.deadline)
            if act.cores and not one.owed:
                one.do(Actuation(one.name, Kind.CORES, act.cores), dry_run=False)
            if act.weight != 1.0:
                one.do(Actuation(one.name, Kind.WEIGHT, weight=act.weight), dry_run=False)
            if act.quota is not None:
                one.do(Actuation(one.name, Kind.QUOTA, quota=act.quota), dry_run=False)

        try:
            one.done = not self.children.start(one.name, command, prepare)
        except (StateError, ControlError) as error:
            self._error_reporter.fault(f"start {one.name}", f"{one.name} is not started yet: {error}", "start")
            self._postponed.add(one.name)
        else:
            if not one.done:
                LOG.info("started", extra={"target": one.name, "pid": self.originals.commands[one.name].pid})
                return
        self.originals.commands.pop(one.name, None)
        self.originals.taken(one.name)
        self.restore(one)
        self._actuator.let_go(one.name)
        one.has = Has(run=False, started=False)
        self.originals.write()

    def startable(self, one: ManagedTask) -> bool:
        """Whether its command may be started now: what could not be prepared is tried again at the next look."""
        return not one.has.started and not one.done and one.name not in self._postponed

    # Who goes

    def gone(self, one: ManagedTarget, why: str) -> None:
        """Its processes are no longer there."""
        LOG.info("gone: %s", why, extra={"target": one.name})
        # A group that was made for it is still there.
        self.restore(one)
        one.has = Has()
        self._forget(one.name)
        if isinstance(one, ManagedTask):
            self.past_pauses += one.pauses
            self.originals.commands.pop(one.name, None)
            once = one.spec.find is None or one.spec.find.pid is not None
            if one.name in self.workloads or not once:
                # The next one of this name is another job.
                del self.tasks[one.name]
            else:
                one.done = True
        self.children.reap(one.name)

    def _let_go(self, name: str, why: str) -> None:
        one: ManagedTarget | None = self.services.pop(name, None) or self.tasks.pop(name, None)
        if one is None:
            return
        LOG.info("let go: %s", why, extra={"target": name})
        self.restore(one)
        stats = self.stats.pop(name, None)
        if stats is not None:
            stats.close()
        self.rates.pop(name, None)
        self._forget(name)

    def restore(self, one: ManagedTarget) -> bool:
        """Put one back and let go of it; whether all of it could be. Never raises."""
        control, one.control = one.control, None
        if control is None or self._configuration.hands_off:
            return True
        try:
            control.restore()
        except ControlError as error:
            if not error.gone:
                self._error_reporter.fault(
                    f"restore {one.name}", f"{one.name} could not be put back: {error}", "control"
                )
                return False
        except Exception as error:  # Everything else must be put back all the same.
            self._error_reporter.fault(f"restore {one.name}", f"{one.name} could not be put back: {error!r}", "control")
            return False
        self._actuator.let_go(one.name)
        return True


def about(target: str, **more: object) -> dict[str, object]:
    """What a message is about, without what is unknown."""
    return {"target": target, **{key: value for key, value in more.items() if value not in (None, "")}}
