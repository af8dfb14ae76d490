"""Groups of pods that are bound all or none, however they are declared."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from flowsched_k8s.names import DISRUPTION_MODE, GROUP_TOPOLOGY, PLACEMENT, SINGLE, WHOLE
from flowsched_k8s.objects import Pod, PodGroup, SucceededPod
from flowsched_k8s.pods.readings import controller_of, seconds
from flowsched_models.quantity import shown

IN_TREE = "scheduling.k8s.io"
PLUGINS = "scheduling.x-k8s.io"
LABELS = "labels"
KUEUE = "kueue.x-k8s.io"
SOURCES = (PLUGINS, LABELS, KUEUE, IN_TREE)
"""Ways to declare a group, as the configuration names them. Where a pod uses several, the in-tree one wins."""
PLUGINS_LABEL = f"{PLUGINS}/pod-group"
NAME_LABEL = "pod-group.scheduling.sigs.k8s.io/name"
MINIMUM_LABEL = "pod-group.scheduling.sigs.k8s.io/min-available"
KUEUE_LABEL = f"{KUEUE}/pod-group-name"
KUEUE_TOTAL = f"{KUEUE}/pod-group-total-count"
KUEUE_FAST = f"{KUEUE}/pod-group-fast-admission"
KUEUE_SERVING = f"{KUEUE}/pod-group-serving"
TIMEOUT_S = 300.0
"""How long a group may wait for its members where it does not say so itself."""
LONGEST_S = 86_400.0
MOST_MEMBERS = 100_000
MOST_KEYS = 8
_NAMED = 3
"""Values that a message quotes."""


@dataclass(frozen=True, order=True)
class GroupRef:
    """Which group a pod says it belongs to."""

    namespace: str
    name: str
    source: str
    """One of :data:`SOURCES`."""


@dataclass(frozen=True)
class GroupSpec:
    """What a group demands."""

    minimum: int
    timeout_s: float = TIMEOUT_S
    """Seconds after which it gives up for now."""
    topology: tuple[str, ...] = ()
    """Node labels: all pods in one domain of the first that has room, else of the second, and so on; empty for anywhere."""
    priority: int | None = None
    """That counts instead of its pods'."""
    succeeded: int = 0
    """Pods that have done their part and need no place any more; ``minimum`` is without them."""


def group_ref(pod: Pod | SucceededPod, sources: Collection[str]) -> GroupRef | None:
    """The group that a pod belongs to, by the sources that are switched on."""
    namespace, labels, group = pod.metadata.namespace, pod.metadata.labels or {}, pod.spec.scheduling_group
    named = (
        (IN_TREE, group.pod_group_name if group is not None else ""),
        (PLUGINS, labels.get(PLUGINS_LABEL, "")),
        (LABELS, labels.get(NAME_LABEL, "")),
        (KUEUE, labels.get(KUEUE_LABEL, "")),
    )
    return next((GroupRef(namespace, name, source) for source, name in named if name and source in sources), None)


def unsupported_group(pod: Pod, sources: Collection[str]) -> str | None:
    """Why a pod must not be placed by itself although it has no group that is read; it names the field.

    Labels of sources that are switched off are just labels; a field of the pod's spec is a demand.
    """
    if pod.spec.workload_ref is not None:
        return "spec.workloadRef is not supported by flowsched; name the group by a label or by spec.schedulingGroup"
    group = pod.spec.scheduling_group
    if group is not None and group.pod_group_name and IN_TREE not in sources:
        return f"spec.schedulingGroup is read by flowsched only with the feature 'podGroups: [{IN_TREE}]'"
    return None


