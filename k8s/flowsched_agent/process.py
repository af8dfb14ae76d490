"""One ``flowsched agent`` from start to end: lock, leftovers, watchdog, loop, and everything put back."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from flowsched.cluster.class_runs import ClassRuns
from flowsched.cluster.learnt_run_times import LearntRunTimes
from flowsched.node import Node, NodeController, NodeLearner
from flowsched_agent.actuator import LinuxActuator, ReadOnly
from flowsched_agent.agent import Agent
from flowsched_agent.catalogue import controller_of, node_of
from flowsched_agent.claims import Claims
from flowsched_agent.clock import SystemClock
from flowsched_agent.configuration import Configuration
from flowsched_agent.original_groups import restore, sweep
from flowsched_agent.recorder import Recorder
from flowsched_agent.restoring import restore_file, still_running
from flowsched_agent.state_file import ForeignStateError, Started, StateError, StateFile
from flowsched_agent.status import Status
from flowsched_agent.system import System
from flowsched_agent.watchdog import Watchdog, WatchdogError
from flowsched_agent.workloads import Workloads
from flowsched_models.document import InputError
from flowsched_models.quantity import format_cores

if TYPE_CHECKING:
    from flowsched_agent.server import Server
    from flowsched_k8s.api.access import Access

LOG = logging.getLogger(__name__)

TAKE_OVER_S = 5.0
"""How long to wait for the watchdog of an agent that has just died."""
STALLED_TICKS = 50
"""An agent that has not ticked for so many periods, or ten seconds, is not alive."""
LEAST_STALL_S = 10.0
NOT_WHOLE = 1
"""Exit code when something could not be put back."""


_Report = Callable[[Status], None]


def run_agent(
    configuration: Configuration,
    *,
    duration_s: float | None = None,
    once: bool = False,
    record: Path | None = None,
    make: Callable[[Node], NodeController] | None = None,
) -> int:
    """Run until stopped, or for ``duration_s``, or ``once`` for two decisions; the exit code. Raises :class:`InputError`.

    ``record``: file for every tick. ``make``: a controller instead of the configured one.
    """
    reset_on_fork()
    allowed = tuple(sorted(os.sched_getaffinity(0)))
    node = node_of(configuration, allowed)
    if not node.cores:
        message = f"none of {format_cores(configuration.cores)} may be used here"
        raise InputError.one("configuration", message, f"this process may use {format_cores(allowed)}", key="cores")
    if left_out := set(configuration.cores or ()) - set(allowed):
        LOG.warning(
            "some of the cores may not be used here and are left out",
            extra={"left_out": format_cores(tuple(sorted(left_out))), "allowed": format_cores(allowed)},
        )
    clock = SystemClock()
    asked = _Asked(clock)
    recorder = Recorder(record) if record is not None else None
    with contextlib.ExitStack() as stack:
        if recorder is not None:
            stack.callback(recorder.close)
        file, left = (None, _Left()) if configuration.hands_off else stack.enter_context(_state_file(configuration))
        if configuration.hands_off:
            actuator = LinuxActuator(ReadOnly())
        else:
            claims = Claims(configuration.state_file, System())
            stack.callback(claims.close)
            actuator = LinuxActuator(claims=claims)
            for sentence in actuator.detected.sentences():
                LOG.info("%s", sentence)
        chosen, room = configuration.controller, actuator.detected.reservable
        learner = _learner(configuration, node, left.learnt)
        controller = make(node) if make else controller_of(chosen, node, configuration.period_s, room, learner)
        access = _access(configuration)
        workloads, report = stack.enter_context(_cluster(configuration, actuator, access))
        watch = _Watched(file)

        def each_second(status: Status) -> None:
            watch.look()
            report(status)

        agent = Agent(
            configuration,
            node,
            controller,
            actuator,
            clock,
            state_file=file,
            workloads=workloads,
            recorder=recorder,
            on_second=each_second,
            learner=learner,
        )
        agent.adopt(left.commands)

        asked.tell(agent.stop)
        prepared = _Prepared()
        if not once and (configuration.server is not None or access is not None):
            server = _listen(configuration, agent, clock, prepared, access)
            stack.callback(server.close)
            LOG.info("listening", extra={name: str(address) for name, address in server.addresses.items()})
        if make is None and chosen.name != "observe":
            from flowsched.node import flow_node

            began = clock.now()
            LOG.info("compiling what decisions need; the first time on a machine that takes up to a minute")
            flow_node.prepare(node)
            LOG.info("compiled", extra={"seconds": round(clock.now() - began, 1)})
        prepared.at_s = clock.now()
        # Last, and first to be asked to go only when all is back.
        watch.start()
        whole = True
        try:
            LOG.info(
                "nothing is changed" if configuration.hands_off else "controlling",
                extra={"cores": format_cores(node.cores), "machine_type": node.machine_type},
            )
            agent.run(duration_s, ticks=2 if once else None)
            if once:
                for line in lines_of(agent.status):
                    print(line)
        finally:
            whole = agent.finish()
            if whole:
                watch.dismiss()
        LOG.info("stopped", extra={"ticks": agent.status.ticks, "whole": whole})
        return 0 if whole else NOT_WHOLE


def reset_on_fork() -> None:
    """Keep a real-time class of our own from everything that we start: a job that inherits it starves the service."""
    policy = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK
    if policy in (os.SCHED_FIFO, os.SCHED_RR):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, policy | os.SCHED_RESET_ON_FORK, os.sched_getparam(0))


def restore_machine(path: Path) -> list[str]:
    """Undo what an agent left behind. Raises :class:`InputError` while one is alive, and for a file that others may have
    written.
    """
    file = StateFile(path)
    if not path.exists():
        return sweep()
    try:
        file.read(own=True)
    except ForeignStateError as error:
        raise InputError.one("restore", f"{error}: nothing of it is done", "run it as the agent's own user") from None
    except StateError:
        pass  # It is set aside below.
    _acquire(file)
    try:
        return [*restore_file(file, restore), *sweep()]
    finally:
        file.release()


def lines_of(status: Status) -> Iterator[str]:
    """One line for each service and task."""
    for service in status.services.values():
        load = "unknown" if service.qps is None else f"{service.qps:.0f}/s"
        p95 = "unknown" if service.p95_us is None else f"{service.p95_us:.0f} us"
        yield (
            f"service {service.name}: {'answers' if service.answers else 'silent'}, load {load}, predicted p95 {p95} "
            f"of {service.slo_us:.0f} us, cores {format_cores(service.cores)}"
        )
    for task in status.tasks.values():
        cores = format_cores(task.cores) or "any"
        yield f"task {task.name}: {task.state}, cores {cores}, weight {task.weight:.4g}, CPU {task.cpu_s:.2f} s"


@dataclass(frozen=True)
class _Left:
    """What an earlier agent left that goes on."""

    commands: tuple[Started, ...] = ()
    learnt: tuple[ClassRuns, ...] = ()


def _learner(configuration: Configuration, node: Node, learnt: tuple[ClassRuns, ...]) -> NodeLearner | None:
    if configuration.learning == "off" or configuration.hands_off:
        return None
    return NodeLearner(node.machine_type, LearntRunTimes(learnt, applied=configuration.learning == "on"))


@contextlib.contextmanager
def _state_file(configuration: Configuration) -> Iterator[tuple[StateFile, _Left]]:
    """The state file with its lock; what an earlier agent left behind is undone first."""
    file = StateFile(configuration.state_file)
    _acquire(file)
    try:
        left = _Left()
        for sentence in restore_file(file, restore):
            LOG.warning("left behind by an earlier agent: %s", sentence)
        for sentence in sweep():
            LOG.info("%s", sentence)
        with contextlib.suppress(StateError):
            state = file.read()
            left = _Left(still_running(state), state.learnt) if state is not None else left
        yield file, left
    finally:
        file.release()


def _acquire(file: StateFile) -> None:
    try:
        if not file.acquire(TAKE_OVER_S):
            message = f"another agent holds the state file {file.path}"
            raise InputError.one("configuration", message, "stop it, or name another file", key="stateFile")
    except StateError as error:
        raise InputError.one("configuration", str(error), key="stateFile") from None


class _Asked:
    """Whether a signal asked this process to end. From the first moment on: what is being put back must not be cut short."""

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock
        self._asked = False
        self._stop: Callable[[], None] | None = None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._hear)

    def tell(self, stop: Callable[[], None]) -> None:
        """Who is to be stopped; at once if it was asked for already."""
        self._stop = stop
        if self._asked:
            stop()

    def _hear(self, *_: object) -> None:
        self._asked = True
        if self._stop is not None:
            self._stop()
        self._clock.wake()


class _Watched:
    """The watchdog, started again where it died."""

    def __init__(self, file: StateFile | None) -> None:
        self._file = file
        self._watchdog: Watchdog | None = None

    def start(self) -> None:
        if self._file is None:
            return
        try:
            self._watchdog = Watchdog(self._file.path)
        except WatchdogError as error:
            raise InputError.one("watchdog", str(error)) from None

    def look(self) -> None:
        if self._watchdog is not None and not self._watchdog.alive():
            LOG.warning("the watchdog died: another one is started")
            self._watchdog.dismiss()
            self._watchdog = None
            self.start()

    def dismiss(self) -> None:
        if self._watchdog is not None:
            self._watchdog.dismiss()


@dataclass
class _Prepared:
    """Whether everything is compiled: until then no tick is missed."""

    at_s: float | None = None


def _listen(
    configuration: Configuration, agent: Agent, clock: SystemClock, prepared: _Prepared, access: Access | None
) -> Server:
    # Neither time nor the extra is needed unless asked for.
    from flowsched_agent.metrics import exposition
    from flowsched_agent.server import Network, Server

    longest = max(LEAST_STALL_S, STALLED_TICKS * configuration.period_s)

    def live() -> str | None:
        if prepared.at_s is None:
            return None
        still_s = clock.now() - max(agent.status.t_s, prepared.at_s)
        return None if still_s < longest else f"no tick for {still_s:.0f} s"

    def ready() -> str | None:
        if agent.status.ticks == 0:
            return "no tick yet"
        return live()

    try:
        release = version("flowsched")
    except PackageNotFoundError:
        release = "unknown"
    network = None if access is None else Network(configuration.kubernetes.server, access, time.time)
    if network is not None and network.settings.metrics is not None and network.settings.authentication == "none":
        extra = {"key": "kubernetes.server.authentication"}
        LOG.warning("every caller that reaches the address of metrics is answered, without login", extra=extra)
    return Server(configuration.server, live, ready, lambda accept: exposition(agent.status, release, accept), network)


def _access(configuration: Configuration) -> Access | None:
    """To the cluster around the agent; None where there is none."""
    if not configuration.kubernetes.enabled:
        return None
    from flowsched_agent.kubernetes.cluster import access_of

    return access_of(configuration.kubernetes)


@contextlib.contextmanager
def _cluster(
    configuration: Configuration, actuator: LinuxActuator, access: Access | None
) -> Iterator[tuple[Workloads, _Report]]:
    if access is None:
        yield Workloads(), lambda _: None
        return
    from flowsched_agent.kubernetes.cluster import Cluster  # only what this needs takes time to import

    cluster = Cluster(configuration, actuator, access)
    cluster.start()
    try:
        yield cluster, cluster.report
    finally:
        cluster.stop()
