"""The bin-packing configuration of Kubernetes' scheduler."""

from __future__ import annotations

from flowsched.cluster.snapshot import Task
from flowsched_simulator.baselines.kube_default import (
    BALANCED,
    FIT,
    KubeDefault,
    allocation_score,
    balanced_score,
    most_requested,
)
from flowsched_simulator.baselines.room import Room


class MostAllocated(KubeDefault):
    """kube-scheduler with the MostAllocated strategy of NodeResourcesFit, which packs.

    The rule: https://kubernetes.io/docs/concepts/scheduling-eviction/resource-bin-packing/ ("Enabling bin
    packing using MostAllocated strategy"), implemented in kubernetes/kubernetes,
    pkg/scheduler/framework/plugins/noderesources/most_allocated.go: the mean over CPU and memory, weight 1
    each, of the requested share, in whole points 0 to 100. That configuration replaces only the strategy of
    NodeResourcesFit: NodeResourcesBalancedAllocation stays on with weight 1, and so it does here.
    """

    name = "most-allocated"
    description = "kube-scheduler set to bin packing: NodeResourcesFit with MostAllocated, and BalancedAllocation"

    def plugin_scores(self, task: Task, width_milli: int, room: Room) -> dict[str, int]:
        """The score of each plugin, by its name, for the task on this machine."""
        return {
            FIT: allocation_score(most_requested, task, width_milli, room),
            BALANCED: balanced_score(task, width_milli, room),
        }
