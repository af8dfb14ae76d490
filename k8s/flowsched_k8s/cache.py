"""The cluster as the API server last told it, plus what is assumed of bindings that it has not confirmed yet.

Machines and what is booked on them are an engine's :class:`~flowsched.cluster.booked_tasks.BookedTasks`: every event changes
a few numbers there, and a round works on a copy.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain

import msgspec
import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.cluster.learnt_run_times import NOTHING_LEARNT, LearntRunTimes
from flowsched.cluster.machine_rows import MachineRows
from flowsched.cluster.snapshot import MILLI
from flowsched.relations.relation import Relation, RelationKind
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.configuration.cost_model import heeded
from flowsched_k8s.gpus import GpuIndex
from flowsched_k8s.groups.pod_groups import PodGroupIndex, group_ref, unsupported_group
from flowsched_k8s.instructions import PodKey
from flowsched_k8s.learning.pod_classes import run_class_of
from flowsched_k8s.names import CORES, THREADS, VOLUME_LIMIT_PREFIX, ZONE
from flowsched_k8s.objects import Meta, Node, Pod
from flowsched_k8s.pods.affinity import NO_RELATIONS, PodRelations, RelationIndex, field_of, selector_of_namespaces
from flowsched_k8s.pods.entries import NodeEntry, PodEntry, PodTemplate, Wants
from flowsched_k8s.pods.exclusions import Exclusions, exclusions
from flowsched_k8s.pods.filters import StaticFilter, static_filter
from flowsched_k8s.pods.images import ImageIndex, images_of
from flowsched_k8s.pods.intent import Intent, read_intent
from flowsched_k8s.pods.outside_pods import OutsidePods
from flowsched_k8s.pods.pod_index import PodIndex
from flowsched_k8s.pods.pod_length import pod_length
from flowsched_k8s.pods.readings import (
    core_set,
    cpu_capacity,
    created_s,
    leaves_s,
    same_annotations,
    seconds,
    small_number,
    static_facts,
)
from flowsched_k8s.pods.requests import allocatable, granted, pod_requests
from flowsched_k8s.pods.run_times import forecast_run_s, keep_first
from flowsched_k8s.pods.spreading import workload_of
from flowsched_k8s.rounds.neutral import machine_type, with_neutral
from flowsched_k8s.services.grant import read_grant
from flowsched_k8s.services.keepers import PrecedenceClaim
from flowsched_k8s.services.services import Services
from flowsched_k8s.volumes.volumes import ClaimKey, VolumeIndex, claim_keys
from flowsched_models.catalogue import Catalogue
from flowsched_models.machine import MachineType

LOG = logging.getLogger(__name__)

MOST_COMPARED = 200_000
"""Of pods, one by one, with terms of a waiting pod: some 0.2 s, while nothing else happens."""
_USUAL = 8
"""In a large cluster so many terms of a pod may be about all pods."""
_BROAD = 2_000
"""A term that names no label costs at least so much, as every pod that comes later is compared with it."""
_EXPRESSIONS = 8
"""Of a term, that take as long as the rest of a comparison."""
_BOUND = 10
"""A pod that is bound may cost so many times as much: what it demands holds already."""
MOST_ASKED = 2_000_000
"""Of node terms and tolerations of a pod, for all nodes."""
MOST_EXCLUSIONS = 8_192
"""Two for each host port of a pod."""

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
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    namespaces_unreadable: str = ""
    """Why namespaces cannot be read at the moment; empty if they can."""
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
        self.outside = OutsidePods(self.booked, self._touch, self._met_elsewhere)
        self.groups = PodGroupIndex(features.pod_groups)
        self.learnt: LearntRunTimes = NOTHING_LEARNT
        """What completions taught."""
        self._learnt_run_s: Mapping[str, float] = {}
        """By class, seconds that its pods without a profile are forecast to run before factors."""
        self.version = 0
        """Another one after every change of ``versions``."""
        self.versions: NDArray[np.int64] = np.full(0, -1, np.int64)
        """Version of the node in each machine row; -1 for none."""
        self.types: NDArray[np.int64] = np.zeros(0, np.int64)
        """Index into ``type_list`` of each row's machine type."""
        self.zones: NDArray[np.int64] = np.zeros(0, np.int64)
        """Number of each row's zone; 0 for nodes without the label."""
        self._zone_numbers = {"": 0}
        self.type_list: list[MachineType] = []
        self._type_ids: dict[MachineType, int] = {}
        self._declared: set[str] = set()
        self._own_labels: set[str] = set()
        """Labels that nodes have for the sake of relations."""
        self._on_missing_node: dict[str, set[str]] = {}
        self._index = PodIndex()
        self.images = ImageIndex()
        # Cost models beside flow know no devices: they count.
        self.gpus = GpuIndex(self.configuration.gpus if self.configuration.cost_model.is_flow else (), self._touch)
        self.services = Services(
            self.nodes,
            self.pods,
            self.booked,
            self.configuration.engine,
            self.configuration.load_source.ceiling,
            self.catalogue,
            self._touch,
        )
        self._names = self.configuration.scheduler_names
        self.live = False
        """Whether all pods have been listed, so that one which is seen first is new."""
        self._seen = 0
        self._templates: dict[str, PodTemplate] = {}
        """Of the pod that came last, by namespace: pods of one template mostly come one after the other."""
        self._wants_version = 0
        self._away: frozenset[str] = frozenset()
        """uids of pods that count as gone, within :meth:`without`."""
        self._revisions: dict[str, int] = {}
        """By node, that which changed last at the end."""
        self.last_revision = 0
        """Of the node that changed last."""

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
            self.version += 1
            kind = self._type_of(node, room)
            pods = self._on_missing_node.pop(name, set())
            services = {uid for uid in pods if self.pods[uid].grant is not None}
            self.nodes[name] = NodeEntry(node, kind, room, self.version, pods, services)
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
            self.version += 1
            old.version = self.version
        old.allocatable = room
        old.type = self._type_of(node, room)
        self._put_machine(name)
        return "NodeUpdate" if static or grown else None

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
        self.invalidate_wants(lambda e: bool(e.pod.spec.volumes))

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
            self.version += 1
            self.versions[row] = -1
            self.images.remove(row)
        self.machines.remove_machine(name)
        self.outside.put_pool_node(name, {})
        if self.gpus.remove(name):
            self._learn(self.pods.values())
        self._revisions.pop(name, None)

    def _type_of(self, node: Node, room: Mapping[str, int]) -> MachineType:
        capacity = cpu_capacity(node) or room.get("cpu", 0)
        vcpus = max(1, -(-capacity // MILLI))
        return machine_type(self.catalogue, node.metadata.labels or {}, vcpus)

    def _put_machine(self, name: str) -> None:
        entry = self.nodes[name]
        labels = self._labels(entry.node)
        row = self.booked.put_machine(name, entry.allocatable, labels, bandwidth=entry.type.bandwidth)
        self.outside.put_pool_node(name, labels)
        if row >= len(self.versions):
            more = max(64, 2 * row) - len(self.versions)
            self.versions = np.concatenate([self.versions, np.full(more, -1, np.int64)])
            self.types = np.concatenate([self.types, np.zeros(more, np.int64)])
            self.zones = np.concatenate([self.zones, np.zeros(more, np.int64)])
        self.versions[row] = entry.version
        self.images.put(row, entry.node)
        if entry.type not in self._type_ids:
            self._type_ids[entry.type] = len(self.type_list)
            self.type_list.append(entry.type)
        self.types[row] = self._type_ids[entry.type]
        zone = (entry.node.metadata.labels or {}).get(ZONE, "")
        self.zones[row] = self._zone_numbers.setdefault(zone, len(self._zone_numbers))
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
        self.invalidate_wants(lambda e: bool(e.wants is not None and e.wants.holds))

    def _learn(self, entries: Iterable[PodEntry]) -> None:
        """Count pods of ours in the demand for GPUs: those that ask for some, and those that are on a node with some."""
        for entry in entries:
            asks = self.gpus.asked(entry.needs) is not None
            if entry.ours and not entry.in_demand and (asks or self.gpus.of(entry.place) is not None):
                entry.in_demand = True
                self.gpus.learn(entry.pod, entry.needs)

    def revision(self, name: str) -> int:
        """A number that is another one after everything that changes a node or what is on it."""
        return self._revisions.get(name, 0)

    def changed_since(self, revision: int) -> Iterator[str]:
        """Nodes of the pool that changed after the one that has a revision, that which changed last first."""
        for name, its in reversed(self._revisions.items()):
            if its <= revision:
                return
            yield name

    def _touch(self, name: str) -> None:
        if name in self.nodes:
            self.last_revision += 1
            self._revisions.pop(name, None)
            self._revisions[name] = self.last_revision

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
            self._set_class(entry, self._run_class(pod, entry.needs))
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
                self._read_bound(entry)
                self._arrive(entry)
            elif pod.status.start_time and not old.status.start_time:
                entry.started_s = seconds(pod.status.start_time)
                self._touch(entry.place)
        return entry

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
        earlier = self.by_name.get(key[:2])
        if earlier is not None:
            self.remove_pod(earlier)
        ours = pod.spec.scheduler_name in self._names
        like = self._templates.get(meta.namespace)
        if like is not None and (not like.made(pod) or (ours and self._is_of_another_class(pod, like))):
            like = None
        if like is None:
            like = PodTemplate(pod, pod_requests(pod), self._intent(pod), pod_length(pod))
            like.run_class = self._run_class(pod, like.needs) if ours else ""
            self._templates[meta.namespace] = like
        created = created_s(seconds(meta.creation_timestamp), now, self.live)
        seen = now if self.live else created
        entry = PodEntry(
            key, pod, ours, like.needs, like.intent, created, self._seen, seen, template=like, length=like.length
        )
        self._set_class(entry, like.run_class)
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
            self._read_bound(entry)
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
                joins = [n for n in self.relations.joins(entry.pod) if n in sought or self.attracts(n)]
                self.booked.book(entry.key.uid, entry.place, {}, joins=joins)
            yield
        finally:
            self.booked, self._away = booked, frozenset()

    def attracts(self, relation: str) -> bool:
        """Whether pods have to be where others are that join a relation."""
        found = self.machines.relation_store.relation(relation)
        return found is not None and found.kind is RelationKind.TOGETHER

    def rows_of_workload(self, workload: str) -> list[int]:
        """Machine row of the node of each of its pods that are to stay."""
        found = []
        for uid in self._index.of_workload(workload):
            entry = self.pods[uid]
            row = self.machines.row(entry.place) if entry.place and uid not in self._away else None
            if row is not None and entry.pod.metadata.deletion_timestamp is None:
                found.append(row)
        return found

    def of_job(self, controller: str) -> list[PodEntry]:
        """Pods that end by themselves, of the controller of that uid."""
        return [self.pods[uid] for uid in self._index.of_job(controller)]

    def _run_class(self, pod: Pod, needs: Mapping[str, int]) -> str:
        return "" if self.configuration.learning == "off" else run_class_of(pod, needs)

    def _is_of_another_class(self, pod: Pod, like: PodTemplate) -> bool:
        """Whether a pod that differs from a template in nothing but its name is of another class for that."""
        return not pod.metadata.owner_references and like.run_class != self._run_class(pod, like.needs) != ""

    def _set_class(self, entry: PodEntry, run_class: str) -> None:
        if entry.ours:
            entry.run_class = run_class
            entry.priced_class = run_class if self.configuration.learning == "on" else ""
            entry.learnt_s = self._learnt_run_s.get(entry.priced_class)

    def put_learnt(self, learnt: LearntRunTimes, run_times_s: Mapping[str, float]) -> None:
        """What completions taught, and by class what they taught of pods without a profile: seconds that the factors of the
        class are relative to.
        """
        self.learnt = learnt
        before, self._learnt_run_s = self._learnt_run_s, run_times_s
        different = {of for of in {*before, *run_times_s} if before.get(of) != run_times_s.get(of)}
        if not different or self.configuration.learning != "on":
            return
        # Seldom: the first completion of a class, or a new leader that has read what was learnt.
        for entry in self.pods.values():
            if entry.priced_class in different:
                entry.learnt_s = run_times_s.get(entry.priced_class)
                if entry.place:
                    self._touch(entry.place)
                else:
                    self.ask_again(entry)

    def _factor(self, entry: PodEntry, node: str) -> float:
        """How many times its profile's forecast a pod is expected to run on a node."""
        there = self.nodes.get(node)
        if there is None or (entry.intent.profile is None and forecast_run_s(entry) is None):
            return 1.0
        learnt = self.learnt.of(entry.priced_class, there.type.name)
        return 1.0 if learnt is None else learnt.factor

    def _intent(self, pod: Pod) -> Intent:
        return heeded(read_intent(pod, self.catalogue), self.configuration.cost_model)

    def _note_nomination(self, entry: PodEntry) -> None:
        if entry.pod.spec.node_name or entry.is_leaving:
            self.nominated.pop(entry.key.uid, None)
        elif entry.nominated:
            self.nominated[entry.key.uid] = entry.nominated

    def _read_bound(self, entry: PodEntry) -> None:
        """What a bound pod was given: from its annotations, or what its request suggests."""
        notes = entry.pod.metadata.annotations or {}
        entry.width_milli = max(entry.asked_milli, entry.request_milli)
        entry.threads = small_number(notes.get(THREADS, ""), max(1, -(-entry.request_milli // MILLI)))
        entry.cores = core_set(notes.get(CORES, ""))
        if entry.grant is None:
            entry.grant = read_grant(entry.pod)
        if entry.grant is not None:
            entry.threads, entry.cores = entry.grant.threads, entry.grant.cores
        started = entry.pod.status.start_time
        if started:
            entry.started_s = seconds(started)
        elif not entry.started_s:
            entry.started_s = entry.created_s

    def _arrive(self, entry: PodEntry) -> None:
        uid, name = entry.key.uid, entry.place
        self._here(name).add(uid)
        self._touch(name)
        needs = dict(entry.needs)
        needs["cpu"] = max(entry.width_milli, entry.request_milli)
        heirs: list[str] = []
        if entry.pod.spec.volumes:
            heirs = self.volumes.use(entry.pod, name)
            needs = {r: n for r, n in needs.items() if not r.startswith(VOLUME_LIMIT_PREFIX)}
            needs |= self.volumes.counted_for(uid)
        sensitivity, pressure = self.services.behaviour(entry)
        holds, joins = self._bound_relations(entry)
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
        self._touch(name)
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
        """All that decides where a pending pod may go; worked out once and when the pod or its volumes change."""
        pod = entry.pod
        if pod.spec.volumes and entry.attached_version != self.volumes.attached.version:
            entry.attached_version = self.volumes.attached.version
            if entry.wants is not None and entry.wants.shared != self.volumes.shared(pod, self._index.naming):
                entry.wants = None
        if entry.wants is None:
            like = entry.template
            if like is None or pod.spec.volumes or like.intent.service is not None:
                entry.wants = self._wants(entry)
            else:
                if like.wants is None or like.version != self._wants_version:
                    like.wants = self._wants(entry)
                    like.version = self._wants_version
                entry.wants = like.wants
        return entry.wants

    def is_prepared(self, entry: PodEntry) -> bool:
        """Whether :meth:`wants` need not be worked out, unless volumes of the pod have changed."""
        like = entry.template
        known = like is not None and like.wants is not None and like.version == self._wants_version
        return entry.wants is not None or (known and not entry.pod.spec.volumes)

    def ask_again(self, entry: PodEntry) -> None:
        """A pod was refused for what it costs, which may be less by now."""
        entry.wants = None
        if entry.template is not None:
            entry.template.version = -1

    def _wants(self, entry: PodEntry) -> Wants:
        pod = entry.pod
        shared = self.volumes.shared(pod, self._index.naming)
        if pod.spec.volumes:
            entry.needs = {**pod_requests(pod), **self.volumes.pod_volume_needs(pod, shared)}
        found = static_filter(pod, self.volumes)
        demanded, alone = self._demands(entry), exclusions(pod)
        too_much = self._too_much(found, demanded, alone)
        if too_much is not None:
            found, demanded, alone = StaticFilter(too_much), NO_RELATIONS, Exclusions()
        self._declare(demanded, alone)
        holds = (*demanded.holds, *alone.holds)
        # A pod cannot be the first of its kind where another one is already, though where no node of the pool is.
        own = set(demanded.holds)
        found_joins = [n for n in self.relations.joins(pod) if n not in own or not self.outside.met(n)]
        joins = (*found_joins, *alone.joins)
        sources = self.configuration.features.pod_groups
        problem = found.blocked or demanded.unsupported or self._unreadable(pod) or unsupported_group(pod, sources)
        group = group_ref(pod, sources)
        claims = self.volumes.exclusive(pod)
        service = self.services.wish_of(entry)
        intent = entry.intent
        kind = (
            entry.priority,
            found.key,
            tuple(sorted(entry.needs.items())),
            demanded.soft,
            group,
            intent.profile,
            intent.service,
            intent.scale,
            intent.goal_s,
            intent.min_utility,
            intent.widths_milli,
            service,
            forecast_run_s(entry) if self.configuration.cost_model.is_flow else intent.run_s,
            intent.interference_class,
            intent.input_mb,
            intent.locality,
            entry.priced_class,
            # A problem may be that of one claim, and another namespace may have a claim of that name.
            claim_keys(pod) if problem is not None else (),
            tuple(sorted(claims)),
            tuple(sorted(shared)),
        )
        workload, images = workload_of(pod), images_of(pod)
        return Wants(
            found,
            holds,
            joins,
            demanded.soft,
            group,
            service,
            problem,
            claims,
            shared,
            workload,
            images,
            kind,
            (kind, holds, joins),
            too_much is not None,
        )

    def claim_users(self, entry: PodEntry) -> set[str]:
        """Uids of pods that keep a waiting one from its claims: on nodes, or nominated and before it in line."""
        claims = self.wants(entry).claims
        if not claims:
            return set()
        found = self.volumes.users(claims)
        for uid in self.nominated:
            other = self.pods[uid]
            if (-other.priority, other.order) < (-entry.priority, entry.order) and not other.place:
                found |= {uid} if claims & set(claim_keys(other.pod)) else set()
        return found - {entry.key.uid}

    def relations_of(self, entry: PodEntry) -> frozenset[str]:
        """Relations through which a pod that is somewhere keeps others out or lets them in."""
        holds, joins = self._bound_relations(entry)
        return frozenset((*holds, *joins))

    def _unreadable(self, pod: Pod) -> str | None:
        """The namespace selector of a pod that cannot be honoured while namespaces cannot be read."""
        if not self.namespaces_unreadable:
            return None
        selector = selector_of_namespaces(pod)
        return None if selector is None else f"{selector} cannot be honoured: {self.namespaces_unreadable}"

    def _bound_relations(self, entry: PodEntry) -> tuple[tuple[str, ...], tuple[str, ...]]:
        pod = entry.pod
        demanded, alone = NO_RELATIONS, exclusions(pod)
        if pod.spec.affinity is not None and pod.spec.affinity.pod_anti_affinity is not None:
            demanded = self._demands(entry)
            if self._compared(demanded)[0] > _BOUND * self._most_compared:
                LOG.warning("anti-affinity of a bound pod costs too much and is left out", extra={"pod": entry.key})
                demanded = NO_RELATIONS
        self._declare(demanded, alone)
        return (*demanded.holds, *alone.holds), (*self.relations.joins(pod), *alone.joins)

    def _demands(self, entry: PodEntry) -> PodRelations:
        """What a pod demands of others; pods of a template share it."""
        if entry.relations is None:
            like = entry.template
            known = None if like is None else like.relations
            entry.relations = self.relations.demands(entry.pod) if known is None else known
            if like is not None:
                like.relations = entry.relations
        return entry.relations

    @property
    def _most_compared(self) -> int:
        return max(MOST_COMPARED, _USUAL * len(self.pods))

    def _compared(self, demanded: PodRelations) -> tuple[int, str]:
        """With how many pods new relations have to be compared one by one, and the field that says most of them."""
        total: Counter[str] = Counter()
        for relation, counted in zip(demanded.declared, demanded.counted, strict=True):
            if relation.name in self._declared:
                continue
            for test in counted.found_by:
                known, there = self._index.candidates(test)
                size = 0 if test.labels is None else len(test.labels.expressions)
                pods = sum(map(len, there)) if known else max(_BROAD, sum(map(len, there)))
                total[field_of(relation)] += pods * (1 + size // _EXPRESSIONS)
        return total.total(), max(total, key=lambda field: total[field], default="")

    def _too_much(self, static: StaticFilter, demanded: PodRelations, alone: Exclusions) -> str | None:
        """The field of a waiting pod that costs so much time that the pod waits, in a sentence."""
        if len(alone.declared) > MOST_EXCLUSIONS:
            number = sum(relation.kind is RelationKind.LIMIT for relation in alone.declared)
            return f"spec.containers: expected at most {MOST_EXCLUSIONS // 2} host ports, got {number}"
        asked = static.size * len(self.nodes)
        if asked > MOST_ASKED:
            return (
                f"spec.affinity.nodeAffinity and spec.tolerations: {static.size} terms and {len(self.nodes)} nodes take "
                f"{asked} comparisons, expected at most {MOST_ASKED}"
            )
        compared, field = self._compared(demanded)
        if compared > self._most_compared:
            return (
                f"{field}: the pods that its terms may mean take {compared} comparisons, expected at most "
                f"{self._most_compared}; name labels that fewer pods have"
            )
        return None

    def _declare(self, demanded: PodRelations, alone: Exclusions) -> None:
        """Make relations known: who is bound and counts is counted, who waits and counts is looked at again."""
        if not (demanded.declared or alone.declared):
            return
        self.relations.declare(demanded, self.namespaces)
        for relation, counted in zip(demanded.declared, demanded.counted, strict=True):
            if relation.name in self._declared:
                continue
            members: set[str] = set()
            for test in counted.found_by:
                for uid in chain.from_iterable(self._index.candidates(test)[1]):
                    pod = self.pods[uid].pod
                    if uid not in members and counted.matches(
                        pod, self.namespaces.get(pod.metadata.namespace, {}), test
                    ):
                        members.add(uid)
            self._declare_one(relation, members)
        for relation in alone.declared:
            if relation.name not in self._declared:
                self._declare_one(relation, self._index.excluded_by(relation.name))

    def _declare_one(self, relation: Relation, members: Collection[str]) -> None:
        name = relation.name
        self._declared.add(name)
        self._wants_version += 1
        self.machines.relation_store.declare(relation)
        label = self.relations.own_label(name)
        if label is not None and label not in self._own_labels:
            self._own_labels.add(label)
            for node in self.nodes:
                self._put_machine(node)
            for node in self.others:
                self._put_outside(node)
        counted = sorted((self.pods[uid] for uid in members), key=lambda entry: entry.number)
        self.booked.enrol(name, [entry.key.uid for entry in counted if entry.place])
        for entry in counted:
            if not entry.place:
                entry.wants = None
            elif entry.place in self.others:
                self.outside.put_pod(entry.key.uid)

    def put_namespace(self, meta: Meta) -> None:
        """A namespace is there; its labels decide which pods a namespace selector means."""
        if self.namespaces.get(meta.name) == (meta.labels or {}):
            return
        self.namespaces[meta.name] = dict(meta.labels or {})
        self._relabelled(meta.name)

    def remove_namespace(self, name: str) -> None:
        """A namespace is gone, and with it the labels that selectors of namespaces may mean."""
        if self.namespaces.pop(name, None) is not None:
            self._relabelled(name)

    def _relabelled(self, namespace: str) -> None:
        if not self._declared:
            return
        self.invalidate_wants(lambda e: e.pod.spec.affinity is not None or e.key.namespace == namespace)
        self._arrive_again(self._index.in_namespace(namespace))

    def forget_relations(self) -> None:
        """Let go of relations and templates that no pod has any more; without this they would pile up forever."""
        self._templates.clear()
        named: set[str] = set()
        for entry in self.pods.values():
            if entry.place:
                alone = exclusions(entry.pod)
                named.update(alone.holds, alone.joins)
            elif not entry.ours or entry.relations is None:
                # What has not been asked for is not declared.
                continue
            found = self._demands(entry)
            named.update(found.holds, (r.name for r in found.declared))
            if entry.wants is not None:
                named.update(entry.wants.holds, entry.wants.joins)
        gone = self._declared - named
        if not gone:
            return
        self.relations.retain(named)
        self._own_labels &= self.relations.own_labels()
        for name in gone:
            self.machines.relation_store.retire(name)
        self.outside.recount()
        self._declared -= gone
        self.invalidate_wants(lambda e: not gone.isdisjoint(e.wants.joins if e.wants is not None else ()))

    def claim(self, entry: PodEntry, now: float) -> PrecedenceClaim:
        """What a waiting pod has before services."""
        overdue = now - entry.waits_since_s > self.configuration.engine.due_age_s
        return PrecedenceClaim(entry.priority, overdue)

    def invalidate_wants(self, which: Callable[[PodEntry], bool]) -> None:
        """Pods whose wants have to be worked out again."""
        self._wants_version += 1
        for entry in self.pods.values():
            if entry.wants is not None and which(entry):
                entry.wants = None

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

    def free_cores(self, name: str, claim: PrecedenceClaim | None = None) -> tuple[int, ...]:
        """Virtual CPUs of a node that belong to no latency service, ascending; with those of services that leave theirs to
        pods with a claim.
        """
        per_core = self.configuration.engine.kept_per_core
        taken = {
            c
            for entry, wish in self.services.on(name)
            if claim is None or not claim.leaves(wish.core_count, entry.priority, entry.request_milli, per_core)
            for c in entry.cores[: wish.core_count]
        }
        return tuple(c for c in range(self.nodes[name].type.vcpus) if c not in taken)
