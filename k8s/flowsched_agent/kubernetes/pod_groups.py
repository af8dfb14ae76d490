"""Where a kubelet puts the cgroup of a pod, for both of its drivers and all versions of cgroups."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flowsched_agent.controls.container import ContainerControl, control_at
from flowsched_agent.controls.hierarchies import Hierarchies, groups_of_container
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.controls.scheduling import OneWay
from flowsched_agent.kubernetes.pods import PodWorkload
from flowsched_agent.system import System


def pod_paths(uid: str, qos: str) -> tuple[str, ...]:
    """Paths below the root of a tree: of the driver ``systemd``, then of ``cgroupfs``.

    Guaranteed pods are beside the groups of the other classes. systemd has dashes for levels, so those of the uid become
    underscores (Kubernetes, pkg/kubelet/cm/cgroup_manager_linux.go and pod_container_manager_linux.go).
    """
    unit = uid.replace("-", "_")
    if qos == "Guaranteed":
        return (f"/kubepods.slice/kubepods-pod{unit}.slice", f"/kubepods/pod{uid}")
    kind = qos.lower()
    return (
        f"/kubepods.slice/kubepods-{kind}.slice/kubepods-{kind}-pod{unit}.slice",
        f"/kubepods/{kind}/pod{uid}",
    )


def groups_of_pod(system: System, hierarchies: Hierarchies, pod: PodWorkload) -> Mapping[str, str]:
    """The group of a pod by tree. A kubelet below another root is found by way of a container. Raises ``ControlError``."""
    found = {}
    for tree, root in hierarchies.trees().items():
        for path in pod_paths(pod.uid, pod.qos):
            if system.exists(Path(f"{root}{path}")):
                found[tree] = path
                break
    if found:
        return found
    for container in pod.containers:
        groups = groups_of_container(system, hierarchies, container)
        above = {tree: path.rpartition("/")[0] for tree, path in groups.items()}
        uids = (pod.uid, pod.uid.replace("-", "_"))
        found = {
            tree: path for tree, path in above.items() if any(f"pod{uid}" in path.rpartition("/")[2] for uid in uids)
        }
        if found:
            return found
    raise ControlError(
        f"the group of pod {pod.namespace}/{pod.pod} was asked for",
        f"no group has its uid {pod.uid}; the host's cgroup tree must be mounted where the agent looks",
        gone=True,
    )


def control_of_pod(
    system: System, hierarchies: Hierarchies, pod: PodWorkload, one_way: OneWay | None = None
) -> ContainerControl:
    """Steers all containers of a pod at once: the weight of one container counts only within its pod.

    Raises ``ControlError``.
    """
    paths = groups_of_pod(system, hierarchies, pod)
    return control_at(system, hierarchies, f"{pod.namespace}/{pod.pod}", paths, one_way)
