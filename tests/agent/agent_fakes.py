"""A machine of memory for the loop of the agent: a clock that jumps, controls that note calls, scripted counters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flowsched.node import Allocation, Deadline, Node, NodeController, NodeLearner, Reading, ServiceGrant, TaskGrant
from flowsched_agent.actuator import Announce
from flowsched_agent.agent import Agent
from flowsched_agent.catalogue import node_of
from flowsched_agent.configuration import Command, Configuration, Controller, Find, ServiceSpec, Slo, TaskSpec
from flowsched_agent.controls.control import Saved
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.recorder import Recorder
from flowsched_agent.sensors.memcached import MemcachedCounters
from flowsched_agent.state_file import StateFile
from flowsched_agent.workloads import Workloads


class FakeClock:
    """Time passes only while it is waited for, or when a test takes some."""

    def __init__(self) -> None:
        self.t = 100.0
        self.waits: list[float] = []

    def now(self) -> float:
        return self.t

    def wait_until(self, moment: float) -> None:
        self.waits.append(moment)
        self.t = max(self.t, moment)


@dataclass
class FakeControl:
    """Notes every call in a log that all controls of a machine share."""

    name: str
    log: list[str]
    fails: dict[str, ControlError] = field(default_factory=dict)
    """By method."""
    used_s: float = 0.0
    there: bool = True
    pid: int = 1
    stopped: bool = False
    now: dict[str, object] = field(default_factory=dict)
    announce: Callable[[], None] = lambda: None

    def _call(self, method: str, value: object = "") -> None:
        if not self.there:
            raise ControlError(self.name, "it is gone", gone=True)
        if method in self.fails:
            raise self.fails[method]
        self.log.append(f"{self.name} {method} {value}".rstrip())
        self.now[method] = value

    def set_cores(self, cores: tuple[int, ...]) -> None:
        self._call("cores", ",".join(map(str, cores)))

    def set_weight(self, weight: float) -> None:
        self._call("weight", f"{weight:g}")

    def set_quota(self, cpus: float | None) -> None:
        self._call("quota", cpus)

    def pause(self) -> None:
        self._call("pause")
        self.stopped = True

    def resume(self) -> None:
        self._call("resume")
        self.stopped = False

    def paused(self) -> bool:
        return self.stopped

    def set_deadline(self, deadline: Deadline | None) -> None:
        self._call("deadline", deadline)

    def cpu_s(self) -> float:
        if not self.there:
            raise ControlError(self.name, "it is gone", gone=True)
        return self.used_s

    def alive(self) -> bool:
        return self.there

    def saved(self) -> Saved:
        if "saved" in self.fails:
            raise self.fails["saved"]
        return {"kind": "fake", "name": self.name}

    def before_first(self, announce: Callable[[], None]) -> None:
        self.announce = announce

    def restore(self) -> None:
        self._call("restore")

    def sentences(self) -> list[str]:
        return []


@dataclass(frozen=True)
class FakeCounters(MemcachedCounters):
    pid: int = 7


class FakeStats:
    """Answers by a script; None: no answer."""

    problem: str | None = "no server there"

    def __init__(self) -> None:
        self.answer: Callable[[], FakeCounters | None] = lambda: FakeCounters(0)

    def read(self) -> FakeCounters | None:
        return self.answer()

    def close(self) -> None:
        pass


class FakeActuator:
    """What runs on the machine, by name."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.controls: dict[str, FakeControl] = {}
        self.asked = FakeStats()
        self.asked_of: dict[str, FakeStats] = {}
        """Of services that do not answer as the others."""

    def add(self, name: str) -> FakeControl:
        self.controls[name] = FakeControl(name, self.log)
        return self.controls[name]

    def find(self, name: str, find: Find, announce: Announce) -> FakeControl | None:
        control = self.controls.get(name)
        return control if control is not None and control.there else None

    def of_process(self, name: str, pid: int, announce: Announce) -> FakeControl:
        announce({"kind": "origin", "name": name, "pid": pid})
        control = self.add(name)
        control.pid = pid
        return control

    def let_go(self, name: str) -> None:
        pass

    def stats(self, spec: ServiceSpec, timeout_s: float) -> FakeStats:
        return self.asked_of.get(spec.name, self.asked)

    def core_busy_s(self) -> tuple[float, ...]:
        return ()


class Scripted:
    """A controller that answers what it was told to, and keeps the readings."""

    period_s = 0.1

    def __init__(self, *answers: Allocation | Exception | None) -> None:
        self.answers = list(answers)
        self.readings: list[Reading] = []

    def decide(self, reading: Reading) -> Allocation | None:
        self.readings.append(reading)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


def allocation(service: Sequence[int] = (), **tasks: TaskGrant) -> Allocation:
    """Cores of the service ``mc``, and grants of tasks."""
    return Allocation({"mc": ServiceGrant(tuple(service))} if service else {}, tasks)


SERVICE = ServiceSpec(
    name="mc",
    find=Find(port=11211),
    slo=Slo(p95_us=1000.0),
    capacity={1: 25_000.0, 2: 40_000.0},
    cores=(0, 1, 2, 3),
)
TASK = TaskSpec(name="batch", find=Find(command_line="batch"))
COMMAND = TaskSpec(name="batch", command=Command(argv=("sleep", "60")))
ALLOWED = (0, 1, 2, 3)


@dataclass
class Bench:
    """An agent on the machine of memory."""

    agent: Agent
    actuator: FakeActuator
    clock: FakeClock
    controller: Scripted
    node: Node

    def ticks(self, count: int) -> list[str]:
        """What was done to the machine meanwhile."""
        del self.actuator.log[:]
        for _ in range(count):
            self.agent.tick()
            self.clock.t += self.agent_period_s
        return list(self.actuator.log)

    @property
    def agent_period_s(self) -> float:
        return self.controller.period_s


def bench(
    *answers: Allocation | Exception | None,
    tasks: tuple[TaskSpec, ...] = (TASK,),
    service: ServiceSpec = SERVICE,
    state_file: StateFile | None = None,
    workloads: Workloads | None = None,
    record: Path | None = None,
    controller: str = "flow-node",
    dry_run: bool = False,
    make: Callable[[Node], NodeController] | None = None,
    more_services: tuple[ServiceSpec, ...] = (),
    settings: dict[str, float] | None = None,
    learner: NodeLearner | None = None,
) -> Bench:
    """Services, which run, and tasks, which do unless they are commands. ``make``: a controller instead of a script;
    ``settings``: of the controller; ``learner``: what it is told to keep and show.
    """
    configuration = Configuration(
        services=(service, *more_services),
        tasks=tasks,
        controller=Controller(name=controller, settings=settings or {}),
        dry_run=dry_run,
        server=None,
    )
    actuator, clock, scripted = FakeActuator(), FakeClock(), Scripted(*answers)
    for one in configuration.services:
        actuator.add(one.name)
    for task in tasks:
        if task.command is None:
            actuator.add(task.name)
    node = node_of(configuration, ALLOWED)
    recorder = Recorder(record) if record is not None else None
    decides = scripted if make is None else make(node)
    agent = Agent(
        configuration,
        node,
        decides,
        actuator,
        clock,
        state_file=state_file,
        workloads=workloads,
        recorder=recorder,
        learner=learner,
    )
    return Bench(agent, actuator, clock, scripted, node)
