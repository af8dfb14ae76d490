"""Topology-aware placement of GPUs as M. Amaral's thesis publishes it: TOPO-AWARE and TOPO-AWARE-P."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flowsched.cluster.knowledge import Knowledge
from flowsched.cluster.snapshot import Snapshot, Task
from flowsched.gpu.devices import GpuJob, MachineGpus, TaskGpus
from flowsched.gpu.topology_cost import TopologyCost
from flowsched_models.catalogue import Catalogue
from flowsched_simulator.baselines.baseline import Baseline
from flowsched_simulator.baselines.granting import Granting
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.recursive_bipartition import MappedJob, RecursiveBipartition
from flowsched_simulator.baselines.room import Room
from flowsched_simulator.baselines.waiting import keeps_queue

_MOST_KNOWN = 200_000
"""Solutions that are kept; with more, all are forgotten."""

_Asked = tuple[str, TaskGpus]
_State = tuple[MachineGpus | None, tuple[int, ...], tuple[GpuJob, ...]]


class _BestPlace(NamedTuple):
    room: Room
    mapped: MappedJob


class TopoBipartition(Baseline):
    """TOPO-AWARE: M. Amaral et al., "Topology-Aware GPU Scheduling for Learning Workloads in Cloud Environments", SC'17;
    M. Amaral's thesis (UPC, 2019), algorithms 1 to 3.

    In order of arrival each job is mapped to GPUs by recursive bipartition, and placed at once. One that does not fit waits
    for the next round, and those behind it have their turn (section 4.2).

    A task runs on one machine, which is the single-node constraint of the thesis: a part of the physical graph is then
    worth to a job what the best of its machines is, and the job goes to that part as a whole. Cutting machines, which are
    all equally far apart, in two again and again ends at the machine with the highest utility, of equal ones at the first,
    however they are cut. So machines are compared directly, and those in the same state are mapped to once.

    Tasks without GPUs take the first machine where they fit.
    """

    name = "topo-bipartition"
    description = "TOPO-AWARE: GPUs by recursive bipartition of the machine's links; close, undisturbed, few left over"
    told = (Knowledge.INTERFERENCE,)

    def __init__(self, granting: Granting, seed: int = 0) -> None:
        """``seed`` changes nothing."""
        super().__init__(granting, seed)
        self._catalogue: Catalogue | None = None
        self._kinds: dict[MachineGpus, RecursiveBipartition] = {}
        self._known: dict[_Asked, dict[_State, MappedJob | None]] = {}
        self._best: dict[tuple[object, ...], _BestPlace | None] = {}
        """By what tasks ask for, until something is placed."""
        self._version = -1
        """Of the round, when ``_best`` was worked out."""

    def round_of(self, snapshot: Snapshot) -> Round:
        """A round in which tasks get the devices that they are mapped to."""
        if snapshot.catalogue is not self._catalogue:
            self._catalogue = snapshot.catalogue
            self._kinds.clear()
            self._known.clear()
        self._best.clear()
        this = super().round_of(snapshot)
        this.pick_devices = self._devices
        return this

    @keeps_queue
    def rooms_for(self, task: Task, width_milli: int, this: Round) -> Sequence[Room]:
        """The best machine, if there is one."""
        if task.gpus is None:
            return super().rooms_for(task, width_milli, this)
        best = self.best_place(task, width_milli, this)
        return [] if best is None else [best.room]

    def choose(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:  # noqa: ARG002
        """The machine with the highest utility; of equal ones the first."""
        return rooms[0] if task.gpus is None else self._best_of(rooms, (task.profile, task.gpus)).room

    def best_place(self, task: Task, width_milli: int, this: Round) -> _BestPlace | None:
        """The best place of a task with GPUs; None for others, and where it does not fit."""
        if task.gpus is None:
            return None
        if self._version != this.version:
            self._version = this.version
            self._best.clear()
        # What relations allow depends on the task itself.
        asked = task.profile, task.gpus, width_milli, task.memory_mib, task.resources, task.machines
        key = (*asked, task.name if this.domain_counts.concerns(task) else None)
        if key not in self._best:
            rooms = super().rooms_for(task, width_milli, this)
            self._best[key] = self._best_of(rooms, (task.profile, task.gpus)) if rooms else None
        return self._best[key]

    def _best_of(self, rooms: Sequence[Room], asked: _Asked) -> _BestPlace:
        if sum(map(len, self._known.values())) > _MOST_KNOWN:
            self._known.clear()
        known = self._known.setdefault(asked, {})
        best: _BestPlace | None = None
        for room in rooms:
            state = room.machine.gpus, room.devices, room.gpu_jobs
            if state not in known:
                known[state] = self._mapped(asked, room)
            mapped = known[state]
            if mapped is not None and (best is None or mapped.utility > best.mapped.utility):
                best = _BestPlace(room, mapped)
        assert best is not None  # a task fits on each of the rooms
        return best

    def _mapped(self, asked: _Asked, room: Room) -> MappedJob | None:
        gpus, catalogue = room.machine.gpus, self._catalogue
        if gpus is None or catalogue is None:
            return None
        if gpus not in self._kinds:
            self._kinds[gpus] = RecursiveBipartition(TopologyCost(catalogue, gpus))
        return self._kinds[gpus].mapped(*asked, room.gpu_jobs, room.devices)

    def _devices(self, room: Room, task: Task) -> tuple[int, ...]:
        if task.gpus is None:
            return ()
        return self._best_of([room], (task.profile, task.gpus)).mapped.devices


class TopoBipartitionInOrder(TopoBipartition):
    """TOPO-AWARE of the same, read strictly: a job that fits nowhere holds up all behind it.

    The thesis has two readings of TOPO-AWARE. By section 4.2 the placement of a job that does not fit is postponed, and
    those behind it have their turn (:class:`TopoBipartition`). Sections 4.1.4 and 4.4.2 name execution out of order as
    what TOPO-AWARE-P has and TOPO-AWARE lacks; that is this one.
    """

    name = "topo-bipartition-fifo"
    description = "TOPO-AWARE in strict order: as topo-bipartition; a job that fits nowhere holds up those behind it"
    head_blocks = True


class TopoBipartitionPostponing(TopoBipartition):
    """TOPO-AWARE-P of the same: a job whose utility would be below its own ``min_utility`` waits for the next round.

    Jobs behind it have their turn, so that they may overtake it (algorithm 1). However long it waits, it is not placed
    below its minimum. Members of a task group are placed with their group as soon as that fits.
    """

    name = "topo-bipartition-p"
    description = "TOPO-AWARE-P: as topo-bipartition; a job waits while its utility would be below its min_utility"

    @keeps_queue
    def rooms_for(self, task: Task, width_milli: int, this: Round) -> Sequence[Room]:
        """The best machine, unless even that is not good enough."""
        rooms = super().rooms_for(task, width_milli, this)
        return [] if rooms and self._missed(task, width_milli, this) else rooms

    def why_waits(self, task: Task, width_milli: int, this: Round) -> str:
        """What it has to miss at its best place."""
        best = self._missed(task, width_milli, this)
        if best is None:
            return super().why_waits(task, width_milli, this)
        devices = best.mapped.devices
        which = f"GPU{'s' * (len(devices) > 1)} {' and '.join(map(str, devices))} of {best.room.name}"
        return (
            f"would miss min_utility {task.min_utility:g}: utility {best.mapped.utility:.4g} at its best place, {which}"
        )

    def _missed(self, task: Task, width_milli: int, this: Round) -> _BestPlace | None:
        """The best place of a task for which that is not good enough."""
        best = None if task.min_utility is None else self.best_place(task, width_milli, this)
        return best if best and task.min_utility is not None and best.mapped.utility < task.min_utility else None
