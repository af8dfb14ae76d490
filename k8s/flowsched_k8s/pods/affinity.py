"""How pods relate to other pods, as relations of the engine: affinity, anti-affinity, topology spread.

Equal demands of different pods are one relation: its name is made from what it demands. Which pods a relation counts is
decided here, by namespace and labels; how many there are in which domain is the engine's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from flowsched.relations.relation import Relation, RelationKind
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
from flowsched_k8s.pods.exclusions import DISK, PORT
from flowsched_k8s.pods.filters import StaticFilter, spread_nodes
from flowsched_k8s.pods.selector import Expression, LabelTest, label_test

SPREAD_WEIGHT = 100.0
"""Weight of a ``ScheduleAnyway`` constraint, beside the 1 to 100 of preferred affinity terms."""
MOST_APART = 16
"""Of required anti-affinity of one topology key are relations of their own; more than so many terms are one together."""
MOST_WISHES = 512
"""Of a pod about other pods: each costs a look at all nodes."""
MOST_KEYS = 64
"""Topology keys of a pod: each costs a look at all nodes, and memory for them."""
_LONG = 64
"""Values and namespaces."""
_PREFIXES = {
    RelationKind.TOGETHER: "affinity",
    RelationKind.APART: "anti-affinity",
    RelationKind.SPREAD: "spread",
    RelationKind.COUNT: "count",
}
_FIELDS = {
    RelationKind.TOGETHER: "spec.affinity.podAffinity",
    RelationKind.APART: "spec.affinity.podAntiAffinity",
    RelationKind.SPREAD: "spec.topologySpreadConstraints",
    RelationKind.COUNT: "spec.affinity and spec.topologySpreadConstraints",
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

    def plain(self) -> object:
        """As JSON has it."""
        labels = [
            None if test is None else [[[e.key, e.operator, e.values] for e in test.expressions]]
            for test in (self.namespace_labels, self.labels)
        ]
        return [self.namespaces, *labels]


@dataclass(frozen=True)
class SoftTerm:
    """A wish about a relation that is only counted."""

    relation: str
    weight: float
    """Of one member in the pod's domain: above 0 it is sought, below 0 avoided; 100 is the weight of a strong wish."""
    skew: int | None = None
    """``maxSkew`` of a spread that may be broken; None for a wish about affinity."""


@dataclass(frozen=True)
class _Counted:
    """Which pods join a relation: those that all tests mean, or any of them."""

    tests: tuple[PodTest, ...]
    any_of: bool = False
    terminating: bool = True
    """Whether pods that are being deleted count."""
    nothing: bool = False

    def matches(self, pod: Pod, namespace_labels: Mapping[str, str], found_by: PodTest | None = None) -> bool:
        """Whether a pod joins. ``found_by``: the test by which it was found, if not every one has to be asked."""
        meta = pod.metadata
        if self.nothing or (meta.deletion_timestamp is not None and not self.terminating):
            return False
        labels = meta.labels or {}
        tests = self.tests if found_by is None or not self.any_of else (found_by,)
        found = (t.matches(meta.namespace, labels, namespace_labels) for t in tests)
        return any(found) if self.any_of else all(found)

    @cached_property
    def is_long(self) -> bool:
        """Whether it says more than nearly all pods do, so that nothing should keep copies of it."""
        labels = [
            expression for test in self.tests if test.labels is not None for expression in test.labels.expressions
        ]
        return sum(len(e.values) for e in labels) + sum(len(test.namespaces) for test in self.tests) > _LONG

    @cached_property
    def text(self) -> object:
        """The tests as JSON has them; only a digest of long ones, which relations of several keys may share."""
        tests = [test.plain() for test in self.tests]
        return hashlib.blake2b(json.dumps(tests).encode(), digest_size=16).hexdigest() if self.is_long else tests

    @property
    def found_by(self) -> tuple[PodTest, ...]:
        """Tests of which one means a pod that joins: of all that must mean it, one is enough."""
        return () if self.nothing else self.tests if self.any_of else self.tests[:1]


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


@dataclass(frozen=True)
class PodRelations:
    """What one pod demands of others."""

    holds: tuple[str, ...] = ()
    declared: tuple[Relation, ...] = ()
    """All relations that it names, those of its wishes included."""
    soft: tuple[SoftTerm, ...] = ()
    unsupported: str | None = None
    """A field that would have to be honoured and cannot be."""
    counted: tuple[_Counted, ...] = ()
    """By declared relation, which pods join it."""
    scoped: tuple[tuple[str, _ScopedKey], ...] = ()
    """By name, relations whose domains are those of some nodes only."""


NO_RELATIONS = PodRelations()
_Related = tuple[Relation, _Counted]


