"""Objects of the API that are about volumes: claims, volumes, storage classes and CSI nodes, as far as they are read."""

from __future__ import annotations

from flowsched_k8s.objects import ApiObject, InTreeSources, LabelSelector, NodeSelector, Resources, Struct


class ClaimSpec(Struct):
    """spec of a claim"""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    resources: Resources | None = None
    selector: LabelSelector | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class ClaimStatus(Struct):
    """status of a claim"""

    phase: str = ""


class Claim(ApiObject):
    """A PersistentVolumeClaim"""

    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class VolumeNodeAffinity(Struct):
    """spec.nodeAffinity of a volume"""

    required: NodeSelector | None = None


class ClaimReference(Struct):
    """Whose volume it is"""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class CsiSource(Struct):
    """A volume of a CSI driver"""

    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(InTreeSources):
    """spec of a volume"""

    capacity: dict[str, str] | None = None
    access_modes: list[str] | None = None
    storage_class_name: str = ""
    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: ClaimReference | None = None
    csi: CsiSource | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeStatus(Struct):
    """status of a volume"""

    phase: str = ""


class PersistentVolume(ApiObject):
    """A PersistentVolume"""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologySelectorRequirement(Struct):
    """One expression of allowedTopologies"""

    key: str
    values: list[str] | None = None


class TopologySelectorTerm(Struct):
    """One term of allowedTopologies"""

    match_label_expressions: list[TopologySelectorRequirement] | None = None


class StorageClass(ApiObject):
    """A StorageClass"""

    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[TopologySelectorTerm] | None = None


class CsiDriverSpec(Struct):
    """spec of a CSIDriver"""

    storage_capacity: bool | None = None


class CsiDriver(ApiObject):
    """A CSIDriver"""

    spec: CsiDriverSpec = CsiDriverSpec()


class CsiStorageCapacity(ApiObject):
    """A CSIStorageCapacity"""

    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: str | None = None
    maximum_volume_size: str | None = None


class VolumeLimits(Struct):
    """How many volumes of a driver a node takes"""

    count: int | None = None


class CsiNodeDriver(Struct):
    """A driver on a node"""

    name: str = ""
    allocatable: VolumeLimits | None = None


class CsiNodeSpec(Struct):
    """spec of a CSINode"""

    drivers: list[CsiNodeDriver] | None = None


class CsiNode(ApiObject):
    """A CSINode"""

    spec: CsiNodeSpec = CsiNodeSpec()


class AttachmentSource(Struct):
    """What is attached"""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Struct):
    """spec of a volume attachment"""

    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(ApiObject):
    """A VolumeAttachment"""

    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
