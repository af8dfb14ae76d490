"""Groups of pods that are bound all or none, however they are declared."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from flowsched_k8s.objects import Pod, PodGroup

IN_TREE = "scheduling.k8s.io"
PLUGINS = "scheduling.x-k8s.io"
LABELS = "labels"
SOURCES = (PLUGINS, LABELS, IN_TREE)
"""Ways to declare a group, as the configuration names them. Where a pod uses several, the in-tree one wins."""
PLUGINS_LABEL = f"{PLUGINS}/pod-group"
NAME_LABEL = "pod-group.scheduling.sigs.k8s.io/name"
MINIMUM_LABEL = "pod-group.scheduling.sigs.k8s.io/min-available"
TIMEOUT_S = 300.0
"""How long a group may wait for its members where it does not say so itself."""
LONGEST_S = 86_400.0
MOST_MEMBERS = 100_000


@dataclass(frozen=True, order=True)
class GroupRef:
    """Which group a pod says it belongs to."""

    namespace: str
    name: str
    source: str
    """One of :data:`SOURCES`."""

    def __str__(self) -> str:
        """Different for different groups."""
        named = f"{self.namespace}/{self.name}"
        return named if self.source == PLUGINS else f"{named} ({self.source})"


@dataclass(frozen=True)
class GroupSpec:
    """What a group demands."""

    minimum: int
    timeout_s: float = TIMEOUT_S
    """Seconds after which it gives up for now."""


def group_ref(pod: Pod, sources: Collection[str]) -> GroupRef | None:
    """The group that a pod belongs to, by the sources that are switched on."""
    namespace, labels, group = pod.metadata.namespace, pod.metadata.labels or {}, pod.spec.scheduling_group
    named = (
        (IN_TREE, group.pod_group_name if group is not None else ""),
        (PLUGINS, labels.get(PLUGINS_LABEL, "")),
        (LABELS, labels.get(NAME_LABEL, "")),
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
    """Pod group objects of both APIs. A store without I/O: watch events go in."""

    def __init__(self) -> None:
        """No groups yet."""
        self._groups: dict[GroupRef, PodGroup] = {}

    def put(self, group: PodGroup, source: str | None = None) -> GroupRef:
        """A group is there or changed; returns what its pods call it. For ``source`` see :func:`ref_of`."""
        ref = ref_of(group, source)
        self._groups[ref] = group
        return ref

    def remove(self, group: PodGroup, source: str | None = None) -> GroupRef:
        """A group is gone."""
        ref = ref_of(group, source)
        self._groups.pop(ref, None)
        return ref

    def get(self, ref: GroupRef) -> PodGroup | None:
        """The object of a group, for its status; groups by labels have none."""
        return self._groups.get(ref)

    def resolve(self, ref: GroupRef, pods: Iterable[Pod]) -> GroupSpec | str:
        """What a group demands, or why nobody can know yet. ``pods``: those of its pods that are known."""
        if ref.source == LABELS:
            return _from_labels(ref, pods)
        group = self._groups.get(ref)
        if group is None:
            return f'PodGroup "{ref.name}" not found in namespace {ref.namespace}'
        return _in_tree(group) if ref.source == IN_TREE else _plugins(group)


def ref_of(group: PodGroup, source: str | None = None) -> GroupRef:
    """What the pods of a group object call it.

    ``source`` is where it was read; without it the object's own API version decides. Items of a list may lack that: only
    in-tree groups have a scheduling policy, and they cannot do without.
    """
    if source is None:
        api, has_policy = group.api_version.split("/")[0], group.spec.scheduling_policy is not None
        source = IN_TREE if api == IN_TREE or (not api and has_policy) else PLUGINS
    return GroupRef(group.metadata.namespace, group.metadata.name, source)


def _plugins(group: PodGroup) -> GroupSpec:
    timeout = group.spec.schedule_timeout_seconds
    minimum = _bounded(group.spec.min_member or 1)
    return GroupSpec(minimum, min(LONGEST_S, float(timeout)) if timeout and timeout > 0 else TIMEOUT_S)


def _in_tree(group: PodGroup) -> GroupSpec | str:
    if group.spec.scheduling_constraints:
        return f'spec.schedulingConstraints of PodGroup "{group.metadata.name}" is not supported by flowsched'
    policy = group.spec.scheduling_policy
    return GroupSpec(_bounded(policy.gang.min_count) if policy is not None and policy.gang is not None else 1)


def _from_labels(ref: GroupRef, pods: Iterable[Pod]) -> GroupSpec | str:
    """The largest minimum that its pods name, so that it does not depend on which of them came first."""
    texts = {text for pod in pods if (text := (pod.metadata.labels or {}).get(MINIMUM_LABEL)) is not None}
    minimums = [int(t) for t in texts if t.isascii() and t.isdigit() and len(t) <= 6 and int(t) > 0]
    if minimums:
        return GroupSpec(_bounded(max(minimums)))
    if texts:
        return f"label {MINIMUM_LABEL} of group {ref.name} is '{min(texts)}', which is not a number of pods"
    return f"no pod of group {ref.name} has the label {MINIMUM_LABEL}"


def _bounded(minimum: int) -> int:
    return max(1, min(MOST_MEMBERS, minimum))
