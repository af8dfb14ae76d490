"""The default scheduler of Kubernetes, as far as it is about CPU and memory."""

from __future__ import annotations

from collections.abc import Sequence

from flowsched.cluster.snapshot import Machine, Task
from flowsched_simulator.baselines.baseline import Baseline
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.room import NO_CPU_MILLI, Room

MAX_NODE_SCORE = 100
UNREQUESTED_MILLI = 100
UNREQUESTED_MIB = 200
"""What a pod counts for in NodeResourcesFit that requests no CPU, or no memory."""
FIT = "NodeResourcesFit"
BALANCED = "NodeResourcesBalancedAllocation"


class KubeDefault(Baseline):
    """kube-scheduler with its default scoring, which spreads.

    The rule: https://kubernetes.io/docs/concepts/scheduling-eviction/kube-scheduler/ (filter, then score) and
    https://kubernetes.io/docs/reference/scheduling/config/ (default plugins), as kubernetes/kubernetes v1.36
    implements it in pkg/scheduler/framework/plugins:

    - ``queuesort/priority_sort.go``: by priority, then by the time of queueing. A pod that fits nowhere steps
      aside.
    - ``noderesources/fit.go``: the request must fit in what is allocatable and not requested, CPU and memory.
    - ``noderesources/least_allocated.go``, the default strategy of NodeResourcesFit: the mean over CPU and
      memory, weight 1 each, of the unrequested share, in whole points 0 to 100. A pod that requests no CPU or
      no memory counts as one of 100m or 200Mi here (``util/pod_resources.go``), and as nothing elsewhere.
    - ``noderesources/balanced_allocation.go``: by how much the pod brings the requested shares of CPU and memory
      closer together or apart, 50 to 100 points; nothing for a pod that requests neither.

    Both scores have weight 1. The other default plugins say nothing where there are no taints, preferred
    affinities, soft topology constraints or images to tell machines apart. kube-scheduler draws lots among equal
    scores; here the first by name wins, so that runs can be repeated. Own cores are what the kubelet's static
    CPU manager policy gives, which the real scheduler does not know of and this one does. How often the real
    one agrees: ``python -m benchmarks.kube_default_agreement``.
    """

    name = "kube-default"
    description = "kube-scheduler's default: NodeResourcesFit with LeastAllocated, and BalancedAllocation"
    reads_progress = False

    @staticmethod
    def points(requested: int, allocatable: int) -> int:
        """Points of one resource in NodeResourcesFit, of what is requested with the task placed: more for more left."""
        if allocatable <= 0 or requested > allocatable:
            return 0
        return (allocatable - requested) * MAX_NODE_SCORE // allocatable

    def choose(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:  # noqa: ARG002
        """The highest sum of scores."""
        return min(rooms, key=lambda r: (-self.score(task, width_milli, r), r.name))

    def score(self, task: Task, width_milli: int, room: Room) -> int:
        """Sum of the scores of both plugins for the task on this machine."""
        return sum(self.plugin_scores(task, width_milli, room).values())

    def plugin_scores(self, task: Task, width_milli: int, room: Room) -> dict[str, int]:
        """The score of each plugin, by its name, for the task on this machine."""
        return {
            FIT: self._allocation_score(task, width_milli, room),
            BALANCED: balanced_score(task, width_milli, room),
        }

    def _allocation_score(self, task: Task, width_milli: int, room: Room) -> int:
        """Score of NodeResourcesFit; CPU and memory have the same weight."""
        cpu, memory = requested(room)
        asked = UNREQUESTED_MILLI if width_milli <= NO_CPU_MILLI else width_milli
        cpu += room.without_cpu * UNREQUESTED_MILLI + asked
        memory += room.without_memory * UNREQUESTED_MIB + (task.memory_mib or UNREQUESTED_MIB)
        return (self.points(cpu, room.machine.cpu_milli) + self.points(memory, room.machine.memory_mib)) // 2


def balanced_score(task: Task, width_milli: int, room: Room) -> int:
    """Score of NodeResourcesBalancedAllocation: what the task changes of :func:`balance`, brought to 50 to 100."""
    cpu = 0 if width_milli <= NO_CPU_MILLI else width_milli
    if not cpu and not task.memory_mib:
        return 0
    before_cpu, before_memory = requested(room)
    before = balance(before_cpu, before_memory, room.machine)
    after = balance(before_cpu + cpu, before_memory + task.memory_mib, room.machine)
    half = MAX_NODE_SCORE // 2
    return half + (half + after - before) // 2


def balance(cpu_milli: int, memory_mib: int, machine: Machine) -> int:
    """100 times one minus the standard deviation of both requested shares; of two it is half their difference."""
    if machine.cpu_milli <= 0 or machine.memory_mib <= 0:
        return MAX_NODE_SCORE
    shares = min(1.0, cpu_milli / machine.cpu_milli), min(1.0, memory_mib / machine.memory_mib)
    return int((1.0 - abs((shares[0] - shares[1]) / 2.0)) * MAX_NODE_SCORE)


def requested(room: Room) -> tuple[int, int]:
    """CPU (milli) and memory (MiB) that the tasks on a machine request, services included."""
    return room.machine.cpu_milli - room.free_milli, room.machine.memory_mib - room.free_memory_mib
