"""Where a pod's volumes let it run, and what has to be told to the API server before it may run there.

A store without I/O: watch events go in, questions are answered from what is known. An unbound claim of a class with
``WaitForFirstConsumer`` is settled by patching the claim alone, so that no right to write volumes is needed: the annotation
of the selected node lets a provisioner make the volume, ``spec.volumeName`` picks an existing (local) one. The volume
controller does the binding; the pod is bound afterwards.

Unlike a volume's ``claimRef``, ``spec.volumeName`` is no lock: if another scheduler gives the same volume away in that
moment, the claim stays unbound, and with it its pod, until the claim is made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from flowsched_k8s.names import UNBOUND_CLAIMS
from flowsched_k8s.objects import InTreeSources, Node, Pod, Volume
from flowsched_k8s.pods.quantity import whole_or
from flowsched_k8s.pods.selector import matches, node_test
from flowsched_k8s.volumes.attach_limits import AttachLimits
from flowsched_k8s.volumes.attached_volumes import Attached, AttachedVolumes
from flowsched_k8s.volumes.in_tree_volumes import DRIVERS, in_tree_volume
from flowsched_k8s.volumes.storage_capacity import StorageCapacities
from flowsched_k8s.volumes.storage_objects import Claim, PersistentVolume, StorageClass, TopologySelectorTerm
from flowsched_k8s.volumes.volume_needs import ANYWHERE, NOTHING, ZONE_KEYS, Choice, Reach, VolumeNeeds

SELECTED_NODE = "volume.kubernetes.io/selected-node"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
_BOUND = "pv.kubernetes.io/bind-completed"
_CLASS = "volume.beta.kubernetes.io/storage-class"
_WAIT = "WaitForFirstConsumer"
_ONE_POD = "ReadWriteOncePod"
_FILESYSTEM = "Filesystem"


class ClaimKey(NamedTuple):
    """A claim by name."""

    namespace: str
    name: str


@dataclass(frozen=True)
class ClaimPatch:
    """What to write to a claim before its pod is bound; then wait until the claim is bound."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    selected_node: str = ""
    """The node that a provisioner shall make a volume for."""
    volume_name: str = ""
    """The existing volume that the claim shall have."""

    @property
    def key(self) -> ClaimKey:
        """Whose patch it is."""
        return ClaimKey(self.namespace, self.name)

    def body(self) -> dict[str, Any]:
        """A merge patch. The API server answers 409 or 422 if the claim was changed or made anew since."""
        metadata: dict[str, Any] = {"uid": self.uid, "resourceVersion": self.resource_version}
        if self.volume_name:
            return {"metadata": metadata, "spec": {"volumeName": self.volume_name}}
        return {"metadata": {**metadata, "annotations": {SELECTED_NODE: self.selected_node}}}


@dataclass(frozen=True)
class _Mount:
    """A volume of a pod that comes from a claim."""

    claim: ClaimKey
    field: str
    made_for_pod: bool


