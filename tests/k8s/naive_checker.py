"""Whether a pod may be on a node, worked out the slow and obvious way, for comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from flowsched_k8s.objects import LabelSelector, Node, Pod, PodAffinityTerm
from flowsched_k8s.pods.quantity import amount

Placed = Sequence[tuple[Pod, str]]
"""Pods and the names of their nodes."""


@dataclass(frozen=True)
class Cluster:
    """Nodes by name, and who is where."""

    nodes: Mapping[str, Node]
    placed: Placed
    outside: frozenset[str] = frozenset()
    """Nodes to which no pod is brought: what is there counts, but an empty domain of such nodes alone is no floor."""

    def without(self, pod: Pod) -> Cluster:
        """The same, one pod gone."""
        return replace(self, placed=[(p, n) for p, n in self.placed if p.metadata.uid != pod.metadata.uid])

    def plus(self, pod: Pod, node: str) -> Cluster:
        """The same, with one more pod."""
        return replace(self, placed=[*self.placed, (pod, node)])

    def on(self, node: str) -> list[Pod]:
        """Pods there."""
        return [p for p, n in self.placed if n == node]

    def overcommitted(self, node: str, asked: Iterable[str] | None = None) -> str | None:
        """The first resource, of all or of some, of which pods have more than there is."""
        offered = self.nodes[node].status.allocatable or {}
        used: dict[str, int] = {"pods": len(self.on(node))}
        for pod in self.on(node):
            for resource, n in requests(pod).items():
                used[resource] = used.get(resource, 0) + n
        of = used if asked is None else asked
        return next((r for r in sorted(of) if used.get(r, 0) > amount(r, offered.get(r, "0"))), None)

    def refused_there(self, pod: Pod, node: str) -> str | None:
        """The first reason for which a kubelet would refuse a pod that is on its node."""
        asked = {"pods", *(resource for resource, n in requests(pod).items() if n)}
        if resource := self.overcommitted(node, asked):
            return f"too little {resource}"
        return "ports" if any(clash(pod, other) for other in self.without(pod).on(node)) else None

    def refuses(self, pod: Pod, node: str) -> str | None:
        """The first reason why a pod that is nowhere yet may not go to a node."""
        if why := static(pod, self.nodes[node]):
            return why
        if resource := self.plus(pod, node).overcommitted(node):
            return f"too little {resource}"
        return self.related(pod, node)

    def related(self, pod: Pod, node: str) -> str | None:
        """The same, about other pods only."""
        if any(clash(pod, other) for other in self.on(node)):
            return "ports"
        for term in _terms(pod, anti=True):
            if self._count(pod, term, node):
                return "anti-affinity"
        for other, place in self.placed:
            for term in _terms(other, anti=True):
                if self._same(place, node, term.topology_key) and _means(other, term, pod):
                    return "another's anti-affinity"
        terms = _terms(pod, anti=False)
        for term in terms:
            if _domain(self.nodes[node], term.topology_key) is None:
                return "affinity: no label"
        if not all(self._count_all(pod, terms, term.topology_key, node) for term in terms):
            first = all(_means(pod, t, pod) for t in terms) and not any(
                self._count_all(pod, terms, t.topology_key, None) for t in terms
            )
            if not first:
                return "affinity"
        return self._spread(pod, node)

    def _spread(self, pod: Pod, node: str) -> str | None:
        hard = [c for c in pod.spec.topology_spread_constraints or () if c.when_unsatisfiable == "DoNotSchedule"]
        for constraint in hard:
            key = constraint.topology_key
            here = _domain(self.nodes[node], key)
            if here is None:
                return "spread: no label"
            compared = {
                name: value
                for name, n in self.nodes.items()
                if (value := _domain(n, key)) is not None
                and (constraint.node_affinity_policy == "Ignore" or selected(pod, n))
                and (constraint.node_taints_policy != "Honor" or tolerated(pod, n))
                and all(_domain(n, c.topology_key) is not None for c in hard)
            }
            counts = dict.fromkeys(compared.values(), 0)
            floors = {value for name, value in compared.items() if name not in self.outside}
            for other, place in self.placed:
                if place in compared and _counts_for_spread(pod, constraint.label_selector, other):
                    counts[compared[place]] += 1
            own = _counts_for_spread(pod, constraint.label_selector, pod)
            if counts.get(here, 0) + own - min((counts[value] for value in floors), default=0) > constraint.max_skew:
                return "spread"
        return None

    def _count(self, pod: Pod, term: PodAffinityTerm, node: str) -> int:
        return sum(
            self._same(place, node, term.topology_key) and _means(pod, term, other) for other, place in self.placed
        )

    def _count_all(self, pod: Pod, terms: Sequence[PodAffinityTerm], key: str, node: str | None) -> int:
        """Pods that all terms mean, in a node's domain or (None) in any."""
        return sum(
            all(_means(pod, t, other) for t in terms)
            and (_domain(self.nodes.get(place), key) is not None if node is None else self._same(place, node, key))
            for other, place in self.placed
        )

    def _same(self, one: str, other: str, key: str) -> bool:
        value = _domain(self.nodes.get(one), key)
        return value is not None and value == _domain(self.nodes.get(other), key)


