"""What the cache keeps of each pod and of each node."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from flowsched_k8s.groups.pod_groups import GroupRef
from flowsched_k8s.instructions import PodKey
from flowsched_k8s.objects import Node, Pod
from flowsched_k8s.pods.affinity import PodRelations, SoftTerm
from flowsched_k8s.pods.filters import StaticFilter
from flowsched_k8s.pods.intent import Intent
from flowsched_k8s.pods.readings import same_annotations
from flowsched_k8s.services.grant import Grant
from flowsched_k8s.services.latency import ServiceWish
from flowsched_k8s.volumes.attached_volumes import Attached
from flowsched_k8s.volumes.volumes import ClaimKey
from flowsched_models.machine import MachineType


@dataclass(frozen=True)
class Wants:
    """All that decides where a pending pod of ours may go; pods with equal keys are one class."""

    filter: StaticFilter
    holds: tuple[str, ...]
    joins: tuple[str, ...]
    soft: tuple[SoftTerm, ...]
    group: GroupRef | None
    service: ServiceWish | None
    problem: str | None
    """Why it cannot be placed anywhere, whatever the nodes are; names the field."""
    claims: frozenset[ClaimKey]
    """Its claims that allow one pod at a time."""
    shared: frozenset[Attached]
    """Its volumes that pods on nodes use already or that others will use as well: how many it adds depends on the node."""
    workload: str | None
    """uid of the controller whose pods Kubernetes spreads by default, where that is for this pod. Not part of its class."""
    images: tuple[str, ...]
    """Images that it runs. Not part of its class either."""
    costs: bool = False
    """Whether the problem is the time that it would take, which other pods and the nodes may change."""
    kind: Hashable = ()
    """All else that is the same in a class."""
    class_key: Hashable = ()

    def of_kind(self, *kind: Hashable) -> Wants:
        """What a pod of a kind wants that demands the same of nodes and of other pods."""
        return replace(self, kind=kind, class_key=(kind, self.holds, self.joins))


@dataclass
class PodTemplate:
    """What a pod asks for, and with it those that come after it and differ in nothing but their names."""

    pod: Pod
    """As the watch showed it first."""
    needs: dict[str, int]
    intent: Intent
    length: int = 0
    run_class: str = ""
    relations: PodRelations | None = None
    wants: Wants | None = None
    version: int = -1
    """Of all that wants depend on beside the pod, when these were worked out."""
    base: PodTemplate | None = None
    """The first one that differs from it in annotations alone, if there is one; and of that one"""
    latest: tuple[int, Wants] | None = None
    """the wants that were last worked out for any of those, with the version."""

    def base_of(self, pod: Pod) -> PodTemplate | None:
        """The first one that differs in annotations alone from a pod of this namespace; None if this one is another one."""
        own, meta = self.pod.metadata, pod.metadata
        alike = (
            own.labels == meta.labels and own.owner_references == meta.owner_references and self.pod.spec == pod.spec
        )
        return (self.base or self) if alike else None

    def made(self, pod: Pod) -> bool:
        """Whether a pod that the watch shows for the first time is one of them."""
        own, meta = self.pod.metadata, pod.metadata
        return (
            own.namespace == meta.namespace
            and self.pod.spec == pod.spec
            and own.labels == meta.labels
            and same_annotations(own, meta)
            and own.owner_references == meta.owner_references
            and self.pod.status == pod.status
        )


@dataclass
class PodEntry:
    """One pod that is not terminal."""

    key: PodKey
    pod: Pod
    ours: bool
    needs: dict[str, int]
    intent: Intent
    created_s: float
    """When it was created: the moment when the watch first showed it, within the second that the API server names. For
    orders and latencies; a wait is measured from ``seen_s``.
    """
    number: int
    """How many pods were seen before it: the order of those that were created in one moment."""
    seen_s: float
    """When the watch first showed it, by our clock alone; of a pod that was there before we looked, when it was created."""
    node: str = ""
    """Where the API server says it is."""
    assumed: str = ""
    """Where we have bound it, until the API server says so."""
    assumed_s: float = 0.0
    threads: int = 1
    cores: tuple[int, ...] = ()
    grant: Grant | None = None
    """Of a latency service that is or is assumed on a node: what it was granted there."""
    width_milli: int = 0
    """What it holds of its node's CPU: the larger of its request and of ``asked_milli``."""
    asked_milli: int = 0
    """CPU that we have asked to resize it to, until the API server has answered and its request says so."""
    started_s: float = 0.0
    placed_s: float = 0.0
    """When it was first seen or assumed on its node; 0 for one that was there before we looked."""
    attempts: int = 0
    """Rounds that it took part in until it was bound."""
    withdrawn: int = 0
    """How often its place was taken by others before its binding was sent."""
    advised: tuple[str, ...] = ()
    """Problems of its annotations that it was told of."""
    leaves_s: float = float("inf")
    """By when it should be gone, if it is being deleted: its grace period and what a kubelet needs beyond that."""
    ungated_s: float = 0.0
    """When its last scheduling gate went; 0 if it had none since we know it."""
    relations: PodRelations | None = None
    """What it demands of others, once that was asked for."""
    wants: Wants | None = None
    template: PodTemplate | None = None
    """What it shares with others; None once it is not as it came."""
    length: int = 0
    """How much it says: see :func:`flowsched_k8s.pods.pod_length.pod_length`."""
    attached_version: int = -1
    """Of the attached volumes when its wants were found to be right."""
    message: str = ""
    """Why it waits, as it was told last."""
    declared_s: float | None = None
    """The run time that it declared first; None if it has declared none."""
    run_class: str = ""
    """Completions of pods of this class teach how long it runs. Empty: it runs until it is deleted, or nothing is learnt."""
    priced_class: str = ""
    """The same where forecasts use what was learnt, else empty."""
    learnt_s: float | None = None
    """Seconds that pods of that class run which have no profile and declare nothing; None where none has ended yet."""
    factor: float = 1.0
    """Its work as it was forecast when it was placed, relative to what its profile says."""
    in_demand: bool = False
    """Whether the demand for GPUs knows of it."""

    @property
    def priority(self) -> int:
        """spec.priority"""
        return self.pod.spec.priority or 0

    @property
    def order(self) -> tuple[float, int]:
        """Older pods first."""
        return self.created_s, self.number

    @property
    def waits_since_s(self) -> float:
        """Since when it could be scheduled: the time behind its gates does not count as waiting."""
        return max(self.seen_s, self.ungated_s)

    @property
    def latency_since_s(self) -> float:
        """The same for the latency that is told: of a pod that the watch showed late, from its creation on."""
        return max(self.created_s, self.ungated_s)

    @property
    def place(self) -> str:
        """Where it is or is assumed to be; empty for a pod that waits."""
        return self.node or self.assumed

    @property
    def is_leaving(self) -> bool:
        """Whether it is being deleted."""
        return self.pod.metadata.deletion_timestamp is not None

    def is_late(self, now: float) -> bool:
        """Whether it should be gone by now, and is not: its node is dead, or a finalizer keeps it."""
        return self.leaves_s <= now

    @property
    def request_milli(self) -> int:
        """CPU that it asks for."""
        return self.needs.get("cpu", 0)

    @property
    def nominated(self) -> str:
        """Node that its preemption made room on."""
        return self.pod.status.nominated_node_name


@dataclass
class NodeEntry:
    """One node of the pool."""

    node: Node
    type: MachineType
    allocatable: dict[str, int]
    version: int
    """Changes whenever a static filter may answer differently."""
    pods: set[str] = field(default_factory=set)
    """uids of pods that are or are assumed to be here."""
    services: set[str] = field(default_factory=set)
    """Of them, those that were granted a goal as latency services."""