class VolumeIndex:
    """Claims, volumes and classes, and which pods use which claim."""

    def __init__(self, enabled: bool = True) -> None:
        """``enabled``: whether volumes are read at all; if not, pods with claims are refused aloud."""
        self.enabled = enabled
        self.unreadable = ""
        """Why claims cannot be read at the moment; empty if they can."""
        self.limits = AttachLimits()
        self.capacities = StorageCapacities()
        self._claims: dict[ClaimKey, Claim] = {}
        self._volumes: dict[str, PersistentVolume] = {}
        self._reach: dict[str, Reach] = {}
        self._of_class: dict[str, set[str]] = {}
        self._classes: dict[str, StorageClass] = {}
        self._users: dict[ClaimKey, set[str]] = {}
        self._promised: dict[ClaimKey, ClaimPatch] = {}
        self._wanted: dict[str, set[ClaimKey]] = {}
        self.attached = AttachedVolumes()

    # What the API server says

    def put_claim(self, claim: Claim) -> None:
        """A claim is there or changed."""
        key = ClaimKey(claim.metadata.namespace, claim.metadata.name)
        self._unwant(key)
        self._claims[key] = claim
        promised = self._promised.get(key)
        if promised is not None and (
            claim.metadata.uid != promised.uid
            or claim.spec.volume_name
            or (promised.selected_node and _selected_node(claim) == promised.selected_node)
        ):
            del self._promised[key]
        if claim.spec.volume_name:
            self._wanted.setdefault(claim.spec.volume_name, set()).add(key)

    def remove_claim(self, namespace: str, name: str) -> None:
        """A claim is gone."""
        key = ClaimKey(namespace, name)
        self._unwant(key)
        self._promised.pop(key, None)
        self._claims.pop(key, None)

    def put_volume(self, volume: PersistentVolume) -> None:
        """A persistent volume is there or changed."""
        name = volume.metadata.name
        self._unlist(name)
        self._volumes[name] = volume
        self._reach[name] = _reach(volume)
        self._of_class.setdefault(_class_of(volume), set()).add(name)

    def remove_volume(self, name: str) -> None:
        """A persistent volume is gone."""
        self._unlist(name)
        self._volumes.pop(name, None)
        self._reach.pop(name, None)

    def put_class(self, storage_class: StorageClass) -> None:
        """A storage class is there or changed."""
        self._classes[storage_class.metadata.name] = storage_class

    def remove_class(self, name: str) -> None:
        """A storage class is gone."""
        self._classes.pop(name, None)

    def left_attached(self, node: str) -> dict[str, int]:
        """Volumes that are attached to a node and used by none of its pods, counted as :meth:`AttachLimits.needs` does."""
        found = set()
        for driver, name in self.attached.of_node(node):
            volume = self._volumes.get(name)
            if volume is not None and volume.spec.csi is not None:
                found.add((driver, volume.spec.csi.volume_handle))
        return self.limits.needs(v for v in found if node not in self.attached.nodes(v))

    def use(self, pod: Pod, node: str) -> list[str]:
        """A pod is on a node, or is assumed to be. Twice is as good as once.

        Returns the uids of other pods for which volumes of the node count from now on.
        """
        if not pod.spec.volumes:
            return []
        for mount in _mounts(pod):
            self._users.setdefault(mount.claim, set()).add(pod.metadata.uid)
        return self.attached.use(pod.metadata.uid, node, self.limits.limited(self._attached(pod)))

    def unuse(self, pod: Pod) -> list[str]:
        """A pod is gone from its node; the same uids."""
        if not pod.spec.volumes:
            return []
        for mount in _mounts(pod):
            users = self._users.get(mount.claim)
            if users is not None:
                users.discard(pod.metadata.uid)
                if not users:
                    del self._users[mount.claim]
        return self.attached.release(pod.metadata.uid)

    def exclusive(self, pod: Pod) -> frozenset[ClaimKey]:
        """Claims of a pod that allow one pod at a time."""
        return frozenset(
            mount.claim
            for mount in _mounts(pod)
            if (claim := self._claims.get(mount.claim)) is not None and _ONE_POD in (claim.spec.access_modes or ())
        )

    def users(self, claims: Iterable[ClaimKey]) -> set[str]:
        """Uids of the pods on nodes that use any of the claims."""
        return {uid for claim in claims for uid in self._users.get(claim, ())}

    def claims_of(self, volume: str) -> tuple[ClaimKey, ...]:
        """Claims that name a volume as theirs."""
        return tuple(self._wanted.get(volume, ()))

    # What pods ask

    def needs(self, pod: Pod) -> VolumeNeeds:
        """What the pod's volumes demand as things are now."""
        if not pod.spec.volumes:
            return NOTHING
        reaches: set[Reach] = set()
        choices: list[tuple[int, str, Choice]] = []
        unbound = False
        for mount in _distinct(_mounts(pod)):
            if not self.enabled:
                feature = "flowsched reads claims only with the feature 'volumes'"
                return VolumeNeeds(f"{mount.field} is not supported: {feature}")
            if self.unreadable:
                return VolumeNeeds(f"{mount.field} cannot be honoured: {self.unreadable}")
            claim = self._claims.get(mount.claim)
            problem = self._claim_problem(pod, mount, claim)
            if problem is not None or claim is None:
                return VolumeNeeds(problem)
            if _is_bound(claim):
                name = claim.spec.volume_name
                if name not in self._volumes:
                    return VolumeNeeds(
                        f'persistentvolumeclaim "{mount.claim.name}" is bound to "{name}", which is not there'
                    )
                if self._reach[name] != ANYWHERE:
                    reaches.add(self._reach[name])
                continue
            found = self._choice(mount.claim, claim)
            if isinstance(found, str):
                return VolumeNeeds(found)
            if found is None:
                unbound = True
            else:
                choices.append((_requested(claim), mount.claim.name, found))
        if unbound:
            return VolumeNeeds(UNBOUND_CLAIMS)
        choices.sort(key=lambda c: c[:2])
        return VolumeNeeds(None, tuple(sorted(reaches, key=repr)), tuple(c for _, _, c in choices))

    def selected_node_patches(self, pod: Pod, node: Node) -> tuple[ClaimPatch, ...] | str:
        """What to write to the pod's claims before it is bound to the node; empty if all are bound.

        A text says why the node will not do any more, such as that another pod was given the last volume there.
        """
        needs = self.needs(pod)
        if needs.blocked is not None:
            return needs.blocked
        verdict = needs.verdict(node)
        if verdict is not None:
            return verdict
        waiting = []
        for mount in _distinct(_mounts(pod)):
            claim = self._claims.get(mount.claim)
            if claim is not None and not _is_bound(claim):
                waiting.append((_requested(claim), mount.claim.name, claim))
        waiting.sort(key=lambda c: c[:2])
        patches = []
        for (_, _, claim), volume in zip(waiting, needs.settle(node) or (), strict=True):
            if not volume and _selected_node(claim) == node.metadata.name:
                continue
            meta = claim.metadata
            patches.append(
                ClaimPatch(
                    meta.namespace,
                    meta.name,
                    meta.uid,
                    meta.resource_version,
                    "" if volume else node.metadata.name,
                    volume,
                )
            )
        return tuple(patches)

    def assume(self, patches: Iterable[ClaimPatch]) -> None:
        """These patches are under way: no other pod gets the same volumes."""
        for patch in patches:
            self._promised[patch.key] = patch

    def forget(self, patches: Iterable[ClaimPatch]) -> None:
        """These patches failed."""
        for patch in patches:
            if self._promised.get(patch.key) == patch:
                del self._promised[patch.key]

    def settled(self, pod: Pod) -> bool:
        """Whether all claims of the pod are bound, to volumes that are known, so that it may be bound itself."""
        return not self.unbound(pod)

    def uids(self, pod: Pod) -> dict[ClaimKey, str]:
        """Uids of the pod's claims, as far as they are there."""
        claims = ((key, self._claims.get(key)) for key in claim_keys(pod))
        return {key: claim.metadata.uid for key, claim in claims if claim is not None}

    def unbound(self, pod: Pod) -> list[str]:
        """Names of the pod's claims that are not bound, or to a volume that no watch has shown, in order."""
        claims = ((key, self._claims.get(key)) for key in claim_keys(pod))
        return sorted(
            key.name
            for key, claim in claims
            if claim is None or not _is_bound(claim) or claim.spec.volume_name not in self._volumes
        )

    def why_never(self, pod: Pod, node: Node, uids: Mapping[ClaimKey, str]) -> str | None:
        """Why the pod's claims will not be bound for a node that was chosen, or None while they still may be.

        ``uids``: of the claims when it was chosen; one that was made anew knows nothing of that.
        """
        for mount in _distinct(_mounts(pod)):
            claim = self._claims.get(mount.claim)
            problem = self._claim_problem(pod, mount, claim)
            if problem is not None or claim is None:
                return problem
            named = f'persistentvolumeclaim "{mount.claim.name}"'
            if claim.metadata.uid != uids.get(mount.claim):
                return f"{named} was made anew"
            # A patch of ours that no watch has shown is still to come.
            waits = not claim.spec.volume_name and mount.claim not in self._promised
            if waits and _selected_node(claim) != node.metadata.name:
                return f"{named} is not to be bound for {node.metadata.name} any more"
            # A provisioner may make it elsewhere, and a volume may be given to the claim by hand.
            reach = self._reach.get(claim.spec.volume_name)
            if reach is not None and not reach.covers(node):
                return f'{named} has the volume "{claim.spec.volume_name}", which cannot be used there'
        return None

    def pod_volume_needs(self, pod: Pod, without: Set[Attached] = frozenset()) -> dict[str, int]:
        """Volumes that a pod adds to a node where none of them is, as :meth:`AttachLimits.needs` counts them."""
        if not pod.spec.volumes:
            return {}
        return self.limits.needs(volume for volume in self._attached(pod) if volume not in without)

    def shared(self, pod: Pod, named: Callable[[ClaimKey], Collection[str]]) -> frozenset[Attached]:
        """Volumes of a pod that pods on nodes use already, or that others will use as well; ``named``: who names a claim."""
        if not pod.spec.volumes or not self.limits.drivers():
            return frozenset()
        found = {volume for volume, nodes in self.where(pod).items() if nodes}
        for mount in _mounts(pod):
            if len(named(mount.claim)) > 1 and (volume := self._attachment(mount.claim)) is not None:
                found.add(volume)
        return self.limits.limited(found)

    def where(self, pod: Pod) -> dict[Attached, Collection[str]]:
        """Volumes of a pod, of drivers that some node limits, and the nodes where pods use each of them.

        As in kube-scheduler, a volume that is only attached to a node counts once more there for a new pod.
        """
        limited = self.limits.limited(self._attached(pod))
        return {volume: self.attached.nodes(volume) for volume in sorted(limited)}

    def needs_on(self, pod: Pod, node: str) -> dict[str, int]:
        """What a pod needs of a node as things are there now; 0 of drivers of which it has all volumes."""
        where = self.where(pod)
        none = dict.fromkeys(self.limits.needs(where), 0)
        return none | self.limits.needs(volume for volume, nodes in where.items() if node not in nodes)

    def counted_for(self, uid: str) -> dict[str, int]:
        """Volumes that are counted for a pod on a node."""
        return self.limits.needs(self.attached.counted(uid))

    def freed_by(self, pod: Pod) -> dict[str, int]:
        """Volumes that go from the node with a pod; 0 of drivers of which it has none by itself."""
        none = dict.fromkeys(self.pod_volume_needs(pod), 0)
        return none | self.limits.needs(self.attached.alone(pod.metadata.uid))

    # Details

    def _claim_problem(self, pod: Pod, mount: _Mount, claim: Claim | None) -> str | None:
        """Why the pod cannot run with this claim, whatever the node."""
        name = mount.claim.name
        if claim is None:
            if mount.made_for_pod:
                return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            return f'persistentvolumeclaim "{name}" not found'
        if mount.made_for_pod and not _made_for(claim, pod):
            return f'persistentvolumeclaim "{name}" was not made for this pod, which {mount.field} asks for'
        if claim.metadata.deletion_timestamp is not None:
            return f'persistentvolumeclaim "{name}" is being deleted'
        if claim.status.phase == "Lost":
            return f'persistentvolumeclaim "{name}" has lost its persistentvolume "{claim.spec.volume_name}"'
        return None

    def _choice(self, key: ClaimKey, claim: Claim) -> Choice | str | None:
        """How an unbound claim can be settled; None if that is not up to its pod; a text if its class is unknown."""
        class_name = _class_of(claim)
        if claim.spec.volume_name or not class_name:
            return None
        storage_class = self._classes.get(class_name)
        if storage_class is None:
            return f'storageclass "{class_name}" of persistentvolumeclaim "{key.name}" not found'
        if storage_class.volume_binding_mode != _WAIT:
            return None
        can_provision = storage_class.provisioner not in ("", NO_PROVISIONER)
        promised = self._promised.get(key)
        if promised is not None and promised.volume_name:
            reach = self._reach.get(promised.volume_name)
            return Choice(((promised.volume_name, reach),) if reach is not None else ())
        selected = promised.selected_node if promised is not None else _selected_node(claim)
        topologies = _topologies(storage_class.allowed_topologies)
        room = self.capacities.room_for(storage_class, _requested(claim))
        if selected:
            return Choice((), can_provision, topologies, selected, room)
        volumes, is_prebound = self._candidates(key, claim, class_name)
        return Choice(volumes, can_provision and not is_prebound, topologies, room=room)

    def _candidates(self, key: ClaimKey, claim: Claim, class_name: str) -> tuple[tuple[tuple[str, Reach], ...], bool]:
        """Existing volumes for a claim, smallest first; and whether one is reserved for it: then it is that."""
        promised = {p.volume_name for k, p in self._promised.items() if p.volume_name and k != key}
        found: list[tuple[int, str]] = []
        for name in self._of_class.get(class_name, ()):
            volume = self._volumes[name]
            size = _fitting_size(volume, claim)
            if size is None:
                continue
            reserved = volume.spec.claim_ref
            if reserved is not None:
                if (reserved.namespace, reserved.name) == key and reserved.uid in ("", claim.metadata.uid):
                    return ((name, self._reach[name]),), True
                continue
            if volume.status.phase != "Available" or name in promised or self._wanted.get(name, set()) - {key}:
                continue
            selected = claim.spec.selector is None or matches(claim.spec.selector, volume.metadata.labels)
            if selected and set(claim.spec.access_modes or ()) <= set(volume.spec.access_modes or ()):
                found.append((size, name))
        return tuple((name, self._reach[name]) for _, name in sorted(found)), False

    def _attached(self, pod: Pod) -> Iterator[Attached]:
        """(driver, volume) of all that is attached to the pod's node; in-tree volumes by the driver that attaches them."""
        for mount in _mounts(pod):
            found = self._attachment(mount.claim)
            if found is not None:
                yield found
        for volume in pod.spec.volumes or ():
            found = self._in_tree(volume)
            if found is not None:
                yield found

    def _in_tree(self, sources: InTreeSources, zone: str = "") -> Attached | None:
        volume = in_tree_volume(sources, zone)
        driver = self.limits.driver_of(volume.plugin) if volume is not None else None
        return (driver, volume.handle) if volume is not None and driver is not None else None

    def _attachment(self, key: ClaimKey) -> Attached | None:
        """(driver, volume) that a claim attaches to its pod's node; an unbound one counts as a volume of its own."""
        claim = self._claims.get(key)
        if claim is None:
            return None
        volume = self._volumes.get(claim.spec.volume_name)
        if volume is not None:
            csi = volume.spec.csi
            return (csi.driver, csi.volume_handle) if csi is not None else self._in_tree(volume.spec, _zone(volume))
        storage_class = self._classes.get(_class_of(claim))
        if storage_class is None:
            return None
        made_by = storage_class.provisioner
        driver = self.limits.driver_of(made_by) if made_by in DRIVERS else made_by
        return (driver, f"{key.namespace}/{key.name}") if driver is not None else None

    def _unlist(self, name: str) -> None:
        volume = self._volumes.get(name)
        if volume is not None:
            self._of_class[_class_of(volume)].discard(name)

    def _unwant(self, key: ClaimKey) -> None:
        old = self._claims.get(key)
        if old is not None and old.spec.volume_name in self._wanted:
            self._wanted[old.spec.volume_name].discard(key)
            if not self._wanted[old.spec.volume_name]:
                del self._wanted[old.spec.volume_name]


