"""What a watch tells: an object is there (or changed), or it is gone."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from flowsched_k8s.objects import Budget, Namespace, Node, Pod, PodGroup, SucceededPod
from flowsched_k8s.volumes.storage_objects import (
    Claim,
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    StorageClass,
    VolumeAttachment,
)

Obj = TypeVar("Obj")


class Seen(msgspec.Struct, Generic[Obj], frozen=True, gc=False):
    """The object is there, new or changed."""

    object: Obj


class Gone(msgspec.Struct, Generic[Obj], frozen=True, gc=False):
    """The object is no longer there (or outside of what is watched); this is how it was last seen."""

    object: Obj


Storage = Claim | PersistentVolume | StorageClass | CsiNode | CsiDriver | CsiStorageCapacity | VolumeAttachment
Thing = Node | Pod | Namespace | Storage | PodGroup | SucceededPod | Budget
Change = Seen[Thing] | Gone[Thing]