class PodGroupIndex:
    """Pod group objects of both APIs, and which pods of groups have succeeded. A store without I/O: watch events go in."""

    def __init__(self, sources: Collection[str] = SOURCES) -> None:
        """No groups yet. ``sources``: those that are switched on."""
        self._sources = sources
        self._groups: dict[GroupRef, PodGroup] = {}
        self._succeeded: dict[GroupRef, dict[str, SucceededPod]] = {}
        """By uid, pods of groups that have succeeded."""
        self.unread: dict[str, str] = {}
        """By source, why it is not known which groups there are, where their list fails."""
        self.succeeded_unread: dict[str, str] = {}
        """The same for the pods of its groups that have succeeded."""

    def put(self, group: PodGroup) -> GroupRef:
        """A group is there or changed; returns what its pods call it."""
        ref = ref_of(group)
        self._groups[ref] = group
        return ref

    def remove(self, group: PodGroup) -> None:
        """A group is gone."""
        self._groups.pop(ref_of(group), None)

    def put_succeeded(self, pod: SucceededPod) -> GroupRef | None:
        """A pod has succeeded, and is there still; returns its group, if it has one."""
        ref = group_ref(pod, self._sources)
        if ref is not None:
            self._succeeded.setdefault(ref, {})[pod.metadata.uid] = pod
        return ref

    def remove_succeeded(self, pod: SucceededPod) -> GroupRef | None:
        """It has been removed."""
        ref = group_ref(pod, self._sources)
        if ref is not None:
            found = self._succeeded.get(ref, {})
            found.pop(pod.metadata.uid, None)
            if not found:
                self._succeeded.pop(ref, None)
        return ref

    def get(self, ref: GroupRef) -> PodGroup | None:
        """The object of a group, for its status; groups by labels and Kueue's have none."""
        return self._groups.get(ref)

    def resolve(self, ref: GroupRef, pods: Iterable[Pod]) -> GroupSpec | str:
        """What a group demands, or why that is not known yet. ``pods``: those of its pods that are known."""
        pods = list(pods)
        # A watch may still have as running what the other one has as succeeded.
        known = {pod.metadata.uid for pod in pods}
        succeeded = [pod for uid, pod in self._succeeded.get(ref, {}).items() if uid not in known]
        if ref.source == LABELS:
            spec = _from_labels(ref, pods)
        elif ref.source == KUEUE:
            spec = _from_kueue(ref, pods, len(succeeded))
        elif ref.source in self.unread:
            return f'PodGroup "{ref.name}" is not known: {self.unread[ref.source]}'
        elif (group := self._groups.get(ref)) is None:
            spec = f'PodGroup "{ref.name}" not found in namespace {ref.namespace}'
        else:
            spec = _in_tree(group) if ref.source == IN_TREE else _plugins(group)
        if isinstance(spec, str):
            return spec
        if len(pods) < spec.minimum and ref.source in self.succeeded_unread:
            return f"pods of group {ref.name} that have succeeded are not known: {self.succeeded_unread[ref.source]}"
        if succeeded and ref.source != KUEUE:
            spec = _beside(spec, pods, succeeded)
        if (wrong := _wrong_mode(ref, pods)) is not None:
            return wrong
        return spec if spec.topology else _with_topology(ref, spec, pods)

    def breaks_apart(self, ref: GroupRef, modes: Collection[str]) -> bool:
        """Whether pods of a group may be evicted without the others. ``modes``: what its pods say (:func:`mode_of`).

        Where they do not agree, or say what means nothing, they stay together.
        """
        if ref.source == IN_TREE:
            if IN_TREE in self.unread:
                return False
            group = self._groups.get(ref)
            return group is None or not is_whole(group)
        return all(mode == SINGLE for mode in modes)


def mode_of(pod: Pod) -> str | None:
    """What a pod says of whether its group may be evicted in parts: ``single`` or ``all``, if it is right."""
    return _said(pod, DISRUPTION_MODE)


def _said(pod: Pod, name: str) -> str | None:
    """The annotation of a name, or the label."""
    return (pod.metadata.annotations or {}).get(name, (pod.metadata.labels or {}).get(name))


def _some(texts: Iterable[str]) -> str:
    """A few of what pods say: any of them may be as long as an object may be."""
    found = sorted(texts)
    more = f" and {len(found) - _NAMED} others" if len(found) > _NAMED else ""
    return ", ".join(map(shown, found[:_NAMED])) + more


def _wrong_mode(ref: GroupRef, pods: Iterable[Pod]) -> str | None:
    """Why the pods of a group do not say how it may be evicted; None if they do, or say nothing about it."""
    if ref.source == IN_TREE:
        return None
    modes = sorted({mode for pod in pods if (mode := mode_of(pod)) is not None})
    if len(modes) > 1:
        return f"annotation {DISRUPTION_MODE} of group {ref.name} is not the same for all pods: {_some(modes)}"
    if modes and modes[0] not in (SINGLE, WHOLE):
        return f"annotation {DISRUPTION_MODE} of group {ref.name} is {shown(modes[0])}; write '{SINGLE}' or '{WHOLE}'"
    return None


def ref_of(group: PodGroup) -> GroupRef:
    """What the pods of a group object call it, by its own API version.

    Items of a list may lack that: only in-tree groups have a scheduling policy, and they cannot do without.
    """
    api, has_policy = group.api_version.split("/")[0], group.spec.scheduling_policy is not None
    source = IN_TREE if api == IN_TREE or (not api and has_policy) else PLUGINS
    return GroupRef(group.metadata.namespace, group.metadata.name, source)


def _plugins(group: PodGroup) -> GroupSpec:
    timeout = group.spec.schedule_timeout_seconds
    minimum = _bounded(group.spec.min_member or 1)
    return GroupSpec(minimum, min(LONGEST_S, float(timeout)) if timeout and timeout > 0 else TIMEOUT_S)


def is_whole(group: PodGroup) -> bool:
    """Whether the group is to be evicted as a whole or not at all (``disruptionMode``)."""
    mode = group.spec.disruption_mode
    # 1.36 has a word there, later versions an object with one key.
    return mode == "PodGroup" or (isinstance(mode, dict) and "single" not in mode)


