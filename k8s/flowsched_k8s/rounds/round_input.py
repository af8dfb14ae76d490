"""A round on Kubernetes as data: what it may know, and what came of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from operator import is_not
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.fleet import Fleet
from flowsched.cluster.learnt_run_times import NOTHING_LEARNT, LearntRunTimes
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Machine, PlannedStart, Reservation, Running, Service, Task
from flowsched.cluster.start_errors import NO_START_ERRORS, StartErrors
from flowsched.pricing.linear.policy import CostModel
from flowsched.relations.relation import TaskGroup
from flowsched.support.arrays import BoolArray, IntArray
from flowsched_k8s.configuration.configuration import CostModelChoice
from flowsched_k8s.gpus import RoundGpus
from flowsched_k8s.queue import Cause
from flowsched_k8s.records.round_trace import KubernetesTrace
from flowsched_k8s.services.latency import GoalReach
from flowsched_models.catalogue import Catalogue
from flowsched_models.estimated_executions import Progress
from flowsched_models.runtime import HostFactory

QUICK_NODES = 1000
"""A single pod without a forecast is decided among so many nodes within about 1 ms, 5 where it needs a network."""


class Fate(StrEnum):
    """What became of a pod that was not placed."""

    UNSCHEDULABLE = "unschedulable"
    """No node passes the filters and has room: autoscalers shall hear of it."""
    POSTPONED = "postponed"
    """There is a place, and waiting is better: an event, and no condition."""
    ERROR = "error"
    """A fault of ours."""


@dataclass(frozen=True, kw_only=True)
class PodKind:
    """What pods are like, wherever they go."""

    priority: int
    needs: Mapping[str, int]
    sensitivity: float = 0.0
    pressure: float = 0.0
    holds: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()
    group: str | None = None
    task: Task | None = None
    """The job that each of its pods is, if their places are decided at forecast prices or by a cost model beside ``flow``;
    None for those at linear prices.
    """
    measured: bool = False
    """Whether its pods have a profile; a group may have members without one, which are then as the neutral profile."""
    min_utility: float | None = None
    service: bool = False
    goal: GoalReach | None = None
    """Of a latency service whose p95 goal some nodes would miss: which p95 it could have."""
    gpu_models: tuple[str, ...] = ()
    """Models of GPU that they may have, of those that ask for any; empty for all."""
    counted: tuple[tuple[int, float], ...] = ()
    """(number, price): in which counts of what a round puts on each node they are, of those of measured pods or those of
    linear prices, and what each that is there costs one more of them."""


@dataclass(frozen=True, eq=False)
class ClassInput(PodKind):
    """Pending pods that nothing distinguishes, in the order in which they are served."""

    name: str
    uids: tuple[str, ...]
    since_s: tuple[float, ...]
    """Since when each of them could be scheduled."""
    allowed: BoolArray
    """By fleet row: static filters pass, and nothing else of its kind forbids."""
    verdict: NDArray[np.int16]
    reasons: Sequence[str]
    eligible: BoolArray
    preference: NDArray[np.float64]
    slowness: NDArray[np.float64] | None


@dataclass(frozen=True)
class NodeView:
    """One node as forecasts see it; what its services and its running tasks take of it is the room that they may leave."""

    name: str
    type: str
    vcpus: int
    services: tuple[Service, ...] = ()
    running: tuple[Running, ...] = ()
    """Of any progress: that is in the world."""
    cpu_milli: int = 0
    """CPU that services and running tasks take."""
    memory_mib: int = 0
    needs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By uid of what runs: what it takes of the node."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """NAMESPACE/NAME by uid of services and of what runs."""
    rows: tuple[int, ...] = ()
    """Of what runs, in the world's progress; empty where nothing is estimated of it."""

    @classmethod
    def of(
        cls,
        name: str,
        type: str,
        vcpus: int,
        services: tuple[Service, ...],
        running: tuple[Running, ...],
        *,
        needs: Mapping[str, Mapping[str, int]],
        titles: Mapping[str, str],
    ) -> NodeView:
        """With the sums of what is there."""
        cpu_milli = sum(s.width_milli for s in services) + sum(r.width_milli for r in running)
        memory_mib = sum(s.memory_mib for s in services) + sum(r.task.memory_mib for r in running)
        return cls(name, type, vcpus, services, running, cpu_milli, memory_mib, needs, titles)

    def with_services(self, services: tuple[Service, ...]) -> NodeView:
        """The same with other services."""
        view = self.of(self.name, self.type, self.vcpus, services, self.running, needs=self.needs, titles=self.titles)
        return replace(view, rows=self.rows)

    def without(self, uids: Collection[str]) -> NodeView:
        """The same with pods gone."""
        left = [i for i, r in enumerate(self.running) if r.task.name not in uids]
        if len(left) == len(self.running):
            return self
        running = tuple([self.running[i] for i in left])
        needs = {r.task.name: self.needs[r.task.name] for r in running}
        view = self.of(self.name, self.type, self.vcpus, self.services, running, needs=needs, titles=self.titles)
        return replace(view, rows=tuple([self.rows[i] for i in left]) if self.rows else ())

    def done(self, progress: Progress | None) -> list[float]:
        """How far all that runs is."""
        if progress is None or not self.rows:
            return [0.0] * len(self.running)
        found = progress.by_row[np.array(self.rows, np.int64)].tolist()
        return [0.0 if r.task.endless else done for r, done in zip(self.running, found, strict=True)]