class _Shelf:
    """Relations of one namespace by a label that every pod that joins must have, so that few have to be looked at."""

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str | None], dict[str, None]] = {}
        self._others: dict[str, None] = {}
        self._labels: dict[str, list[tuple[str, str | None]]] = {}
        """By relation, where it is."""

    def put(self, name: str, test: LabelTest) -> None:
        labels = self._best(test)
        if labels is None:
            self._others[name] = None
            return
        self._labels.setdefault(name, []).extend(labels)
        for label in labels:
            self._by_label.setdefault(label, {})[name] = None

    def __len__(self) -> int:
        return len(self._others) + len(self._by_label)

    def remove(self, name: str) -> None:
        self._others.pop(name, None)
        for label in self._labels.pop(name, ()):
            self._by_label.get(label, {}).pop(name, None)
            if not self._by_label.get(label, True):
                # Every rollout brings a label of its own.
                del self._by_label[label]

    def candidates(self, labels: Mapping[str, str]) -> Iterator[str]:
        yield from self._others
        for key, value in labels.items():
            yield from self._by_label.get((key, value), ())
            yield from self._by_label.get((key, None), ())

    def _best(self, test: LabelTest) -> list[tuple[str, str | None]] | None:
        """Where a test belongs: under the demand whose fullest place is emptiest. None where it names no label."""
        options: list[list[tuple[str, str | None]]] = []
        for expression in test.expressions:
            if expression.operator == "In":
                options.append([(expression.key, value) for value in expression.values])
            elif expression.operator == "Exists":
                options.append([(expression.key, None)])
        fullest = [max(len(self._by_label.get(label, ())) for label in option) for option in options]
        return options[fullest.index(min(fullest))] if options else None


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

    def demands(self, pod: Pod) -> PodRelations:
        """What the pod demands of others, without host ports: a matter of its spec and its labels."""
        affinity, spreads = pod.spec.affinity, pod.spec.topology_spread_constraints
        if not spreads and (affinity is None or not (affinity.pod_affinity or affinity.pod_anti_affinity)):
            return NO_RELATIONS
        unsupported = next(self._unsupported(pod), None)
        if unsupported is not None:
            return PodRelations(unsupported=unsupported)
        spread = list(self._spread(pod))
        hard = [*_together(pod), *_apart(pod), *(related for related, _ in spread)]
        soft = list(_soft(pod))
        related = dict((*hard, *(related for related, *_ in soft)))
        weights: dict[tuple[str, int | None], float] = {}
        for (relation, _), weight, skew in soft:
            weights[relation.name, skew] = weights.get((relation.name, skew), 0.0) + weight
        declared = sorted(related, key=lambda relation: relation.name)
        return PodRelations(
            tuple(sorted({relation.name for relation, _ in hard})),
            tuple(declared),
            tuple(SoftTerm(name, weight, skew) for (name, skew), weight in sorted(weights.items(), key=repr)),
            None,
            tuple(related[relation] for relation in declared),
            tuple((relation.name, scoped) for (relation, _), scoped in spread if scoped is not None),
        )

    def declare(self, found: PodRelations, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        """What a pod demands is known from now on.

        ``namespaces``: labels by namespace. The mapping is kept and asked again as it is then.
        """
        self._namespaces = namespaces
        for relation, counted in zip(found.declared, found.counted, strict=True):
            name = relation.name
            if name in self._counted:
                continue
            self._counted[name] = counted
            for test in counted.found_by:
                if test.labels is not None:
                    for place in _shelf_keys(test):
                        self._shelves.setdefault(place, _Shelf()).put(name, test.labels)
        for name, scoped in found.scoped:
            self._scoped[name] = scoped.name
            self._own[scoped.name] = scoped

    def joins(self, pod: Pod) -> tuple[str, ...]:
        """All declared relations that count the pod, without exclusions; sorted."""
        meta = pod.metadata
        labels = meta.labels or {}
        here = self._namespaces.get(meta.namespace, {})
        found: set[str] = set()
        for shelf in (self._shelves.get(meta.namespace), self._shelves.get(None)):
            if shelf is not None:
                candidates = set(shelf.candidates(labels))
                found.update(name for name in candidates if self._counted[name].matches(pod, here))
        return tuple(sorted(found))

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
            for test in self._counted.pop(name).found_by:
                for place in _shelf_keys(test):
                    shelf = self._shelves.get(place)
                    if shelf is not None:
                        shelf.remove(name)
                        if not len(shelf):
                            del self._shelves[place]
        used = set(self._scoped.values())
        self._own = {name: key for name, key in self._own.items() if name in used}
        return gone

    def _spread(self, pod: Pod) -> Iterator[tuple[_Related, _ScopedKey | None]]:
        for constraint, nodes in spread_nodes(pod, self._pool):
            scoped = None if nodes is None else _ScopedKey(constraint.topology_key, nodes)
            key = constraint.topology_key if scoped is None else scoped.name
            counted = _spread_counted(pod, constraint)
            least = constraint.min_domains or 1
            yield _related(RelationKind.SPREAD, key, counted, constraint.max_skew, least), scoped

    def _unsupported(self, pod: Pod) -> Iterator[str]:
        for where, count, most in _counts(pod):
            if count > most:
                yield f"{where}: expected at most {most} different ones, got {count}"
        if not self._reads_namespaces and (selector := selector_of_namespaces(pod)) is not None:
            feature = "flowsched reads namespaces only with the feature 'namespaceSelector'"
            yield f"{selector} is not supported: {feature}"


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


def field_of(relation: Relation) -> str:
    """The field of a pod by which it demands or wishes something of others."""
    return _FIELDS[relation.kind]


def _prefix(relation: str) -> str:
    return relation.split("/", 1)[0]


def _affinity(pod: Pod, anti: bool) -> PodAffinity:
    affinity = pod.spec.affinity
    part = None if affinity is None else affinity.pod_anti_affinity if anti else affinity.pod_affinity
    return part or PodAffinity()


def _counts(pod: Pod) -> Iterator[tuple[str, int, int]]:
    """What a pod may have only so many of: the field, how many it has, and the most."""
    keys: set[str] = set()
    for anti, name in ((False, "podAffinity"), (True, "podAntiAffinity")):
        part = _affinity(pod, anti)
        wishes = part.preferred or ()
        keys.update(term.topology_key for term in part.required or ())
        keys.update(wish.pod_affinity_term.topology_key for wish in wishes)
        yield f"spec.affinity.{name}: topologyKey", len(keys), MOST_KEYS
        yield f"spec.affinity.{name}.preferredDuringSchedulingIgnoredDuringExecution: terms", len(wishes), MOST_WISHES
    spreads = {constraint.topology_key for constraint in pod.spec.topology_spread_constraints or ()}
    yield "spec.topologySpreadConstraints: topologyKey", len(spreads), MOST_KEYS


def selector_of_namespaces(pod: Pod) -> str | None:
    """The first selector for which namespaces have to be read, by its place in the pod; an empty one means all of them."""
    terms = ((where, term.namespace_selector) for where, term in _all_terms(pod))
    return next(
        (
            f"{where}.namespaceSelector"
            for where, selector in terms
            if selector is not None and label_test(selector) != LabelTest()
        ),
        None,
    )


def _together(pod: Pod) -> Iterator[_Related]:
    """One relation per topology key. A pod counts only if all terms mean it."""
    terms = _affinity(pod, anti=False).required or ()
    counted = _Counted(tuple(sorted({_pod_test(pod, term) for term in terms}, key=repr)))
    for key in dict.fromkeys(term.topology_key for term in terms):
        yield _related(RelationKind.TOGETHER, key, counted)


def _apart(pod: Pod) -> Iterator[_Related]:
    """One relation per term. Many of one topology key are one: whom any of them means is kept apart."""
    by_key: dict[str, dict[PodTest, None]] = {}
    for term in _affinity(pod, anti=True).required or ():
        by_key.setdefault(term.topology_key, {})[_pod_test(pod, term)] = None
    for key, tests in by_key.items():
        if len(tests) > MOST_APART:
            yield _related(RelationKind.APART, key, _Counted(tuple(tests), any_of=True))
        else:
            yield from (_related(RelationKind.APART, key, _Counted((test,))) for test in tests)


def _soft(pod: Pod) -> Iterator[tuple[_Related, float, int | None]]:
    """Wishes, each with its signed weight and the skew that it allows."""
    for anti, sign in ((False, 1.0), (True, -1.0)):
        for wish in _affinity(pod, anti).preferred or ():
            term = wish.pod_affinity_term
            counted = _Counted((_pod_test(pod, term),))
            yield _related(RelationKind.COUNT, term.topology_key, counted), sign * wish.weight, None
    for constraint in pod.spec.topology_spread_constraints or ():
        if constraint.when_unsatisfiable == "ScheduleAnyway":
            related = _related(RelationKind.COUNT, constraint.topology_key, _spread_counted(pod, constraint))
            yield related, -SPREAD_WEIGHT, constraint.max_skew


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


def _related(kind: RelationKind, key: str, counted: _Counted, skew: int = 1, min_domains: int = 0) -> _Related:
    """A relation, and which pods join it."""
    # What is remembered must not grow with what a pod says.
    named = _named.__wrapped__ if counted.is_long else _named
    return named(kind, key, counted, skew, min_domains), counted


@lru_cache(maxsize=1 << 14)
def _named(kind: RelationKind, key: str, counted: _Counted, skew: int = 1, min_domains: int = 0) -> Relation:
    """A relation with a name made from all that it demands."""
    demand = (
        kind,
        key,
        skew,
        min_domains,
        counted.text,
        counted.terminating,
        counted.nothing,
        *(["any"] if counted.any_of else []),
    )
    digest = hashlib.blake2b(json.dumps(demand).encode(), digest_size=10).hexdigest()
    return Relation(f"{_PREFIXES[kind]}/{key}/{digest}", kind, key, skew=skew, min_domains=min_domains)


def _shelf_keys(test: PodTest) -> tuple[str | None, ...]:
    """Namespaces under which a test is found; None is looked at for pods of all."""
    return test.namespaces if test.namespace_labels is None else (None,)
