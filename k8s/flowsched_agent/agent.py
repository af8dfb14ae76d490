"""The loop: read, decide, act, a tick at a time; and everything put back at the end."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from flowsched.node import (
    Allocation,
    NodeController,
    NodeTask,
    Reading,
    ServiceGrant,
    ServiceReading,
    TaskGrant,
    TaskReading,
    TaskState,
)
from flowsched_agent.acts import Act, Has, Kind, plan
from flowsched_agent.apart import ALONE, Apart, Present
from flowsched_agent.catalogue import Believed, profile_name
from flowsched_agent.clock import Clock
from flowsched_agent.commands_started import StartError, start
from flowsched_agent.configuration import Configuration, TaskSpec
from flowsched_agent.controls.control import ControlError, Saved
from flowsched_agent.guard import guarded
from flowsched_agent.hands import Hands, Stats
from flowsched_agent.rates import Rate
from flowsched_agent.recorder import Recorder
from flowsched_agent.restoring import stop_commands
from flowsched_agent.state_file import Started, State, StateError, StateFile, boot_id, start_time
from flowsched_agent.status import ServiceStatus, Status, TaskStatus
from flowsched_agent.steered import GoneError, Handle, Steered, SteeredService, SteeredTask, has_of
from flowsched_agent.workloads import NoWorkloads, Workload, Workloads
from flowsched_models.quantity import format_cores

LOG = logging.getLogger(__name__)

RESCAN_S = 1.0
"""Between looks for processes and threads that are new or gone."""
NEUTRAL_JOB = "neutral"
"""Profile of jobs that nobody measured."""
FAILED = "the controller failed"


class Agent:
    """One agent on one machine. Not for several threads, except :attr:`status` and :meth:`stop`."""

    def __init__(
        self,
        configuration: Configuration,
        believed: Believed,
        controller: NodeController,
        hands: Hands,
        clock: Clock,
        *,
        state_file: StateFile | None = None,
        workloads: Workloads | None = None,
        recorder: Recorder | None = None,
        on_second: Callable[[Status], None] | None = None,
    ) -> None:
        """Nothing is read or changed yet. ``state_file``: None in a dry run; its lock must be held.

        ``on_second`` is called with the status each second; what it raises is said and forgotten.
        """
        self._configuration = configuration
        self._believed = believed
        self._controller = controller
        self._hands = hands
        self._clock = clock
        self._file = None if configuration.hands_off else state_file
        self._workloads = workloads or NoWorkloads()
        self._recorder = recorder
        self._on_second = on_second
        self._services: dict[str, SteeredService] = {}
        self._tasks: dict[str, SteeredTask] = {}
        self._stats: dict[str, Stats] = {}
        self._rates: dict[str, Rate] = {}
        self._keys: dict[str, Workload] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, Started] = {}
        self._adopted: dict[str, Started] = {}
        self._announced: dict[str, Saved] = {}
        self._wanted = Allocation()
        self._granted = Allocation()
        """What is wanted, as far as the rules of this agent allow it."""
        self._apart = Apart(believed.node)
        self._moved: frozenset[str] = frozenset()
        """Tasks that are kept off the cores of services, or paused, for want of a low weight."""
        self._times_apart = 0
        self._said: set[str] = set()
        self._errors: Counter[str] = Counter()
        self._acts: Counter[str] = Counter()
        self._past_pauses = 0
        self._ticks = self._overruns = self._missed = 0
        self._rescanned_s = float("-inf")
        self._stopping = False
        self.status = Status(clock.now())
        """After the latest tick; replaced whole, so that other threads may read it."""

    # From start to end

    def adopt(self, commands: tuple[Started, ...]) -> None:
        """Take over commands that an earlier agent started and left running."""
        self._adopted = {command.name: command for command in commands}

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
                self._fault("tick", f"a tick failed: {type(error).__name__}: {error}")
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
                self._once("overrun", "a tick took longer than the period; further ones are only counted")

    def stop(self) -> None:
        """End :meth:`run` after the tick that is under way. Safe in signal handlers."""
        self._stopping = True

    def finish(self) -> bool:
        """Put everything back and say goodbye to started commands; whether all of it could be put back. Never raises."""
        whole = True
        for steered in reversed([*self._services.values(), *self._tasks.values()]):
            whole = self._restore(steered) and whole
        if self._configuration.on_exit == "stop":
            for sentence in stop_commands(self._commands.values()):
                LOG.warning("%s", sentence)
            self._commands.clear()
        for stats in self._stats.values():
            stats.close()
        if self._file is not None and whole:
            left = tuple(c for c in self._commands.values() if start_time(c.pid) == c.started)
            try:
                if left:
                    self._file.write(replace(self._state({}), commands=left))
                else:
                    self._file.remove()
            except (StateError, OSError) as error:
                self._fault("state", f"{error}")
        return whole

    # One tick

    def tick(self) -> None:
        """Read, decide and act once. Never raises for what happens on the machine."""
        now = self._clock.now()
        self._ticks += 1
        second = now - self._rescanned_s >= RESCAN_S - 1e-9
        if second:
            self._rescanned_s = now
            self._rescan(now)
        reading = self._read(now)
        self._apart.read(reading)
        self._decide(reading)
        self._carry_out()
        self._publish(reading, self._clock.now() - now)
        if second and self._on_second is not None:
            try:
                self._on_second(self.status)
            except Exception as error:  # A report that fails must not stop the control.
                self._fault("report", f"{type(error).__name__}: {error}")

    def _rescan(self, now: float) -> None:
        self._meet_workloads(now)
        for spec in self._configuration.services:
            if spec.name not in self._services:
                service = self._believed.service(spec)
                self._services[spec.name] = SteeredService(spec.name, spec=spec, service=service, has=Has(weight=1.0))
                self._stats[spec.name] = self._hands.stats(spec, self._configuration.stats_timeout_s)
                self._rates[spec.name] = Rate()
        for task in self._configuration.tasks:
            if task.name not in self._tasks:
                self._meet_task(task, now)
        for one in [*self._services.values(), *self._tasks.values()]:
            self._meet(one)
        self._write_state()
        for one in [*self._services.values(), *self._tasks.values()]:
            if one.handle is not None and not self._configuration.hands_off:
                self._on(one, one.renew)

    def _meet_workloads(self, now: float) -> None:
        present = self._workloads.present()
        for name, workload in list(self._keys.items()):
            if present.get(name) != workload:
                self._let_go(name, "it left this node or changed")
                del self._keys[name]
        for name, workload in present.items():
            if name in self._services or name in self._tasks:
                continue
            spec = workload.spec
            if isinstance(spec, TaskSpec):
                self._meet_task(spec, now)
            elif profile_name(spec) not in self._believed.node.catalogue.services:
                self._once(f"profile {name}", f"there is no profile {profile_name(spec)} for {name}: it is left alone")
                continue
            else:
                service = self._believed.service(spec)
                self._services[name] = SteeredService(name, spec=spec, service=service)
                self._stats[name] = self._hands.stats(spec, self._configuration.stats_timeout_s)
                self._rates[name] = Rate()
            self._keys[name] = workload

    def _meet_task(self, spec: TaskSpec, now: float) -> None:
        profile = spec.profile or NEUTRAL_JOB
        if profile not in self._believed.node.catalogue.jobs:
            profile = NEUTRAL_JOB
        task = NodeTask(spec.name, profile, spec.threads, spec.scale, spec.deadline, spec.priority)
        started = spec.command is None
        self._tasks[spec.name] = SteeredTask(
            spec.name, spec=spec, task=task, submitted_s=now, has=Has(run=started, started=started)
        )

    def _meet(self, one: Steered) -> None:
        """Find the processes of a target that has none; let go of one that has lost them."""
        if one.handle is not None:
            if one.handle.whole.alive():
                return
            self._gone(one, "its processes have ended")
            if one.name not in self._services and one.name not in self._tasks:
                return
        handle = self._found(one)
        if handle is None:
            return
        one.handle, one.written, one.owed = handle, False, False
        self._announced.pop(one.name, None)
        one.refused.clear()
        one.unweighed = False
        run = True
        with contextlib.suppress(ControlError):
            run = not handle.whole.paused()
        one.has = Has(run=run)
        LOG.info("found", extra=_about(one.name, pid=handle.pid))
        deadline = one.task.deadline if isinstance(one, SteeredTask) else None
        if isinstance(one, SteeredService) and one.service.weight != 1.0:
            self._write_state()
            if not self._configuration.hands_off:
                self._on(one, lambda: one.do(Act(one.name, Kind.WEIGHT, weight=one.service.weight), dry_run=False))
        elif deadline is not None:
            self._write_state()
            if not self._configuration.hands_off:
                self._on(one, lambda: one.owe(deadline))

    def _found(self, one: Steered) -> Handle | None:
        announce = self._announcer(one.name)
        try:
            workload = self._keys.get(one.name)
            if workload is not None:
                return self._workloads.handle(workload)
            if isinstance(one, SteeredService):
                return self._hands.find(one.name, one.spec.find, announce)
            if not isinstance(one, SteeredTask):
                return None
            if one.spec.find is not None:
                return None if one.done else self._hands.find(one.name, one.spec.find, announce)
            left = self._adopted.pop(one.name, None)
            if left is not None and start_time(left.pid) == left.started:
                LOG.info("a command of an earlier agent goes on", extra={"target": one.name, "pid": left.pid})
                self._commands[one.name] = left
                return self._hands.of_process(one.name, left.pid, announce)
        except ControlError as error:
            if not error.gone:
                self._errors["control"] += 1
                self._once(f"find {one.name} {error}", str(error))
        except StateError as error:
            self._fault("state", str(error))
        except (OSError, ValueError) as error:
            self._fault(f"find {one.name}", f"{one.name} cannot be looked for: {error}", "control")
        return None

    def _read(self, now: float) -> Reading:
        services = tuple(self._read_service(now, one) for one in self._services.values())
        tasks = tuple(self._read_tasks())
        return Reading(now, services, tasks, self._hands.core_busy_s())

    def _read_service(self, now: float, one: SteeredService) -> ServiceReading:
        stats = self._stats[one.name]
        counters = stats.read()
        silent = counters is None
        if silent != one.silent:
            if silent:
                self._errors["service"] += 1
                LOG.warning("the service does not answer: %s", stats.problem, extra={"target": one.name})
            else:
                LOG.info("the service answers again", extra={"target": one.name})
        one.silent = silent
        one.queries = None if counters is None else counters.queries
        pid = None if counters is None else counters.pid
        rate = self._rates[one.name]
        resets = rate.resets
        rate.update(now, one.queries, pid)
        if rate.resets != resets:
            LOG.info("the counters began anew: another server", extra={"target": one.name})
        return ServiceReading(one.service, one.queries, self._cpu_s(one), pid)

    def _read_tasks(self) -> Iterator[TaskReading]:
        for one in list(self._tasks.values()):
            self._reap(one.name)
            if one.has.started:
                if one.handle is None:
                    continue
                one.cpu_s = max(one.cpu_s, self._cpu_s(one))
                if one.handle is None:
                    continue
            elif one.done:
                continue
            yield TaskReading(one.task, _task_state(one.has), one.submitted_s, one.cpu_s)

    def _cpu_s(self, one: Steered) -> float:
        if one.handle is None:
            return 0.0
        try:
            return one.handle.whole.cpu_s()
        except ControlError as error:
            if error.gone:
                self._gone(one, str(error))
            else:
                self._errors["control"] += 1
                self._once(f"cpu {one.name}", str(error))
            return 0.0

    def _decide(self, reading: Reading) -> None:
        try:
            decided = self._controller.decide(reading)
        except Exception as error:  # A fault of the controller must not leave the machine as it happens to be.
            self._fault("controller", f"the controller failed: {type(error).__name__}: {error}")
            LOG.debug("the controller failed", exc_info=True)
            decided = Allocation(
                {name: ServiceGrant(one.service.cores, FAILED) for name, one in self._services.items()},
                {name: TaskGrant(False, reason=FAILED) for name in self._tasks},
            )
        if decided is not None:
            self._wanted = Allocation(
                {**self._wanted.services, **decided.services}, {**self._wanted.tasks, **decided.tasks}
            )

    def _carry_out(self) -> None:
        if self._configuration.controller.name == "observe":
            return
        wanted = guarded(
            self._wanted,
            [(one.service, one.spec.min_cores, one.silent) for one in self._services.values()],
            self._tasks,
            self._believed.allowed,
        )
        wanted = self._within_placement(wanted)
        known = self._unweighed()
        self._do(self._kept_apart(wanted))
        if self._unweighed() != known:
            # Whose weight was refused only now must not share a core until the next tick.
            self._do(self._kept_apart(wanted))

    def _unweighed(self) -> set[str]:
        return {name for name, one in self._tasks.items() if one.unweighed and not one.owed}

    def _kept_apart(self, wanted: Allocation) -> Allocation:
        there = [
            Present(one.service, one.spec.min_cores)
            for one in self._services.values()
            if one.handle is not None or not one.silent
        ]
        granted, moved = self._apart.keep(wanted, there, self._unweighed(), self._believed.allowed)
        for name in sorted(moved - self._moved):
            self._times_apart += 1
            self._once(f"apart {name}", f"{name} is kept off the cores of services, or paused: {ALONE}")
        self._moved, self._granted = moved, granted
        return granted

    def _do(self, wanted: Allocation) -> None:
        services = {n: one for n, one in self._services.items() if one.handle is not None}
        tasks = {
            n: one for n, one in self._tasks.items() if one.handle is not None or (not one.has.started and not one.done)
        }
        for act in plan(has_of(services), has_of(tasks), wanted):
            one: Steered | None = services.get(act.target) or tasks.get(act.target)
            if one is None:
                continue
            self._acts[act.kind] += 1
            LOG.debug("%s", act, extra=_about(act.target, reason=act.reason))
            if act.kind is Kind.START:
                assert isinstance(one, SteeredTask)
                self._start(one, act)
            else:
                self._on(one, _doing(one, act, self._configuration.hands_off))

    def _within_placement(self, wanted: Allocation) -> Allocation:
        """Tasks of the cluster keep to the cores that the cluster scheduler chose, where any of them is granted.

        Those with bandwidth of their own are not pinned.
        """
        tasks = dict(wanted.tasks)
        for name, grant in wanted.tasks.items():
            if self._tasks[name].owed:
                tasks[name] = replace(grant, cores=())
                continue
            workload = self._keys.get(name)
            if workload is not None and workload.allowed and grant.cores:
                cores = tuple(core for core in grant.cores if core in workload.allowed)
                tasks[name] = replace(grant, cores=cores or grant.cores)
        return Allocation(wanted.services, tasks)

    def _start(self, one: SteeredTask, act: Act) -> None:
        command = one.spec.command
        assert command is not None
        if self._configuration.hands_off:
            one.has = one.has.after(act)
            return

        def prepare(started: Started) -> None:
            self._commands[one.name] = started
            one.handle = self._hands.of_process(one.name, started.pid, self._announcer(one.name))
            self._announced.pop(one.name, None)
            self._write_state(must=True)
            one.has = Has(run=True, started=True)
            if one.task.deadline is not None:
                one.owe(one.task.deadline)
            if act.cores and not one.owed:
                one.do(Act(one.name, Kind.CORES, act.cores), dry_run=False)
            if act.weight != 1.0:
                one.do(Act(one.name, Kind.WEIGHT, weight=act.weight), dry_run=False)
            if act.quota is not None:
                one.do(Act(one.name, Kind.QUOTA, quota=act.quota), dry_run=False)

        try:
            self._children[one.name] = start(one.name, command, prepare)
        except (StartError, StateError, ControlError, GoneError, OSError) as error:
            self._commands.pop(one.name, None)
            one.handle, one.done = None, True
            one.has = Has(run=False, started=False)
            self._fault(f"start {one.name}", f"{one.name} is given up: {error}", "start")
            self._write_state()
            return
        LOG.info("started", extra={"target": one.name, "pid": self._commands[one.name].pid})

    # Who comes and goes

    def _on(self, one: Steered, act: Callable[[], None]) -> None:
        errors = one.errors
        try:
            act()
        except GoneError as error:
            self._gone(one, str(error))
        except Exception as error:  # One target's fault must not keep the others waiting.
            self._fault(f"act {one.name}", f"{one.name}: {type(error).__name__}: {error}", "control")
        if one.errors > errors:
            self._errors["control"] += one.errors - errors

    def _gone(self, one: Steered, why: str) -> None:
        LOG.info("gone: %s", why, extra={"target": one.name})
        # A group that was made for it is still there.
        self._restore(one)
        one.has = Has()
        self._forget(one.name)
        if isinstance(one, SteeredTask):
            self._past_pauses += one.pauses
            self._commands.pop(one.name, None)
            once = one.spec.find is None or one.spec.find.pid is not None
            if one.name in self._keys or not once:
                # The next one of this name is another job.
                del self._tasks[one.name]
            else:
                one.done = True
        self._reap(one.name)

    def _let_go(self, name: str, why: str) -> None:
        one: Steered | None = self._services.pop(name, None) or self._tasks.pop(name, None)
        if one is None:
            return
        LOG.info("let go: %s", why, extra={"target": name})
        self._restore(one)
        stats = self._stats.pop(name, None)
        if stats is not None:
            stats.close()
        self._rates.pop(name, None)
        self._forget(name)

    def _forget(self, name: str) -> None:
        """What was decided for one is not for the next of its name."""
        self._wanted = Allocation(
            {n: g for n, g in self._wanted.services.items() if n != name},
            {n: g for n, g in self._wanted.tasks.items() if n != name},
        )

    def _restore(self, one: Steered) -> bool:
        handle, one.handle = one.handle, None
        if handle is None or self._configuration.hands_off:
            return True
        try:
            handle.whole.restore()
        except ControlError as error:
            if error.gone:
                return True
            self._fault(f"restore {one.name}", f"{one.name} could not be put back: {error}", "control")
            return False
        except Exception as error:  # Everything else must be put back all the same.
            self._fault(f"restore {one.name}", f"{one.name} could not be put back: {error!r}", "control")
            return False
        return True

    def _reap(self, name: str) -> None:
        child = self._children.get(name)
        if child is not None and child.poll() is not None:
            del self._children[name]
            about = {"target": name, "code": child.returncode}
            if child.returncode == 0:
                LOG.info("ended", extra=about)
            else:
                # As shells have it: 127 for what is not found, 126 for what may not be run.
                why = {127: ": it was not found", 126: ": it may not be run"}.get(child.returncode, "")
                LOG.warning("the command ended with code %d%s", child.returncode, why, extra=about)

    # What is written down

    def _announcer(self, name: str) -> Callable[[Saved], None]:
        """What writes down how a taking is undone, before it happens; raises :class:`StateError`."""

        def announce(saved: Saved) -> None:
            if self._file is not None:
                self._announced[name] = saved
                self._write_state(must=True)

        return announce

    def _write_state(self, must: bool = False) -> None:
        """Write down what has to be undone; with ``must`` raises :class:`StateError` where that fails."""
        if self._file is None:
            return
        saved: dict[str, Mapping[str, Any]] = dict(self._announced)
        for one in [*self._services.values(), *self._tasks.values()]:
            if one.handle is None:
                continue
            try:
                saved[one.name] = one.handle.whole.saved()
            except ControlError as error:
                # Nothing of it may be changed that cannot be put back.
                one.handle = None
                if not error.gone:
                    self._fault(f"save {one.name}", f"{one.name} is left alone: {error}", "control")
        try:
            self._file.write(self._state(saved))
        except StateError as error:
            if must:
                raise
            self._fault("state", str(error))
            # The same holds for what was found but is not on disk.
            for one in [*self._services.values(), *self._tasks.values()]:
                if not one.written:
                    one.handle = None
            return
        for one in [*self._services.values(), *self._tasks.values()]:
            one.written = one.handle is not None

    def _state(self, saved: Mapping[str, Mapping[str, Any]]) -> State:
        pid = os.getpid()
        return State(
            boot_id(), pid, start_time(pid) or 0, saved, tuple(self._commands.values()), self._configuration.on_exit
        )

    def _publish(self, reading: Reading, took_s: float) -> None:
        services = {name: self._service_status(one) for name, one in self._services.items()}
        busy = {r.service.name: r.busy_s for r in reading.services}
        services = {n: replace(s, cpu_s=busy.get(n, 0.0)) for n, s in services.items()}
        tasks = {}
        states = {r.task.name: r.state.value for r in reading.tasks}
        for name, one in self._tasks.items():
            cores = one.has.cores or ()
            state = states.get(name, "done" if one.done else "absent")
            tasks[name] = TaskStatus(name, state, cores, one.weight, one.cpu_s, one.pauses)
        self.status = Status(
            t_s=reading.t_s,
            services=services,
            tasks=tasks,
            ticks=self._ticks,
            overruns=self._overruns,
            missed=self._missed,
            errors=dict(self._errors),
            acts={kind.value: self._acts[kind] for kind in Kind},
            pauses=self._past_pauses + sum(one.pauses for one in self._tasks.values()),
            kept_apart=self._times_apart,
            last_tick_s=took_s,
        )
        if self._recorder is not None:
            try:
                self._recorder.write(reading.t_s, self._rows())
            except OSError as error:
                self._fault("record", f"the record cannot be written: {error}")

    def _service_status(self, one: SteeredService) -> ServiceStatus:
        cores = one.has.cores if one.has.cores is not None else one.service.cores
        qps = self._rates[one.name].per_second
        p95_us = None
        if qps is not None and cores:
            catalogue = self._believed.node.catalogue
            profile = catalogue.services[one.service.profile]
            curve = profile.curve_or_estimate(one.service.threads, len(cores))
            machine = self._believed.node.machine_type
            p95_us = profile.p95_us(curve, qps, one.service.client, machine_type=machine)
        return ServiceStatus(one.name, not one.silent, cores, one.service.slo_us, qps, p95_us)

    def _rows(self) -> Iterator[dict[str, Any]]:
        for name, service in self.status.services.items():
            grant = self._granted.services.get(name)
            yield {
                "kind": "service",
                "name": name,
                "state": "answers" if service.answers else "silent",
                "queries": self._services[name].queries,
                "qps": None if service.qps is None else f"{service.qps:.1f}",
                "p95_us": None if service.p95_us is None else f"{service.p95_us:.1f}",
                "cpu_s": f"{service.cpu_s:.6f}",
                "cores": format_cores(service.cores),
                "weight": self._services[name].has.weight,
                "reason": grant.reason if grant is not None else "",
            }
        for name, task in self.status.tasks.items():
            given = self._granted.tasks.get(name)
            yield {
                "kind": "task",
                "name": name,
                "state": task.state,
                "cpu_s": f"{task.cpu_s:.6f}",
                "cores": format_cores(task.cores),
                "weight": task.weight,
                "quota": self._tasks[name].has.quota,
                "reason": given.reason if given is not None else "",
            }

    def _fault(self, key: str, sentence: str, kind: str | None = None) -> None:
        self._errors[kind or key] += 1
        self._once(f"{key}: {sentence}", sentence)

    def _once(self, key: str, sentence: str) -> None:
        """Say it, unless it was said before."""
        if key not in self._said and len(self._said) < 10_000:
            self._said.add(key)
            LOG.warning("%s", sentence)


def _about(target: str, **more: object) -> dict[str, object]:
    """What a message is about, without what nobody knows."""
    return {"target": target, **{key: value for key, value in more.items() if value not in (None, "")}}


def _task_state(has: Has) -> TaskState:
    if not has.started:
        return TaskState.QUEUED
    return TaskState.RUNNING if has.run else TaskState.PAUSED


def _doing(one: Steered, act: Act, dry_run: bool) -> Callable[[], None]:
    return lambda: one.do(act, dry_run)
