"""Best-fit bin packing of GPUs, down to the sockets."""

from __future__ import annotations

from collections.abc import Sequence

from flowsched.cluster.snapshot import Snapshot, Task
from flowsched_models.catalogue import Catalogue
from flowsched_simulator.baselines.baseline import Baseline
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.room import Room


class TopoBestFit(Baseline):
    """Each task onto the machine with the least left of its GPUs, and there onto the GPUs of the most used sockets.

    BF of section 4.3.2 of M. Amaral's thesis (UPC, 2019), "performing bin packing (i.e., allocating first the GPUs from
    highly used domains)". In order of arrival; what does not fit is skipped, as in :mod:`best_fit`.
    """

    name = "topo-best-fit"
    description = "Best-fit bin packing of GPUs: the machine with the least left, and its most used sockets first"

    def round_of(self, snapshot: Snapshot) -> Round:
        """A round in which tasks get GPUs of the most used sockets."""
        this = super().round_of(snapshot)
        this.pick_devices = lambda room, task: devices_by_use(room, task, snapshot.catalogue)
        return this

    def choose(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:  # noqa: ARG002
        """The machine with the least left of its GPUs; of equals the one with the least CPU, then the first by name."""
        return min(rooms, key=lambda r: (sum(r.devices), this.available_milli(r, task), r.name))


def devices_by_use(room: Room, task: Task, catalogue: Catalogue) -> tuple[int, ...]:
    """The devices that a task takes: those of the most used socket first, of equals the fullest, then the first."""
    gpus, left = room.machine.gpus, room.devices
    if task.gpus is None or gpus is None:
        return ()
    topology = catalogue.gpu_topologies.get(gpus.topology)
    sockets = ((*range(gpus.count),),) if topology is None else topology.sockets
    free = {device: sum(left[d] for d in socket) / len(socket) for socket in sockets for device in socket}
    able = [device for device, milli in enumerate(left) if milli >= task.gpus.share_milli]
    return tuple(sorted(able, key=lambda device: (free[device], left[device], device))[: task.gpus.count])
