"""How pods relate to other pods, as relations of the engine: affinity, anti-affinity, topology spread.

Equal demands of different pods are one relation: its name is made from what it demands. Which pods a relation counts is
decided here, by namespace and labels; how many there are in which domain is the engine's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from functools import cached_property, lru_cache

from flowsched.relations.relation import Relation, RelationKind
from flowsched_k8s.exclusions import DISK, PORT, exclusions
from flowsched_k8s.filters import StaticFilter, spread_nodes
from flowsched_k8s.names import (
    DISK_CONFLICT,
    EXISTING_ANTI_AFFINITY,
    POD_AFFINITY,
    POD_ANTI_AFFINITY,
    PORTS,
    SPREAD,
    SPREAD_NO_LABEL,
)
from flowsched_k8s.objects import (
    LabelSelector,
    Node,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from flowsched_k8s.selector import Expression, LabelTest, label_test

SPREAD_WEIGHT = 100.0
"""Weight of a ``ScheduleAnyway`` constraint, beside the 1 to 100 of preferred affinity terms."""
_PREFIXES = {
    RelationKind.TOGETHER: "affinity",
    RelationKind.APART: "anti-affinity",
    RelationKind.SPREAD: "spread",
    RelationKind.COUNT: "count",
}
_EXCLUSIONS = {PORT: PORTS, DISK: DISK_CONFLICT}
_REASONS = {
    ("affinity", "holds"): POD_AFFINITY,
    ("anti-affinity", "holds"): POD_ANTI_AFFINITY,
    ("anti-affinity", "joins"): EXISTING_ANTI_AFFINITY,
    ("spread", "holds"): SPREAD,
}


@dataclass(frozen=True)
class PodTest:
    """Which pods a term is about."""

    namespaces: tuple[str, ...] = ()
    """Named ones."""
    namespace_labels: LabelTest | None = None
    """And those with such labels."""
    labels: LabelTest | None = None
    """None for no pod at all."""

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        """Whether a pod of a namespace with such labels is meant."""
        if self.labels is None or not self.labels.matches(labels):
            return False
        if namespace in self.namespaces:
            return True
        return self.namespace_labels is not None and self.namespace_labels.matches(namespace_labels)


@dataclass(frozen=True)
class SoftTerm:
    """A wish about a relation that is only counted."""

    relation: str
    weight: float
    """Of one member in the pod's domain: above 0 it is sought, below 0 avoided; 100 is the weight of a strong wish."""
    skew: int | None = None
    """``maxSkew`` of a spread that may be broken; None for a wish about affinity."""


@dataclass(frozen=True)
class PodRelations:
    """What one pod demands of others."""

    holds: tuple[str, ...] = ()
    declared: tuple[Relation, ...] = ()
    """All relations that it names, those of its wishes included."""
    soft: tuple[SoftTerm, ...] = ()
    unsupported: str | None = None
    """A field that would have to be honoured and cannot be."""


_NONE = PodRelations()


@dataclass(frozen=True)
class _Counted:
    """Which pods join a relation: those that all tests mean."""

    tests: tuple[PodTest, ...]
    terminating: bool = True
    """Whether pods that are being deleted count."""
    nothing: bool = False

    def matches(self, pod: Pod, namespace_labels: Mapping[str, str]) -> bool:
        meta = pod.metadata
        if self.nothing or (meta.deletion_timestamp is not None and not self.terminating):
            return False
        labels = meta.labels or {}
        return all(t.matches(meta.namespace, labels, namespace_labels) for t in self.tests)


@dataclass(frozen=True)
class _ScopedKey:
    """A label that only some nodes have: those that one constraint compares."""

    key: str
    """The node's own label whose values it has."""
    nodes: StaticFilter
    """Those that it calls affine."""

    @cached_property
    def name(self) -> str:
        digest = hashlib.blake2b(repr(self.nodes.key).encode(), digest_size=5).hexdigest()
        return f"{self.key}@{digest}"


