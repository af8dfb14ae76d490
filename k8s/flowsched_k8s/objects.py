"""The API objects that flowsched reads, with only the fields that it reads.

Decoded by msgspec straight from the bytes of a list or a watch; what is not named here is skipped. Quantities stay strings:
:mod:`flowsched_k8s.pods.quantity` reads them exactly.
"""

from __future__ import annotations

from sys import intern
from typing import Any, Generic, TypeVar, dataclass_transform

import msgspec


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Struct(msgspec.Struct, rename="camel", frozen=True, gc=False, omit_defaults=True):
    """Base: camelCase outside, snake_case inside, immutable."""


class OwnerReference(Struct):
    """Who made an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Meta(Struct):
    """metadata"""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    """By when it is to be gone: its grace period is over then."""
    deletion_grace_period_seconds: int | None = None
    owner_references: list[OwnerReference] | None = None


class ApiObject(Struct):
    """What every object of the API has."""

    metadata: Meta = Meta()


# Selectors


class Requirement(Struct):
    """One expression of a selector, of labels or of nodes."""

    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(Struct):
    """matchLabels and matchExpressions; an empty one selects everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None


class NodeSelectorTerm(Struct):
    """All of its requirements hold; an empty term matches nothing."""

    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(Struct):
    """Any of its terms holds."""

    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredNodeTerm(Struct):
    """A wish about nodes."""

    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(Struct):
    """Node affinity."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[PreferredNodeTerm] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class PodAffinityTerm(Struct):
    """Pods, and the label whose values are the domains."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodAffinityTerm(Struct):
    """A wish about pods."""

    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(Struct):
    """Pod affinity or anti-affinity."""

    required: list[PodAffinityTerm] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: list[WeightedPodAffinityTerm] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(Struct):
    """spec.affinity"""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Struct):
    """spec.topologySpreadConstraints"""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


# Pods


class Toleration(Struct):
    """spec.tolerations"""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class ContainerPort(Struct):
    """A port of a container; only host ports matter."""

    host_port: int | None = None
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


class Name(Struct):
    """A scheduling gate, or a resource claim of a pod or of a container."""

    name: str = ""


class Resources(Struct):
    """resources of a container or a pod."""

    requests: dict[str, str] | None = None
    limits: dict[str, str] | None = None
    claims: list[Name] | None = None


class Container(Struct):
    """A container or an init container."""

    name: str = ""
    image: str = ""
    resources: Resources | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None


class ClaimSource(Struct):
    """A volume from a claim."""

    claim_name: str = ""


class ImageSource(Struct):
    """A volume that is an image's content."""

    reference: str = ""


class Presence(Struct):
    """What matters only for being there: a claim made for the pod (POD-VOLUME), files of the node, a workload (1.35)."""


_DISK_KEYS = {
    "pd_name": "pdName",
    "volume_id": "volumeID",
    "read_only": "readOnly",
    "disk_uri": "diskURI",
    "secret_name": "secretName",
    "secret_namespace": "secretNamespace",
    "share_name": "shareName",
    "volume_path": "volumePath",
}


class DiskSource(Struct, rename=_DISK_KEYS):
    """A disk or share of an in-tree plugin, with what the plugins name theirs by."""

    pd_name: str = ""
    volume_id: str = ""
    read_only: bool = False
    disk_uri: str = ""
    secret_name: str = ""
    secret_namespace: str = ""
    share_name: str = ""
    volume_path: str = ""
    iqn: str = ""
    monitors: list[str] | None = None
    pool: str = ""
    image: str = ""


class InTreeSources(Struct):
    """The in-tree plugins whose volumes CSI drivers attach by now, as pods and persistent volumes name them."""

    aws_elastic_block_store: DiskSource | None = None
    azure_disk: DiskSource | None = None
    azure_file: DiskSource | None = None
    cinder: DiskSource | None = None
    gce_persistent_disk: DiskSource | None = None
    portworx_volume: DiskSource | None = None
    vsphere_volume: DiskSource | None = None