@dataclass(frozen=True, eq=False)
class World:
    """The nodes of the pool, with all that runs there; without nodes where no measured pod waits.

    The nodes are those of the cluster that have not changed, and the progress of what runs there is worked out when it is
    asked for: by the thread that decides.
    """

    rows: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    """Row of the fleet of each node, in the order of their names."""
    nodes: tuple[NodeView, ...] = ()
    progress: Progress | None = None
    """None where nothing is estimated."""
    plan: tuple[PlannedStart, ...] = ()
    reservations: tuple[Reservation, ...] = ()

    def without(self, uids: Collection[str]) -> World:
        """The same with these pods gone."""
        return replace(self, nodes=tuple([n.without(uids) for n in self.nodes]))

    @cached_property
    def row_of(self) -> Mapping[str, int]:
        """Index of each node by name."""
        return {n.name: i for i, n in enumerate(self.nodes)}

    @cached_property
    def cpu_milli(self) -> IntArray:
        """CPU that services and running tasks take, by node."""
        return np.array([n.cpu_milli for n in self.nodes], np.int64)

    @cached_property
    def memory_mib(self) -> IntArray:
        """Memory that they take, by node."""
        return np.array([n.memory_mib for n in self.nodes], np.int64)

    @cached_property
    def services(self) -> tuple[Service, ...]:
        """Latency services with cores of their own."""
        return tuple(s for n in self.nodes for s in n.services)

    @cached_property
    def there(self) -> tuple[Running, ...]:
        """Tasks that forecasts see, of any progress: the same objects as in the round before, where nothing has changed."""
        return tuple([r for n in self.nodes for r in n.running])

    @cached_property
    def done(self) -> list[float]:
        """How far each of them is."""
        return [done for n in self.nodes for done in n.done(self.progress)]

    @property
    def running(self) -> tuple[Running, ...]:
        """The same tasks, with their progress."""
        return tuple([r.at(done) for r, done in zip(self.there, self.done, strict=True)])

    @cached_property
    def needs(self) -> Mapping[str, Mapping[str, int]]:
        """By uid of what runs: what it takes of its node."""
        found: dict[str, Mapping[str, int]] = {}
        for n in self.nodes:
            found |= n.needs
        return found

    @cached_property
    def titles(self) -> Mapping[str, str]:
        """NAMESPACE/NAME by uid of services and of what runs."""
        services = {s.name: n.titles[s.name] for n in self.nodes for s in n.services}
        return services | {r.task.name: n.titles[r.task.name] for n in self.nodes for r in n.running}


NO_WORLD = World()


@dataclass(frozen=True)
class Nominee:
    """A waiting pod that preemption makes room for on a node: what it needs there is held for it."""

    uid: str
    priority: int
    node: str
    needs: Mapping[str, int]
    holds: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()

    def take_room(self, fleet: Fleet) -> None:
        """Book its room beside what is booked for the pod itself."""
        fleet.book(self._booking, self.node, self.needs, holds=self.holds, joins=self.joins)

    def leave_room(self, fleet: Fleet) -> None:
        """Take that back; nothing to do where nothing is booked."""
        fleet.release(self._booking)

    @property
    def _booking(self) -> str:
        return f"nominated:{self.uid}"


@dataclass(frozen=True)
class Keeper:
    """A latency service on a node, whose goal keeps pods off that node."""

    uid: str
    title: str
    """NAMESPACE/NAME"""
    priority: int
    request_milli: int
    pressure_cap: float
    """Pressure of all that is booked on the node, its own included, beyond which its goal breaks."""


@dataclass
class KeptBetween:
    """What rounds keep so that the next one is quicker; it changes no decision. Of the rounds' thread alone."""

    hosts: HostFactory
    """Of rounds of a cost model beside ``flow``."""
    running: dict[str, tuple[Running, tuple[object, ...], Running]] = field(default_factory=dict)
    """By uid: a running pod, what a round asked of it, and the pod with the answers; of any progress."""
    _machines: tuple[Machine, ...] = ()
    """Of the last snapshot; the engine looks at machines again only where they are other objects."""
    _services: tuple[Service, ...] = ()
    _machine_of: dict[str, tuple[tuple[Any, ...], Machine]] = field(default_factory=dict)
    """By name: what a machine was made of."""

    def machine(self, made_of: tuple[Any, ...]) -> Machine:
        """A node as the engine knows it; ``made_of``: the values of :class:`Machine`, its name first."""
        known = self._machine_of.get(made_of[0])
        if known is None or known[0] != made_of:
            known = self._machine_of[made_of[0]] = made_of, Machine(*made_of)
        return known[1]

    def same_machines(self, machines: list[Machine]) -> tuple[Machine, ...]:
        """The tuple of the last snapshot if it had these very machines."""
        if len(machines) != len(self._machines) or any(map(is_not, machines, self._machines)):
            self._machines = tuple(machines)
            if len(self._machine_of) > 2 * len(machines):
                self._machine_of = {m.name: self._machine_of[m.name] for m in machines}
        return self._machines

    def same_services(self, services: tuple[Service, ...]) -> tuple[Service, ...]:
        """The tuple of the last snapshot if it had equal services."""
        if services != self._services:
            self._services = services
        return self._services


