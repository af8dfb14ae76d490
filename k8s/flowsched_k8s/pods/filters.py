"""Whether a pod may run on a node, as far as that depends on the pod, the node and volumes, and on no other pod.

Resources, host ports and everything about other pods is the engine's: see :mod:`flowsched_k8s.pods.requests` and
:mod:`flowsched_k8s.pods.affinity`.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from flowsched_k8s.names import AVOIDED, CORDONED, NODE_AFFINITY, TAINTS
from flowsched_k8s.objects import Node, NodeAffinity, Pod, Taint, TopologySpreadConstraint
from flowsched_k8s.pods.selector import NodeTerm, NodeTest, node_term, node_test
from flowsched_k8s.volumes.volume_needs import NOTHING, VolumeNeeds
from flowsched_k8s.volumes.volumes import VolumeIndex

AVOIDED_TAINT = 0.5
"""What the first ``PreferNoSchedule`` taint costs; each further one half of the one before, so all stay below 1."""
_FULL_WEIGHT = 100
_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_FORBIDDING = ("NoSchedule", "NoExecute")
_COMPARED = ("Gt", "Lt")
_MUST = "DoNotSchedule"
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")


@dataclass(frozen=True)
class Tolerance:
    """A toleration."""

    key: str
    value: str | None
    """None for any."""
    effect: str
    operator: str = "Equal"
    """``Gt`` or ``Lt``: the taint's value, a whole number, is above or below this one (Kubernetes 1.35, behind a gate)."""

    def covers(self, taint: Taint) -> bool:
        """Whether it tolerates a taint: an empty key or effect stands for all."""
        return (
            self.effect in ("", taint.effect)
            and self.key in ("", taint.key)
            and (self.value is None or self._agrees(self.value, taint.value))
        )

    def _agrees(self, own: str, value: str) -> bool:
        if self.operator not in _COMPARED:
            return own == value
        if not (_WHOLE.fullmatch(own) and _WHOLE.fullmatch(value)):
            return False
        return int(value) > int(own) if self.operator == "Gt" else int(value) < int(own)


@dataclass(frozen=True)
class SpreadScope:
    """Which nodes count when pods are spread."""

    keys: tuple[str, ...] = ()
    """Labels of all spread constraints that must hold: a node that lacks one is in no domain."""
    by_affinity: bool = True
    """Only nodes that the pod's selector and node affinity allow."""
    by_taints: bool = False
    """Only nodes whose taints the pod tolerates."""


@dataclass(frozen=True)
class StaticFilter:
    """What one pod demands of nodes by themselves."""

    blocked: str | None = None
    """Why no node will do, whatever the nodes are like; it names the field."""
    selector: tuple[tuple[str, str], ...] = ()
    required: NodeTest | None = None
    preferred: tuple[tuple[int, NodeTerm], ...] = ()
    tolerances: tuple[Tolerance, ...] = ()
    volumes: VolumeNeeds = NOTHING
    spread: SpreadScope = field(default_factory=SpreadScope)

    @cached_property
    def size(self) -> int:
        """How many comparisons it may take to say what a node is to the pod."""
        terms = () if self.required is None else self.required.terms
        return (
            len(self.selector)
            + len(self.tolerances)
            + sum(term.size for term in (*terms, *(t for _, t in self.preferred)))
        )

    @cached_property
    def key(self) -> Hashable:
        """Equal for pods that get the same answers on every node."""
        return (
            self.blocked,
            self.selector,
            self.required,
            self.preferred,
            self.tolerances,
            self.volumes,
            self.spread,
        )

    @cached_property
    def questions(self) -> int:
        """About how many times as long a node is looked at as for a pod that says little."""
        terms = (*(self.required.terms if self.required is not None else ()), *(term for _, term in self.preferred))
        parts = len(self.selector) + len(self.tolerances) + sum(1 + term.size for term in terms)
        return 1 + max(0, parts - 8) // 2

    def verdict(self, node: Node) -> str | None:
        """The first reason why the pod may not run there, in the order in which operators expect them; or None."""
        if node.spec.unschedulable and not self._tolerates(_CORDON):
            return CORDONED
        if not self._selected(node):
            return NODE_AFFINITY
        if self._untolerated(node, _FORBIDDING):
            return TAINTS
        return self.volumes.verdict(node)

    def affine(self, node: Node) -> bool:
        """Whether the node counts as one that the pod can be spread to.

        By its selector and required node affinity; by taints, or not by affinity, where its constraints say so.
        """
        labels = node.metadata.labels or {}
        if not all(key in labels for key in self.spread.keys):
            return False
        if self.spread.by_affinity and not self._selected(node):
            return False
        return not self.spread.by_taints or not self._untolerated(node, _FORBIDDING)

    def preference(self, node: Node) -> float:
        """What the pod's wishes about nodes cost there: 0 where all are met.

        Missed node preferences cost their share of all weights (of 100, if they add up to less), so at most 1 together;
        taints to be avoided add less than 1.
        """
        cost = 0.0
        if self.preferred:
            missed = sum(weight for weight, term in self.preferred if not term.matches(node))
            cost = missed / max(_FULL_WEIGHT, sum(weight for weight, _ in self.preferred))
        avoided = self._untolerated(node, (AVOIDED,))
        return cost + (1.0 - AVOIDED_TAINT**avoided if avoided else 0.0)

    def _selected(self, node: Node) -> bool:
        labels = node.metadata.labels or {}
        if not all(labels.get(key) == value for key, value in self.selector):
            return False
        return self.required is None or self.required.matches(node)

    def _tolerates(self, taint: Taint) -> bool:
        return any(t.covers(taint) for t in self.tolerances)

    def _untolerated(self, node: Node, effects: tuple[str, ...]) -> int:
        return sum(t.effect in effects and not self._tolerates(t) for t in node.spec.taints or ())


