"""Persistent volumes and claims on a real API server, bound as the volume controller would."""

from __future__ import annotations

from typing import Any

from plane import Object, wait_for
from running import Site

from flowsched_k8s import names


def volume(site: Site, name: str, zone: str = "", **more: Any) -> Object:
    """A persistent volume; with a zone one that only nodes of it reach."""
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}, **more}
    if zone:
        wanted = {"key": names.ZONE, "operator": "In", "values": [zone]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}}
    return site.admin.post("/api/v1/persistentvolumes", {"metadata": {"name": f"{site.name}-{name}"}, "spec": spec})


def claim(site: Site, name: str, **spec: Any) -> Object:
    """A claim that is not bound."""
    body = {
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec},
    }
    return site.admin.post(site.volumes_path(), body)


def bind_claim(site: Site, name: str, volume_name: str) -> None:
    """What the volume controller does."""
    done = {"pv.kubernetes.io/bind-completed": "yes"}
    change = {"metadata": {"annotations": done}, "spec": {"volumeName": volume_name}}
    site.admin.patch(site.volumes_path(name), change)
    site.admin.patch(f"{site.volumes_path(name)}/status", {"status": {"phase": "Bound"}})


def bound_claim(site: Site, name: str, mode: str = "ReadWriteOnce", **source: Any) -> None:
    """A claim with a volume of its own that every node reaches; ``source`` as in the volume's spec."""
    volume(site, name, accessModes=[mode], **source)
    claim(site, name, storageClassName="", accessModes=[mode])
    bind_claim(site, name, f"{site.name}-{name}")


def limit(site: Site, node: str, driver: str, count: int) -> None:
    """The volumes of a CSI driver that a node takes, known to the scheduler when this returns."""
    limits = {"drivers": [{"name": driver, "nodeID": node, "allocatable": {"count": count}}]}
    site.admin.post("/apis/storage.k8s.io/v1/csinodes", {"metadata": {"name": node}, "spec": limits})
    resource = f"{names.VOLUME_LIMIT_PREFIX}{driver}"
    wait_for(lambda: resource in site.scheduler.state()["nodes"][node]["allocatable"], "the limit to be known")


def mounts(*claims: str) -> list[Object]:
    """Volumes of a pod from claims."""
    return [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
