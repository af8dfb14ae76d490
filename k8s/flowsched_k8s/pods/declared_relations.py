"""Relations between pods: what each demands of others, made known to the machines once a pod asks for it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from itertools import chain

from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.relations.relation import Relation, RelationKind
from flowsched_k8s.objects import Meta, Pod
from flowsched_k8s.pods.affinity import NO_RELATIONS, PodRelations, RelationIndex, field_of, selector_of_namespaces
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.pods.exclusions import Exclusions, exclusions
from flowsched_k8s.pods.filters import StaticFilter
from flowsched_k8s.pods.pod_index import PodIndex

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


class DeclaredRelations:
    """Those of the pods of a cache. Relations that no pod has asked for are not counted."""

    def __init__(
        self,
        relations: RelationIndex,
        pods: Mapping[str, PodEntry],
        index: PodIndex,
        booked: Callable[[], BookedTasks],
        *,
        outdate: Callable[[], None],
        relabel: Callable[[], None],
        counted: Callable[[PodEntry], None],
    ) -> None:
        """None is declared. ``outdate``: what pods want may be another thing from now on; ``relabel``: nodes have labels
        that tell the domains of a new relation apart; ``counted``: a pod on a node joins a new relation.
        """
        self._relations = relations
        self._pods = pods
        self._index = index
        self._booked = booked
        self._outdate = outdate
        self._relabel = relabel
        self._counted = counted
        self.namespaces: dict[str, dict[str, str]] = {}
        """Labels of each, which decide which pods a namespace selector means."""
        self.namespaces_unreadable = ""
        """Why namespaces cannot be read at the moment; empty if they can."""
        self._declared: set[str] = set()
        self._own_labels: set[str] = set()
        """Labels that nodes have for the sake of relations."""

    def attracts(self, relation: str) -> bool:
        """Whether pods have to be where others are that join a relation."""
        found = self._booked().machines.relation_store.relation(relation)
        return found is not None and found.kind is RelationKind.TOGETHER

    def demands(self, entry: PodEntry) -> PodRelations:
        """What a pod demands of others; pods that differ in annotations alone share it."""
        if entry.relations is None:
            like = entry.template and (entry.template.base or entry.template)
            known = None if like is None else like.relations
            entry.relations = self._relations.demands(entry.pod) if known is None else known
            if like is not None:
                like.relations = entry.relations
        return entry.relations

    def of(self, entry: PodEntry) -> frozenset[str]:
        """Relations through which a pod that is somewhere keeps others out or lets them in."""
        holds, joins = self.bound(entry)
        return frozenset((*holds, *joins))

    def bound(self, entry: PodEntry) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Relations that a pod on a node holds where that binds later pods, and those that it joins."""
        pod = entry.pod
        demanded, alone = NO_RELATIONS, exclusions(pod)
        if pod.spec.affinity is not None and pod.spec.affinity.pod_anti_affinity is not None:
            demanded = self.demands(entry)
            if self._compared(demanded)[0] > _BOUND * self._most_compared:
                LOG.warning("anti-affinity of a bound pod costs too much and is left out", extra={"pod": entry.key})
                demanded = NO_RELATIONS
        self.declare(demanded, alone)
        return (*demanded.holds, *alone.holds), (*self._relations.joins(pod), *alone.joins)

    def unreadable(self, pod: Pod) -> str | None:
        """The namespace selector of a pod that cannot be honoured while namespaces cannot be read."""
        if not self.namespaces_unreadable:
            return None
        selector = selector_of_namespaces(pod)
        return None if selector is None else f"{selector} cannot be honoured: {self.namespaces_unreadable}"

    @property
    def _most_compared(self) -> int:
        return max(MOST_COMPARED, _USUAL * len(self._pods))

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

    def too_much(self, static: StaticFilter, demanded: PodRelations, alone: Exclusions, nodes: int) -> str | None:
        """The field of a waiting pod that costs so much time that the pod waits, in a sentence; of so many nodes."""
        if len(alone.declared) > MOST_EXCLUSIONS:
            number = sum(relation.kind is RelationKind.LIMIT for relation in alone.declared)
            return f"spec.containers: expected at most {MOST_EXCLUSIONS // 2} host ports, got {number}"
        asked = static.size * nodes
        if asked > MOST_ASKED:
            return (
                f"spec.affinity.nodeAffinity and spec.tolerations: {static.size} terms and {nodes} nodes take "
                f"{asked} comparisons, expected at most {MOST_ASKED}"
            )
        compared, field = self._compared(demanded)
        if compared > self._most_compared:
            return (
                f"{field}: the pods that its terms may mean take {compared} comparisons, expected at most "
                f"{self._most_compared}; name labels that fewer pods have"
            )
        return None

    def declare(self, demanded: PodRelations, alone: Exclusions) -> None:
        """Make relations known: who is bound and counts is counted, who waits and counts is looked at again."""
        if not (demanded.declared or alone.declared):
            return
        self._relations.declare(demanded, self.namespaces)
        for relation, counted in zip(demanded.declared, demanded.counted, strict=True):
            if relation.name in self._declared:
                continue
            members: set[str] = set()
            for test in counted.found_by:
                for uid in chain.from_iterable(self._index.candidates(test)[1]):
                    pod = self._pods[uid].pod
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
        self._outdate()
        self._booked().machines.relation_store.declare(relation)
        label = self._relations.own_label(name)
        if label is not None and label not in self._own_labels:
            self._own_labels.add(label)
            self._relabel()
        counted = sorted((self._pods[uid] for uid in members), key=lambda entry: entry.number)
        self._booked().enrol(name, [entry.key.uid for entry in counted if entry.place])
        for entry in counted:
            if not entry.place:
                entry.wants = None
            else:
                self._counted(entry)

    def put_namespace(self, meta: Meta) -> bool:
        """A namespace is there; whether selectors of namespaces may mean another one for that."""
        if self.namespaces.get(meta.name) == (meta.labels or {}):
            return False
        self.namespaces[meta.name] = dict(meta.labels or {})
        return bool(self._declared)

    def remove_namespace(self, name: str) -> bool:
        """A namespace is gone; the same."""
        return self.namespaces.pop(name, None) is not None and bool(self._declared)

    def retire(self) -> set[str]:
        """Let go of relations that no pod has any more; those."""
        named: set[str] = set()
        for entry in self._pods.values():
            if entry.place:
                alone = exclusions(entry.pod)
                named.update(alone.holds, alone.joins)
            elif not entry.ours or entry.relations is None:
                # What has not been asked for is not declared.
                continue
            found = self.demands(entry)
            named.update(found.holds, (r.name for r in found.declared))
            if entry.wants is not None:
                named.update(entry.wants.holds, entry.wants.joins)
        gone = self._declared - named
        if gone:
            self._relations.retain(named)
            self._own_labels &= self._relations.own_labels()
            for name in gone:
                self._booked().machines.relation_store.retire(name)
            self._declared -= gone
        return gone
