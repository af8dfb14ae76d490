"""GPUs of nodes as the engine's devices: which resource of a node they are, which models a pod may have, and the demand.

They are counted like any other resource, so what is free, preemption and messages need no second trace. Devices of a
round are made of these counts (:mod:`flowsched_k8s.rounds.measured_pods`): pods take whole ones, and the kubelet chooses
which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from flowsched.gpu.demand import LearntDemand
from flowsched.gpu.devices import WHOLE_MILLI
from flowsched.gpu.shapes import GpuShape
from flowsched_k8s.configuration.configuration import GpuResource
from flowsched_k8s.objects import Node, NodeSelectorTerm, Pod

Demand = tuple[tuple[GpuShape, int], ...]
"""Shapes of tasks, and how many of each have come."""
MIB = 1 << 20
_MOST_DIGITS = 9
"""Of a label's number; a GPU with more MiB than that does not exist."""


@dataclass(frozen=True)
class NodeGpus:
    """What a node's GPUs are; how many there are is a matter of the resource."""

    resource: str
    model: str
    memory_mib: int | None = None
    """Of each."""


@dataclass(frozen=True)
class RoundGpus:
    """What a round knows of GPUs."""

    nodes: Mapping[str, NodeGpus] = field(default_factory=dict)
    """By node, of those whose GPUs are devices."""
    demand: Demand = ()
    """What is expected of them."""

    def asked(self, needs: Mapping[str, int]) -> str | None:
        """The resource by which a pod asks for devices; None for one that does not."""
        return next((r for r in self.resources if needs.get(r)), None)

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """Those of which units are devices."""
        return tuple(sorted({gpus.resource for gpus in self.nodes.values()}))


class GpuIndex:
    """Nodes with GPUs, and the demand for them. A node has one kind; others that it has are counted, there and elsewhere."""

    def __init__(self, wanted: Sequence[GpuResource], touch: Callable[[str], None]) -> None:
        """No node has any yet. ``touch`` is told of each node whose GPUs are seen differently from now on."""
        self._wanted = tuple(wanted)
        self._touch = touch
        self._listed: dict[str, tuple[NodeGpus, ...]] = {}
        """By node, what it lists of the wanted resources."""
        self.resources: tuple[str, ...] = ()
        """Those of which the nodes' units are devices."""
        self._learnt = LearntDemand()
        self._now: RoundGpus | None = RoundGpus()
        """None after a change, until it is asked for."""

    def put(self, node: Node) -> bool:
        """A node is there or changed. Whether other resources are devices than before."""
        name, labels, offered = node.metadata.name, node.metadata.labels or {}, node.status.allocatable or {}
        # A node whose device plugin restarts lists 0 of them.
        listed = tuple(_node_gpus(gpu, labels) for gpu in self._wanted if gpu.resource in offered)
        if listed == self._listed.get(name, ()):
            return False
        if not listed:
            return self.remove(name)
        self._listed[name] = listed
        self._now = None
        return self._settle()

    def remove(self, name: str) -> bool:
        """A node is gone, or has no GPUs any more. Whether other resources are devices than before."""
        if self._listed.pop(name, None) is None:
            return False
        self._now = None
        return self._settle()

    def of(self, name: str) -> NodeGpus | None:
        """The GPUs of a node that are devices; None for a node without, or for none."""
        return next((g for g in self._listed.get(name, ()) if g.resource in self.resources), None)

    def asked(self, needs: Mapping[str, int]) -> str | None:
        """The resource by which a pod asks for devices; None for one that does not."""
        return next((r for r in self.resources if needs.get(r)), None)

    def models(self, pod: Pod, resource: str) -> tuple[str, ...]:
        """Models of GPU that a pod's selector and required node affinity name; empty where they do not.

        That is never less than what they allow; which nodes are allowed is a matter of the filters.
        """
        label = next(gpu.model_label for gpu in self._wanted if gpu.resource == resource)
        affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
        required = affinity.required if affinity is not None else None
        terms = [_named(term, label) for term in required.node_selector_terms] if required is not None else []
        selected = (pod.spec.node_selector or {}).get(label)
        found: set[str] | None = {selected} if selected is not None else None
        if terms and all(term is not None for term in terms):
            either = set().union(*(term for term in terms if term is not None))
            found = either if found is None else found & either
        return tuple(sorted(found or ()))

    def learn(self, pod: Pod, needs: Mapping[str, int]) -> None:
        """A pod has come that takes something of nodes with GPUs."""
        resource = self.asked(needs)
        models = self.models(pod, resource) if resource is not None else ()
        self._learnt.add(shape_of(needs, resource, models))

    def now(self) -> RoundGpus:
        """What a round may know; the demand is that of the last time when there were twice as many pods as before."""
        if self._now is None or self._now.demand is not self._learnt.known:
            nodes = {name: gpus for name in self._listed if (gpus := self.of(name)) is not None}
            self._now = RoundGpus(nodes, self._learnt.known)
        return self._now

    def _settle(self) -> bool:
        together = {frozenset(g.resource for g in listed) for listed in self._listed.values()}
        found: list[str] = []
        for gpu in self._wanted:
            beside = [others for others in together if gpu.resource in others]
            if beside and not any(others.intersection(found) for others in beside):
                found.append(gpu.resource)
        if tuple(found) == self.resources:
            return False
        self.resources = tuple(found)
        for name in self._listed:
            self._touch(name)
        return True


def shape_of(needs: Mapping[str, int], resource: str | None, models: tuple[str, ...]) -> GpuShape:
    """What a pod asks for, as the demand sees it; ``resource``: by which it asks for devices."""
    count, share = (needs[resource], WHOLE_MILLI) if resource is not None else (0, 0)
    return GpuShape(max(1, needs.get("cpu", 0)), -(-needs.get("memory", 0) // MIB), count, share, models)


def _node_gpus(gpu: GpuResource, labels: Mapping[str, str]) -> NodeGpus:
    memory = labels.get(gpu.memory_label, "")
    known = memory.isascii() and memory.isdigit() and len(memory) <= _MOST_DIGITS
    return NodeGpus(gpu.resource, labels.get(gpu.model_label) or gpu.resource, int(memory) if known else None)


def _named(term: NodeSelectorTerm, label: str) -> set[str] | None:
    """Values of a label of which a node must have one to match a term; None where it names none."""
    named = [set(r.values or ()) for r in term.match_expressions or () if r.key == label and r.operator == "In"]
    return set.intersection(*named) if named else None