@dataclass(frozen=True)
class RoundInput:
    """All that a round may know. Nothing in it changes while the round runs in another thread."""

    number: int
    now_s: float
    fleet: Fleet
    """A copy that the round uses up; the cluster's own where the round is quick and only reads it."""
    classes: tuple[ClassInput, ...]
    groups: tuple[TaskGroup, ...]
    group_members: Mapping[str, int]
    """Members that are bound or assumed and not being deleted, by group."""
    group_of: Mapping[str, str]
    """Group of each of them, by uid."""
    catalogue: Catalogue
    world: World
    settings: Settings
    cost_model: CostModelChoice = field(default_factory=CostModelChoice)
    model: CostModel | None = None
    """The same as the engine has it; None for ``flow``."""
    kept: KeptBetween | None = None
    """None for a round that remembers nothing of others."""
    nominated: tuple[Nominee, ...] = ()
    held_node: tuple[str, str, int] | None = None
    """(uid, node, priority): a due pod and the node that drains for it; pods of higher priority may use it."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """NAMESPACE/NAME by uid of each pod that takes part."""
    rounds_waited: Mapping[str, int] = field(default_factory=dict)
    """By uid, the rounds before this one that have left a pod waiting; none where it is not named."""
    gpus: RoundGpus = field(default_factory=RoundGpus)
    keepers: Mapping[str, tuple[Keeper, ...]] = field(default_factory=dict)
    """By node, the latency services that keep pods off it."""
    start_errors: StartErrors = NO_START_ERRORS
    """How forecasts of starts and ends turned out so far; no decision depends on it."""
    learnt: LearntRunTimes = NOTHING_LEARNT
    """What completions taught, where forecasts use it."""
    keep_record: bool = False

    @cached_property
    def is_quick(self) -> bool:
        """Whether the round is so short that handing it to a thread would take longer: a single pod without a forecast
        that takes nothing of nodes with GPUs.
        """
        if self.model is not None or len(self.classes) != 1 or self.fleet.rows > QUICK_NODES:
            return False
        only = self.classes[0]
        return len(only.uids) == 1 and only.task is None and not self.gpus_matter(only)

    @property
    def titles_for_record(self) -> Mapping[str, str]:
        """NAMESPACE/NAME by uid of each pod that takes part, and of those in its world that forecasts see."""
        return {**self.titles, **self.world.titles} if self.model is None else self.titles

    @property
    def only_reads(self) -> bool:
        """Whether the round is quick and leaves its fleet as it is, which may then be the cluster's own."""
        return self.is_quick and not self.nominated

    def gpus_matter(self, c: ClassInput) -> bool:
        """Whether pods of a class ask for GPUs, or may take CPU and memory that GPUs need."""
        gpus = self.gpus
        if not gpus.demand or self.settings.gpu_weight <= 0.0:
            return False
        if gpus.asked(c.needs) is not None:
            return True
        return any((row := self.fleet.row(name)) is not None and c.allowed[row] for name in gpus.nodes)


@dataclass(frozen=True)
class Chosen:
    """A pod and its place."""

    uid: str
    node: str
    cost: float
    terms: Mapping[str, float]
    runner_up: str | None = None
    runner_up_cost: float | None = None
    width_milli: int | None = None
    threads: int | None = None
    cores: tuple[int, ...] | None = None
    holds: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()


@dataclass(frozen=True)
class Held:
    """Pods that were not placed, all for the same reason."""

    uids: tuple[str, ...]
    fate: Fate
    message: str
    causes: frozenset[Cause]
    """Which changes of the cluster may help."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Nodes by reason text, where the message counts them."""
    for_cost: bool = False
    """Whether they wait because every place costs more than it may: no service keeps them off."""
    behind_services: str = ""
    """What their condition says once they are overdue, where services keep them off wherever there is room; else empty."""


@dataclass(frozen=True)
class RoundResult:
    """The outcome of a round."""

    number: int
    chosen: tuple[Chosen, ...]
    held: tuple[Held, ...]
    plan: tuple[PlannedStart, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    """Solves, and nodes and arcs by kind, of all networks together."""
    cost: float = 0.0
    trace: KubernetesTrace | None = None
    """What the round's record is made of, if one is kept."""
    solve_ms: float = 0.0
    """Time in the solver; part of the stages' times."""
    fallbacks: tuple[str, ...] = ()
    """Why something simpler stepped in: ``fault`` (classes planned apart)."""
