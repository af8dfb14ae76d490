"""From the pods of this node to services and tasks: by the annotations that pods bring and the cluster scheduler writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from flowsched_agent.configuration import MEMCACHED_PORT, Find, ServiceSpec, Slo, TaskSpec
from flowsched_agent.workloads import Workload
from flowsched_k8s import names
from flowsched_k8s.objects import ApiObject
from flowsched_models.catalogue import Catalogue
from flowsched_models.quantity import QuantityError, parse_cores, parse_duration_us

_MOST_THREADS = 4096
_ENDED = ("Succeeded", "Failed")
_BEING_RESIZED = "PodResizeInProgress"


class NodePod(ApiObject):
    """A pod, of which little is read, and that once."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass(frozen=True)
class PodWorkload(Workload):
    """A pod of this node that is steered."""

    namespace: str = ""
    pod: str = ""
    uid: str = ""
    qos: str = "Burstable"
    containers: tuple[str, ...] = ()
    """Ids of its containers that run, without their runtime."""

    @property
    def path(self) -> str:
        """Of the pod in the API."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.pod}"


def read_pod(pod: NodePod, catalogue: Catalogue, scheduler_names: Sequence[str]) -> PodWorkload | str | None:
    """A pod as the API server gives it; None if it is not to be steered, and why not where it asks for that.

    Never raises for what users write.
    """
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    if spec.get("schedulerName") not in scheduler_names or status.get("phase") in _ENDED:
        return None
    given = {**(metadata.labels or {}), **(metadata.annotations or {})}
    said, profile = given.get(names.WORKLOAD_CLASS), given.get(names.PROFILE)
    if said is None and profile is None:
        return None
    containers = tuple(
        str(c["containerID"]).rpartition("://")[2]
        for c in status.get("containerStatuses") or ()
        if c.get("containerID") and "running" in (c.get("state") or {})
    )
    service = _is_service(said, profile, catalogue)
    # The kernel refuses kubelet's new values in a group that is idle, so kubelet gets a job as it made it. No service is
    # idle, and its cores must be kept for it all the while.
    if not containers or (not service and _being_resized(status)):
        return None
    name = f"{metadata.namespace}/{metadata.name}"
    try:
        allowed = parse_cores(given[names.CORES]) if names.CORES in given else ()
        if service:
            made: ServiceSpec | TaskSpec = _service(name, profile, given, spec, status, allowed, catalogue)
        else:
            made = _task(name, profile, given)
    except (QuantityError, ValueError) as error:
        help = f"; {error.help}" if isinstance(error, QuantityError) and error.help else ""
        return f"pod {name} is left alone: {error}{help}"
    return PodWorkload(
        spec=made,
        key=f"{metadata.uid} {' '.join(sorted(containers))}",
        allowed=allowed,
        namespace=metadata.namespace,
        pod=metadata.name,
        uid=metadata.uid,
        qos=str(status.get("qosClass") or "Burstable"),
        containers=containers,
    )


def _being_resized(status: Mapping[str, Any]) -> bool:
    return any(c.get("type") == _BEING_RESIZED and c.get("status") == "True" for c in status.get("conditions") or ())


def _is_service(said: str | None, profile: str | None, catalogue: Catalogue) -> bool:
    """As the cluster scheduler reads it: a name that is both is what its workload class says."""
    if profile in catalogue.services:
        return profile not in catalogue.jobs or said == names.LATENCY_SENSITIVE
    return profile is None and said == names.LATENCY_SENSITIVE


def _service(
    name: str,
    profile: str | None,
    given: Mapping[str, str],
    spec: Mapping[str, Any],
    status: Mapping[str, Any],
    allowed: tuple[int, ...],
    catalogue: Catalogue,
) -> ServiceSpec:
    if profile is None:
        raise QuantityError(f"it names no profile of a service in {names.PROFILE}")
    if names.SLO not in given:
        raise QuantityError(f"it has no {names.SLO}", "write p95=1ms@30000qps")
    match = names.SLO_FORM.fullmatch(given[names.SLO].strip())
    if match is None:
        raise QuantityError(f"{names.SLO} is no latency goal", "write p95=1ms@30000qps")
    address = status.get("podIP")
    if not address:
        raise QuantityError("it has no address yet")
    client = given.get(names.CLIENT)
    return ServiceSpec(
        name=name,
        find=Find(),
        host=str(address),
        port=_port(spec),
        profile=profile,
        threads=_threads(given),
        slo=Slo(p95_us=parse_duration_us(match[1].strip())),
        client=client if client in catalogue.services[profile].clients else None,
        # Its own first: more are added when its load needs them.
        cores=allowed,
    )


def _task(name: str, profile: str | None, given: Mapping[str, str]) -> TaskSpec:
    scale = float(given.get(names.SCALE, "1"))
    if not 0.001 <= scale <= 100_000:
        raise QuantityError(f"{names.SCALE} is not between 0.001 and 100000")
    return TaskSpec(name=name, find=Find(), profile=profile, threads=_threads(given), scale=scale)


def _threads(given: Mapping[str, str]) -> int:
    threads = int(given.get(names.THREADS, "1"))
    if not 1 <= threads <= _MOST_THREADS:
        raise QuantityError(f"{names.THREADS} is not between 1 and {_MOST_THREADS}")
    return threads


def _port(spec: Mapping[str, Any]) -> int:
    for container in spec.get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("protocol", "TCP") == "TCP" and port.get("containerPort"):
                return int(port["containerPort"])
    return MEMCACHED_PORT
