"""How much a pod says: what it costs to prepare its placing grows with that."""

from __future__ import annotations

from collections.abc import Iterable, Sized

from flowsched_k8s.objects import (
    Affinity,
    Container,
    ContainerStatus,
    LabelSelector,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    Requirement,
    Resources,
    TopologySpreadConstraint,
)

_WISH = 4
"""A wish about pods is counted on all nodes in every round."""


def pod_length(pod: Pod) -> int:
    """The entries of all lists and mappings of a pod, those within others too. The usual pod has some twenty."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    found = _entries(
        meta.labels,
        meta.annotations,
        meta.owner_references,
        spec.node_selector,
        spec.tolerations,
        spec.overhead,
        spec.scheduling_gates,
        spec.volumes,
        spec.resource_claims,
        status.conditions,
        status.allocated_resources,
    )
    found += sum(_container(c) for c in (*spec.containers, *(spec.init_containers or ())))
    found += sum(_status(s) for s in (*(status.container_statuses or ()), *(status.init_container_statuses or ())))
    found += sum(_spread(c) for c in spec.topology_spread_constraints or ())
    for volume in spec.volumes or ():
        found += 0 if volume.rbd is None else _entries(volume.rbd.monitors)
    return found if spec.affinity is None else found + _affinity(spec.affinity)


def _entries(*lists: Sized | None) -> int:
    return sum(len(entries) for entries in lists if entries)


def _container(container: Container) -> int:
    return 1 + _entries(container.ports) + _resources(container.resources)


def _resources(resources: Resources | None) -> int:
    return 0 if resources is None else _entries(resources.requests, resources.limits, resources.claims)


def _status(status: ContainerStatus) -> int:
    return 1 + _entries(status.allocated_resources) + _resources(status.resources)


def _affinity(affinity: Affinity) -> int:
    found = 0
    if (nodes := affinity.node_affinity) is not None:
        terms = [] if nodes.required is None else nodes.required.node_selector_terms
        found += sum(_node_term(term) for term in (*terms, *(p.preference for p in nodes.preferred or ())))
    for pods in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if pods is not None:
            found += sum(_pod_term(term) for term in pods.required or ())
            found += _WISH * sum(_pod_term(wish.pod_affinity_term) for wish in pods.preferred or ())
    return found


def _node_term(term: NodeSelectorTerm) -> int:
    return 1 + _requirements(term.match_expressions) + _requirements(term.match_fields)


def _pod_term(term: PodAffinityTerm) -> int:
    named = _entries(term.namespaces, term.match_label_keys, term.mismatch_label_keys)
    return named + max(1, _selector(term.label_selector) + _selector(term.namespace_selector))


def _spread(constraint: TopologySpreadConstraint) -> int:
    return 1 + _entries(constraint.match_label_keys) + _selector(constraint.label_selector)


def _selector(selector: LabelSelector | None) -> int:
    return 0 if selector is None else _entries(selector.match_labels) + _requirements(selector.match_expressions)


def _requirements(requirements: Iterable[Requirement] | None) -> int:
    return sum(max(1, _entries(r.values)) for r in requirements or ())