def static_filter(pod: Pod, volumes: VolumeIndex) -> StaticFilter:
    """What the pod demands of nodes as things are now. Worked out again when its claims or their volumes change."""
    needs = volumes.needs(pod)
    blocked = next(_unsupported(pod), None) or needs.blocked
    if blocked is not None:
        return StaticFilter(blocked)
    affinity = _node_affinity(pod)
    return StaticFilter(
        None,
        _selector(pod),
        node_test(affinity.required) if affinity.required is not None else None,
        tuple(_preferred(affinity)),
        tuple(_tolerances(pod)),
        needs,
        _spread_scope(pod),
    )


def spread_nodes(pod: Pod, pool: bool = False) -> list[tuple[TopologySpreadConstraint, StaticFilter | None]]:
    """Spread constraints that must hold, each with the nodes that it compares, which its filter calls affine.

    None where all of them compare those of :func:`static_filter`, as they do unless their inclusion policies differ.
    ``pool``: the static filter sees its nodes only, so None is for constraints that compare all nodes with their label.
    """
    hard = _hard(pod)
    affinity = _node_affinity(pod)
    required = node_test(affinity.required) if affinity.required is not None else None
    policies = {_policies(c) for c in hard}
    if len(policies) < 2:
        selects = bool(pod.spec.node_selector) or required is not None
        by_affinity, by_taints = next(iter(policies), (False, False))
        if not pool or not ((by_affinity and selects) or by_taints or len(_spread_keys(hard)) > 1):
            return [(c, None) for c in hard]
    found: list[tuple[TopologySpreadConstraint, StaticFilter | None]] = []
    for constraint in hard:
        by_affinity, by_taints = _policies(constraint)
        # What a policy ignores is left out, so that pods that differ in that only are compared on the same nodes.
        nodes = StaticFilter(
            selector=_selector(pod) if by_affinity else (),
            required=required if by_affinity else None,
            tolerances=tuple(_tolerances(pod)) if by_taints else (),
            spread=SpreadScope(_spread_keys(hard), by_affinity, by_taints),
        )
        found.append((constraint, nodes))
    return found


def _unsupported(pod: Pod) -> Iterator[str]:
    """Fields that would have to be honoured and are not."""
    spec = pod.spec
    if spec.resource_claims:
        yield "spec.resourceClaims is not supported by flowsched"
    if spec.workload_ref is not None:
        yield "spec.workloadRef is not supported by flowsched; name the group by a label or by spec.schedulingGroup"
    for index, toleration in enumerate(spec.tolerations or ()):
        if toleration.operator not in ("", "Equal", "Exists", *_COMPARED):
            yield f"spec.tolerations[{index}].operator: {toleration.operator} is not supported by flowsched"
    for index, constraint in enumerate(spec.topology_spread_constraints or ()):
        if constraint.when_unsatisfiable not in (_MUST, "ScheduleAnyway"):
            where = f"spec.topologySpreadConstraints[{index}].whenUnsatisfiable"
            yield f"{where}: {constraint.when_unsatisfiable} is not supported by flowsched"


def _selector(pod: Pod) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((pod.spec.node_selector or {}).items()))


def _node_affinity(pod: Pod) -> NodeAffinity:
    return (pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None) or NodeAffinity()


def _hard(pod: Pod) -> list[TopologySpreadConstraint]:
    return [c for c in pod.spec.topology_spread_constraints or () if c.when_unsatisfiable == _MUST]


def _policies(constraint: TopologySpreadConstraint) -> tuple[bool, bool]:
    """Whether only nodes count that the pod's affinity allows, and only those whose taints it tolerates."""
    return (constraint.node_affinity_policy or "Honor") == "Honor", constraint.node_taints_policy == "Honor"


def _spread_keys(hard: Sequence[TopologySpreadConstraint]) -> tuple[str, ...]:
    return tuple(sorted({c.topology_key for c in hard}))


def _spread_scope(pod: Pod) -> SpreadScope:
    hard = _hard(pod)
    policies = {_policies(c) for c in hard}
    if len(policies) > 1:
        # Each constraint has domains of its own, which other nodes are not in.
        return SpreadScope(by_affinity=False)
    return SpreadScope(_spread_keys(hard), *policies.pop()) if hard else SpreadScope()


def _preferred(affinity: NodeAffinity) -> list[tuple[int, NodeTerm]]:
    """Wishes that some node can meet."""
    terms = ((p.weight, node_term(p.preference)) for p in affinity.preferred or () if p.weight > 0)
    return sorted((weight, term) for weight, term in terms if term is not None)


def _tolerances(pod: Pod) -> Iterable[Tolerance]:
    return sorted(
        {
            Tolerance(
                t.key,
                None if t.operator == "Exists" else t.value,
                t.effect,
                t.operator if t.operator in _COMPARED else "Equal",
            )
            for t in pod.spec.tolerations or ()
            # An empty key stands for all keys only together with Exists.
            if t.key or t.operator == "Exists"
        },
        key=lambda t: (t.key, t.value is not None, t.value or "", t.effect, t.operator),
    )
