"""CPU bandwidth of critical tasks as a capacity of the node: which of them get ``SCHED_DEADLINE``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flowsched.node.node import NodeTask
from flowsched_models.isolation.admission import Bandwidth, Room, fits, objection, total_cpus, words


@dataclass(frozen=True)
class DeadlineAdmission:
    """Tasks that get the bandwidth that they ask for. The others fall back to their weight.

    An admitted task must be free to run on all cores: the kernel refuses a deadline to a task that is bound to fewer, and
    refuses to bind one that has a deadline.
    """

    admitted: tuple[str, ...]
    """Names, in the order in which they were taken: highest priority first."""
    refused: Mapping[str, str]
    """The reason of each that asks and is not admitted, in one sentence."""


def admit_deadlines(tasks: Sequence[NodeTask], room: Room) -> DeadlineAdmission:
    """The tasks with a deadline that get it.

    The set is the best in the lexicographic order of (priority, place in ``tasks``): no task is refused for the sake of one
    that comes after it, and one that does not fit does not keep out a smaller one behind it.
    """
    asking = [task for task in tasks if task.deadline is not None]
    admitted: list[str] = []
    refused: dict[str, str] = {}
    taken: list[Bandwidth] = []
    for task in sorted(asking, key=lambda t: -t.priority):  # stable: the order of submission within a priority
        assert task.deadline is not None
        wanted = Bandwidth(task.deadline.runtime_us, task.deadline.period_us)
        if reason := objection(wanted):
            refused[task.name] = reason
            continue
        before = total_cpus(taken)
        if fits(total_cpus([*taken, wanted]), room):
            admitted.append(task.name)
            taken.append(wanted)
            continue
        others = f"{before:.3f} of them are taken by {', '.join(admitted)}" if admitted else "none of them is taken"
        refused[task.name] = f"it asks for {wanted.cpus:.3f} CPUs; {words(room)}, and {others}"
    return DeadlineAdmission(tuple(admitted), refused)
