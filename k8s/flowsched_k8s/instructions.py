"""What the scheduler tells the API server, as values. The state machine returns them; the adapter carries them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from flowsched_k8s.objects import Taint
from flowsched_k8s.volumes.volumes import ClaimPatch


class PodKey(NamedTuple):
    """One pod for good: a pod that is made anew under the same name has another uid."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        """As people write it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Bind:
    """POST the binding, with annotations that the API server copies onto the pod in the same write."""

    pod: PodKey
    node: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    grant: str | None = None
    """Before that, the message of the pod's condition about what it is granted; empty takes the condition back, None leaves
    it as it is.
    """


@dataclass(frozen=True)
class PatchCondition:
    """PATCH pods/status: the condition, and where given the nominated node ("" clears it)."""

    pod: PodKey
    reason: str
    message: str
    generation: int | None = None
    nominated_node: str | None = None
    version: str = ""
    """With it only a pod that still has this ``resourceVersion``."""


@dataclass(frozen=True)
class PatchEstimate:
    """PATCH pods/status: the annotation that tells when a waiting pod starts and ends; None takes it back."""

    pod: PodKey
    text: str | None


@dataclass(frozen=True)
class PostEvent:
    """POST an event (events.k8s.io/v1) about a pod."""

    regarding: PodKey
    reason: str
    type: str
    action: str
    note: str
    controller: str = ""
    """The scheduler name that it is written under; empty for the process's first."""


@dataclass(frozen=True)
class Evict:
    """Take a pod away for one of higher priority: patch its DisruptionTarget condition, then DELETE it with its grace."""

    pod: PodKey
    message: str


@dataclass(frozen=True)
class MovePod:
    """POST pods/eviction: a pod leaves its node so that its controller makes another one, which gets a better place."""

    pod: PodKey


@dataclass(frozen=True)
class TaintNode:
    """PATCH a node that has not changed since: these are its taints from now on. The API server merges none."""

    node: str
    version: str
    """Its ``resourceVersion`` that they were worked out for."""
    taints: tuple[Taint, ...]


@dataclass(frozen=True)
class Resize:
    """PATCH pods/resize: the CPU requests of containers, in milli-CPU."""

    pod: PodKey
    cpu_milli: Mapping[str, int]


@dataclass(frozen=True)
class GroupStatus:
    """PATCH the status of an in-tree pod group: whether its minimum has been scheduled."""

    namespace: str
    name: str
    api_version: str
    scheduled: bool
    reason: str
    message: str


@dataclass(frozen=True)
class PatchClaim:
    """PATCH a PersistentVolumeClaim for a pod whose node is chosen: where its volume shall be made, or which one it gets."""

    pod: PodKey
    patch: ClaimPatch


Instruction = (
    Bind | PatchCondition | PatchEstimate | PostEvent | Evict | MovePod | TaintNode | Resize | GroupStatus | PatchClaim
)


def namespace_of(instruction: Instruction) -> str:
    """Where what it changes is; empty for what is in no namespace."""
    match instruction:
        case TaintNode():
            return ""
        case GroupStatus():
            return instruction.namespace
        case PostEvent():
            return instruction.regarding.namespace
        case _:
            return instruction.pod.namespace