class _Shelf:
    """Relations of one namespace by a label that every pod that joins must have, so that few have to be looked at."""

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str | None], dict[str, None]] = {}
        self._others: dict[str, None] = {}

    def put(self, name: str, test: LabelTest) -> None:
        for shelf in self._places(test):
            shelf[name] = None

    def __len__(self) -> int:
        return len(self._others) + len(self._by_label)

    def remove(self, name: str) -> None:
        self._others.pop(name, None)
        for label in [label for label, shelf in self._by_label.items() if name in shelf]:
            del self._by_label[label][name]
            if not self._by_label[label]:
                # Every rollout brings a label of its own.
                del self._by_label[label]

    def candidates(self, labels: Mapping[str, str]) -> Iterator[str]:
        yield from self._others
        for key, value in labels.items():
            yield from self._by_label.get((key, value), ())
            yield from self._by_label.get((key, None), ())

    def _places(self, test: LabelTest) -> list[dict[str, None]]:
        """Where a test belongs: under the demand whose fullest place is emptiest."""
        options: list[list[tuple[str, str | None]]] = []
        for expression in test.expressions:
            if expression.operator == "In":
                options.append([(expression.key, value) for value in expression.values])
            elif expression.operator == "Exists":
                options.append([(expression.key, None)])
        if not options:
            return [self._others]
        best = min(options, key=lambda option: max(len(self._by_label.get(place, ())) for place in option))
        return [self._by_label.setdefault(place, {}) for place in best]


