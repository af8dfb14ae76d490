"""A round on Kubernetes as data: what it may know, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from operator import is_
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.cluster.learnt_run_times import NOTHING_LEARNT, LearntRunTimes
from flowsched.cluster.machine_rows import MachineRows
from flowsched.cluster.running_tasks import RunningTasks
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Machine, PlannedStart, Reservation, Running, Snapshot, Task
from flowsched.cluster.start_errors import NO_START_ERRORS, StartErrors
from flowsched.gpu.devices import MachineGpus
from flowsched.pricing.linear.policy import CostModel
from flowsched.relations.relation import TaskGroup
from flowsched.support.arrays import BoolArray, IntArray
from flowsched_k8s.causes import Cause
from flowsched_k8s.configuration.configuration import CostModelChoice
from flowsched_k8s.gpus import RoundGpus
from flowsched_k8s.records.round_trace import KubernetesTrace
from flowsched_k8s.rounds.held_nodes import HeldNodes
from flowsched_k8s.services.latency import GoalReach
from flowsched_models.catalogue import Catalogue
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
    """By machine row: static filters pass, and nothing else of its kind forbids."""
    verdict: NDArray[np.int16]
    reasons: Sequence[str]
    eligible: BoolArray
    preference: NDArray[np.float64]
    slowness: NDArray[np.float64] | None


@dataclass(frozen=True)
class Nominee:
    """A waiting pod that preemption makes room for on a node: what it needs there is held for it."""

    uid: str
    priority: int
    node: str
    needs: Mapping[str, int]
    holds: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()

    def take_room(self, booked: BookedTasks) -> None:
        """Book its room beside what is booked for the pod itself."""
        booked.book(self._booking, self.node, self.needs, holds=self.holds, joins=self.joins)

    def leave_room(self, booked: BookedTasks) -> None:
        """Take that back; nothing to do where nothing is booked."""
        booked.release(self._booking)

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


Facts = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, int], ...], MachineGpus | None]
"""What else a round asks of a machine: labels, resources beside CPU and memory, and GPUs."""
NO_FACTS: Facts = (), (), None


class _Offers(NamedTuple):
    of: tuple[Machine, ...]
    cpu_milli: IntArray
    memory_mib: IntArray
    facts: Sequence[Facts] | None
    machines: tuple[Machine, ...]


@dataclass
class KeptBetween:
    """What rounds keep so that the next one is quicker; it changes no decision. Of the rounds' thread alone."""

    hosts: HostFactory
    """Of rounds of a cost model beside ``flow``."""
    running: dict[str, tuple[Running, tuple[object, ...], Running]] = field(default_factory=dict)
    """By uid: a running pod, what a round asked of it, and the pod with the answers; of any progress."""
    _offers: _Offers | None = None

    def offers(
        self, nodes: tuple[Machine, ...], cpu_milli: IntArray, memory_mib: IntArray, facts: Sequence[Facts] | None
    ) -> tuple[Machine, ...]:
        """Nodes as they are to be offered, [nodes] each. The same tuple as before where nothing has changed: only then does
        the engine not look at all of them again.
        """
        last = self._offers
        before_all, rows = nodes, np.arange(len(nodes))
        if last is not None and last.of is nodes:
            before_all = last.machines
            if facts is None and last.facts is None:
                rows = np.flatnonzero((cpu_milli != last.cpu_milli) | (memory_mib != last.memory_mib))
        machines = list(before_all)
        for i in rows.tolist():
            node, before = nodes[i], machines[i]
            size = int(cpu_milli[i]), int(memory_mib[i])
            labels, resources, gpus = NO_FACTS if facts is None else facts[i]
            known = before.cpu_milli, before.memory_mib, before.labels, before.resources, before.gpus
            if known != (*size, labels, resources, gpus):
                machines[i] = Machine(node.name, node.type, *size, node.vcpus, labels, resources, gpus)
        offered = before_all if all(map(is_, machines, before_all)) else tuple(machines)
        self._offers = _Offers(nodes, cpu_milli, memory_mib, facts, offered)
        return offered


@dataclass(frozen=True)
class RoundInput:
    """All that a round may know. Nothing in it changes while the round runs in another thread."""

    number: int
    now_s: float
    booked: BookedTasks
    """What is booked on the nodes of the pool: a copy that the round uses up; the cluster's own where the round is quick and
    only reads it.
    """
    classes: tuple[ClassInput, ...]
    groups: tuple[TaskGroup, ...]
    group_members: Mapping[str, int]
    """Members that are bound or assumed and not being deleted, by group."""
    group_of: Mapping[str, str]
    """Group of each of them, by uid."""
    catalogue: Catalogue
    cluster: Snapshot
    """The nodes of the pool with what runs there, as forecasts see them, without what waits. They offer all that they have,
    whatever else is booked there. Without nodes where no measured pod waits.
    """
    settings: Settings
    cost_model: CostModelChoice = field(default_factory=CostModelChoice)
    model: CostModel | None = None
    """The same as the engine has it; None for ``flow``."""
    kept: KeptBetween | None = None
    """None for a round that remembers nothing of others."""
    nominated: tuple[Nominee, ...] = ()
    held_nodes: HeldNodes | None = None
    """What drains for an overdue pod or gang."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """NAMESPACE/NAME by uid of each pod that takes part, and of services in ``cluster``."""
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
        if self.model is not None or len(self.classes) != 1 or self.machines.rows > QUICK_NODES:
            return False
        only = self.classes[0]
        return len(only.uids) == 1 and only.task is None and not self.gpus_matter(only)

    @property
    def running(self) -> RunningTasks:
        """What runs in ``cluster``, with its numbers."""
        found = self.cluster.running
        assert isinstance(found, RunningTasks), "the state of the pool has made them"
        return found

    @property
    def machines(self) -> MachineRows:
        """The nodes of the pool with what is left of them."""
        return self.booked.machines

    @property
    def only_reads(self) -> bool:
        """Whether the round is quick and leaves what is booked as it is, which may then be the cluster's own."""
        return self.is_quick and not self.nominated

    def gpus_matter(self, c: ClassInput) -> bool:
        """Whether pods of a class ask for GPUs, or may take CPU and memory that GPUs need."""
        gpus = self.gpus
        if not gpus.demand or self.settings.gpu_weight <= 0.0:
            return False
        if gpus.asked(c.needs) is not None:
            return True
        return any((row := self.machines.row(name)) is not None and c.allowed[row] for name in gpus.nodes)


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
