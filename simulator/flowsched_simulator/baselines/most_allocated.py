"""The bin-packing configuration of Kubernetes' scheduler."""

from __future__ import annotations

from flowsched_simulator.baselines.kube_default import MAX_NODE_SCORE, KubeDefault


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
    reads_progress = False

    @staticmethod
    def points(requested: int, allocatable: int) -> int:
        """Points of one resource in NodeResourcesFit, of what is requested with the task placed: more for less left."""
        return 0 if allocatable <= 0 else min(requested, allocatable) * MAX_NODE_SCORE // allocatable
