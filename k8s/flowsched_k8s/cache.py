"""The cluster as the API server last told it, plus what is assumed of bindings that it has not confirmed yet.

Machines and what is booked on them are an engine's :class:`~flowsched.cluster.booked_tasks.BookedTasks`: every event changes
a few numbers there, and a round works on a copy.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.cluster.learnt_run_times import LearntRunTimes
from flowsched.cluster.machine_rows import MachineRows
from flowsched.cluster.snapshot import MILLI
from flowsched.support.arrays import IntArray
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.configuration.cost_model import heeded
from flowsched_k8s.gpus import GpuIndex
from flowsched_k8s.groups.pod_groups import PodGroupIndex
from flowsched_k8s.instructions import PodKey
from flowsched_k8s.learning.learnt_classes import LearntClasses
from flowsched_k8s.names import VOLUME_LIMIT_PREFIX, ZONE
from flowsched_k8s.node_columns import NodeColumns
from flowsched_k8s.node_revisions import NodeRevisions
from flowsched_k8s.objects import Meta, Node, Pod
from flowsched_k8s.pods.affinity import RelationIndex
from flowsched_k8s.pods.bound_shares import read_share
from flowsched_k8s.pods.declared_relations import DeclaredRelations
from flowsched_k8s.pods.entries import NodeEntry, PodEntry, PodTemplate, Wants
from flowsched_k8s.pods.images import ImageIndex
from flowsched_k8s.pods.intent import Intent, read_intent
from flowsched_k8s.pods.outside_pods import OutsidePods
from flowsched_k8s.pods.pod_index import PodIndex
from flowsched_k8s.pods.pod_length import pod_length
from flowsched_k8s.pods.pod_wants import PodWants
from flowsched_k8s.pods.readings import (
    cpu_capacity,
    created_s,
    leaves_s,
    same_annotations,
    seconds,
    static_facts,
)
from flowsched_k8s.pods.requests import allocatable, granted, pod_requests
from flowsched_k8s.pods.run_times import keep_first
from flowsched_k8s.rounds.neutral import machine_type, with_neutral
from flowsched_k8s.services.services import Services
from flowsched_k8s.volumes.volumes import ClaimKey, VolumeIndex, claim_keys
from flowsched_models.catalogue import Catalogue
from flowsched_models.machine import MachineType

LOG = logging.getLogger(__name__)

_TERMINAL = ("Succeeded", "Failed")


@dataclass
class Cache:
    """See the module. Every method that may help waiting pods returns what happened as a word for the queue."""

    configuration: Configuration
    catalogue: Catalogue
    booked: BookedTasks = field(default_factory=BookedTasks)
    nodes: dict[str, NodeEntry] = field(default_factory=dict)
    """Nodes of the pool."""
    others: dict[str, Node] = field(default_factory=dict)
    """Nodes outside of the pool."""
    pods: dict[str, PodEntry] = field(default_factory=dict)
    by_name: dict[tuple[str, str], str] = field(default_factory=dict)
    nominated: dict[str, str] = field(default_factory=dict)
    """uid of a waiting pod -> the node where a preemption makes room for it."""

    def __post_init__(self) -> None:
        """Make the indices."""
        self.catalogue = with_neutral(self.catalogue)
        features = self.configuration.features
        self.volumes = VolumeIndex(enabled=features.volumes)
        self.relations = RelationIndex(
            namespace_selector=features.namespace_selector, pool=bool(self.configuration.node_selector)
        )
        self.revisions = NodeRevisions(self.nodes)
        self.outside = OutsidePods(self.booked, self.revisions.touch, self._met_elsewhere)
        self.groups = PodGroupIndex(features.pod_groups)
        self.learnt_classes = LearntClasses(self.configuration.learning)
        self.columns = NodeColumns()
        self._on_missing_node: dict[str, set[str]] = {}
        self._index = PodIndex()
        self.images = ImageIndex()
        # Cost models beside flow know no devices: they count.
        self.gpus = GpuIndex(
            self.configuration.gpus if self.configuration.cost_model.is_flow else (), self.revisions.touch
        )
        self.services = Services(
            self.nodes,
            self.pods,
            self.booked,
            self.configuration.engine,
            self.configuration.load_source.ceiling,
            self.catalogue,
            self.revisions.touch,
        )
        self.declared = DeclaredRelations(
            self.relations,
            self.pods,
            self._index,
            lambda: self.booked,
            outdate=lambda: self.pod_wants.outdate(),
            relabel=self._relabel,
            counted=self._count_outside,
        )
        self.pod_wants = PodWants(
            self.configuration,
            self.pods,
            self.nodes,
            self.nominated,
            self._index,
            self.volumes,
            self.relations,
            self.declared,
            self.outside,
            self.services,
        )
        self._names = self.configuration.scheduler_names
        self.live = False
        """Whether all pods have been listed, so that one which is seen first is new."""
        self._seen = 0
        self._templates: dict[str, PodTemplate] = {}
        """Of the pod that came last, by namespace: pods of one template mostly come one after the other."""
        self._away: frozenset[str] = frozenset()
        """uids of pods that count as gone, within :meth:`without`."""

    @property
    def machines(self) -> MachineRows:
        """The nodes of the pool with what is left of them."""
        return self.booked.machines

    # Nodes

    def put_node(self, node: Node) -> str | None:
        """A node is there or changed. Returns the event that may help waiting pods, or None if nothing did."""
        name = node.metadata.name
        if not self.in_pool(node):
            left = name in self.nodes
            if left:
                self._drop_node(name)
            old_outside = self.others.get(name)
            self.others[name] = node
            moved = False
            if old_outside is None or static_facts(old_outside) != static_facts(node):
                moved = self._put_outside(name)
            return "NodeRemove" if left else "NodeUpdate" if moved else None
        if self.others.pop(name, None) is not None:
            self.outside.remove_node(name, self._on_missing_node.get(name, ()))
        room = self._room(node)
        old = self.nodes.get(name)
        if old is None:
            version = self.columns.changed()
            kind = self._type_of(node, room)
            pods = self._on_missing_node.pop(name, set())
            services = {uid for uid in pods if self.pods[uid].grant is not None}
            self.nodes[name] = NodeEntry(node, kind, room, version, pods, services)
            self._put_machine(name)
            return "NodeAdd"
        static = static_facts(node) != static_facts(old.node)
        grown = any(n > old.allocatable.get(r, 0) for r, n in room.items())
        resized = room != old.allocatable
        old.node = node
        row = self.machines.row(name)
        assert row is not None, "a node of the pool has a row"
        self.images.put(row, node)
        if not static and not resized:
            return None
        if static:
            old.version = self.columns.changed()
        old.allocatable = room
        old.type = self._type_of(node, room)
        self._put_machine(name)
        return "NodeUpdate" if static or grown else None

    def settle(self) -> IntArray | None:
        """Bring the rows of machines into the order of their names, before a round, with all that goes by them here; what
        :meth:`MachineRows.settle` gives.
        """
        before = self.machines.settle()
        if before is not None:
            self.columns.move(before)
            self.images.move(before)
        return before

    def remove_node(self, name: str) -> str | None:
        """A node is gone."""
        if self.others.pop(name, None) is not None:
            moved = self.outside.remove_node(name, self._on_missing_node.get(name, ()))
            return "NodeUpdate" if moved else None
        if name not in self.nodes:
            return None
        self._drop_node(name)
        return "NodeRemove"

    def in_pool(self, node: Node) -> bool:
        """Whether the node is ours to fill."""
        labels = node.metadata.labels or {}
        return all(labels.get(k) == v for k, v in self.configuration.node_selector.items())

    def refresh_volume_limits(self, name: str) -> None:
        """A node's CSI drivers changed."""
        entry = self.nodes.get(name)
        if entry is not None:
            entry.allocatable = self._room(entry.node)
            self._put_machine(name)

    def _room(self, node: Node) -> dict[str, int]:
        """What a node has for pods: of volumes, its limits less those that stay attached although no pod uses them."""
        name = node.metadata.name
        room = {**allocatable(node), **self.volumes.limits.of_node(name)}
        for resource, count in self.volumes.left_attached(name).items():
            room[resource] = max(0, room[resource] - count)
        return room

    def _recount_attached(self, entry: PodEntry, name: str) -> None:
        """A pod came to a node or left it: what is attached there may have a user now, or none."""
        if entry.pod.spec.volumes and self.volumes.attached.of_node(name):
            self.refresh_volume_limits(name)

    def refresh_all_volume_limits(self) -> None:
        """A CSI driver is limited now that was not, or the other way round: nodes and bound pods are counted anew."""
        for name in self.nodes:
            self.refresh_volume_limits(name)
        for entry in self.pods.values():
            if entry.place and entry.pod.spec.volumes:
                self._arrive(entry)
        self.pod_wants.invalidate(lambda e: bool(e.pod.spec.volumes))

    def recount_volumes(self, claims: Iterable[ClaimKey]) -> None:
        """What is known of claims changed: bound pods that use them may attach volumes of a limited driver."""
        if not self.volumes.limits.drivers():
            return
        for claim in claims:
            self._arrive_again(self._index.naming(claim))

    def _drop_node(self, name: str) -> None:
        pods = self.nodes.pop(name).pods
        self.services.node_gone(name, pods)
        if pods:
            self._on_missing_node[name] = pods
        row = self.machines.row(name)
        if row is not None:
            self.columns.drop(row)
            self.images.remove(row)
        self.machines.remove_machine(name)
        self.outside.put_pool_node(name, {})
        if self.gpus.remove(name):
            self._learn(self.pods.values())
        self.revisions.forget(name)

    def _type_of(self, node: Node, room: Mapping[str, int]) -> MachineType:
        capacity = cpu_capacity(node) or room.get("cpu", 0)
        vcpus = max(1, -(-capacity // MILLI))
        return machine_type(self.catalogue, node.metadata.labels or {}, vcpus)

    def _put_machine(self, name: str) -> None:
        entry = self.nodes[name]
        labels = self._labels(entry.node)
        row = self.booked.put_machine(name, entry.allocatable, labels, bandwidth=entry.type.bandwidth)
        self.outside.put_pool_node(name, labels)
        self.images.put(row, entry.node)
        zone = (entry.node.metadata.labels or {}).get(ZONE, "")
        self.columns.put(row, entry.version, entry.type, zone)
        if self.gpus.put(entry.node):
            self._learn(self.pods.values())
        elif self.gpus.of(name) is not None:
            self._learn(self.pods[uid] for uid in sorted(entry.pods))
        self.services.settle(name)

    def _put_outside(self, name: str) -> bool:
        """A node outside of the pool changed; whether its pods count in other domains now."""
        return self.outside.put_node(name, self._labels(self.others[name]), self._on_missing_node.get(name, ()))

    def _labels(self, node: Node) -> dict[str, str]:
        """A node's labels, with those that tell the domains of some relations apart."""
        return {**(node.metadata.labels or {}), **self.relations.labels_of(node)}

    def _met_elsewhere(self) -> None:
        """An affinity is met outside of the pool only, or is so no longer: what waiting pods join depends on it."""
        self.pod_wants.invalidate(lambda e: bool(e.wants is not None and e.wants.holds))

    def _learn(self, entries: Iterable[PodEntry]) -> None:
        """Count pods of ours in the demand for GPUs: those that ask for some, and those that are on a node with some."""
        for entry in entries:
            asks = self.gpus.asked(entry.needs) is not None
            if entry.ours and not entry.in_demand and (asks or self.gpus.of(entry.place) is not None):
                entry.in_demand = True
                self.gpus.learn(entry.pod, entry.needs)

    # Pods

    def put_pod(self, pod: Pod, now: float) -> PodEntry | None:
        """A pod is there or changed, as the watch tells at ``now``. None if it is terminal (or was never of interest)."""
        meta = pod.metadata
        if pod.status.phase in _TERMINAL:
            self.remove_pod(meta.uid)
            return None
        entry = self.pods.get(meta.uid)
        if entry is None:
            return self._add_pod(pod, now)
        old = entry.pod
        entry.pod = pod
        if old.metadata.deletion_timestamp != meta.deletion_timestamp:
            # A second deletion may shorten the grace period.
            entry.leaves_s = leaves_s(meta, now, seen_before=True)
        if old.metadata.owner_references != meta.owner_references or old.metadata.labels != meta.labels:
            self._index.remove(old)
            self._index.add(pod)
            entry.wants = entry.template = None
        placed = old.spec.node_name != pod.spec.node_name
        before = old.spec
        if placed and not pod.spec.volumes:
            # Only what is asked for volumes depends on the node.
            before = msgspec.structs.replace(before, node_name=pod.spec.node_name)
        reshaped = before != pod.spec or granted(old) != granted(pod)
        relabelled = old.metadata.labels != meta.labels or (old.metadata.deletion_timestamp != meta.deletion_timestamp)
        renamed = not same_annotations(old.metadata, meta)
        if reshaped:
            entry.needs = pod_requests(pod)
        if renamed or relabelled:
            entry.intent = keep_first(entry, self._intent(pod))
        if (reshaped or renamed or relabelled) and not pod.spec.node_name:
            entry.length = pod_length(pod)
            self.learnt_classes.give(entry, self.learnt_classes.class_of(pod, entry.needs))
        if placed or reshaped or renamed or relabelled:
            entry.wants = entry.template = None
        if relabelled or (reshaped and before != pod.spec):
            entry.relations = None
        if old.status.nominated_node_name and not entry.nominated:
            self.nominated.pop(meta.uid, None)
        self._note_nomination(entry)
        if pod.spec.node_name:
            moved = pod.spec.node_name != entry.place
            if moved:
                self._leave(entry)
                entry.placed_s = now
                entry.factor = self._factor(entry, pod.spec.node_name)
            if not old.spec.node_name:
                # Another scheduler may have bound it: its status tells, as it will tell the next leader.
                entry.grant = None
            entry.node, entry.assumed = pod.spec.node_name, ""
            if moved or reshaped or relabelled or renamed or not old.spec.node_name:
                read_share(entry)
                self._arrive(entry)
            elif pod.status.start_time and not old.status.start_time:
                entry.started_s = seconds(pod.status.start_time)
                self.revisions.touch(entry.place, meta.uid)
        return entry

    def replaced(self, pod: Pod) -> PodEntry | None:
        """The pod that had the name of one which is new; it is gone, whatever the watch is still to tell of it."""
        if pod.metadata.uid in self.pods or pod.status.phase in _TERMINAL:
            return None
        return self.pods.get(self.by_name.get((pod.metadata.namespace, pod.metadata.name), ""))

    def remove_pod(self, uid: str) -> PodEntry | None:
        """A pod is gone; returns what it was."""
        entry = self.pods.pop(uid, None)
        if entry is None:
            return None
        self.nominated.pop(uid, None)
        self._index.remove(entry.pod)
        self.volumes.attached.version += len(claim_keys(entry.pod))
        self._leave(entry)
        name = (entry.key.namespace, entry.key.name)
        if self.by_name.get(name) == uid:
            del self.by_name[name]
        return entry

    def assume(
        self, entry: PodEntry, node: str, width_milli: int, threads: int, cores: tuple[int, ...], now: float
    ) -> None:
        """Book a pod's place before the API server knows of it. A service is granted what it asks for by then."""
        entry.grant = self.services.grant(entry, node, threads, cores)
        entry.assumed, entry.assumed_s, entry.placed_s = node, now, now
        entry.width_milli = max(width_milli, entry.request_milli)
        entry.threads, entry.cores, entry.started_s = threads, cores, now
        entry.factor = self._factor(entry, node)
        self._arrive(entry)

    def forget(self, entry: PodEntry) -> None:
        """Take an assumption back."""
        if entry.assumed and not entry.node:
            self._leave(entry)
            entry.assumed, entry.grant = "", None
            entry.wants = None

    def hold_width(self, entry: PodEntry, asked_milli: int) -> None:
        """Hold CPU of its node for a bound pod that is resized, in milli-CPU; 0 once that is over."""
        entry.asked_milli = asked_milli
        entry.width_milli = max(asked_milli, entry.request_milli)
        self._arrive(entry)

    def _add_pod(self, pod: Pod, now: float) -> PodEntry:
        meta = pod.metadata
        key = PodKey(meta.namespace, meta.name, meta.uid)
        ours = pod.spec.scheduler_name in self._names
        like = self._templates.get(meta.namespace)
        if like is not None and (not like.made(pod) or (ours and self.learnt_classes.differs(pod, like))):
            like = None
        if like is None:
            before = self._templates.get(meta.namespace)
            like = PodTemplate(pod, pod_requests(pod), self._intent(pod), pod_length(pod))
            like.base = None if before is None else before.base_of(pod)
            like.run_class = self.learnt_classes.class_of(pod, like.needs) if ours else ""
            self._templates[meta.namespace] = like
        created = created_s(seconds(meta.creation_timestamp), now, self.live)
        seen = now if self.live else created
        entry = PodEntry(
            key, pod, ours, like.needs, like.intent, created, self._seen, seen, template=like, length=like.length
        )
        self.learnt_classes.give(entry, like.run_class)
        entry.leaves_s = leaves_s(meta, now, seen_before=self.live)
        entry.declared_s = like.intent.run_s
        self._seen += 1
        self.pods[meta.uid] = entry
        self.by_name[key[:2]] = meta.uid
        self._index.add(pod)
        self.volumes.attached.version += len(claim_keys(pod))
        self._note_nomination(entry)
        if pod.spec.node_name:
            entry.node = pod.spec.node_name
            entry.placed_s = now if self.live else 0.0
            entry.factor = self._factor(entry, entry.node)
            read_share(entry)
            self._arrive(entry)
        elif self.gpus.resources:
            self._learn([entry])
        return entry

    @contextmanager
    def without(self, entries: Collection[PodEntry]) -> Iterator[None]:
        """The cluster as pods find it that replace some placed ones: to be read only, by what is known of all pods by then.

        Their room is free, and they count nowhere but where those that come would join them: a controller replaces a pod
        while it is still being deleted.
        """
        booked, self.booked = self.booked, self.booked.copy()
        self._away = frozenset(entry.key.uid for entry in entries)
        try:
            for entry in entries:
                sought = {term.relation for term in self.wants(entry).soft if term.weight > 0}
                joins = [n for n in self.relations.joins(entry.pod) if n in sought or self.declared.attracts(n)]
                self.booked.book(entry.key.uid, entry.place, {}, joins=joins)
            yield
        finally:
            self.booked, self._away = booked, frozenset()

    def rows_of_workload(self, workload: str) -> list[int]:
        """Machine row of the node of each of its pods that are to stay."""
        there = [self.pods[uid] for uid in self._index.of_workload(workload) if uid not in self._away]
        staying = [e.place for e in there if e.place and e.pod.metadata.deletion_timestamp is None]
        return [row for name in staying if (row := self.machines.row(name)) is not None]

    def of_job(self, controller: str) -> list[PodEntry]:
        """Pods that end by themselves, of the controller of that uid."""
        return [self.pods[uid] for uid in self._index.of_job(controller)]

    @property
    def learnt(self) -> LearntRunTimes:
        """What completions taught."""
        return self.learnt_classes.learnt

    def put_learnt(self, learnt: LearntRunTimes, run_times_s: Mapping[str, float]) -> None:
        """The same, as :meth:`LearntClasses.put` has it."""
        different = self.learnt_classes.put(learnt, run_times_s)
        # Seldom: the first completion of a class, or a new leader that has read what was learnt.
        for entry in self.pods.values() if different else ():
            if entry.priced_class in different:
                entry.learnt_s = run_times_s.get(entry.priced_class)
                if entry.place:
                    self.revisions.touch(entry.place, entry.key.uid)
                else:
                    self.pod_wants.ask_again(entry)

    def _factor(self, entry: PodEntry, node: str) -> float:
        """How many times its profile's forecast a pod is expected to run on a node."""
        there = self.nodes.get(node)
        return 1.0 if there is None else self.learnt_classes.factor(entry, there.type.name)

    def _intent(self, pod: Pod) -> Intent:
        return heeded(read_intent(pod, self.catalogue), self.configuration.cost_model)

    def _note_nomination(self, entry: PodEntry) -> None:
        if entry.pod.spec.node_name or entry.is_leaving:
            self.nominated.pop(entry.key.uid, None)
        elif entry.nominated:
            self.nominated[entry.key.uid] = entry.nominated

    def _arrive(self, entry: PodEntry) -> None:
        uid, name = entry.key.uid, entry.place
        self._here(name).add(uid)
        self.revisions.touch(name, uid)
        needs = dict(entry.needs)
        needs["cpu"] = max(entry.width_milli, entry.request_milli)
        heirs: list[str] = []
        if entry.pod.spec.volumes:
            heirs = self.volumes.use(entry.pod, name)
            needs = {r: n for r, n in needs.items() if not r.startswith(VOLUME_LIMIT_PREFIX)}
            needs |= self.volumes.counted_for(uid)
        sensitivity, pressure = self.services.behaviour(entry)
        holds, joins = self.declared.bound(entry)
        self.booked.book(uid, name, needs, sensitivity=sensitivity, pressure=pressure, holds=holds, joins=joins)
        if name in self.others:
            self.outside.put_pod(uid)
        self.services.came(entry, name)
        self._recount_attached(entry, name)
        self._arrive_again(heirs)
        if self.gpus.resources:
            self._learn([entry])

    def _arrive_again(self, uids: Iterable[str]) -> None:
        """What counts for these pods has changed, such as volumes that counted for another one."""
        for uid in uids:
            if uid in self.pods and self.pods[uid].place:
                self._arrive(self.pods[uid])

    def _leave(self, entry: PodEntry) -> None:
        name = entry.place
        if not name:
            return
        here = self._here(name)
        here.discard(entry.key.uid)
        self.revisions.touch(name, entry.key.uid)
        if not here:
            # Names of nodes come and go; an empty set for each would stay forever.
            self._on_missing_node.pop(name, None)
        self.outside.remove_pod(entry.key.uid)
        self.booked.release(entry.key.uid)
        heirs = self.volumes.unuse(entry.pod)
        self.services.left(entry, name)
        self._recount_attached(entry, name)
        self._arrive_again(heirs)

    def _here(self, name: str) -> set[str]:
        """Uids of what is on a node, which may be missing."""
        known = self.nodes.get(name)
        return known.pods if known is not None else self._on_missing_node.setdefault(name, set())

    # What pending pods want

    def wants(self, entry: PodEntry) -> Wants:
        """All that decides where a pending pod may go."""
        return self.pod_wants.of(entry)

    def put_namespace(self, meta: Meta) -> None:
        """A namespace is there; its labels decide which pods a namespace selector means."""
        if self.declared.put_namespace(meta):
            self._relabelled(meta.name)

    def remove_namespace(self, name: str) -> None:
        """A namespace is gone, and with it the labels that selectors of namespaces may mean."""
        if self.declared.remove_namespace(name):
            self._relabelled(name)

    def _relabelled(self, namespace: str) -> None:
        self.pod_wants.invalidate(lambda e: e.pod.spec.affinity is not None or e.key.namespace == namespace)
        self._arrive_again(self._index.in_namespace(namespace))

    def _relabel(self) -> None:
        """Nodes have another label for the sake of a relation."""
        for node in self.nodes:
            self._put_machine(node)
        for node in self.others:
            self._put_outside(node)

    def _count_outside(self, entry: PodEntry) -> None:
        if entry.place in self.others:
            self.outside.put_pod(entry.key.uid)

    def forget_relations(self) -> None:
        """Let go of relations and templates that no pod has any more; without this they would pile up forever."""
        self._templates.clear()
        gone = self.declared.retire()
        if gone:
            self.outside.recount()
            self.pod_wants.invalidate(lambda e: not gone.isdisjoint(e.wants.joins if e.wants is not None else ()))

    def use_catalogue(self, catalogue: Catalogue) -> None:
        """New profiles: what pods and nodes are like is read again."""
        self.catalogue = self.services.catalogue = with_neutral(catalogue)
        for name, node in self.nodes.items():
            node.type = self._type_of(node.node, node.allocatable)
            self._put_machine(name)
        self._templates.clear()
        for entry in self.pods.values():
            entry.intent = keep_first(entry, self._intent(entry.pod))
            entry.wants = entry.template = None
            if entry.place:
                self._arrive(entry)