def _in_tree(group: PodGroup) -> GroupSpec | str:
    spec, name = group.spec, group.metadata.name
    if spec.resource_claims:
        return f'spec.resourceClaims of PodGroup "{name}" is not supported by flowsched'
    constraints = spec.scheduling_constraints or {}
    topology = constraints.get("topology") or []
    if constraints.keys() - {"topology"} or len(topology) > 1:
        return f'spec.schedulingConstraints of PodGroup "{name}" has more than one topology: not supported by flowsched'
    policy = spec.scheduling_policy
    minimum = _bounded(policy.gang.min_count) if policy is not None and policy.gang is not None else 1
    return GroupSpec(minimum, topology=tuple(str(t.get("key", "")) for t in topology), priority=spec.priority)


def _with_topology(ref: GroupRef, spec: GroupSpec, pods: Iterable[Pod]) -> GroupSpec | str:
    """The same with what its pods say in the annotation :data:`GROUP_TOPOLOGY`."""
    texts = {text for pod in pods if (text := _said(pod, GROUP_TOPOLOGY)) is not None}
    if not texts:
        return spec
    if len(texts) > 1:
        return f"annotation {GROUP_TOPOLOGY} of group {ref.name} is not the same for all pods: {_some(texts)}"
    keys = tuple(key.strip() for key in texts.pop().split(","))
    if not all(keys) or len(keys) > MOST_KEYS:
        return f"annotation {GROUP_TOPOLOGY} of group {ref.name} is not a list of 1 to {MOST_KEYS} node labels"
    return replace(spec, topology=keys)


def _from_labels(ref: GroupRef, pods: Iterable[Pod]) -> GroupSpec | str:
    """The largest minimum that its pods name, so that it does not depend on which of them came first."""
    texts = {text for pod in pods if (text := (pod.metadata.labels or {}).get(MINIMUM_LABEL)) is not None}
    minimums = [count for text in texts if (count := _count(text)) is not None]
    if minimums:
        return GroupSpec(_bounded(max(minimums)))
    if texts:
        return f"label {MINIMUM_LABEL} of group {ref.name} is {shown(min(texts))}, which is not a number of pods"
    return f"no pod of group {ref.name} has the label {MINIMUM_LABEL}"


def _ended_s(pod: SucceededPod) -> float:
    """When a pod ended, as its kubelet says; minus infinity if it does not."""
    ends = [seconds(c.last_transition_time) for c in pod.status.conditions or () if c.type == "Ready"]
    return max(ends, default=float("-inf"))


def _belongs_to(ended: SucceededPod, pods: Collection[Pod]) -> bool:
    """Whether a pod that succeeded is of the same run of a group as the pods that are there.

    A CronJob's runs have a group of one name, and their pods are kept for days. What the same object made is one run, and
    so is what ran beside a pod that is there. A pod that no object made counts if flowsched has placed it, hence with its
    whole group: one that was put on its node by hand may have run before there was a group.
    """
    owner = controller_of(ended)
    return (
        (owner is None and PLACEMENT in (ended.metadata.annotations or {}))
        or (owner is not None and any(controller_of(pod) == owner for pod in pods))
        or any(seconds(pod.metadata.creation_timestamp) < _ended_s(ended) for pod in pods)
    )


def _beside(spec: GroupSpec, pods: Collection[Pod], succeeded: Collection[SucceededPod]) -> GroupSpec:
    """A group of which some pods have succeeded.

    How many pods it has in all is not known: those that are there may be enough by themselves.
    """
    if len(pods) >= spec.minimum:
        return spec
    done = min(spec.minimum - 1, sum(_belongs_to(ended, pods) for ended in succeeded))
    return replace(spec, minimum=spec.minimum - done, succeeded=done)


def _from_kueue(ref: GroupRef, pods: Iterable[Pod], succeeded: int) -> GroupSpec | str:
    """As Kueue reads it: counts that differ are refused, failed pods have to be replaced, those that succeeded do not.

    Where Kueue does not wait for all pods before it admits the first (StatefulSets, which make one after the other), or
    they are replaced one by one (services), each is placed by itself.
    """
    notes = [pod.metadata.annotations or {} for pod in pods]
    if any(KUEUE_FAST in note or note.get(KUEUE_SERVING) == "true" for note in notes):
        return GroupSpec(1)
    texts = sorted({text for note in notes if (text := note.get(KUEUE_TOTAL)) is not None})
    if not texts:
        return f"no pod of group {ref.name} has the annotation {KUEUE_TOTAL}"
    if len(texts) > 1:
        return f"annotation {KUEUE_TOTAL} of group {ref.name} is not the same for all pods: {_some(texts)}"
    total = _count(texts[0])
    if total is None:
        return f"annotation {KUEUE_TOTAL} of group {ref.name} is {shown(texts[0])}, which is not a number of pods"
    return GroupSpec(_bounded(total - succeeded), succeeded=succeeded)


def _count(text: str) -> int | None:
    """A number of pods as a label or an annotation has it; None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 6 and int(text) > 0 else None


def _bounded(minimum: int) -> int:
    return max(1, min(MOST_MEMBERS, minimum))
