"""The default scheduler of Kubernetes, as far as it is about CPU and memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flowsched.cluster.snapshot import Task
from flowsched_simulator.baselines.baseline import Baseline, Room, Round

MAX_NODE_SCORE = 100
Score = Callable[[int, int], int]
"""Points of one resource: from what would be requested with the task placed, and what is allocatable."""


class KubeDefault(Baseline):
    """kube-scheduler with its default scoring, which spreads.

    The rule: https://kubernetes.io/docs/concepts/scheduling-eviction/kube-scheduler/ (filter, then score) and
    https://kubernetes.io/docs/reference/scheduling/config/ (default plugins), implemented in
    kubernetes/kubernetes, pkg/scheduler/framework/plugins:

    - ``queuesort/priority_sort.go``: by priority, then by the time of queueing. A pod that fits nowhere steps
      aside.
    - ``noderesources/fit.go``: the request must fit in what is allocatable and not requested, CPU and memory.
    - ``noderesources/least_allocated.go``, the default strategy of NodeResourcesFit: the mean over CPU and
      memory, weight 1 each, of the unrequested share, in whole points 0 to 100.
    - ``noderesources/balanced_allocation.go``: 100 times one minus the standard deviation of both requested
      shares.

    Both scores have weight 1. The other default plugins say nothing where there are no taints, affinities,
    topology constraints, volumes or images to tell machines apart. kube-scheduler draws lots among equal
    scores; here the first by name wins, so that runs can be repeated. Own cores are what the kubelet's static
    CPU manager policy gives, which the real scheduler does not know of and this one does.
    """

    name = "kube-default"
    description = "kube-scheduler's default: NodeResourcesFit with LeastAllocated, and BalancedAllocation"

    def choose(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:  # noqa: ARG002
        """The highest sum of scores."""
        return min(rooms, key=lambda r: (-self.score(task, width_milli, r), r.name))

    def score(self, task: Task, width_milli: int, room: Room) -> int:
        """Sum of the scores of both plugins for the task on this machine."""
        return allocation_score(least_requested, task, width_milli, room) + balanced_score(task, width_milli, room)


def allocation_score(points: Score, task: Task, width_milli: int, room: Room) -> int:
    """Score of NodeResourcesFit with one of its strategies; CPU and memory have the same weight."""
    cpu, memory = requested(task, width_milli, room)
    return (points(cpu, room.machine.cpu_milli) + points(memory, room.machine.memory_mib)) // 2


def balanced_score(task: Task, width_milli: int, room: Room) -> int:
    """Score of NodeResourcesBalancedAllocation; of two shares the deviation is half their difference."""
    cpu, memory = requested(task, width_milli, room)
    shares = min(1.0, cpu / room.machine.cpu_milli), min(1.0, memory / max(1, room.machine.memory_mib))
    return int((1.0 - abs(shares[0] - shares[1]) / 2.0) * MAX_NODE_SCORE)


def least_requested(requested: int, allocatable: int) -> int:
    """More points for more left."""
    if allocatable <= 0 or requested > allocatable:
        return 0
    return (allocatable - requested) * MAX_NODE_SCORE // allocatable


def most_requested(requested: int, allocatable: int) -> int:
    """More points for less left."""
    if allocatable <= 0:
        return 0
    return min(requested, allocatable) * MAX_NODE_SCORE // allocatable


def requested(task: Task, width_milli: int, room: Room) -> tuple[int, int]:
    """CPU and memory that would be requested of the machine with the task on it, services included."""
    cpu = room.machine.cpu_milli - room.free_milli + width_milli
    memory = room.machine.memory_mib - room.free_memory_mib + task.memory_mib
    return cpu, memory