class RelationIndex:
    """All relations that pods have declared, and who joins them.

    A pod's joins change with its labels, its deletion, its namespace's labels, and whenever a relation is declared.
    """

    def __init__(self, namespace_selector: bool = True, pool: bool = False) -> None:
        """``namespace_selector``: whether namespaces are read; if not, selectors of namespaces are refused aloud.

        ``pool``: whether there may be nodes outside, whose pods count in the domains that a spread compares.
        """
        self._reads_namespaces = namespace_selector
        self._pool = pool
        self._namespaces: Mapping[str, Mapping[str, str]] = {}
        self._counted: dict[str, _Counted] = {}
        self._shelves: dict[str | None, _Shelf] = {}
        self._scoped: dict[str, str] = {}
        """By name, the key of spreads whose domains only nodes are in that the constraint compares."""
        self._own: dict[str, _ScopedKey] = {}
        """These keys by name."""

    def declare(self, pod: Pod, namespaces: Mapping[str, Mapping[str, str]]) -> PodRelations:
        """What the pod demands of others, without host ports; its relations are known from now on.

        ``namespaces``: labels by namespace. The mapping is kept and asked again as it is then.
        """
        self._namespaces = namespaces
        affinity, spreads = pod.spec.affinity, pod.spec.topology_spread_constraints
        if not spreads and (affinity is None or not (affinity.pod_affinity or affinity.pod_anti_affinity)):
            return _NONE
        unsupported = next(self._unsupported(pod), None)
        if unsupported is not None:
            return PodRelations(unsupported=unsupported)
        hard = [*self._together(pod), *self._apart(pod), *self._spread(pod)]
        soft = self._soft(pod)
        relations = {r.name: r for r in (*hard, *(relation for relation, *_ in soft))}
        weights: dict[tuple[str, int | None], float] = {}
        for relation, weight, skew in soft:
            weights[relation.name, skew] = weights.get((relation.name, skew), 0.0) + weight
        return PodRelations(
            tuple(sorted({r.name for r in hard})),
            tuple(relations[name] for name in sorted(relations)),
            tuple(SoftTerm(name, weight, skew) for (name, skew), weight in sorted(weights.items(), key=repr)),
        )

    def joins(self, pod: Pod) -> tuple[str, ...]:
        """All declared relations that count the pod, without exclusions; sorted."""
        meta = pod.metadata
        labels = meta.labels or {}
        here = self._namespaces.get(meta.namespace, {})
        found: set[str] = set()
        for shelf in (self._shelves.get(meta.namespace), self._shelves.get(None)):
            if shelf is not None:
                found.update(name for name in shelf.candidates(labels) if self._counted[name].matches(pod, here))
        return tuple(sorted(found))

    def matches(self, relation: str, pod: Pod) -> bool:
        """Whether a relation counts the pod; also one of its host ports or disks. False for one that was not declared."""
        if _prefix(relation) in _EXCLUSIONS:
            return relation in exclusions(pod).joins
        counted = self._counted.get(relation)
        return counted is not None and counted.matches(pod, self._namespaces.get(pod.metadata.namespace, {}))

    def own_label(self, relation: str) -> str | None:
        """The label by which its domains are told apart, if nodes have that from :meth:`labels_of`."""
        return self._scoped.get(relation)

    def own_labels(self) -> set[str]:
        """All labels that nodes have from there."""
        return set(self._own)

    def labels_of(self, node: Node) -> dict[str, str]:
        """Labels by which the domains of some declared spreads are told apart; they stand beside the node's own."""
        own = node.metadata.labels or {}
        return {name: own[s.key] for name, s in self._own.items() if s.nodes.affine(node)}

    def retain(self, names: Iterable[str]) -> tuple[str, ...]:
        """Forget all relations but these; returns what was forgotten."""
        kept = set(names)
        gone = tuple(sorted(self._counted.keys() - kept))
        for name in gone:
            self._scoped.pop(name, None)
            for test in self._counted.pop(name).tests[:1]:
                for place in _shelf_keys(test):
                    shelf = self._shelves.get(place)
                    if shelf is not None:
                        shelf.remove(name)
                        if not len(shelf):
                            del self._shelves[place]
        used = set(self._scoped.values())
        self._own = {name: key for name, key in self._own.items() if name in used}
        return gone

    # Required terms

    def _together(self, pod: Pod) -> Iterator[Relation]:
        """One relation per term. A pod counts only if all terms mean it."""
        terms = _affinity(pod, anti=False).required or ()
        tests = tuple(sorted({_pod_test(pod, term) for term in terms}, key=repr))
        for term in terms:
            yield self._register(RelationKind.TOGETHER, term.topology_key, _Counted(tests))

    def _apart(self, pod: Pod) -> Iterator[Relation]:
        for term in _affinity(pod, anti=True).required or ():
            yield self._register(RelationKind.APART, term.topology_key, _Counted((_pod_test(pod, term),)))

    def _spread(self, pod: Pod) -> Iterator[Relation]:
        for constraint, nodes in spread_nodes(pod, self._pool):
            scoped = None if nodes is None else _ScopedKey(constraint.topology_key, nodes)
            key = constraint.topology_key if scoped is None else scoped.name
            counted = _spread_counted(pod, constraint)
            named = self._register(RelationKind.SPREAD, key, counted, constraint.max_skew, constraint.min_domains or 1)
            if scoped is not None:
                self._scoped[named.name] = key
                self._own[key] = scoped
            yield named

    # Wishes

    def _soft(self, pod: Pod) -> list[tuple[Relation, float, int | None]]:
        found: list[tuple[Relation, float, int | None]] = []
        for anti, sign in ((False, 1.0), (True, -1.0)):
            for wish in _affinity(pod, anti).preferred or ():
                term = wish.pod_affinity_term
                named = self._register(RelationKind.COUNT, term.topology_key, _Counted((_pod_test(pod, term),)))
                found.append((named, sign * wish.weight, None))
        for constraint in pod.spec.topology_spread_constraints or ():
            if constraint.when_unsatisfiable == "ScheduleAnyway":
                named = self._register(RelationKind.COUNT, constraint.topology_key, _spread_counted(pod, constraint))
                found.append((named, -SPREAD_WEIGHT, constraint.max_skew))
        return found

    def _unsupported(self, pod: Pod) -> Iterator[str]:
        if self._reads_namespaces:
            return
        for where, term in _all_terms(pod):
            # An empty selector means all namespaces: nothing has to be read for that.
            if term.namespace_selector is not None and label_test(term.namespace_selector) != LabelTest():
                feature = "flowsched reads namespaces only with the feature 'namespaceSelector'"
                yield f"{where}.namespaceSelector is not supported: {feature}"

    def _register(
        self, kind: RelationKind, key: str, counted: _Counted, skew: int = 1, min_domains: int = 0
    ) -> Relation:
        """A relation under its name, known from now on."""
        named = _named(kind, key, counted, skew, min_domains)
        if named.name not in self._counted:
            self._counted[named.name] = counted
            # A pod that joins is meant by every test, so to be found by one is enough.
            for test in counted.tests[:1]:
                if test.labels is not None and not counted.nothing:
                    for place in _shelf_keys(test):
                        self._shelves.setdefault(place, _Shelf()).put(named.name, test.labels)
        return named


