"""An API server in memory, for tests of the state machine: objects with uids, bindings, and watches that lag behind.

Only what the state machine can tell apart is modelled. Within one kind events keep their order; between kinds nothing is
promised. Pods of groups that have succeeded are a kind of their own. What a watch has not delivered yet is known
only to the tests.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from msgspec.structs import replace

from flowsched_k8s import names
from flowsched_k8s.bindings.bindings import BindOutcome
from flowsched_k8s.changes import Change, Gone, Seen
from flowsched_k8s.groups.pod_groups import SOURCES, group_ref
from flowsched_k8s.instructions import PodKey
from flowsched_k8s.objects import (
    Condition,
    Meta,
    Node,
    Pod,
    PodGroup,
    SucceededPod,
    SucceededSpec,
    SucceededStatus,
    Transition,
)

START_S = 1_767_225_600.0
"""2026-01-01T00:00:00Z, when everything in the model begins."""
KINDS = ("nodes", "pods", "groups", "succeeded")
Thing = Node | Pod | PodGroup | SucceededPod
Name = tuple[str, str]


def moment(seconds: float) -> str:
    """A time as the API server writes it: whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class ModelServer:
    """See the module."""

    now: float = START_S
    objects: dict[str, dict[Name, Thing]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    bound: list[tuple[str, str]] = field(default_factory=list)
    """(uid, node) of every binding that was accepted from us, in order."""
    delivered: dict[str, dict[Name, Thing]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    """What the watches have told so far."""
    _log: dict[str, list[Change]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    _versions: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    # Objects

    @property
    def pods(self) -> dict[Name, Pod]:
        return self.objects["pods"]  # type: ignore[return-value]

    @property
    def nodes(self) -> dict[str, Node]:
        return {name: node for (_, name), node in self.objects["nodes"].items() if isinstance(node, Node)}

    def put(self, thing: Thing) -> Thing:
        """Create an object, or change the one of its name. A new one gets a uid of its own and the time of creation."""
        kind = _kind(thing)
        name = _name(thing.metadata)
        old = self.objects[kind].get(name)
        number = next(self._versions)
        if isinstance(thing, SucceededPod):
            meta = thing.metadata
        elif old is None:
            meta = replace(thing.metadata, uid=f"{name[1]}-{number}", creation_timestamp=moment(self.now))
        else:
            meta = replace(thing.metadata, uid=old.metadata.uid, creation_timestamp=old.metadata.creation_timestamp)
        stored = replace(thing, metadata=replace(meta, resource_version=str(number)))
        self.objects[kind][name] = stored
        if _watched(stored):
            self._log[kind].append(Seen(stored))
        elif old is not None and _watched(old):
            self._log[kind].append(Gone(stored))
        if isinstance(stored, Pod) and _counts(stored):
            self.put(_succeeded(stored, self.now))
        return stored

    def remove(self, thing: Thing) -> None:
        """Take an object away at once, finished or not."""
        kind = _kind(thing)
        gone = self.objects[kind].pop(_name(thing.metadata))
        if _watched(gone):
            self._log[kind].append(Gone(gone))
        if isinstance(gone, Pod) and _counts(gone):
            self.remove(_succeeded(gone, self.now))

    def replace(self, old: Pod, new: Pod) -> Thing:
        """Another pod takes the name of one that is gone; the watch tells of the new one first, or in one batch of both."""
        log = self._log["pods"]
        self.remove(old)
        told = (
            [log.pop()] if log and isinstance(log[-1], Gone) and log[-1].object.metadata.uid == old.metadata.uid else []
        )
        made = self.put(new)
        log += told
        return made

    def terminate(self, pod: Pod, grace_s: int = 30) -> None:
        """Begin a deletion with grace: the pod keeps its place until :meth:`remove`."""
        current = self._current(pod)
        ends = moment(self.now + grace_s)
        meta = replace(current.metadata, deletion_timestamp=ends, deletion_grace_period_seconds=grace_s)
        self.put(replace(current, metadata=meta))

    def finish(self, pod: Pod, phase: str = "Succeeded") -> None:
        """The pod ends; the watch, which leaves ended pods out, sees it go."""
        current = self._current(pod)
        self.put(replace(current, status=replace(current.status, phase=phase)))

    def ungate(self, pod: Pod) -> None:
        """Remove all scheduling gates."""
        current = self._current(pod)
        self.put(replace(current, spec=replace(current.spec, scheduling_gates=None)))

    def relabel(self, thing: Thing, labels: Mapping[str, str]) -> None:
        """Give an object other labels."""
        current = self.objects[_kind(thing)][_name(thing.metadata)]
        self.put(replace(current, metadata=replace(current.metadata, labels=dict(labels))))

    def annotate(self, pod: Pod, notes: Mapping[str, str | None]) -> None:
        """Set annotations of a pod, and remove those that are None."""
        current = self._current(pod)
        kept = {**(current.metadata.annotations or {}), **notes}
        found = {name: text for name, text in kept.items() if text is not None}
        self.put(replace(current, metadata=replace(current.metadata, annotations=found)))

    def patch_estimate(self, key: PodKey, text: str | None) -> None:
        """PATCH a pod's estimated start, unless it is gone."""
        pod = self.pods.get(key[:2])
        if pod is not None and pod.metadata.uid == key.uid:
            self.annotate(pod, {names.ESTIMATED_START: text})

    def run(self, pod: Pod) -> None:
        """Its containers run from now on."""
        current = self._current(pod)
        status = replace(current.status, phase="Running", start_time=moment(self.now))
        self.put(replace(current, status=status))

    def cordon(self, name: str, cordoned: bool = True) -> None:
        """As ``kubectl cordon``."""
        node = self.nodes[name]
        self.put(replace(node, spec=replace(node.spec, unschedulable=cordoned)))

    def allocate(self, name: str, **amounts: str) -> None:
        """Change what a node offers."""
        node = self.nodes[name]
        offered = {**(node.status.allocatable or {}), **amounts}
        self.put(replace(node, status=replace(node.status, allocatable=offered)))

    def _current(self, pod: Pod) -> Pod:
        return self.pods[_name(pod.metadata)]

    # What a scheduler asks

    def bind(
        self,
        key: PodKey,
        node: str,
        annotations: Mapping[str, str] = {},
        grant: str | None = None,
        *,
        ours: bool = True,
    ) -> BindOutcome:
        """PATCH the grant, if there is one, and POST a binding. Whether the node exists is not asked, as in Kubernetes."""
        pod = self.pods.get(key[:2])
        if pod is None:
            return BindOutcome.GONE
        meta = pod.metadata
        if (
            meta.uid != key.uid
            or pod.spec.node_name
            or pod.spec.scheduling_gates
            or meta.deletion_timestamp is not None
        ):
            return BindOutcome.CONFLICT
        if grant is not None:
            self.put_condition(key, Condition(names.GRANTED, "True" if grant else "False", "", grant))
            pod = self._current(pod)
            meta = pod.metadata
        notes = {**(meta.annotations or {}), **annotations}
        self.put(replace(pod, metadata=replace(meta, annotations=notes), spec=replace(pod.spec, node_name=node)))
        if ours:
            self.bound.append((key.uid, node))
        return BindOutcome.BOUND

    def patch_condition(self, key: PodKey, reason: str, message: str, nominated_node: str | None) -> None:
        """PATCH PodScheduled=False, and where given the nominated node."""
        if self.read(key) is not None:
            self.put_condition(key, Condition("PodScheduled", "False", reason, message), nominated_node)

    def put_condition(self, key: PodKey, written: Condition, nominated_node: str | None = None) -> None:
        """Give a pod a condition in place of the one of its type, and where given the nominated node."""
        pod = self.pods[key[:2]]
        others = [c for c in pod.status.conditions or () if c.type != written.type]
        node = pod.status.nominated_node_name if nominated_node is None else nominated_node
        self.put(replace(pod, status=replace(pod.status, conditions=[*others, written], nominated_node_name=node)))

    def read(self, key: PodKey) -> Pod | None:
        """GET a pod; another one of its name is not the one that was asked for."""
        pod = self.pods.get(key[:2])
        return pod if pod is not None and pod.metadata.uid == key.uid else None

    # Watches

    def lag(self, kind: str) -> int:
        """Events of a kind that no watch has delivered yet."""
        return len(self._log[kind])

    def deliver(self, kind: str, count: int | None = None) -> list[Change]:
        """The next events of a kind, all of them unless told otherwise."""
        log = self._log[kind]
        events = log if count is None else log[:count]
        self._log[kind] = [] if count is None else log[count:]
        for event in events:
            name = _name(event.object.metadata)
            if isinstance(event, Gone):
                known = self.delivered[kind].get(name)
                if known is not None and known.metadata.uid == event.object.metadata.uid:
                    del self.delivered[kind][name]
            else:
                self.delivered[kind][name] = event.object  # type: ignore[assignment]
        return events

    def relist(self, kind: str) -> list[Change]:
        """The watch lost its position: everything is listed, and only what differs is told, as the reflector does."""
        self._log[kind].clear()
        known, present = self.delivered[kind], self._present(kind)
        events: list[Change] = []
        for name, thing in present.items():
            old = known.get(name)
            if old is not None and old.metadata.uid != thing.metadata.uid:
                events.append(Gone(old))
            elif old is not None and old.metadata.resource_version == thing.metadata.resource_version:
                continue
            events.append(Seen(thing))
        events += [Gone(old) for name, old in known.items() if name not in present]
        self.delivered[kind] = present
        return events

    def everything(self) -> list[Change]:
        """What a scheduler that starts now lists; nothing that happened before is told to it again."""
        self._log = {kind: [] for kind in KINDS}
        self.delivered = {kind: self._present(kind) for kind in KINDS}
        return [Seen(thing) for kind in KINDS for thing in self.delivered[kind].values()]

    def _present(self, kind: str) -> dict[Name, Thing]:
        return {name: thing for name, thing in self.objects[kind].items() if _watched(thing)}

    def on(self, node: str) -> list[Pod]:
        """Pods that use a node: bound there and not ended."""
        return [p for p in self.pods.values() if p.spec.node_name == node and _watched(p)]

    def waiting(self) -> list[Pod]:
        """Pods that are on no node and have not ended."""
        return [p for p in self.pods.values() if not p.spec.node_name and _watched(p)]


def key_of(pod: Pod) -> PodKey:
    """The pod for good."""
    return PodKey(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)


def _name(meta: Meta) -> Name:
    return meta.namespace, meta.name


def _watched(thing: Thing) -> bool:
    return not (isinstance(thing, Pod) and thing.status.phase in ("Succeeded", "Failed"))


def _counts(thing: Thing) -> bool:
    """Whether it is a pod of a group that has succeeded."""
    return isinstance(thing, Pod) and thing.status.phase == "Succeeded" and group_ref(thing, SOURCES) is not None


def _succeeded(pod: Pod, now: float) -> SucceededPod:
    """A pod that succeeds now, as the watch of such pods has it."""
    status = SucceededStatus([Transition("Ready", moment(now))])
    return SucceededPod(pod.metadata, SucceededSpec(pod.spec.scheduling_group), status)


def _kind(thing: Thing) -> str:
    names: dict[type[Thing], str] = {Node: "nodes", Pod: "pods", PodGroup: "groups", SucceededPod: "succeeded"}
    return names[type(thing)]
