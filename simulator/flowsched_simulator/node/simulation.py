"""One machine under a controller: ticks, load steps, submissions, and what a client would have measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from flowsched.cluster.learning import Learning
from flowsched.node import (
    Allocation,
    NodeController,
    Reading,
    ServiceReading,
    TaskGrant,
    TaskReading,
    TaskState,
)
from flowsched.node.allocation import DEFAULT_WEIGHT
from flowsched.node.decision_trace import decision_trace
from flowsched.node.flow_node import FlowNode
from flowsched_models.moving_latency import Moment, mixture_p95_us
from flowsched_models.quantity import format_cores
from flowsched_models.runtime import HostFactory
from flowsched_models.service import ServiceProfile
from flowsched_models.window_noise import WindowNoise
from flowsched_simulator.node.machine import NodeMachine
from flowsched_simulator.node.run import CoreStep, NodeJobRun, NodeRun, Stretch, Window
from flowsched_simulator.node.scenario import NodeScenario
from flowsched_simulator.node.truth import true_machine
from flowsched_simulator.node.wave import DrawnWave, GivenWave, Wave
from flowsched_simulator.truth import Error
from flowsched_simulator.world import ErrorOf

LEAST_WINDOW_S = 1.0
"""No client reports more often: with shorter intervals a point covers several."""
IDLE_S = 600.0
"""A run is cut when no job has come any further for so long: its controller has given up."""
LONGEST = 10.0
"""A run is cut after so many times the work of all jobs on one virtual CPU, counted from the last submission."""
_TINY = 1e-9
_PROGRESS = 1e-9
_TOLD_TICKS = 200

Progress = Callable[[float, int, int], None]
"""Called with simulated seconds, jobs ended and jobs in all."""
Noise = float | Literal["measured"]
"""Standard deviation of log p95, 0 for none; or what the profile of a service says."""


class ControllerError(RuntimeError):
    """A controller asked for what cannot be: a fault of its program, not of the input."""


@dataclass(frozen=True)
class NodeOptions:
    """How one run is made."""

    seed: int = 0
    """Of the arrivals, the noise on p95 and the model error."""
    load_seed: int | None = None
    """Draw the loads with this seed; None: the scenario's waves, and seed 0 for services that have none."""
    qps_interval_s: float | None = None
    """Seconds between load steps; None: the scenario's."""
    noise: Noise = "measured"
    """Standard deviation of the log of the noise on every p95; ``measured``: what the profiles say."""
    model_error: Error = 0.0
    error_of: ErrorOf = "job-and-machine"
    """What has a factor of its own in a model error of one width."""
    learning: Learning | None = None
    """Whether completions teach how long others of their class run; None: as
    :func:`flowsched_simulator.node.task_classes.chosen_learning` says."""
    decision_sink: Callable[[dict[str, Any]], None] | None = field(default=None, repr=False)
    """Called with every decision of ``flow-node`` that changed something, as plain data with ``t_s`` and the interval."""


def waves_of(scenario: NodeScenario, load_seed: int | None) -> tuple[Wave, ...]:
    """[services] the loads of a run."""
    waves: list[Wave] = []
    for k, load in enumerate(scenario.loads):
        if load.wave and load_seed is None:
            waves.append(GivenWave(load.wave))
        elif load.span is not None:
            waves.append(DrawnWave(load.span, load_seed or 0, k))
        else:
            raise ValueError(f"the load of {scenario.services[k].name} has no range to draw from")
    return tuple(waves)