def claim_keys(pod: Pod) -> tuple[ClaimKey, ...]:
    """Claims that a pod uses: what to look at again when a claim changes."""
    return tuple(dict.fromkeys(mount.claim for mount in _mounts(pod))) if pod.spec.volumes else ()


def _mounts(pod: Pod) -> Iterator[_Mount]:
    for index, volume in enumerate(pod.spec.volumes or ()):
        name, field = _claim_name(pod, volume)
        if name:
            key = ClaimKey(pod.metadata.namespace, name)
            yield _Mount(key, f"spec.volumes[{index}].{field}", volume.ephemeral is not None)


def _claim_name(pod: Pod, volume: Volume) -> tuple[str, str]:
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name, "persistentVolumeClaim"
    if volume.ephemeral is not None:
        return f"{pod.metadata.name}-{volume.name}", "ephemeral"
    return "", ""


def _distinct(mounts: Iterable[_Mount]) -> Iterable[_Mount]:
    """One mount per claim: a claim that is mounted twice is one volume."""
    return {mount.claim: mount for mount in mounts}.values()


def _is_bound(claim: Claim) -> bool:
    done = _BOUND in (claim.metadata.annotations or {}) or claim.status.phase == "Bound"
    return bool(claim.spec.volume_name) and done


def _made_for(claim: Claim, pod: Pod) -> bool:
    return any(o.controller and o.uid == pod.metadata.uid for o in claim.metadata.owner_references or ())