def requests(pod: Pod) -> dict[str, int]:
    """Sums over containers; these tests use neither init containers nor overhead."""
    total: dict[str, int] = {}
    for container in pod.spec.containers:
        for resource, text in ((container.resources and container.resources.requests) or {}).items():
            total[resource] = total.get(resource, 0) + amount(resource, text)
    return total


def selected(pod: Pod, node: Node) -> bool:
    """Whether the node selector matches."""
    labels = node.metadata.labels or {}
    return all(labels.get(key) == value for key, value in (pod.spec.node_selector or {}).items())


def static(pod: Pod, node: Node) -> str | None:
    """Why the node by itself will not do."""
    if node.spec.unschedulable:
        return "cordoned"
    if not selected(pod, node):
        return "node selector"
    return None if tolerated(pod, node) else "taint"


def tolerated(pod: Pod, node: Node) -> bool:
    """Whether the pod tolerates all taints that keep pods away."""
    return all(
        taint.effect not in ("NoSchedule", "NoExecute")
        or any(
            t.key == taint.key and (t.operator == "Exists" or t.value == taint.value) and t.effect in ("", taint.effect)
            for t in pod.spec.tolerations or ()
        )
        for taint in node.spec.taints or ()
    )


def clash(one: Pod, other: Pod) -> bool:
    """Whether two pods want the same port of a node."""
    return any(
        a[:2] == b[:2] and (a[2] == b[2] or "0.0.0.0" in (a[2], b[2])) for a in _ports(one) for b in _ports(other)
    )


def _ports(pod: Pod) -> list[tuple[str, int, str]]:
    return [
        (p.protocol or "TCP", p.host_port, p.host_ip or "0.0.0.0")
        for c in pod.spec.containers
        for p in c.ports or ()
        if p.host_port
    ]


def _terms(pod: Pod, anti: bool) -> Sequence[PodAffinityTerm]:
    affinity = pod.spec.affinity
    part = None if affinity is None else affinity.pod_anti_affinity if anti else affinity.pod_affinity
    return (part.required if part is not None else None) or ()


def _means(pod: Pod, term: PodAffinityTerm, other: Pod) -> bool:
    """These tests use only labels, in the pod's own namespace."""
    return pod.metadata.namespace == other.metadata.namespace and _labels_match(term.label_selector, other)


def _counts_for_spread(pod: Pod, selects: LabelSelector | None, other: Pod) -> bool:
    if pod.metadata.namespace != other.metadata.namespace or other.metadata.deletion_timestamp is not None:
        return False
    return _labels_match(selects, other)


def _labels_match(selects: LabelSelector | None, pod: Pod) -> bool:
    wanted: Iterable[tuple[str, str]] = ((selects.match_labels if selects else None) or {}).items()
    labels = pod.metadata.labels or {}
    return selects is not None and all(labels.get(k) == v for k, v in wanted)


def _domain(node: Node | None, key: str) -> str | None:
    return None if node is None else (node.metadata.labels or {}).get(key)
