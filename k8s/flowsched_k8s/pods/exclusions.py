"""What a pod does not share with others on its node, as relations of the engine: host ports, and disks that it names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from flowsched.relations.relation import MACHINE, Relation, RelationKind
from flowsched_k8s.objects import ContainerPort, Pod, Volume

PORT, DISK = "ports", "disk"
"""What the names of the relations begin with."""
_WILDCARD = "0.0.0.0"
_RESTARTABLE = "Always"


class Exclusions(NamedTuple):
    """Relations by machine that keep pods apart."""

    holds: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()
    declared: tuple[Relation, ...] = ()


_NONE = Exclusions()


def exclusions(pod: Pod) -> Exclusions:
    """Relations for a pod's host ports and disks; names sorted.

    Per protocol and port, a pod that takes all addresses excludes all others, and one that takes an address excludes
    those who take the same or all. Most pods take all: that alone is a plain limit of one. A disk excludes, unless it is
    read only, all others who name it (``VolumeRestrictions`` of kube-scheduler).
    """
    ports = list(_host_ports(pod))
    if not ports and not pod.spec.volumes:
        return _NONE
    holds: set[str] = set()
    joins: set[str] = set()
    declared: dict[str, Relation] = {}
    for port in ports:
        base = f"{PORT}/{(port.protocol or 'TCP').lower()}/{port.host_port}"
        address = port.host_ip or _WILDCARD
        limit = Relation(f"{base}/{address}", RelationKind.LIMIT, MACHINE, most=1)
        apart = Relation(f"{base}/any", RelationKind.APART, MACHINE)
        holds.add(limit.name)
        joins.add(limit.name)
        (joins if address == _WILDCARD else holds).add(apart.name)
        declared |= {limit.name: limit, apart.name: apart}
    for volume in pod.spec.volumes or ():
        for name, read_only in _disks(volume):
            apart = Relation(f"{DISK}/{name}", RelationKind.APART, MACHINE)
            joins.add(apart.name)
            if not read_only:
                holds.add(apart.name)
            declared[apart.name] = apart
    return Exclusions(tuple(sorted(holds)), tuple(sorted(joins)), tuple(declared[name] for name in sorted(declared)))


def _host_ports(pod: Pod) -> Iterator[ContainerPort]:
    """Ports of the node that a pod takes for as long as it runs."""
    running = [c for c in pod.spec.init_containers or () if c.restart_policy == _RESTARTABLE]
    for container in (*pod.spec.containers, *running):
        for port in container.ports or ():
            if port.host_port:
                yield port


def _disks(volume: Volume) -> Iterator[tuple[str, bool]]:
    """Disks that a volume names itself, and whether other read-only users may be on the node."""
    if (disk := volume.gce_persistent_disk) is not None:
        yield f"gcePersistentDisk/{disk.pd_name}", disk.read_only
    if (disk := volume.aws_elastic_block_store) is not None:
        yield f"awsElasticBlockStore/{disk.volume_id}", False
    if (disk := volume.iscsi) is not None:
        yield f"iscsi/{disk.iqn}", disk.read_only
    if (disk := volume.rbd) is not None:
        # Two images are one if they have a monitor in common.
        for monitor in disk.monitors or ():
            yield f"rbd/{monitor}/{disk.pool or 'rbd'}/{disk.image}", disk.read_only