def _selected_node(claim: Claim) -> str:
    return (claim.metadata.annotations or {}).get(SELECTED_NODE, "")


def _class_of(thing: Claim | PersistentVolume) -> str:
    return (thing.metadata.annotations or {}).get(_CLASS) or thing.spec.storage_class_name or ""


def _requested(claim: Claim) -> int:
    """Bytes that a claim asks for."""
    resources = claim.spec.resources
    return _bytes((resources.requests if resources is not None else None) or {})


def _bytes(amounts: Mapping[str, str]) -> int:
    return whole_or(amounts.get("storage", "0"), 0)


def _fitting_size(volume: PersistentVolume, claim: Claim) -> int | None:
    """Bytes of a volume that is of the kind and size that a claim asks for; None if it is not."""
    spec = volume.spec
    size = _bytes(spec.capacity or {})
    fits = (
        size >= _requested(claim)
        and (spec.volume_mode or _FILESYSTEM) == (claim.spec.volume_mode or _FILESYSTEM)
        and (spec.volume_attributes_class_name or "") == (claim.spec.volume_attributes_class_name or "")
        and volume.metadata.deletion_timestamp is None
    )
    return size if fits else None


def _reach(volume: PersistentVolume) -> Reach:
    affinity = volume.spec.node_affinity
    nodes = node_test(affinity.required) if affinity is not None and affinity.required is not None else None
    labels = volume.metadata.labels or {}
    zones = ((key, tuple(sorted(labels[key].split("__")))) for key in ZONE_KEYS if key in labels)
    return Reach(nodes, tuple(zones))


def _zone(volume: PersistentVolume) -> str:
    labels = volume.metadata.labels or {}
    return next((labels[key] for key in ZONE_KEYS if key in labels), "")


def _topologies(
    terms: Iterable[TopologySelectorTerm] | None,
) -> tuple[tuple[tuple[str, tuple[str, ...]], ...], ...]:
    found = {
        tuple(sorted((e.key, tuple(sorted(e.values or ()))) for e in term.match_label_expressions))
        for term in terms or ()
        if term.match_label_expressions
    }
    return tuple(sorted(found))