def reason_of(relation: str, role: str, missing_label: bool = False) -> str:
    """The reason text for a node that a relation refuses to a pod that ``holds`` or ``joins`` it.

    ``missing_label``: the node is in no domain.
    """
    prefix = _prefix(relation)
    if prefix in _EXCLUSIONS:
        return _EXCLUSIONS[prefix]
    if prefix == "spread" and missing_label:
        return SPREAD_NO_LABEL
    return _REASONS.get((prefix, role), _REASONS.get((prefix, "holds"), POD_AFFINITY))


def _prefix(relation: str) -> str:
    return relation.split("/", 1)[0]


def _affinity(pod: Pod, anti: bool) -> PodAffinity:
    affinity = pod.spec.affinity
    part = None if affinity is None else affinity.pod_anti_affinity if anti else affinity.pod_affinity
    return part or PodAffinity()


def _all_terms(pod: Pod) -> Iterator[tuple[str, PodAffinityTerm]]:
    """All affinity terms, each with its place in the pod."""
    for anti, name in ((False, "podAffinity"), (True, "podAntiAffinity")):
        where = f"spec.affinity.{name}"
        for index, term in enumerate(_affinity(pod, anti).required or ()):
            yield f"{where}.requiredDuringSchedulingIgnoredDuringExecution[{index}]", term
        for index, wish in enumerate(_affinity(pod, anti).preferred or ()):
            place = f"{where}.preferredDuringSchedulingIgnoredDuringExecution[{index}].podAffinityTerm"
            yield place, wish.pod_affinity_term


def _pod_test(pod: Pod, term: PodAffinityTerm) -> PodTest:
    """Which pods a term of this pod is about; those of its own namespace where it does not say."""
    names = tuple(sorted(set(term.namespaces or ())))
    by_label = None
    if term.namespace_selector is not None:
        by_label = label_test(term.namespace_selector)
    elif not names:
        names = (pod.metadata.namespace,)
    labels = _merged(pod, term.label_selector, term.match_label_keys, term.mismatch_label_keys)
    return PodTest(names, by_label, labels)


def _spread_counted(pod: Pod, constraint: TopologySpreadConstraint) -> _Counted:
    """Pods of the same namespace that are to stay. A selector without any demand counts no pod, as in Kubernetes."""
    labels = _merged(pod, constraint.label_selector, constraint.match_label_keys, None)
    test = PodTest((pod.metadata.namespace,), None, labels)
    return _Counted((test,), terminating=False, nothing=labels == LabelTest())


def _merged(
    pod: Pod, selector: LabelSelector | None, equal: Iterable[str] | None, different: Iterable[str] | None
) -> LabelTest | None:
    """A selector with the pod's own values of some labels, the same or any others; labels it lacks are left out."""
    test = label_test(selector)
    own = pod.metadata.labels or {}
    more = [Expression(key, "In", (own[key],)) for key in equal or () if key in own]
    more += [Expression(key, "NotIn", (own[key],)) for key in different or () if key in own]
    return test.narrowed(more) if test is not None and more else test


@lru_cache(maxsize=1 << 14)
def _named(kind: RelationKind, key: str, counted: _Counted, skew: int = 1, min_domains: int = 0) -> Relation:
    """A relation with a name made from all that it demands."""
    demand = (
        kind,
        key,
        skew,
        min_domains,
        [astuple(test) for test in counted.tests],
        counted.terminating,
        counted.nothing,
    )
    digest = hashlib.blake2b(json.dumps(demand).encode(), digest_size=10).hexdigest()
    return Relation(f"{_PREFIXES[kind]}/{key}/{digest}", kind, key, skew=skew, min_domains=min_domains)


def _shelf_keys(test: PodTest) -> tuple[str | None, ...]:
    """Namespaces under which a test is found; None is looked at for pods of all."""
    return test.namespaces if test.namespace_labels is None else (None,)