class Volume(InTreeSources):
    """spec.volumes, as far as it may bind a pod to a place."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: Presence | None = None
    rbd: DiskSource | None = None
    iscsi: DiskSource | None = None
    image: ImageSource | None = None
    empty_dir: Presence | None = None
    host_path: Presence | None = None


class SchedulingGroup(Struct):
    """spec.schedulingGroup (1.36 and later)"""

    pod_group_name: str = ""


class PodSpec(Struct):
    """spec of a pod"""

    scheduler_name: str = ""
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    containers: list[Container] = []
    init_containers: list[Container] | None = None
    overhead: dict[str, str] | None = None
    resources: Resources | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    restart_policy: str | None = None
    active_deadline_seconds: int | None = None
    scheduling_gates: list[Name] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    volumes: list[Volume] | None = None
    resource_claims: list[Name] | None = None
    scheduling_group: SchedulingGroup | None = None
    workload_ref: Presence | None = None

    def __post_init__(self) -> None:
        """Forget volumes that bind to nothing: most pods have no others, and each has a name of its own for its token."""
        if self.volumes and all(volume == Volume(name=volume.name) for volume in self.volumes):
            msgspec.structs.force_setattr(self, "volumes", None)


class Condition(Struct):
    """A condition of a pod or a node"""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class ContainerStatus(Struct):
    """status of a container, for resizes in progress"""

    name: str = ""
    allocated_resources: dict[str, str] | None = None
    resources: Resources | None = None


class PodStatus(Struct):
    """status of a pod"""

    phase: str = ""
    reason: str = ""
    start_time: str | None = None
    nominated_node_name: str = ""
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: Resources | None = None
    allocated_resources: dict[str, str] | None = None


class Pod(ApiObject):
    """A pod"""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# Nodes


class Taint(Struct):
    """spec.taints"""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(Struct):
    """spec of a node"""

    unschedulable: bool = False
    taints: list[Taint] | None = None


class ContainerImage(Struct):
    """An image that a node has, under all of its names."""

    names: list[str] | None = None
    size_bytes: int = 0


class NodeStatus(Struct):
    """status of a node"""

    allocatable: dict[str, str] | None = None
    capacity: dict[str, str] | None = None
    images: list[ContainerImage] | None = None


class Node(ApiObject):
    """A node"""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(ApiObject):
    """A namespace"""


# Groups and budgets


class GangPolicy(Struct):
    """spec.schedulingPolicy.gang"""

    min_count: int = 1


class GroupPolicy(Struct):
    """spec.schedulingPolicy of the in-tree form"""

    gang: GangPolicy | None = None


class PodGroupSpec(Struct):
    """spec of a pod group, scheduler-plugins' and the in-tree form together"""

    min_member: int | None = None
    schedule_timeout_seconds: int | None = None
    scheduling_policy: GroupPolicy | None = None
    scheduling_constraints: dict[str, Any] | None = None
    resource_claims: list[Any] | None = None
    disruption_mode: Any = None
    priority: int | None = None


class PodGroup(ApiObject):
    """A pod group of either API"""

    api_version: str = ""
    spec: PodGroupSpec = PodGroupSpec()


class SucceededSpec(Struct):
    """spec of a pod that has ended well"""

    scheduling_group: SchedulingGroup | None = None


class Transition(Struct):
    """A condition of such a pod"""

    type: str = ""
    last_transition_time: str | None = None


class SucceededStatus(Struct):
    """status of such a pod"""

    conditions: list[Transition] | None = None


class SucceededPod(ApiObject):
    """A pod that has ended well: of its group it says that it needs no place any more"""

    spec: SucceededSpec = SucceededSpec()
    status: SucceededStatus = SucceededStatus()


class Terminated(Struct):
    """How a container ended"""

    exit_code: int = 0
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(Struct):
    """state of a container that has ended"""

    terminated: Terminated | None = None


class EndedContainer(Struct):
    """status of such a container"""

    restart_count: int = 0
    state: ContainerState = ContainerState()


class FinishedStatus(Struct):
    """status of a pod that has ended well, for how long it ran"""

    conditions: list[Condition] | None = None
    container_statuses: list[EndedContainer] | None = None


class FinishedPod(ApiObject):
    """A pod that has ended well, with all that says how long such a pod runs"""

    spec: PodSpec = PodSpec()
    status: FinishedStatus = FinishedStatus()

    @property
    def pod(self) -> Pod:
        """As it was created."""
        return Pod(metadata=self.metadata, spec=self.spec)

    @property
    def stub(self) -> FinishedPod:
        """Its name and version alone: thousands of finished pods are there for days."""
        meta = self.metadata
        return FinishedPod(
            metadata=Meta(
                name=meta.name, namespace=intern(meta.namespace), uid=meta.uid, resource_version=meta.resource_version
            )
        )


class ConfigMap(ApiObject):
    """Some texts by name"""

    data: dict[str, str] | None = None


class BudgetSpec(Struct):
    """spec of a PodDisruptionBudget"""

    selector: LabelSelector | None = None


class BudgetStatus(Struct):
    """status of a PodDisruptionBudget"""

    disruptions_allowed: int = 0


class Budget(ApiObject):
    """A PodDisruptionBudget"""

    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


# Lists and watches

T = TypeVar("T")


class ListMeta(Struct):
    """metadata of a list"""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class ObjectList(Struct, Generic[T]):
    """One page of a list"""

    metadata: ListMeta = ListMeta()
    items: list[T] | None = []
    """None for ``null``, which the API server writes for an empty list of metadata."""


class WatchEvent(Struct):
    """One line of a watch; the object is decoded once its type is known."""

    type: str
    object: msgspec.Raw = msgspec.Raw(b"{}")


class Status(Struct):
    """What the API server answers when it refuses."""

    reason: str = ""
    message: str = ""
    code: int = 0
