"""How much a pod says: what it costs to prepare its placing grows with that."""

from __future__ import annotations

from flowsched_k8s.objects import Container, Pod, PodAffinity


def pod_length(pod: Pod) -> int:
    """The entries of all lists and mappings of a pod that decide where it may go."""
    meta, spec = pod.metadata, pod.spec
    affinity = spec.affinity
    nodes = None if affinity is None else affinity.node_affinity
    required = None if nodes is None or nodes.required is None else nodes.required.node_selector_terms
    lists = (
        meta.labels,
        meta.annotations,
        meta.owner_references,
        spec.node_selector,
        spec.tolerations,
        spec.topology_spread_constraints,
        spec.volumes,
        spec.resource_claims,
        spec.overhead,
        required,
        None if nodes is None else nodes.preferred,
    )
    about_pods = () if affinity is None else (affinity.pod_affinity, affinity.pod_anti_affinity)
    return (
        sum(len(entries) for entries in lists if entries)
        + sum(_terms(part) for part in about_pods if part is not None)
        + sum(_container(c) for c in (*spec.containers, *(spec.init_containers or ())))
    )


def _terms(part: PodAffinity) -> int:
    # A wish is counted on all nodes in every round.
    return len(part.required or ()) + 4 * len(part.preferred or ())


def _container(container: Container) -> int:
    requests = container.resources.requests if container.resources is not None else None
    return 1 + len(container.ports or ()) + len(requests or ())
