"""What a pod asks for and what a node offers, by resource: ``cpu`` in milli-CPU, everything else in whole base units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flowsched_k8s.objects import Container, ContainerStatus, Node, Pod
from flowsched_k8s.pods.quantity import amount

ALWAYS = ("cpu", "memory", "pods")
"""Listed also where the amount is zero."""
MOST = 1 << 53
"""Larger amounts count as this much: more than any machine has, and sums over a thousand pods still fit 64 bits."""
_RESTARTABLE = "Always"


def pod_requests(pod: Pod) -> dict[str, int]:
    """What a node must have free for the pod; one unit of ``pods`` always.

    The sum of its containers and restartable init containers, or the largest step of the init sequence where that is
    more, plus overhead. Requests of the pod as a whole win where they are set. While a resize is under way, the larger
    of what is desired and what is allocated counts.

    Raises :class:`ValueError` for a quantity that cannot be read, naming it.
    """
    spec = pod.spec
    statuses = _statuses(pod)
    infeasible = bool(statuses) and _resize_infeasible(pod)
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, _container(container, statuses, infeasible))
    if spec.init_containers:
        _raise_to(total, _init_peak(spec.init_containers, statuses, infeasible, total))
    if spec.resources is not None and spec.resources.requests:
        _pod_level(pod, total, infeasible)
    if spec.overhead:
        _add(total, _amounts(spec.overhead, "spec.overhead"))
    total["pods"] = 1
    return _tidy(total)


def granted(pod: Pod) -> tuple[object, ...]:
    """All of a pod's status that :func:`pod_requests` looks at: requests may change only if this or the spec does."""
    status = pod.status
    return (
        status.container_statuses,
        status.init_container_statuses,
        status.resources,
        status.allocated_resources,
        _resize_infeasible(pod),
    )


def allocatable(node: Node) -> dict[str, int]:
    """What pods on the node may request in total. An amount that cannot be read or is negative counts as nothing."""
    found = {}
    for resource, text in (node.status.allocatable or {}).items():
        try:
            found[resource] = max(0, amount(resource, text))
        except ValueError:
            found[resource] = 0
    return _tidy(found)


def _statuses(pod: Pod) -> dict[str, ContainerStatus]:
    """Statuses that say what is allocated, by container; a pod that never ran has none."""
    status = pod.status
    return {
        s.name: s
        for s in (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
        if s.allocated_resources or s.resources is not None
    }


def _resize_infeasible(pod: Pod) -> bool:
    """Whether the kubelet has said that the desired requests will never be granted."""
    return any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in pod.status.conditions or ())


def _container(container: Container, statuses: Mapping[str, ContainerStatus], infeasible: bool) -> dict[str, int]:
    where = f"resources.requests of container {container.name}"
    wanted = container.resources.requests if container.resources is not None else None
    desired = _amounts(wanted or {}, where)
    status = statuses.get(container.name)
    if status is None:
        return desired
    counted: dict[str, int] = {} if infeasible else desired
    actual = status.resources.requests if status.resources is not None else None
    for granted in (actual, status.allocated_resources):
        _raise_to(counted, _amounts(granted or {}, where))
    return counted


def _init_peak(
    containers: Iterable[Container],
    statuses: Mapping[str, ContainerStatus],
    infeasible: bool,
    total: dict[str, int],
) -> dict[str, int]:
    """The largest step of the init sequence. Restartable ones run on, so they are added to the total as well."""
    peak: dict[str, int] = {}
    running: dict[str, int] = {}
    for container in containers:
        if container.restart_policy == _RESTARTABLE:
            own = _container(container, statuses, infeasible)
            _add(total, own)
            _add(running, own)
            _raise_to(peak, running)
        else:
            # It ran before anything could be resized: only what is desired counts.
            step = _container(container, {}, infeasible)
            _add(step, running)
            _raise_to(peak, step)
    return peak


def _pod_level(pod: Pod, total: dict[str, int], infeasible: bool) -> None:
    """Let requests of the whole pod replace what its containers add up to."""
    resources, status = pod.spec.resources, pod.status
    desired = _amounts((resources.requests if resources else None) or {}, "spec.resources.requests")
    granted: dict[str, int] = {}
    if status.resources is not None:
        for listed in (status.resources.requests, status.allocated_resources):
            _raise_to(granted, _amounts(listed or {}, "status.resources.requests"))
    for resource, wanted in desired.items():
        if resource not in ("cpu", "memory") and not resource.startswith("hugepages-"):
            continue
        held = granted.get(resource)
        total[resource] = wanted if held is None else held if infeasible else max(wanted, held)


def _amounts(texts: Mapping[str, str], where: str) -> dict[str, int]:
    try:
        return {resource: amount(resource, text) for resource, text in texts.items()}
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for resource, value in more.items():
        total[resource] = total.get(resource, 0) + value


def _raise_to(total: dict[str, int], least: Mapping[str, int]) -> None:
    for resource, value in least.items():
        if value > total.get(resource, 0):
            total[resource] = value


def _tidy(amounts: Mapping[str, int]) -> dict[str, int]:
    """Sorted, nothing negative, nothing that overflows, no zeros but the usual ones."""
    named = dict.fromkeys(ALWAYS, 0) | dict(amounts)
    return {r: min(MOST, max(0, n)) for r, n in sorted(named.items()) if n > 0 or r in ALWAYS}