class _Patience:
    """Whether there is still something to hope for."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._asked_s = 0.0
        self._moved_s = 0.0
        self._done = 0.0

    def asks(self, now_s: float) -> bool:
        """Whether it is time to look at what is done."""
        return now_s >= min(self._asked_s + IDLE_S / 10, self._longest_s)

    def ends(self, now_s: float, done: float, waiting: bool) -> bool:
        """Whether the run is cut. ``done``: work in all, in jobs; ``waiting``: whether jobs are still to be submitted."""
        self._asked_s = now_s
        if waiting or done > self._done + _PROGRESS:
            self._moved_s, self._done = now_s, done
        return now_s - self._moved_s >= IDLE_S or now_s >= self._longest_s


class NodeSimulation:
    """One run. The controller sees readings only, never the load to come."""

    def __init__(
        self,
        scenario: NodeScenario,
        policy: str,
        controller: NodeController,
        options: NodeOptions | None = None,
        *,
        hosts: HostFactory | None = None,
        progress: Progress | None = None,
    ) -> None:
        """``hosts``: to share what was computed before.

        Raises ``ValueError`` for a load seed where some service has no range to draw from.
        """
        self._scenario = scenario
        self._policy = policy
        self._controller = controller
        self._options = options = options or NodeOptions()
        self._progress = progress
        own = scenario.hint(policy).threads
        self._tasks = tuple(replace(t, threads=own.get(t.name, t.threads)) for t in scenario.tasks)
        truth = true_machine(scenario, options.model_error, options.seed, options.error_of)
        if truth.catalogue is not scenario.catalogue:
            hosts = None
        self._slowdown = truth.slowdown
        self._machine = NodeMachine(
            truth.catalogue,
            scenario.machine_type,
            scenario.cores,
            truth.services,
            hosts or HostFactory(truth.catalogue),
        )
        self._waves = waves_of(scenario, options.load_seed)
        self._interval_s = options.qps_interval_s or scenario.qps_interval_s
        self._window_s = self._interval_s * max(1, math.ceil(LEAST_WINDOW_S / self._interval_s - _TINY))
        self._arrivals = [np.random.default_rng([options.seed, k, 13]) for k in range(len(scenario.services))]
        self._mean = [0.0] * len(scenario.services)
        self._queries = [0] * len(scenario.services)
        self._ended: dict[str, float] = {}
        self._just_ended: list[str] = []
        """Since the last reading."""
        self._stretches: dict[str, list[Stretch]] = {t.name: [] for t in self._tasks}
        self._open: dict[str, tuple[float, TaskGrant]] = {}
        self._reasons: dict[str, str] = {}
        self._unweighed = {t.name for t in self._tasks if not t.shares}
        self._refused: dict[str, str] = {}
        self._steps = [CoreStep(s.name, 0.0, s.cores) for s in scenario.services]
        self._moments: dict[str, list[Moment]] = {s.name: [] for s in scenario.services}
        self._ticks = 0
        pairs = zip(self._tasks, scenario.submit_s, strict=True)
        self._in_order = tuple(sorted(pairs, key=lambda pair: pair[1]))

    def run(self) -> NodeRun:
        """Run until the last job has ended, or until nothing more can be hoped for."""
        machine, period_s = self._machine, self._controller.period_s
        if not period_s > 0.0:
            raise ControllerError(f"{self._policy} asks for a reading every {period_s} s: a period must be above 0")
        waiting = sorted(range(len(self._tasks)), key=lambda i: (self._scenario.submit_s[i], i))
        interval = 0
        patience = _Patience(self._longest_s())
        while True:
            now_s = machine.now_s
            while interval * self._interval_s <= now_s + _TINY:
                for service, wave in zip(self._scenario.services, self._waves, strict=True):
                    machine.set_load(service.name, wave.qps(interval))
                interval += 1
            while waiting and self._scenario.submit_s[waiting[0]] <= now_s + _TINY:
                task = self._tasks[waiting.pop(0)]
                machine.submit(task, self._slowdown[task.name])
            if self._ticks * period_s <= now_s + _TINY:
                self._ticks += 1
                self._decide()
            if self._ticks % _TOLD_TICKS == 0:
                self._tell()
            next_s = min(self._ticks * period_s, interval * self._interval_s)
            if waiting:
                next_s = min(next_s, self._scenario.submit_s[waiting[0]])
            for end_s, name in machine.advance(next_s):
                self._end(end_s, name)
            self._collect()
            if len(self._ended) == len(self._tasks):
                self._tell()
                break
            if patience.asks(next_s):
                done = len(self._ended) + math.fsum(machine.progress(name) for name in machine.tasks())
                if patience.ends(next_s, done, bool(waiting)):
                    break
        return self._outcome()

    def _longest_s(self) -> float:
        """When a run is cut whatever it does."""
        scenario = self._scenario
        work_s = math.fsum(
            scenario.catalogue.jobs[t.profile].work_s
            * t.scale
            * self._slowdown[t.name]
            / scenario.catalogue.speed(t.profile, scenario.machine_type)
            for t in self._tasks
        )
        return max(scenario.submit_s) + LONGEST * work_s + IDLE_S

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self._machine.now_s, len(self._ended), len(self._tasks))

    # The controller.

    def _decide(self) -> None:
        allocation = self._controller.decide(self._reading())
        if isinstance(self._controller, FlowNode):
            self._refused |= self._controller.refused
        if allocation is not None:
            self._check(allocation)
            self._apply(allocation)
            if self._options.decision_sink is not None and isinstance(self._controller, FlowNode):
                when = {"t_s": self._machine.now_s, "qps_interval_s": self._interval_s}
                self._options.decision_sink({**when, **decision_trace(self._controller)})

    def _reading(self) -> Reading:
        machine = self._machine
        services = []
        for k, service in enumerate(self._scenario.services):
            mean = machine.queries(service.name)
            if mean > self._mean[k]:
                # A real counter counts arrivals, and those come at random: Poisson around the load.
                self._queries[k] += int(self._arrivals[k].poisson(mean - self._mean[k]))
                self._mean[k] = mean
            services.append(ServiceReading(service, self._queries[k], machine.service_busy_s(service.name)))
        present = set(machine.tasks())
        tasks = tuple(
            TaskReading(task, self._state(task.name), submit_s, machine.cpu_s(task.name))
            for task, submit_s in self._in_order
            if task.name in present
        )
        just_ended, self._just_ended = self._just_ended, []
        ended = tuple(task for task, _ in self._in_order if task.name in just_ended)
        return Reading(machine.now_s, tuple(services), tasks, machine.core_busy_s(), ended)

    def _state(self, task: str) -> TaskState:
        if task in self._open:
            return TaskState.RUNNING
        return TaskState.PAUSED if self._stretches[task] else TaskState.QUEUED

    def _check(self, allocation: Allocation) -> None:
        """Raise :class:`ControllerError` for what no machine can do."""
        services = {s.name: s for s in self._scenario.services}
        for name, service_grant in allocation.services.items():
            if name not in services:
                self._fault(f"gives cores to service '{name}', which there is not")
            self._check_cores(f"service '{name}'", service_grant.cores, services[name].cores)
        present = self._machine.tasks()
        for name, grant in allocation.tasks.items():
            if name not in present:
                gone = " any more" if name in self._ended else ""
                self._fault(f"grants something to job '{name}', which is not there{gone}")
            if grant.run or grant.cores:
                self._check_cores(f"job '{name}'", grant.cores, self._scenario.cores)
            if not 0.0 < grant.weight < math.inf or not (grant.quota is None or 0.0 < grant.quota < math.inf):
                self._fault(f"gives job '{name}' the weight {grant.weight} and the quota {grant.quota}")

    def _check_cores(self, who: str, cores: tuple[int, ...], allowed: tuple[int, ...]) -> None:
        if not cores:
            self._fault(f"leaves {who} without a core")
        if len(set(cores)) < len(cores) or not set(cores) <= set(allowed):
            self._fault(f"gives {who} the cores {list(cores)}; it may have {format_cores(allowed)}")

    def _fault(self, what: str) -> None:
        raise ControllerError(f"{self._policy} {what} (at {self._machine.now_s:.2f} s)")

    def _apply(self, allocation: Allocation) -> None:
        machine, now_s = self._machine, self._machine.now_s
        for name, service_grant in allocation.services.items():
            if set(machine.service_cores(name)) != set(service_grant.cores):
                machine.set_cores(name, service_grant.cores)
                self._steps.append(CoreStep(name, now_s, tuple(sorted(service_grant.cores))))
        for name, grant in allocation.tasks.items():
            self._reasons[name] = grant.reason
            # Who cannot be given a low weight does not have one, whatever a controller says.
            weight = grant.weight if name not in self._unweighed else max(grant.weight, DEFAULT_WEIGHT)
            grant = replace(grant, cores=tuple(sorted(grant.cores)), weight=weight, reason="")
            before = self._open.get(name)
            if before is not None and before[1] != grant:
                self._close(name, now_s)
            if grant.run and name not in self._open:
                self._open[name] = (now_s, grant)
            machine.set_grant(name, grant, self._scenario.start_delay_s)

    # What is written down.

    def _close(self, name: str, end_s: float) -> None:
        start_s, grant = self._open.pop(name)
        if end_s > start_s:
            self._stretches[name].append(Stretch(start_s, end_s, grant.cores, grant.weight, grant.quota))

    def _end(self, end_s: float, name: str) -> None:
        self._ended[name] = end_s
        self._just_ended.append(name)
        self._close(name, end_s)

    def _collect(self) -> None:
        """Take the moments away from the machine; those that follow one another and are alike become one."""
        for name, fresh in self._machine.moments.items():
            kept = self._moments[name]
            for moment in fresh:
                last = kept[-1] if kept else None
                if (
                    last is not None
                    and last.p95_us == moment.p95_us
                    and self._window_of(last.t_s) == self._window_of(moment.t_s)
                ):
                    kept[-1] = Moment(last.t_s, moment.end_s, last.queries + moment.queries, last.p95_us)
                else:
                    kept.append(moment)
            fresh.clear()

    def _window_of(self, t_s: float) -> int:
        return math.floor((t_s + _TINY) / self._window_s)

    def _outcome(self) -> NodeRun:
        machine, scenario = self._machine, self._scenario
        end_s = max(self._ended.values()) if len(self._ended) == len(self._tasks) else machine.now_s
        for name in tuple(self._open):
            self._close(name, end_s)
        noises = tuple(self._noise(scenario.catalogue.services[s.profile]) for s in scenario.services)
        jobs = tuple(
            NodeJobRun(
                task.name,
                task.profile,
                task.threads,
                submit_s,
                self._ended.get(task.name),
                tuple(self._stretches[task.name]),
                "" if task.name in self._ended else self._reasons.get(task.name, ""),
            )
            for task, submit_s in zip(self._tasks, scenario.submit_s, strict=True)
        )
        starts = [j.start_s for j in jobs if j.start_s is not None]
        windows: list[Window] = []
        if starts:
            for k, (service, noise) in enumerate(zip(scenario.services, noises, strict=True)):
                windows += self._windows(k, service.name, min(starts), end_s, noise)
        return NodeRun(
            policy=self._policy,
            qps_interval_s=self._interval_s,
            seed=self._options.seed,
            load_seed=self._load_seed(),
            noise=noises,
            slo_us=tuple((s.name, s.slo_us) for s in scenario.services),
            jobs=jobs,
            windows=tuple(windows),
            core_steps=tuple(step for step in self._steps if step.t_s <= end_s),
            end_s=end_s,
            ticks=self._ticks,
            refused=dict(self._refused),
        )

    def _noise(self, profile: ServiceProfile) -> WindowNoise:
        """The noise on p95 of windows of a run; none where a profile says nothing."""
        asked = self._options.noise
        return profile.noise(self._window_s) if asked == "measured" else WindowNoise(self._window_s, float(asked))

    def _load_seed(self) -> int | None:
        if self._options.load_seed is not None:
            return self._options.load_seed
        return None if all(load.wave for load in self._scenario.loads) else 0

    def _windows(self, place: int, name: str, start_s: float, end_s: float, noise: WindowNoise) -> list[Window]:
        """The points of one service. Each is of one interval; the first and the last are what is left of theirs."""
        random = np.random.default_rng([self._options.seed, place, 17])
        by_window: dict[int, list[Moment]] = {}
        for moment in self._moments[name]:
            left, right = max(moment.t_s, start_s), min(moment.end_s, end_s)
            if right > left:
                part = Moment(left, right, moment.queries * (right - left) / (moment.end_s - moment.t_s), moment.p95_us)
                by_window.setdefault(self._window_of(moment.t_s), []).append(part)
        windows = []
        for number in range(self._window_of(end_s) + 1):
            # Every interval has its draw, wherever the run begins: the same noise for all controllers.
            factor = noise.draw(random)
            moments = by_window.get(number, [])
            p95_us = mixture_p95_us(moments)
            if p95_us is None:
                continue
            left, right = moments[0].t_s, moments[-1].end_s
            qps = math.fsum(m.queries for m in moments) / (right - left)
            windows.append(Window(name, left, right, qps, p95_us, factor * p95_us))
        return windows
