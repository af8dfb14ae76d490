"""Which volumes are attached to which nodes, and which pods use them there: on a node each counts once, however many do."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from flowsched_k8s.volumes.storage_objects import VolumeAttachment

Attached = tuple[str, str]
"""The CSI driver that attaches a volume, and its name of the volume."""


class AttachedVolumes:
    """A store without I/O: attachments and what pods use go in.

    Of the pods of a node that use a volume, the volume is counted for the one that came first.
    """

    def __init__(self) -> None:
        """Nothing is attached."""
        self.version = 0
        """Changes when a volume gets its first user on a node or loses its last one, and with the pods that name claims."""
        self._attachments: dict[str, dict[str, Attached]] = {}
        """By node: name of the attachment -> driver and name of the persistent volume."""
        self._attaching: dict[str, dict[str, str]] = {}
        """By name of a persistent volume: name of the attachment -> node."""
        self._of_pod: dict[str, tuple[str, frozenset[Attached]]] = {}
        """By uid: the node of a pod, and the volumes that it uses there."""
        self._users: dict[Attached, dict[str, dict[str, None]]] = {}
        """By volume and node: uids of its users, as they came."""

    # What the API server says

    def put(self, attachment: VolumeAttachment) -> None:
        """A volume is attached to a node, or is being attached."""
        spec, name = attachment.spec, attachment.metadata.name
        if spec.attacher and spec.source.persistent_volume_name:
            self._attachments.setdefault(spec.node_name, {})[name] = spec.attacher, spec.source.persistent_volume_name
            self._attaching.setdefault(spec.source.persistent_volume_name, {})[name] = spec.node_name

    def remove(self, attachment: VolumeAttachment) -> None:
        """A volume is detached."""
        node, name = attachment.spec.node_name, attachment.metadata.name
        found = self._attachments.get(node, {})
        known = found.pop(name, None)
        if not found:
            self._attachments.pop(node, None)
        if known is not None:
            nodes = self._attaching[known[1]]
            del nodes[name]
            if not nodes:
                del self._attaching[known[1]]

    def attaching(self, volume_name: str) -> list[str]:
        """Nodes that have an attachment of a persistent volume."""
        return sorted(set(self._attaching.get(volume_name, {}).values()))

    def of_node(self, node: str) -> Collection[Attached]:
        """Driver and name of the persistent volume of all attachments of a node."""
        return self._attachments.get(node, {}).values()

    # What pods use

    def use(self, uid: str, node: str, volumes: Iterable[Attached]) -> list[str]:
        """A pod on a node uses these volumes and no others; uids of pods of the node for which others count from now on."""
        now = frozenset(volumes)
        before = self._of_pod.get(uid)
        heirs: list[str] = []
        if before is not None:
            heirs = self._release(uid, before[0], before[1] if before[0] != node else before[1] - now)
        if now:
            self._of_pod[uid] = node, now
        elif before is not None:
            del self._of_pod[uid]
        for volume in sorted(now):
            if volume not in self._users:
                self._users[volume] = {}
                self.version += 1
            self._users[volume].setdefault(node, {}).setdefault(uid)
        return heirs

    def release(self, uid: str) -> list[str]:
        """A pod is gone from its node; the uids of those for which its volumes count from now on."""
        node, volumes = self._of_pod.pop(uid, ("", frozenset()))
        return self._release(uid, node, volumes)

    def nodes(self, volume: Attached) -> Collection[str]:
        """Nodes where pods use a volume."""
        return self._users.get(volume, {})

    def counted(self, uid: str) -> list[Attached]:
        """The volumes that are counted for a pod."""
        node, volumes = self._of_pod.get(uid, ("", frozenset()))
        return [volume for volume in volumes if next(iter(self._users[volume][node])) == uid]

    def alone(self, uid: str) -> list[Attached]:
        """The volumes that no other pod of its node uses."""
        node, volumes = self._of_pod.get(uid, ("", frozenset()))
        return [volume for volume in volumes if len(self._users[volume][node]) == 1]

    def _release(self, uid: str, node: str, volumes: Iterable[Attached]) -> list[str]:
        heirs: dict[str, None] = {}
        for volume in sorted(volumes):
            users = self._users[volume][node]
            first = next(iter(users))
            del users[uid]
            if users and first == uid:
                heirs.setdefault(next(iter(users)))
            if not users:
                del self._users[volume][node]
            if not self._users[volume]:
                del self._users[volume]
                self.version += 1
        return list(heirs)
